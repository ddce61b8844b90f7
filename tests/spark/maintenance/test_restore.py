"""RESTORE as a statement and from Python: what comes back, what is told, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.statements.maintain import parse_restore
from tests.support.catalog_tables import own_database
from tests.support.refusals import condition
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import set_properties

RESULT = [
    "table_size_after_restore",
    "num_of_files_after_restore",
    "num_removed_files",
    "num_restored_files",
    "removed_files_size",
    "restored_files_size",
]


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    """A table of two rows, which records its changes."""
    made = SparkTable(enable(spark), table_path)
    made.write(made.data("id BIGINT", (1,), (2,)), **{"delta.enableChangeDataFeed": "true"})
    return made


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    with own_database(enable(spark)) as name:
        yield name


@pytest.mark.parametrize(
    ("sql", "as_of"),
    [
        ("restore table a.`b c` to version as of 3", AsOf(version=3)),
        ("RESTORE a.`b c` FOR SYSTEM_VERSION AS OF '12';", AsOf(version=12)),
        ("RESTORE a.`b c` TO TIMESTAMP AS OF '2024-01-01'", AsOf(timestamp="2024-01-01")),
        ('RESTORE a.`b c` TO FOR SYSTEM_TIME AS OF "x" -- y', AsOf(timestamp="x")),
    ],
)
def test_a_version_or_a_time_can_be_said_in_many_ways(sql: str, as_of: AsOf) -> None:
    assert parse_restore(sql) == (("a", "b c"), as_of)


@pytest.mark.parametrize(
    ("sql", "at", "found"),
    [
        ("RESTORE", 7, None),
        ("RESTORE t", 9, None),
        ("RESTORE t TO VERSION 1", 13, "VERSION"),
        ("RESTORE t TO VERSION AS OF -1", 27, "-"),
        ("RESTORE t TO VERSION AS OF 'x'", 27, "'x'"),
        ("RESTORE t FOR t", 14, "t"),
        ("RESTORE t TO TIMESTAMP AS OF 3", 29, "3"),
        ("RESTORE t TO VERSION AS OF 1 2", 29, "2"),
    ],
)
def test_what_cannot_be_read_is_a_place(sql: str, at: int, found: str | None) -> None:
    with pytest.raises(StatementSyntaxError) as error:
        parse_restore(sql)
    assert (error.value.start, error.value.found) == (at, found)


def test_a_table_becomes_what_it_was(spark: SparkSession, table: SparkTable) -> None:
    table.write(table.data("id BIGINT, v INT", (3, 1)), mergeSchema="true")
    table.write(table.data("id BIGINT", (9,)), "overwrite")
    name = f"delta.`{table.path}`"
    told = spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 0")
    assert told.columns == RESULT
    assert {kind for _, kind in told.dtypes} == {"bigint"}
    (row,) = told.collect()
    assert (row.num_of_files_after_restore, row.num_removed_files, row.num_restored_files) == (
        1,
        1,
        1,
    )
    assert row.table_size_after_restore == row.restored_files_size == table.files[0].size
    assert table.rows == [(1,), (2,)]
    assert table.parameters == {"version": 0, "timestamp": None}
    assert table.info.operation == "RESTORE"
    # The change feed sees the rows that came and went.
    changes = DeltaTable.forPath(spark, str(table.path)).changes(3)
    assert sorted((r.id, r._change_type) for r in changes.collect()) == [
        (1, "insert"),
        (2, "insert"),
        (9, "delete"),
    ]
    # The newest version is not restored again.
    again = spark.sql(f"RESTORE {name} TO VERSION AS OF 3")
    assert (len(again.columns), again.count()) == (6, 0)
    assert table.log.update().version == 3
    (row,) = DeltaTable.forPath(spark, str(table.path)).restoreToVersion(1).collect()
    assert (row.num_of_files_after_restore, row.num_restored_files) == (2, 1)
    assert table.rows == [(1, None), (2, None), (3, 1)]


def test_a_time_means_the_version_that_was_newest(spark: SparkSession, table: SparkTable) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    table.write(table.data("id BIGINT", (3,)))
    oldest = handle.history().where("version = 0").selectExpr("string(timestamp) AS at").collect()
    told = handle.restoreToTimestamp(oldest[0].at)
    assert told.columns == RESULT
    assert table.rows == [(1,), (2,)]
    assert table.parameters["version"] is None
    assert table.parameters["timestamp"].partition(" ")[0].count("-") == 2
    with table.refused("DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER") as refused:
        handle.restoreToTimestamp("2099-01-01")
    assert refused.value.parameters["requestedTimestamp"].startswith("2099-01-01")
    with table.refused("DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER"):
        spark.sql(f"RESTORE delta.`{table.path}` TO TIMESTAMP AS OF '1999-01-01'")
    with table.refused("DELTA_TIMESTAMP_INVALID"):
        handle.restoreToTimestamp("yesterday")


def test_versions_and_files_that_are_gone_are_missed(
    spark: SparkSession, table: SparkTable
) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    for version in (7, -1):
        with table.refused("DELTA_CANNOT_RESTORE_TABLE_VERSION") as refused:
            handle.restoreToVersion(version)
        assert refused.value.parameters == {
            "version": str(version),
            "startVersion": "0",
            "endVersion": "0",
        }
    (old,) = table.files
    table.write(table.data("id BIGINT", (3,)), "overwrite")
    (table.path / old.path).unlink()
    with table.refused("DELTA_CANNOT_RESTORE_MISSING_FILES"):
        handle.restoreToVersion(0)
    with conf(spark, spark__sql__files__ignoreMissingFiles="true"):
        handle.restoreToVersion(0)
        assert table.rows == []
    for wrong in ("1", True, None):
        with pytest.raises(TypeError):
            handle.restoreToVersion(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        handle.restoreToTimestamp(1)  # type: ignore[arg-type]


def test_vectors_and_the_protocol_come_back(spark: SparkSession, table: SparkTable) -> None:
    name = f"delta.`{table.path}`"
    set_properties(table.log, {"delta.enableDeletionVectors": "true"})
    handle = DeltaTable.forPath(spark, str(table.path))
    handle.delete("id = 1")
    handle.delete("id = 2")
    assert table.rows == []
    spark.sql(f"RESTORE {name} TO VERSION AS OF 2")
    assert table.rows == [(2,)]
    assert table.files[0].deletion_vector is not None
    spark.sql(f"RESTORE {name} TO VERSION AS OF 0")
    assert table.rows == [(1,), (2,)]
    assert "deletionVectors" in (table.log.update().protocol.reader_features or ())
    with conf(spark, spark__databricks__delta__restore__protocolDowngradeAllowed="true"):
        handle.restoreToVersion(0)  # the newest is another version
    assert table.log.update().protocol == table.log.snapshot_at(0).protocol


def test_the_catalog_shows_the_columns_that_came_back(spark: SparkSession, database: str) -> None:
    spark.sql("CREATE TABLE t (id BIGINT) USING delta")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql("SELECT 2L AS id, 'x' AS v").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).saveAsTable("t")
    assert spark.table("t").columns == ["id", "v"]
    spark.sql("RESTORE t TO VERSION AS OF 1")
    assert spark.table("t").columns == ["id"]
    assert [row.id for row in spark.table("t").collect()] == [1]
    DeltaTable.forName(spark, "t").restoreToVersion(2)
    assert spark.table("t").columns == ["id", "v"]


def test_what_is_no_delta_table_is_not_restored(spark: SparkSession, database: str) -> None:
    spark.sql("CREATE TABLE p (id INT) USING parquet")
    spark.sql("CREATE VIEW v AS SELECT 1 AS id")
    for name, wanted in (
        ("p", "TABLE_OR_VIEW_NOT_FOUND"),
        ("nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("v", "DELTA_ONLY_OPERATION"),
        ("delta.`/no/where`", "DELTA_TABLE_NOT_FOUND"),
    ):
        assert condition(spark, f"RESTORE {name} TO VERSION AS OF 1") == wanted
    with pytest.raises(ParseException) as syntax:
        spark.sql("RESTORE TABLE p\n TO VERSION 1")
    assert "line 2" in str(syntax.value)
