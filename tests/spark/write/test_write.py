"""Writes through Spark: what the table then holds, says of itself, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import (
    AppendOnlyError,
    DeltaError,
    PropertyError,
    SchemaError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.scan.plan import plan_scan
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.agreement import deltalake_rows, kernel_rows, plain, sorted_rows
from tests.support.tables import create_table

Write = Callable[..., int | None]


@pytest.fixture
def log(table_path: Path) -> DeltaLog:
    return DeltaLog.for_table(table_path)


@pytest.fixture
def save(spark: SparkSession, log: DeltaLog) -> Write:
    def write(data: DataFrame, mode: Any = "append", *partition_by: str, **options: str) -> Any:
        request = WriteRequest(mode=mode, partition_by=partition_by, options=options)
        return run_write(spark, log, data, request)

    return write


def rows_of(data: DataFrame) -> list[Any]:
    return sorted_rows(batch for batch in data.toArrow().to_pylist())


def ids(path: Path) -> list[int]:
    return sorted(row["id"] for row in deltalake_rows(path))


def condition_of(error: pytest.ExceptionInfo[DeltaError]) -> str:
    return error.value.condition


def test_the_first_write_creates_the_table(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    data = spark.range(10).selectExpr("id", "concat('wörd ', id, '%') AS v")
    assert save(data, "error") == 0
    assert log.snapshot.metadata.schema.simple_string == "struct<id:bigint,v:string>"
    assert all(f.nullable for f in log.snapshot.metadata.schema)
    assert deltalake_rows(table_path) == kernel_rows(table_path) == rows_of(data)


def test_an_append_adds_and_an_overwrite_replaces(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    assert [save(spark.range(3)), save(spark.range(3, 5)), save(spark.range(2), "overwrite")] == [
        0,
        1,
        2,
    ]
    assert ids(table_path) == [0, 1]
    newest, middle, _ = log.history()
    assert middle.operation_parameters == {"mode": "Append", "partitionBy": "[]"}
    assert middle.is_blind_append is True
    assert middle.operation_metrics is not None
    assert middle.operation_metrics["numOutputRows"] == "2"
    sizes = [file["size"] for file in log.snapshot_at(1).files.to_pylist()]
    assert newest.operation == "WRITE"
    assert newest.is_blind_append is False
    assert newest.operation_metrics == {
        "numFiles": str(log.snapshot.files.num_rows),
        "numOutputRows": "2",
        "numOutputBytes": str(sum(file.size for file in add_files(log.snapshot.files))),
        "numRemovedFiles": str(len(sizes)),
        "numRemovedBytes": str(sum(sizes)),
    }


def test_a_table_that_exists_is_left_alone(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    save(spark.range(3))
    with pytest.raises(TableAlreadyExistsError) as error:
        save(spark.range(5), "error")
    assert condition_of(error) == "DELTA_PATH_EXISTS"
    assert save(spark.range(5), "ignore") is None
    assert ids(table_path) == [0, 1, 2]
    assert log.update().version == 0


def test_ignore_creates_a_table_that_is_absent(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    assert save(spark.range(2), "ignore") == 0
    assert ids(table_path) == [0, 1]


def test_partition_values_survive_any_character(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    values = ["a b", "x/y=z", "100%", "%41", "é:#?", "[^]{}", "\\\"'*", "日本", None]
    data = spark.createDataFrame(list(enumerate(values)), "id long, p string")
    save(data.coalesce(1), "append", "P")
    assert log.snapshot.metadata.partition_columns == ("p",)
    found = {file.partition_values["p"] for file in add_files(log.snapshot.files)}
    assert found == set(values)
    assert deltalake_rows(table_path) == kernel_rows(table_path) == rows_of(data)


def test_an_empty_partition_value_is_null(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    save(spark.createDataFrame([(1, "")], "id long, p string"), "append", "p")
    assert kernel_rows(table_path) == [{"id": 1, "p": None}]


def test_partition_values_of_every_type_are_in_the_form_of_the_log(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    data = spark.sql(
        "SELECT 1 AS id, timestamp'2024-01-02 03:04:05.5Z' AS t, date'1582-01-01' AS d, "
        "timestamp_ntz'2024-01-02 03:04:05' AS n, cast(1.50 AS decimal(9,3)) AS dec, "
        "true AS b, cast(-1.5 AS double) AS f, cast('äb' AS binary) AS x, 7S AS s"
    )
    partitions = ("t", "d", "n", "dec", "b", "f", "x", "s")
    save(data, "append", *partitions)
    (file,) = add_files(log.snapshot.files)
    assert file.partition_values == {
        "t": "2024-01-02T03:04:05.500000Z",
        "d": "1582-01-01",
        "n": "2024-01-02 03:04:05",
        "dec": "1.500",
        "b": "true",
        "f": "-1.5",
        "x": "äb",
        "s": "7",
    }
    assert kernel_rows(table_path) == rows_of(data)


def test_data_files_hold_the_partition_columns_too(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    save(spark.sql("SELECT 'x' AS p, 1 AS id"), "append", "p")
    (file,) = add_files(log.snapshot.files)
    assert pq.read_schema(table_path / file.path).names == ["p", "id"]
    other = {"delta.writePartitionColumnsToParquet": "false", "overwriteSchema": "true"}
    log_without = DeltaLog.for_table(table_path.with_name("ö ther%"))
    request = WriteRequest(partition_by=("p",), options=other)
    run_write(spark, log_without, spark.sql("SELECT 'x' AS p, 1 AS id"), request)
    (file,) = add_files(log_without.snapshot.files)
    assert pq.read_schema(table_path.with_name("ö ther%") / file.path).names == ["id"]


def test_partitions_that_a_branch_of_a_union_computes_are_written(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    # Spark pushes the projection that names directories below the union.
    first = spark.range(2).selectExpr("id", "date'2024-01-01' AS day", "id AS n")
    second = spark.range(2, 4).selectExpr(
        "id", "date_add(date'2024-01-01', cast(id AS int)) AS day", "id * 2 AS n"
    )
    data = first.union(second)
    save(data, "append", "day", "n")
    assert kernel_rows(table_path) == rows_of(data)
    names = {place.name for place in table_path.glob("*/n=*")}
    assert names == {"n=0", "n=1", "n=4", "n=6"}


TYPES = """
SELECT id, cast(id AS tinyint) AS b, cast(id AS smallint) AS s, cast(id AS int) AS i,
  cast(id AS float) / 3 AS f, cast(id AS double) / 3 AS d, id % 2 = 0 AS flag,
  cast(concat('ü', id) AS binary) AS bytes, cast(id AS decimal(5,2)) AS small,
  cast(id AS decimal(38,10)) / 7 AS wide,
  date_add(date'2024-02-28', cast(id AS int)) AS day,
  timestamp'2024-01-02 03:04:05.678901' + make_interval(0, 0, 0, cast(id AS int)) AS ts,
  timestamp_ntz'1850-01-02 03:04:05.678901' AS local,
  array(id, NULL) AS list, map(concat('k', id), named_struct('x', id)) AS m,
  named_struct('a', if(id = 1, NULL, id), 'b', named_struct('c', array(named_struct('d', 'é'))))
    AS nested
FROM range(4)
"""


def test_every_type_reads_back(spark: SparkSession, table_path: Path, save: Write) -> None:
    data = spark.sql(TYPES)
    save(data)
    expected = rows_of(data)
    assert _without_pairs(kernel_rows(table_path)) == _without_pairs(expected)
    assert _without_pairs(deltalake_rows(table_path)) == _without_pairs(expected)


def _without_pairs(rows: list[Any]) -> list[Any]:
    # Arrow gives maps as pairs, deltalake's reader in another container: compare their items.
    return [{**row, "m": plain(sorted(map(list, row["m"]), key=repr))} for row in rows]


def test_statistics_let_the_kernel_skip_files(
    spark: SparkSession, log: DeltaLog, save: Write
) -> None:
    save(spark.range(0, 100, 1, 4).selectExpr("id", "named_struct('k', id * 2) AS n"))
    assert log.snapshot.files.num_rows == 4
    assert plan_scan(log.snapshot, filter="id = 30").files.num_rows == 1
    assert plan_scan(log.snapshot, filter="n.k > 150").files.num_rows == 1
    assert plan_scan(log.snapshot, filter="id > 99").files.num_rows == 0


def test_a_job_that_fails_leaves_the_table_as_it_was(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    fails = spark.range(0, 50, 1, 2).select(F.udf(_raise, "long", useArrow=False)("id").alias("id"))
    with pytest.raises(PySparkException):
        save(fails)
    with pytest.raises(TableNotFoundError):
        log.update()
    save(spark.range(3))
    log.wait_for_hooks()
    before = sorted((table_path / "_delta_log").iterdir())
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException):
            save(fails, mode)
    assert log.update().version == 0
    assert sorted((table_path / "_delta_log").iterdir()) == before
    assert ids(table_path) == [0, 1, 2]


def _raise(value: int) -> int:
    if value == 49:
        raise ValueError("no")
    return value


def test_data_of_a_shuffle_is_written(spark: SparkSession, table_path: Path, save: Write) -> None:
    data = spark.range(0, 100, 1, 2).groupBy((F.col("id") % 10).alias("p")).count()
    save(data.join(F.broadcast(spark.range(5)), F.expr("p = id")), "append", "p")
    assert [(row["p"], row["count"]) for row in kernel_rows(table_path)] == [
        (p, 10) for p in range(5)
    ]


def test_data_without_a_row_adds_no_file(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    assert save(spark.range(0)) == 0
    assert log.snapshot.files.num_rows == 0
    assert save(spark.range(2)) == 1
    assert save(spark.range(0), "overwrite") == 2
    assert deltalake_rows(table_path) == []


def test_columns_go_by_name_whatever_their_order_and_case(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    save(
        spark.sql(
            "SELECT 1L AS id, named_struct('a', 1, 'b', 'x') AS n, "
            "array(named_struct('p', 1, 'q', 2)) AS l"
        )
    )
    save(
        spark.sql(
            "SELECT array(named_struct('Q', 4, 'p', 3)) AS L, "
            "named_struct('B', 'y', 'A', 2) AS N, 2L AS ID"
        )
    )
    save(spark.sql("SELECT 3L AS id"))
    save(spark.sql("SELECT 4L AS id, named_struct('b', 'z') AS n, NULL AS l"))
    assert kernel_rows(table_path) == deltalake_rows(table_path)
    assert kernel_rows(table_path) == [
        {"id": 1, "n": {"a": 1, "b": "x"}, "l": [{"p": 1, "q": 2}]},
        {"id": 2, "n": {"a": 2, "b": "y"}, "l": [{"p": 3, "q": 4}]},
        {"id": 3, "n": None, "l": None},
        {"id": 4, "n": {"a": None, "b": "z"}, "l": None},
    ]


@pytest.mark.parametrize(
    ("select", "condition"),
    [
        ("SELECT 1L AS id, 'x' AS v, 2 AS more", "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"),
        ("SELECT 1 AS id, 'x' AS v", "DELTA_FAILED_TO_MERGE_FIELDS"),
        ("SELECT 1L AS id, 2 AS v", "DELTA_FAILED_TO_MERGE_FIELDS"),
        ("SELECT 1L AS id, 2L AS ID", "DELTA_DUPLICATE_COLUMNS_FOUND"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write, select: str, condition: str
) -> None:
    create_table(table_path, _schema())
    with pytest.raises(SchemaError) as error:
        save(spark.sql(select))
    assert condition_of(error) == condition
    assert log.update().version == 0


def _schema() -> Any:
    return pa.schema([("id", pa.int64()), ("v", pa.string())])


def test_merge_schema_adds_columns(spark: SparkSession, table_path: Path, save: Write) -> None:
    save(spark.sql("SELECT 1L AS id, named_struct('a', 1) AS n"))
    more = spark.sql("SELECT 2L AS id, named_struct('a', 2, 'b', 'x') AS n, 'new' AS v")
    save(more, mergeSchema="true")
    assert kernel_rows(table_path) == [
        {"id": 1, "n": {"a": 1, "b": None}, "v": None},
        {"id": 2, "n": {"a": 2, "b": "x"}, "v": "new"},
    ]


def test_overwrite_schema_changes_columns_and_partitions(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    save(spark.range(2))
    other = spark.sql("SELECT 'x' AS id, 1 AS p")
    with pytest.raises(SchemaError):
        save(other, "overwrite")
    save(other, "overwrite", "p", overwriteSchema="true")
    assert log.snapshot.metadata.partition_columns == ("p",)
    assert deltalake_rows(table_path) == [{"id": "x", "p": 1}]
    assert log.history(1)[0].operation_parameters == {
        "mode": "Overwrite",
        "partitionBy": '["p"]',
        "canOverwriteSchema": True,
    }


def test_other_partition_columns_are_refused(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    data = spark.sql("SELECT 1 AS id, 'x' AS p")
    save(data, "append", "p")
    with pytest.raises(SchemaError) as error:
        save(data, "append", "id")
    assert condition_of(error) == "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"
    with pytest.raises(SchemaError) as error:
        save(spark.sql("SELECT 1 AS id"), "append", "id")  # the table's own column is not there
    assert condition_of(error) == "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"
    with pytest.raises(SchemaError) as error:
        save(spark.sql("SELECT 1 AS id"))
    assert condition_of(error) == "DELTA_PARTITION_COLUMN_NOT_FOUND"
    with pytest.raises(SchemaError) as error:
        save(data.drop("id"), "append", "p")
    assert condition_of(error) == "DELTA_NON_PARTITION_COLUMN_ABSENT.ALL_PARTITION_COLUMNS"
    assert len(kernel_rows(table_path)) == 1


def test_a_write_that_was_made_is_not_made_again(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    once = {"txnAppId": "job", "txnVersion": "7"}
    assert save(spark.range(2), **once) == 0
    assert save(spark.range(2), **once) is None
    assert save(spark.range(2, 3), **once | {"txnVersion": "8"}) == 1
    assert ids(table_path) == [0, 1, 2]
    assert log.snapshot.transactions["job"].version == 8


def test_user_metadata_and_properties_are_kept(
    spark: SparkSession, log: DeltaLog, save: Write
) -> None:
    options = {"userMetadata": "why", "delta.appendOnly": "true", "other": "x"}
    save(spark.range(1), **options)
    assert log.history(1)[0].user_metadata == "why"
    assert dict(log.snapshot.metadata.configuration) == {"delta.appendOnly": "true"}
    with pytest.raises(AppendOnlyError):
        save(spark.range(1), "overwrite")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"mergeSchema": "perhaps"}, PropertyError),
        ({"txnAppId": "job"}, PropertyError),
        ({"txnAppId": "job", "txnVersion": "x"}, PropertyError),
        ({"partitionOverwriteMode": "sometimes"}, PropertyError),
        ({"optimizeWrite": "perhaps"}, PropertyError),
        ({"delta.noSuchProperty": "1"}, PropertyError),
    ],
)
def test_options_that_mean_nothing_are_refused(
    spark: SparkSession,
    table_path: Path,
    save: Write,
    options: dict[str, str],
    kind: type[DeltaError],
) -> None:
    with pytest.raises(kind):
        save(spark.range(1), "append", **options)
    assert not table_path.exists()


def test_mapped_columns_have_physical_names_and_ids_in_files(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    data = spark.sql("SELECT 1L AS `a b`, named_struct('x y', 'v') AS n, 'p' AS `p q`")
    save(data, "append", "p q", **{"delta.columnMapping.mode": "name"})
    (file,) = add_files(log.snapshot.files)
    names = pq.read_schema(table_path / decode_path(file.path)).names
    assert all(name.startswith("col-") for name in names)
    stats = json.loads(file.stats or "")
    assert set(stats["minValues"]) < set(names)
    assert set(file.partition_values) < set(names)
    fields = pq.read_schema(table_path / decode_path(file.path))
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"1", b"2", b"4"]
    save(data)
    assert kernel_rows(table_path) == deltalake_rows(table_path) == 2 * rows_of(data)


def test_a_mapped_table_takes_another_schema(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    save(spark.range(2), **{"delta.columnMapping.mode": "id"})
    save(spark.sql("SELECT 'x' AS id, 1 AS more"), "overwrite", overwriteSchema="true")
    save(spark.sql("SELECT 'y' AS id, 2 AS more, 3 AS third"), mergeSchema="true")
    assert kernel_rows(table_path) == deltalake_rows(table_path)
    assert kernel_rows(table_path) == [
        {"id": "x", "more": 1, "third": None},
        {"id": "y", "more": 2, "third": 3},
    ]


def test_void_columns_are_left_out_of_files(
    spark: SparkSession, table_path: Path, log: DeltaLog, save: Write
) -> None:
    save(spark.sql("SELECT 1L AS id, NULL AS nothing, named_struct('a', 1, 'b', NULL) AS n"))
    assert (
        log.snapshot.metadata.schema.simple_string
        == "struct<id:bigint,nothing:void,n:struct<a:int,b:void>>"
    )
    (file,) = add_files(log.snapshot.files)
    assert pq.ParquetFile(table_path / file.path).metadata.schema.column(1).path == "n.a"
    assert pq.read_schema(table_path / file.path).names == ["id", "n"]
    assert json.loads(file.stats or "")["maxValues"] == {"id": 1, "n": {"a": 1}}


def test_a_smaller_integer_fits_a_larger_one_of_the_same_file_type(
    spark: SparkSession, table_path: Path, save: Write
) -> None:
    save(spark.sql("SELECT 1 AS id"))
    save(spark.sql("SELECT 2S AS id"))
    assert ids(table_path) == [1, 2]
