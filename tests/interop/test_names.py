"""Tables in a catalog: made by one engine, found by the other at its place or under its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.engines import Engine, Pair, table
from tests.support.peer import Peer

pytestmark = pytest.mark.slow
COLUMNS = "id BIGINT, p STRING COMMENT 'ü'"


@pytest.fixture
def name(pair: Pair) -> Iterator[str]:
    """A name in both catalogs; the table goes, its files stay where they are."""
    name = f"t_{uuid4().hex[:12]}"
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"DROP TABLE IF EXISTS {name}")


def other(pair: Pair, engine: Engine) -> Engine:
    return pair.theirs if engine is pair.ours else pair.ours


def columns(engine: Engine, name: str) -> list[dict[str, Any]]:
    """The columns that DESCRIBE tells; what it says of partitions comes behind them."""
    told = engine.sql(f"DESCRIBE {name}")
    ends = [number for number, row in enumerate(told) if row["col_name"].startswith("#")]
    return told[: ends[0]] if ends else told


def test_a_table_is_known_to_two_catalogs(
    pair: Pair, writer: Engine, name: str, table_path: Path
) -> None:
    reader = other(pair, writer)
    writer.sql(
        f"CREATE TABLE {name} ({COLUMNS}) USING delta PARTITIONED BY (p) LOCATION '{table_path}' "
        "COMMENT 'said ü' TBLPROPERTIES ('delta.appendOnly' = 'true', 'own' = '1')"
    )
    reader.sql(f"CREATE TABLE {name} USING delta LOCATION '{table_path}'")
    asked = f"SELECT id, p FROM {name} ORDER BY id"
    for number, engine in enumerate((writer, reader, writer, reader)):
        engine.sql(f"INSERT INTO {name} VALUES ({number}, 'a {number}')")
        assert [row["id"] for row in pair.ours.sql(asked)] == list(range(number + 1))
        assert pair.ours.sql(asked) == pair.theirs.sql(asked)
    for engine in (reader, writer):
        engine.python(
            "spark.sql(\"SELECT 9L AS id, 'z' AS p\").write.format('delta').mode('append')"
            ".saveAsTable(name)\n"
            "spark.sql(\"SELECT 10L AS id, 'z' AS p\").write.insertInto(name)\n"
            "spark.sql(\"SELECT 11L AS id, 'z' AS p\").writeTo(name).append()",
            name=name,
        )
    assert len(pair.agree(table_path).rows) == 10
    assert columns(pair.ours, name) == columns(pair.theirs, name)
    (detail,) = pair.theirs.sql(f"DESCRIBE DETAIL {table(table_path)}")
    assert detail["description"] == "said ü"
    assert detail["properties"] == {"delta.appendOnly": "true", "own": "1"}


def test_columns_that_one_adds_are_seen_by_name(pair: Pair, name: str, table_path: Path) -> None:
    pair.ours.python(
        "frame = spark.sql(\"SELECT 1L AS id, 'a' AS p\")\n"
        "frame.write.format('delta').option('path', path).partitionBy('p').saveAsTable(name)",
        name=name,
        path=table_path,
    )
    pair.theirs.sql(f"CREATE TABLE {name} USING delta LOCATION '{table_path}'")
    pair.theirs.sql(f"ALTER TABLE {name} ADD COLUMN more STRUCT<x: INT> COMMENT 'n'")
    pair.theirs.sql(f"INSERT INTO {name} VALUES (2, 'b', named_struct('x', 1))")
    assert pair.ours.sql(f"SELECT id FROM {name} WHERE more.x = 1") == [{"id": 2}]
    pair.ours.python(
        "frame = spark.sql(\"SELECT 3L AS id, 'c' AS p, true AS last\")\n"
        "writer = frame.write.format('delta').mode('append').option('mergeSchema', True)\n"
        "writer.saveAsTable(name)",
        name=name,
    )
    asked = f"SELECT * FROM {name} ORDER BY id"
    assert pair.ours.sql(asked) == pair.theirs.sql(asked)
    assert columns(pair.ours, name) == columns(pair.theirs, name)


def test_a_replaced_table_is_the_new_one_to_both(pair: Pair, name: str, table_path: Path) -> None:
    place = f"USING delta LOCATION '{table_path}'"
    pair.ours.sql(f"CREATE TABLE {name} {place} AS SELECT 1 AS a")
    pair.theirs.sql(f"CREATE TABLE {name} {place}")
    pair.theirs.sql(
        f"CREATE OR REPLACE TABLE {name} {place} PARTITIONED BY (b) AS SELECT 2 AS b, 'x' AS c"
    )
    assert pair.ours.sql(f"SELECT * FROM {name}") == [{"b": 2, "c": "x"}]
    pair.ours.sql(f"CREATE OR REPLACE TABLE {name} {place} AS SELECT 'y' AS d")
    assert pair.theirs.sql(f"SELECT * FROM {name}") == [{"d": "y"}]
    assert len(pair.agree(table_path, versionAsOf=1).rows) == 1
    pair.ours.sql(f"DROP TABLE {name}")
    assert pair.theirs.sql(f"SELECT * FROM {name}") == [{"d": "y"}]


METASTORE = "jdbc:derby:;databaseName={home}/metastore;create=true"


def hive(home: Path) -> Mapping[str, str]:
    """Settings for a session whose catalog is Hive's, in files that one process has at a time."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "ware house 100%"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": METASTORE.format(home=home),
        "spark.driver.extraJavaOptions": (
            f"-Dderby.system.home={home} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),
    }


SELECT = "SELECT * FROM {} ORDER BY 1"


@pytest.mark.usefixtures("peer")
def test_a_metastore_is_shared(tmp_path: Path) -> None:
    """Managed and external tables of one engine in a Hive metastore are the other's by name."""
    conf = hive(tmp_path)
    outside = tmp_path / "out side 5%"
    expected: dict[str, list[dict[str, Any]]]
    with Peer.start(conf, engine="pyspark_delta") as ours:
        ours.sql(f"CREATE TABLE made ({COLUMNS}) USING delta PARTITIONED BY (p)")
        ours.sql("INSERT INTO made VALUES (1, 'a'), (2, 'b')")
        ours.sql(f"CREATE TABLE outside USING delta LOCATION '{outside}' AS SELECT 1 AS x")
        ours.python("spark.range(2).write.format('delta').saveAsTable('saved')")
        ours.sql("CREATE VIEW seen AS SELECT p FROM made WHERE id > 1")
    with Peer.start(conf) as theirs:
        assert theirs.sql(SELECT.format("made")) == [{"id": 1, "p": "a"}, {"id": 2, "p": "b"}]
        assert theirs.sql(SELECT.format("seen")) == [{"p": "b"}]
        theirs.sql("INSERT INTO made VALUES (3, 'c')")
        theirs.sql("INSERT INTO outside VALUES (2)")
        theirs.python(
            "frame = spark.sql('SELECT 7L AS id, true AS more')\n"
            "frame.write.format('delta').mode('append').option('mergeSchema', True)"
            ".saveAsTable('saved')"
        )
        theirs.sql("CREATE TABLE back USING delta PARTITIONED BY (p) AS SELECT 1 AS id, 'é/ü' AS p")
        theirs.sql("CREATE VIEW back_seen AS SELECT id FROM back WHERE p LIKE 'é%'")
        names = ("made", "outside", "saved", "seen", "back", "back_seen")
        expected = {name: theirs.sql(SELECT.format(name)) for name in names}
        assert [row["id"] for row in expected["saved"]] == [0, 1, 7]
    with Peer.start(conf, engine="pyspark_delta") as ours:
        for name, rows in expected.items():
            assert ours.sql(SELECT.format(name)) == rows
        ours.sql("INSERT INTO back VALUES (2, 'b')")
        assert len(ours.sql(SELECT.format("back"))) == 2
        ours.sql("DROP TABLE back")
        ours.sql("DROP TABLE outside")
        assert not (tmp_path / "ware house 100%" / "back").exists()
        assert (outside / "_delta_log").is_dir()
