"""SHALLOW CLONE: a table of its own on another one's files, which it never touches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.sql.grammar import Piece, StatementSyntaxError
from pyspark_delta.spark.sql.statements.clone import CloneStatement, parse_clone
from pyspark_delta.spark.tables.names import look_up
from tests.support.catalog_tables import own_database, rows
from tests.support.refusals import condition as refused
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import set_properties

VECTORS = {"delta.enableDeletionVectors": "true"}
RESULT = [
    "source_table_size",
    "source_num_of_files",
    "num_removed_files",
    "num_copied_files",
    "removed_files_size",
    "copied_files_size",
]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield enable(spark)
    spark.conf.unset(ALLOWED_LOCATIONS.key)


@pytest.fixture
def source(session: SparkSession, tmp_path: Path) -> SparkTable:
    """Rows 1 to 4 of two partitions at version 0, and a vector for 1 at version 1."""
    made = SparkTable(session, tmp_path / "söurce 1%")
    data = made.data("id BIGINT, p STRING", (1, "a b%"), (2, "a b%"), (3, "ü"), (4, "ü"))
    made.write(data, "append", "p", **VECTORS)
    DeltaTable.forPath(session, str(made.path)).delete("id = 1")
    return made


@pytest.fixture
def database(session: SparkSession) -> Iterator[str]:
    with own_database(session) as name:
        yield name


def files_below(path: Path) -> dict[str, tuple[int, int]]:
    """Everything in a directory, and when it was last touched."""
    return {
        str(file.relative_to(path)): (file.stat().st_size, file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file() and "_delta_log" not in file.parts
    }


def test_a_statement_says_what_where_and_when() -> None:
    assert parse_clone(
        "create or replace table a.b shallow clone delta.`/x y` FOR VERSION AS OF 3 "
        "TBLPROPERTIES ('a' = 'b)', c.d 1) LOCATION '/l';"
    ) == CloneStatement(
        target=("a", "b"),
        source=("delta", "/x y"),
        as_of=AsOf(version=3),
        property_list=Piece(text="'a' = 'b)', c.d 1", start=90),
        location="/l",
        replaces=True,
    )
    found = parse_clone("REPLACE TABLE t SHALLOW CLONE s TIMESTAMP AS OF 'x'")
    assert found is not None
    assert (found.creates, found.replaces, found.as_of) == (False, True, AsOf(timestamp="x"))
    assert parse_clone("CREATE TABLE t DEEP CLONE s") is None
    assert parse_clone("CREATE TABLE t (clone INT)") is None
    assert parse_clone("CREATE VIEW clone AS SELECT 1") is None
    for sql in ("CREATE TABLE t SHALLOW CLONE", "CREATE TABLE t SHALLOW CLONE s LOCATION l"):
        with pytest.raises(StatementSyntaxError):
            parse_clone(sql)


def test_a_clone_is_a_table_of_its_own(
    session: SparkSession, source: SparkTable, tmp_path: Path
) -> None:
    clone = SparkTable(session, tmp_path / "clöne 2%")
    told = session.sql(
        f"CREATE TABLE delta.`{clone.path}` SHALLOW CLONE delta.`{source.path}` "
        "TBLPROPERTIES ('own' = 'x', delta.logRetentionDuration = 'interval 90 days')"
    )
    assert told.columns == RESULT
    (row,) = told.collect()
    assert tuple(row) == (sum(f.size for f in source.files), 2, 0, 0, 0, 0)
    before = files_below(source.path)
    assert clone.rows == source.rows == [(2, "a b%"), (3, "ü"), (4, "ü")]
    metadata, original = clone.log.update().metadata, source.log.update().metadata
    assert metadata.id != original.id
    assert metadata.configuration == {
        **VECTORS,
        "own": "x",
        "delta.logRetentionDuration": "interval 90 days",
    }
    assert (clone.info.operation, clone.parameters["sourceVersion"]) == ("CLONE", 1)
    assert clone.parameters["source"] == f"delta.`file:{source.path}`"
    # Pruning and skipping know where they are.
    assert clone.read().where("p = 'ü'").count() == 2
    assert clone.read().where("id = 2").count() == 1
    # Whatever is done to the clone, the source's files stay.
    handle = DeltaTable.forPath(session, str(clone.path))
    handle.delete("id = 2")
    handle.update("id = 3", {"p": "'new'"})
    data = session.sql("SELECT 4L AS id, 'x' AS p UNION ALL SELECT 5L, 'y'").alias("s")
    merge = handle.alias("t").merge(data, "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert clone.rows == [(3, "new"), (4, "x"), (5, "y")]
    handle.restoreToVersion(0)
    assert clone.rows == source.rows
    clone.write(clone.data("id BIGINT, p STRING", (7, "z")), "overwrite")
    assert (clone.rows, source.rows) == ([(7, "z")], [(2, "a b%"), (3, "ü"), (4, "ü")])
    assert files_below(source.path) == before


def test_without_vectors_rows_of_the_source_are_written_anew(
    session: SparkSession, source: SparkTable, tmp_path: Path
) -> None:
    plain = SparkTable(session, tmp_path / "pläin")
    plain.write(plain.data("id BIGINT", (1,), (2,), (3,)))
    clone = DeltaTable.forPath(session, str(plain.path)).clone(str(tmp_path / "c"), True)
    clone.update("id = 1", {"id": "id + 10"})
    clone.delete("id = 2")
    assert rows(clone.toDF()) == [(11,), (3,)]
    assert plain.rows == [(1,), (2,), (3,)]


def test_an_older_version_can_be_cloned_and_clones_as_well(
    session: SparkSession, source: SparkTable, tmp_path: Path
) -> None:
    handle = DeltaTable.forPath(session, str(source.path))
    first = handle.cloneAtVersion(0, str(tmp_path / "first"), True, properties={"own": "1"})
    assert first.toDF().count() == 4
    assert repr(first) == f"DeltaTable({str(tmp_path / 'first')!r})"
    oldest = handle.history().where("version = 0").selectExpr("string(timestamp) AS at").collect()
    time = oldest[0].at
    at_time = handle.cloneAtTimestamp(time, str(tmp_path / "at time"), True)
    assert at_time.toDF().count() == 4
    again = first.clone(str(tmp_path / "again"), isShallow=True)
    assert rows(again.toDF()) == rows(first.toDF())
    first.delete("id = 4")
    third = first.clone(str(tmp_path / "third"), isShallow=True)
    assert sorted(row.id for row in third.toDF().collect()) == [1, 2, 3]
    assert again.toDF().count() == 4
    (detail,) = again.detail().collect()
    assert detail.properties["own"] == "1"


def test_files_outside_need_the_word_of_the_session(
    session: SparkSession, source: SparkTable, tmp_path: Path
) -> None:
    clone = DeltaTable.forPath(session, str(source.path)).clone(str(tmp_path / "c"), True)
    assert clone.toDF().count() == 3
    session.conf.unset(ALLOWED_LOCATIONS.key)
    with pytest.raises(PySparkException, match="DELTA_UNSAFE_PATH"):
        clone.toDF().count()
    session.conf.set(ALLOWED_LOCATIONS.key, str(source.path))
    assert clone.toDF().count() == 3


def test_the_catalog_knows_clones_and_where_their_files_are(
    session: SparkSession, source: SparkTable, database: str, tmp_path: Path
) -> None:
    name = f"delta.`{source.path}`"
    session.sql(f"CREATE TABLE managed SHALLOW CLONE {name}")
    session.sql(f"CREATE TABLE IF NOT EXISTS placed SHALLOW CLONE managed LOCATION '{tmp_path}/l'")
    found = look_up(session, "placed")
    assert found is not None
    assert found.entry is not None
    assert not found.entry.is_managed
    assert set(found.entry.outside) == {f"file:{source.path}", _location(session, "managed")}
    session.conf.unset(ALLOWED_LOCATIONS.key)  # as in a session that starts later
    assert session.table("managed").count() == session.table("placed").count() == 3
    session.sql("DELETE FROM managed WHERE id = 3")
    assert session.table("managed").count() == 2
    assert session.table("placed").count() == 3
    (commit,) = DeltaTable.forName(session, "placed").history().collect()
    assert commit.operationParameters["source"] == f"spark_catalog.{database}.managed"
    # There is one already.
    told = session.sql(f"CREATE TABLE IF NOT EXISTS placed SHALLOW CLONE {name}")
    assert (told.columns, told.count()) == (RESULT, 0)
    for sql, condition in (
        (f"CREATE TABLE placed SHALLOW CLONE {name}", "DELTA_TABLE_ALREADY_EXISTS"),
        (f"REPLACE TABLE none SHALLOW CLONE {name}", "DELTA_CANNOT_REPLACE_MISSING_TABLE"),
        (f"REPLACE TABLE placed SHALLOW CLONE {name}", "DELTA_UNSUPPORTED_NON_EMPTY_CLONE"),
    ):
        assert refused(session, sql) == condition
    session.sql("CREATE TABLE empty (x INT) USING delta COMMENT 'mine'")
    session.sql(f"CREATE OR REPLACE TABLE empty SHALLOW CLONE {name} VERSION AS OF 0")
    assert session.table("empty").count() == 4
    assert session.table("empty").columns == ["id", "p"]
    session.sql("DROP TABLE managed")
    assert len(source.rows) == 3
    assert DeltaTable.forName(session, "empty").clone("third", True).toDF().count() == 4


def _location(session: SparkSession, name: str) -> str:
    found = look_up(session, name)
    assert found is not None
    assert found.location is not None
    return found.location


def test_a_parquet_table_can_be_cloned(
    session: SparkSession, database: str, tmp_path: Path
) -> None:
    session.sql("CREATE TABLE q (id INT, p STRING) USING parquet PARTITIONED BY (p)")
    session.sql("INSERT INTO q VALUES (1, 'a b'), (2, NULL)")
    (row,) = session.sql("CREATE TABLE c SHALLOW CLONE q").collect()
    assert row.source_num_of_files == 2
    assert rows(session.table("c")) == [(1, "a b"), (2, None)]
    (commit,) = DeltaTable.forName(session, "c").history().collect()
    assert (commit.operation, commit.operationParameters["sourceVersion"]) == ("CLONE", "-1")
    session.sql("INSERT INTO c VALUES (3, 'x')")
    session.sql("DELETE FROM c WHERE id = 1")
    assert session.table("c").count() == 2
    assert session.table("q").count() == 2
    session.range(3).coalesce(1).write.parquet(str(tmp_path / "fïles"))
    session.sql(f"CREATE TABLE d SHALLOW CLONE parquet.`{tmp_path / 'fïles'}`")
    assert session.table("d").where("id > 0").count() == 2
    clone = SparkTable(session, Path(_location(session, "d").removeprefix("file:")))
    assert clone.files[0].num_records == 3
    assert refused(session, "CREATE TABLE e SHALLOW CLONE q VERSION AS OF 1") == (
        "DELTA_CLONE_UNSUPPORTED_SOURCE"
    )


def test_what_cannot_be_cloned_leaves_nothing_behind(
    session: SparkSession, source: SparkTable, database: str, tmp_path: Path
) -> None:
    name = f"delta.`{source.path}`"
    session.sql("CREATE VIEW v AS SELECT 1 AS a")
    session.range(1).createOrReplaceTempView("tv")
    session.sql("CREATE TABLE csv (a INT) USING csv")
    target = tmp_path / "täarget"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    for sql, condition in (
        ("nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("delta.`/no/where`", "DELTA_TABLE_NOT_FOUND"),
        ("v", "DELTA_CLONE_UNSUPPORTED_SOURCE"),
        ("tv", "DELTA_CLONE_UNSUPPORTED_SOURCE"),
        ("csv", "DELTA_CLONE_UNSUPPORTED_SOURCE"),
        ("iceberg.`/x`", "DELTA_MISSING_ICEBERG_CLASS"),
        (f"{name} VERSION AS OF 9", "DELTA_VERSION_NOT_FOUND"),
        (f"{name} TIMESTAMP AS OF '2099-01-01'", "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        (
            f"{name} TBLPROPERTIES (delta.columnMapping.mode = 'name')",
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        ),
        (f"{name} TBLPROPERTIES (delta.nonsense = '1')", "DELTA_UNKNOWN_CONFIGURATION"),
        (f"{name} LOCATION '{tmp_path}/other'", "DELTA_CLONE_AMBIGUOUS_TARGET"),
    ):
        assert refused(session, f"CREATE TABLE delta.`{target}` SHALLOW CLONE {sql}") == condition
        assert not target.exists(), sql
    for sql, condition in (
        (f"CREATE TABLE n SHALLOW CLONE {name} LOCATION 'relative'", "DELTA_INVALID_CLONE_PATH"),
        (
            f"CREATE TABLE delta.`{tmp_path}/full` SHALLOW CLONE {name}",
            "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
        ),
        (f"CREATE TABLE {name} SHALLOW CLONE {name}", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"),
    ):
        assert refused(session, sql) == condition
    handle = DeltaTable.forPath(session, str(source.path))
    with pytest.raises(DeltaError) as deep:
        handle.clone(str(target))
    assert deep.value.condition == "DELTA_UNSUPPORTED_DEEP_CLONE"
    with pytest.raises(ParseException) as syntax:
        session.sql(f"CREATE TABLE delta.`{target}` DEEP CLONE {name}")
    assert "'DEEP'" in str(syntax.value)
    with pytest.raises(ParseException):
        session.sql(f"CREATE TABLE x SHALLOW CLONE {name} TBLPROPERTIES ('a' = = 'c')")
    wrong: list[tuple[Any, ...]] = [(1, True), ("/x", 1), ("/x", True, 1), ("/x", True, True, [])]
    for arguments in wrong:
        with pytest.raises(TypeError):
            handle.clone(*arguments)
    assert not target.exists()


def test_rows_of_a_clone_are_tracked_anew(session: SparkSession, tmp_path: Path) -> None:
    table = SparkTable(session, tmp_path / "träcked")
    table.write(
        table.data("id BIGINT", (1,), (2,)), **{"delta.enableRowTracking": "true", **VECTORS}
    )
    handle = DeltaTable.forPath(session, str(table.path))
    handle.update("id = 1", {"id": "11"})
    clone = handle.clone(str(tmp_path / "c"), True)
    found = clone.toDF().select("id", "_metadata.row_id").collect()
    assert sorted(row.id for row in found) == [2, 11]
    assert len({row.row_id for row in found}) == 2
    set_properties(table.log, {"delta.enableRowTracking": "false"})
    with conf(session, spark__databricks__delta__restore__protocolDowngradeAllowed="true"):
        assert handle.clone(str(tmp_path / "d"), True).toDF().count() == 2
