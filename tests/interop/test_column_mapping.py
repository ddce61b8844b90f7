"""Tables whose columns are called otherwise in their files: mapped, renamed, dropped, nested."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_delta.errors import DeltaError
from tests.interop.engines import Engine, Pair, table
from tests.support.peer import PeerError

ROW = (
    "SELECT {0}L AS id, 'v{0}' AS `a b,;{{}}()=`, "
    "named_struct('x', {0}, 'in ner', array({0})) AS s, "
    "map('k', named_struct('y', {0})) AS m, 'p{0}' AS part"
)
MODES = ("name", "id")


def row(number: int) -> str:
    return ROW.format(number)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partition_by", [(), ("part",)])
def test_mapped_columns_survive_renames_and_drops_by_the_peer(
    pair: Pair, writer: Engine, table_path: Path, mode: str, partition_by: tuple[str, ...]
) -> None:
    writer.write(
        row(1),
        table_path,
        partition_by=partition_by,
        delta_columnMapping_mode=mode,
    )
    for engine in (pair.ours, pair.theirs):
        engine.write(row(2), table_path)
    assert len(pair.agree(table_path).rows) == 3
    name = table(table_path)
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN `a b,;{{}}()=` TO `new ü`")
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN s.`in ner` TO y")
    pair.theirs.sql(f"ALTER TABLE {name} DROP COLUMN s.x")
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN part TO `pärt`")
    renamed = (
        "SELECT 3L AS id, 'w' AS `new ü`, named_struct('y', array(9)) AS s, "
        "map('z', named_struct('y', 9)) AS m, 'q' AS `pärt`"
    )
    for engine in (pair.ours, pair.theirs):
        engine.write(renamed, table_path)
    found = pair.agree(table_path)
    assert len(found.rows) == 5
    assert [value["new ü"] for value in found.values] == ["v1", "v2", "v2", "w", "w"]
    pair.agree_on(table_path, ["`new ü` = 'v1'", "`pärt` = 'p2'", "s.y[0] = 9", "id > 1"])
    assert pair.agree(table_path, versionAsOf=0).values[0]["a b,;{}()="] == "v1"


@pytest.mark.slow
def test_a_dropped_column_whose_name_comes_back_is_another(pair: Pair, table_path: Path) -> None:
    pair.ours.write("SELECT 1 AS a, 2 AS b", table_path, delta_columnMapping_mode="name")
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} DROP COLUMN b")
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} ADD COLUMN b STRING")
    pair.ours.write("SELECT 3 AS a, 'x' AS b", table_path)
    assert [value["b"] for value in pair.agree(table_path).values] == [None, "x"]
    pair.agree_on(table_path, ["b IS NULL", "b = 'x'"])


@pytest.mark.slow
def test_a_table_of_ours_is_mapped_later_by_the_peer(pair: Pair, table_path: Path) -> None:
    pair.ours.write("SELECT 1 AS a, 2 AS b, 'p' AS p", table_path, partition_by=["p"])
    name = table(table_path)
    pair.theirs.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN b TO c")
    pair.theirs.sql(f"ALTER TABLE {name} RENAME COLUMN a TO b")
    for engine in (pair.ours, pair.theirs):
        engine.write("SELECT 3 AS b, 4 AS c, 'q' AS p", table_path)
    assert [(v["b"], v["c"]) for v in pair.agree(table_path).values] == [(1, 2), (3, 4), (3, 4)]


@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.slow)])
def test_columns_that_we_add_are_mapped_for_the_peer(
    pair: Pair, writer: Engine, table_path: Path, mode: str
) -> None:
    writer.write("SELECT 1 AS a", table_path, delta_columnMapping_mode=mode)
    pair.ours.write(
        "SELECT 2 AS a, named_struct('x', array(named_struct('y z', 1))) AS `s %`",
        table_path,
        mergeSchema="true",
    )
    pair.theirs.write("SELECT 3 AS a, 'new' AS b", table_path, mergeSchema="true")
    pair.ours.write("SELECT 4 AS a, 'newer' AS b", table_path)
    assert [value["b"] for value in pair.agree(table_path).values] == [None, None, "new", "newer"]
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} RENAME COLUMN b TO c")
    pair.agree(table_path)


@pytest.mark.slow
def test_names_with_dots_and_quotes_are_names(pair: Pair, writer: Engine, table_path: Path) -> None:
    names = ("a.b", "`c`", "D", "é\"'", "x=1/y", "%41")
    columns = ", ".join(
        f"{number} AS `{name.replace('`', '``')}`" for number, name in enumerate(names)
    )
    writer.write(f"SELECT {columns}", table_path, delta_columnMapping_mode="name")
    for engine in (pair.ours, pair.theirs):
        engine.write(f"SELECT {columns}", table_path)
    found = pair.agree(table_path)
    assert found.values == [dict(zip(names, range(len(names)), strict=True))] * 3
    pair.agree_on(table_path, ["`a.b` = 0", "```c``` = 2", "d = 2", "`%41` = 5"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_first_write_with_a_change_feed_maps_columns_only_without_rows(
    pair: Pair, tmp_path: Path, mode: str
) -> None:
    both = {"delta_enableChangeDataFeed": "true", "delta_columnMapping_mode": mode}
    more = {"delta_enableDeletionVectors": "true", "delta_enableRowTracking": "true"}
    engines: dict[str, Engine] = {"öurs 1%": pair.ours, "theirs": pair.theirs}
    for name, engine in engines.items():
        for options in (both, both | more):
            path = tmp_path / f"{name} {len(options)}"
            with pytest.raises(
                (DeltaError, PeerError), match="DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION"
            ):
                engine.write(row(1), path, **options)
            engine.write(f"{row(1)} WHERE false", path, **options)
            engine.write(row(1), path)
            assert len(pair.agree(path).rows) == 1
