"""Overwrites of some rows: replaceWhere, dynamic partitions, replaceOn and replaceUsing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, RemoveFile
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.write.request import WriteRequest
from tests.support.agreement import deltalake_rows
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import append, create_table, delete_positions

SCHEMA = "id long, p string, v string"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


@pytest.fixture
def partitioned(table: SparkTable) -> SparkTable:
    rows = [(1, "a", "x"), (2, "a", "y"), (3, "b", "x"), (4, None, "x"), (5, "c/é %", "z")]
    table.write(table.data(SCHEMA, *rows), "append", "p")
    return table


def test_a_write_that_changes_nothing_commits_nothing(partitioned: SparkTable) -> None:
    nothing = partitioned.data(SCHEMA)
    never = {"replaceWhere": "p = 'a' AND p = 'b'"}
    assert partitioned.write(nothing, "overwrite", **never) is None
    assert partitioned.write(nothing) is None
    assert len(partitioned.rows) == 5


def test_a_condition_on_partitions_removes_whole_files_and_runs_no_scan(
    partitioned: SparkTable,
) -> None:
    new = partitioned.data(SCHEMA, (9, "a", "n"))
    partitioned.write(new, "overwrite", replaceWhere="p = 'a'")
    assert partitioned.rows == [
        (3, "b", "x"),
        (4, None, "x"),
        (5, "c/é %", "z"),
        (9, "a", "n"),
    ]
    assert partitioned.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "predicate": "p = 'a'",
    }
    assert partitioned.metrics == {
        "numFiles": 1,
        "numOutputRows": 1,
        "numRemovedFiles": 1,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 2,
        "numCopiedRows": 0,
    }
    assert partitioned.info.is_blind_append is False
    assert partitioned.rows == sorted(
        (tuple(row.values()) for row in deltalake_rows(partitioned.path)), key=repr
    )


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("p IS NULL", [1, 2, 3, 5]),
        ("p IN ('a', 'b') AND p <> 'b'", [3, 4, 5]),
        ("upper(p) = 'B'", [1, 2, 4, 5]),
        ("P LIKE '%é%' OR p <=> NULL", [1, 2, 3]),
        ("id % 2 = 0", [1, 3, 5]),
        ("v = 'x' AND p = 'a'", [2, 3, 4, 5]),
        ("nullif(p, 'a') <> 'b'", [1, 2, 3, 4]),
        ("true", []),
    ],
)
def test_rows_for_which_the_condition_is_not_true_stay(
    partitioned: SparkTable, condition: str, left: list[int]
) -> None:
    nothing = partitioned.data(SCHEMA)
    partitioned.write(nothing, "overwrite", replaceWhere=condition)
    assert sorted(row[0] for row in partitioned.rows) == left
    assert partitioned.metrics["numDeletedRows"] == 5 - len(left)


def test_only_files_with_such_rows_are_written_anew(table: SparkTable) -> None:
    table.write(table.spark.range(0, 30, 1, 3).selectExpr("id", "id % 3 AS k"))
    new = table.data("id long, k long", (3, 0), (103, 0))
    table.write(new.where("id = 3"), "overwrite", replaceWhere="id < 10 AND k = 0")
    expected = [(i, i % 3) for i in range(30) if i >= 10 or i % 3 != 0 or i == 3]
    assert table.rows == sorted(expected, key=repr)
    assert table.metrics == {
        "numFiles": 2,
        "numOutputRows": 7,
        "numRemovedFiles": 1,
        "numAddedChangeFiles": 0,
        "numDeletedRows": 4,
        "numCopiedRows": 6,
    }


def test_written_rows_must_fulfil_the_condition(partitioned: SparkTable) -> None:
    spark = partitioned.spark
    other = partitioned.data(SCHEMA, (9, "b", "n"))
    nulls = partitioned.data(SCHEMA, (9, None, "n"))
    for data in (other, nulls):
        with partitioned.refused("DELTA_REPLACE_WHERE_MISMATCH") as error:
            partitioned.write(data, "overwrite", replaceWhere="p = 'a'")
        assert error.value.parameters["replaceWhere"] == "p = 'a'"
    with pytest.raises(AnalysisException):
        partitioned.write(other, "overwrite", replaceWhere="nope = 1")
    with partitioned.refused("DELTA_UNSUPPORTED_SUBQUERY"):
        partitioned.write(other, "overwrite", replaceWhere="id IN (SELECT 1)")
    with conf(spark, spark__databricks__delta__replaceWhere__constraintCheck__enabled="false"):
        partitioned.write(other, "overwrite", replaceWhere="p = 'a'")
    assert [row[0] for row in partitioned.rows] == [3, 4, 5, 9]
    with conf(spark, spark__databricks__delta__replaceWhere__dataColumns__enabled="false"):
        with partitioned.refused("DELTA_NON_PARTITION_COLUMN_REFERENCE"):
            partitioned.write(other, "overwrite", replaceWhere="id = 9")
        with partitioned.refused("DELTA_REPLACE_WHERE_MISMATCH"):
            partitioned.write(other, "overwrite", replaceWhere="p = 'c'")
    with partitioned.refused("DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET"):
        partitioned.write(other, "overwrite", replaceWhere="id = 9", dataChange="false")
    with partitioned.refused("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        more = other.withColumn("more", F.lit(1))
        partitioned.write(more, "overwrite", replaceWhere="p = 'b'", overwriteSchema="true")


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("rand() < 2 AND id = 1", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("p = 'a' AND uuid() <> ''", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("max(id) = 5", "UNSUPPORTED_EXPR_FOR_OPERATOR"),
    ],
)
def test_a_condition_must_be_of_one_row_and_always_the_same(
    partitioned: SparkTable, where: str, condition: str
) -> None:
    with partitioned.refused(condition):
        partitioned.write(partitioned.data(SCHEMA), "overwrite", replaceWhere=where)


def test_the_table_may_be_called_by_a_name(partitioned: SparkTable) -> None:
    new = partitioned.data(SCHEMA, (9, "a", "n"))
    named = {"targetAlias": "T", "replaceWhere": "t.id <= 2 OR t.p = 'zz' OR t.id = 9"}
    partitioned.write(new, "overwrite", **named)
    assert [row[0] for row in partitioned.rows] == [3, 4, 5, 9]
    assert partitioned.parameters["predicate"] == named["replaceWhere"]
    with partitioned.refused("DELTA_REPLACE_WHERE_MISMATCH") as error:
        partitioned.write(new, "overwrite", targetAlias="t", replaceWhere="t.id = 1")
    assert "id : 9" in error.value.parameters["message"]


def test_an_append_with_a_condition_is_an_append(partitioned: SparkTable) -> None:
    new = partitioned.data(SCHEMA, (9, "b", "n"))
    partitioned.write(new, "append", replaceWhere="p = 'a'")
    assert len(partitioned.rows) == 6
    assert partitioned.parameters == {
        "mode": "Append",
        "partitionBy": "[]",
        "predicate": "p = 'a'",
    }


def test_a_condition_may_be_a_column(partitioned: SparkTable) -> None:
    new = partitioned.data(SCHEMA, (2, "b", "n"))
    request = WriteRequest(mode="overwrite", replace_where=F.col("id") < 3)
    partitioned.ask(new, request)
    assert partitioned.rows == [(2, "b", "n"), (3, "b", "x"), (4, None, "x"), (5, "c/é %", "z")]
    assert partitioned.parameters["predicate"] == "(id < CAST(3 AS BIGINT))"
    both = WriteRequest(
        mode="overwrite", replace_where=F.col("id") < 3, options={"replaceWhere": "id = 1"}
    )
    with partitioned.refused("DELTA_REPLACE_WHERE_IN_OVERWRITE"):
        partitioned.ask(new, both)


def test_deleted_rows_stay_deleted(table: SparkTable) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table.write(table.spark.range(0, 10, 1, 1).selectExpr("id", "id AS v"), **properties)
    delete_positions(table.log, lambda _: [0, 1, 2, 7])
    new = table.data("id long, v long", (50, 50))
    table.write(new, "overwrite", replaceWhere="id > 8 OR id = 2")
    assert [row[0] for row in table.rows] == [3, 4, 5, 50, 6, 8]
    assert table.metrics["numDeletedRows"] == 1
    assert table.metrics["numCopiedRows"] == 5
    vectors = [file.deletion_vector for file in table.files]
    assert [vector.cardinality for vector in vectors if vector is not None] == [5]


def test_a_change_feed_hears_of_both_sides_or_of_files_alone(table: SparkTable) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    data = table.spark.range(0, 6, 1, 1).selectExpr("id", "id % 2 AS p")
    table.write(data, "append", "p", **feed)
    table.write(table.data("id long, p long", (8, 0)), "overwrite", replaceWhere="p = 0")
    assert not [a for a in table.last_commit if isinstance(a, AddCDCFile)]
    table.write(table.data("id long, p long", (3, 1), (4, 1)), "overwrite", replaceWhere="id < 5")
    changes = [a for a in table.last_commit if isinstance(a, AddCDCFile)]
    found = []
    for change in changes:
        assert change.path.startswith("_change_data/p=1/")
        assert change.data_change is False
        read = pq.ParquetFile(table.path / decode_path(change.path)).read()
        found += [(row["id"], row["_change_type"]) for row in read.to_pylist()]
    assert sorted(found) == [(1, "delete"), (3, "delete"), (3, "insert"), (4, "insert")]
    assert table.rows == [(3, 1), (4, 1), (5, 1), (8, 0)]
    assert table.metrics["numAddedChangeFiles"] == len(changes)


# Half an hour ago is another time for each query that asks.
RECENT = "t.ts >= current_timestamp() - INTERVAL 30 MINUTES"


@pytest.mark.parametrize("kind", ["copies", "row ids", "vectors"])
@pytest.mark.parametrize(
    "asked",
    [{"replaceWhere": RECENT}, {"replaceOn": f"{RECENT} AND s.id < 0"}],
    ids=["replaceWhere", "replaceOn"],
)
def test_the_feed_tells_the_rows_that_went_also_where_time_decides(
    table: SparkTable, kind: str, asked: dict[str, str]
) -> None:
    properties = {"row ids": "delta.enableRowTracking", "vectors": "delta.enableDeletionVectors"}
    feed = {"delta.enableChangeDataFeed": "true"}
    if kind in properties:
        feed[properties[kind]] = "true"
    # Every hundredth of a second another row becomes too old.
    times = "now() - INTERVAL 30 MINUTES + (id - 1000) * INTERVAL 0.01 SECOND AS ts"
    table.write(table.spark.range(0, 7000, 1, 1).selectExpr("id", times), **feed)
    new = table.spark.sql("SELECT -1L AS id, now() + INTERVAL 1 DAY AS ts").alias("s")
    table.write(new, "overwrite", targetAlias="t", **asked)
    reader = table.spark.read.format("delta").option("readChangeFeed", "true")
    told = reader.option("startingVersion", 1).load(str(table.path)).select("_change_type", "id")
    changes = sorted(tuple(row) for row in told.collect())
    left = {row[0] for row in table.rows}
    gone = sorted({*range(7000)} - left)
    assert changes == [*(("delete", number) for number in gone), ("insert", -1)]
    assert 0 < table.metrics["numDeletedRows"] == len(gone)
    assert table.metrics["numCopiedRows"] == len(left) - 1


def test_a_condition_that_time_decides_may_name_a_column_that_the_write_adds(
    partitioned: SparkTable,
) -> None:
    new = partitioned.data(f"{SCHEMA}, more int", (2, "a", "n", 1))
    where = "(id = 2 AND more IS NULL OR more = 1) AND current_date() > '2020-01-01'"
    partitioned.write(new, "overwrite", replaceWhere=where, mergeSchema="true")
    assert partitioned.rows == [
        (1, "a", "x", None),
        (2, "a", "n", 1),
        (3, "b", "x", None),
        (4, None, "x", None),
        (5, "c/é %", "z", None),
    ]
    assert partitioned.metrics["numCopiedRows"] == 1


def test_files_are_no_less_known_where_the_log_does_not_count_their_rows(
    table: SparkTable,
) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    log = create_table(table.path, rows.schema)
    append(log, rows, with_stats=False)
    append(log, rows, with_stats=False)
    table.write(table.data("id long", (3,)), "overwrite", replaceWhere="id > 2")
    assert [row[0] for row in table.rows] == [1, 1, 2, 2, 3]
    assert table.metrics["numDeletedRows"] == 2
    assert table.metrics["numCopiedRows"] == 4


def test_a_write_that_would_lose_rows_is_refused(table: SparkTable) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    append(create_table(table.path, rows.schema), rows)
    commit = table.path / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace('\\"numRecords\\":3', '\\"numRecords\\":4'))
    with table.refused("DELTA_COMMAND_INVARIANT_VIOLATION"):
        table.write(table.data("id long"), "overwrite", replaceWhere="id = 2")


def test_dynamic_overwrites_replace_the_partitions_that_are_written(
    partitioned: SparkTable,
) -> None:
    spark = partitioned.spark
    new = partitioned.data(SCHEMA, (10, "a", "n"), (11, None, "n"), (12, "new", "n"))
    partitioned.write(new, "overwrite", partitionOverwriteMode="DYNAMIC")
    assert [row[0] for row in partitioned.rows] == [10, 11, 12, 3, 5]
    assert partitioned.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "isDynamicPartitionOverwrite": True,
    }
    assert partitioned.metrics == {"numFiles": 3, "numOutputRows": 3, "numRemovedFiles": 2}
    with conf(spark, spark__sql__sources__partitionOverwriteMode="dynamic"):
        partitioned.write(partitioned.data(SCHEMA), "overwrite")
        assert len(partitioned.rows) == 5
        one = partitioned.data(SCHEMA, (20, "a", "n"))
        partitioned.write(one, "overwrite", replaceWhere="p IN ('a', 'b')")
        assert [row[0] for row in partitioned.rows] == [11, 12, 20, 5]
        partitioned.write(one, "overwrite", partitionOverwriteMode="static")
        assert partitioned.rows == [(20, "a", "n")]
    nulls = partitioned.data(SCHEMA, (30, None, "n"), (31, "a", "n"))
    request = WriteRequest(mode="overwrite", dynamic_partitions=True)
    partitioned.ask(nulls, request)
    assert [row[0] for row in partitioned.rows] == [30, 31]
    leaving = {"partitionOverwriteMode": "dynamic", "useNullIntolerantEqualityWithDPO": "true"}
    partitioned.write(nulls, "overwrite", **leaving)
    assert [row[0] for row in partitioned.rows] == [30, 30, 31]


def test_a_dynamic_overwrite_of_a_table_without_partitions_replaces_all(table: SparkTable) -> None:
    table.write(table.spark.range(3))
    table.write(table.spark.range(7, 8), "overwrite", partitionOverwriteMode="dynamic")
    assert table.rows == [(7,)]


def test_partition_values_are_compared_as_values(table: SparkTable) -> None:
    data = table.spark.sql("SELECT 1 AS id, timestamp'2024-01-02 03:04:05.5' AS t, 1.50BD AS d")
    table.write(data, "append", "t", "d")
    again = data.withColumn("id", F.lit(2))
    with conf(table.spark, spark__sql__session__timeZone="Asia/Tokyo"):
        table.write(again, "overwrite", partitionOverwriteMode="dynamic")
    assert [row[0] for row in table.rows] == [2]


@pytest.mark.parametrize(
    "options", [{}, {"useNullIntolerantEqualityWithDPO": "true"}], ids=["", "leaves nulls"]
)
def test_an_overwrite_of_partitions_that_removes_nothing_is_no_blind_append(
    partitioned: SparkTable, options: dict[str, str]
) -> None:
    before = partitioned.rows
    new = (6, None if options else "new", "n")
    data = partitioned.data(SCHEMA, new)
    partitioned.write(data, "overwrite", partitionOverwriteMode="dynamic", **options)
    assert sorted(partitioned.rows, key=repr) == sorted([*before, new], key=repr)
    assert partitioned.info.is_blind_append is False


def test_an_overwrite_of_schema_and_partitions_replaces_all_rows(partitioned: SparkTable) -> None:
    """As in delta-spark: the new definition has no partition columns, so no row can stay."""
    both = {"overwriteSchema": "true", "partitionOverwriteMode": "dynamic"}
    data = partitioned.data(SCHEMA, (1, "a", "n")).withColumn("w", F.lit(9))
    for columns in (("p",), ("v",)):
        with partitioned.refused("DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"):
            partitioned.write(data, "overwrite", *columns, **both)
    partitioned.write(data, "overwrite", **both)
    assert partitioned.rows == [(1, "a", "n", 9)]
    assert partitioned.log.snapshot.metadata.partition_columns == ()
    assert partitioned.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "isDynamicPartitionOverwrite": True,
        "canOverwriteSchema": True,
    }


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        (
            {"replaceWhere": "p = 'a'", "partitionOverwriteMode": "dynamic"},
            "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        ),
        (
            {"replaceOn": "t.id = s.id", "replaceUsing": "id"},
            "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS",
        ),
        (
            {"replaceUsing": "id", "replaceWhere": "id = 1"},
            "DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING",
        ),
        (
            {"replaceUsing": "id", "partitionOverwriteMode": "static"},
            "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING",
        ),
        ({"replaceUsing": "id", "overwriteSchema": "true"}, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        ({"replaceUsing": "id", "dataChange": "false"}, "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS"),
        ({"useNullIntolerantEqualityWithDPO": "true"}, "DELTA_ILLEGAL_OPTION"),
        ({"replaceUsing": "id, nope"}, "UNRESOLVED_INSERT_REPLACE_USING_COLUMN"),
    ],
)
def test_options_that_clash_are_refused(
    partitioned: SparkTable, options: dict[str, str], condition: str
) -> None:
    with partitioned.refused(condition):
        partitioned.write(partitioned.data(SCHEMA, (1, "a", "n")), "overwrite", **options)
    off = "spark__databricks__delta__dynamicPartitionOverwrite__enabled"
    with (
        conf(partitioned.spark, **{off: "false"}),
        partitioned.refused("DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED"),
    ):
        partitioned.write(partitioned.data(SCHEMA), "overwrite", partitionOverwriteMode="dynamic")


def test_replace_using_replaces_rows_with_equal_columns(partitioned: SparkTable) -> None:
    new = partitioned.data(SCHEMA, (2, "q", "n"), (3, "b", "n"), (7, "a", "n"), (7, None, "n"))
    partitioned.write(new, "overwrite", replaceUsing="ID, p")
    assert partitioned.rows == [
        (1, "a", "x"),
        (2, "a", "y"),
        (2, "q", "n"),
        (3, "b", "n"),
        (4, None, "x"),
        (5, "c/é %", "z"),
        (7, "a", "n"),
        (7, None, "n"),
    ]
    assert partitioned.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "replaceUsingCols": "(ID, p)",
    }
    assert partitioned.metrics["numDeletedRows"] == 1
    # Null is equal to nothing.
    partitioned.write(partitioned.data(SCHEMA, (8, None, "n")), "overwrite", replaceUsing="p")
    assert len(partitioned.rows) == 9


def test_replace_on_joins_the_table_with_data_that_stays_the_same(partitioned: SparkTable) -> None:
    data = partitioned.data(SCHEMA, (2, "a", "n"), (100, "z", "n"))
    data = data.withColumn("v", F.expr("uuid()"))
    on = {"replaceOn": "t.id >= s.id AND t.p = s.p", "targetAlias": "t"}
    partitioned.write(data.alias("s"), "overwrite", **on)
    assert [row[0] for row in partitioned.rows] == [1, 100, 2, 3, 4, 5]
    assert partitioned.parameters == {
        "mode": "Overwrite",
        "partitionBy": "[]",
        "replaceOnCond": on["replaceOn"],
    }
    assert partitioned.metrics["numCopiedRows"] == 1
    actions = partitioned.last_commit
    assert len([a for a in actions if isinstance(a, RemoveFile)]) == 1
    assert len([a for a in actions if isinstance(a, AddFile)]) == 3
    with partitioned.refused("DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION"):
        partitioned.write(data.alias("s"), "overwrite", replaceOn="id = s.id", targetAlias="t")
    with partitioned.refused("DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION"):
        partitioned.write(data.alias("s"), "overwrite", replaceOn="t.no = s.id", targetAlias="t")
    partitioned.write(data, "append", **on)
    assert partitioned.parameters["replaceOnCond"] == on["replaceOn"]


def test_mapped_columns_are_replaced_by_their_names(table: SparkTable) -> None:
    data = table.spark.range(0, 8, 1, 2).selectExpr("id AS `a b`", "id % 2 AS `p q`", "id AS v")
    table.write(data, "append", "p q", **{"delta.columnMapping.mode": "name"})
    new = table.data("`a b` long, `p q` long, v long", (50, 0, 1))
    table.write(new, "overwrite", replaceWhere="`p q` = 0")
    assert [row[0] for row in table.rows] == [1, 3, 5, 50, 7]
    more = table.data("`a b` long, `p q` long, v long", (3, 0, 9))
    table.write(more, "overwrite", replaceWhere="`a b` < 6")
    assert table.rows == [(3, 0, 9), (50, 0, 1), (7, 1, 7)]
    table.write(more, "overwrite", replaceUsing="`a b`")
    assert table.rows == [(3, 0, 9), (50, 0, 1), (7, 1, 7)]
