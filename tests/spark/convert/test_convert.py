"""A Parquet directory becomes a Delta table where it is, or stays what it was."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pyspark_delta import ConcurrentWriteException, ConvertToDeltaCommand, DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from pyspark_delta.spark.convert.command import ALREADY_DELTA
from pyspark_delta.spark.convert.target import resolve_convert_target
from pyspark_delta.spark.jvm.gateway import from_spark
from tests.support.agreement import deltalake_rows
from tests.support.parquet_tables import data_tree, parquet_file, save_parquet, tree
from tests.support.plans import files_read
from tests.support.refusals import condition as refusal
from tests.support.spark_tables import SparkTable, conf

DEFAULTS = "spark__databricks__delta__properties__defaults__"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(enable(spark), table_path)


def converted(table: SparkTable, schema: str | StructType | None = None) -> DeltaTable:
    return DeltaTable.convertToDelta(table.spark, f"parquet.`{table.path}`", schema)


def test_a_directory_becomes_a_table_and_no_file_is_touched(table: SparkTable) -> None:
    for start in (0, 10, 20):
        data = table.spark.range(start, start + 10).selectExpr("id", "concat('s', id) AS s")
        save_parquet(data, table.path)
    before = tree(table.path)
    given = converted(table)
    assert isinstance(given, DeltaTable)
    assert given.toDF().count() == 30
    assert data_tree(table.path) == before
    lines = (table.path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == [
        "commitInfo",
        "metaData",
        "protocol",
        "add",
        "add",
        "add",
    ]
    metadata = json.loads(lines[1])["metaData"]
    assert [f["nullable"] for f in json.loads(metadata["schemaString"])["fields"]] == [True, True]
    assert metadata["partitionColumns"] == []
    for file in table.files:
        found = before[file.path.replace("%20", " ")]
        assert (file.size, file.modification_time) == (found[0], found[1] // 1_000_000)
        assert file.data_change
        assert json.loads(file.stats or "")["numRecords"] == 10
    assert deltalake_rows(table.path)[0] == {"id": 0, "s": "s0"}
    # It is a table like any other from here on.
    table.write(table.data("id long, s string", (99, "new")))
    assert table.log.update().version == 1
    assert len(table.rows) == 31


def test_the_history_tells_of_the_conversion_as_delta_sparks_does(table: SparkTable) -> None:
    save_parquet(
        table.data("id int, p int, q string", (1, 1, "a"), (2, 2, "b")), table.path, "p", "q"
    )
    with conf(table.spark, spark__databricks__delta__commitInfo__userMetadata="said"):
        converted(table, "p INT, q STRING")
    assert table.parameters == {
        "numFiles": 2,
        "partitionedBy": '["p","q"]',
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    info = table.info
    assert info.operation == "CONVERT"
    assert info.operation_metrics == {"numConvertedFiles": "2"}
    assert (info.read_version, info.isolation_level) == (-1, "Serializable")
    assert info.is_blind_append is False
    assert info.user_metadata == "said"
    row = DeltaTable.forPath(table.spark, str(table.path)).history().collect()[0]
    assert row.operationParameters["partitionedBy"] == '["p","q"]'
    assert row.operationParameters["numFiles"] == "2"


P_AND_Q = StructType([StructField("p", IntegerType()), StructField("q", StringType())])


@pytest.mark.parametrize("schema", ["p INT, q STRING", P_AND_Q], ids=["DDL", "StructType"])
def test_partition_values_come_from_directories(
    table: SparkTable, schema: str | StructType
) -> None:
    data = table.data("id int, p int, q string", (1, 7, "x y%/é"), (2, None, None), (3, 8, "="))
    save_parquet(data, table.path, "p", "q")
    converted(table, schema)
    assert table.log.update().metadata.partition_columns == ("p", "q")
    assert table.rows == [(1, 7, "x y%/é"), (2, None, None), (3, 8, "=")]
    assert files_read(table.read().where("p = 8")) == 1
    assert [row["id"] for row in deltalake_rows(table.path)] == [1, 2, 3]


def test_statistics_are_those_of_the_footers_and_skip_files(table: SparkTable) -> None:
    for start in (0, 10, 20):
        save_parquet(table.spark.range(start, start + 10), table.path)
    converted(table)
    for condition, count in (("id = 15", 1), ("id < 10", 1), ("id > 9", 2), ("id > 29", 0)):
        assert files_read(table.read().where(condition)) == count, condition
    found = table.read().where("id BETWEEN 9 AND 10").collect()
    assert sorted(row.id for row in found) == [9, 10]


def test_the_session_decides_whether_there_are_statistics(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    with conf(table.spark, spark__databricks__delta__stats__collect="false"):
        command = ConvertToDeltaCommand(("parquet", str(table.path)), None, True)
        assert not command.stats_enabled(table.spark)
        assert command.run(table.spark) == []
    assert table.parameters["collectStats"] is False
    assert [file.stats for file in table.files] == [None]


def test_a_delta_table_is_left_alone(
    table: SparkTable, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    converted(table)
    table.log.wait_for_hooks()
    capfd.readouterr()
    before = tree(table.path)
    parquet_file(table.path / "2.parquet", id=[2])
    after = tree(table.path)
    given = converted(table)
    assert capfd.readouterr().out == f"{ALREADY_DELTA}\n"
    assert given.toDF().count() == 1
    for provider in ("parquet", "delta", "DELTA"):
        table.spark.sql(f"CONVERT TO DELTA {provider}.`{table.path}`")
        assert capfd.readouterr().out == f"{ALREADY_DELTA}\n"
    assert tree(table.path) == after
    assert before.keys() < after.keys()
    assert ALREADY_DELTA == "The table you are trying to convert is already a delta table"


def test_other_sources_are_refused_by_name(table: SparkTable) -> None:
    table.path.mkdir()
    for name, condition in (
        (f"json.`{table.path}`", "DELTA_CONVERT_NON_PARQUET_TABLE"),
        (f"ORC.`{table.path}`", "DELTA_CONVERT_NON_PARQUET_TABLE"),
        (f"`{table.path}`", "DELTA_MISSING_PROVIDER_FOR_CONVERT"),
        (f"iceberg.`{table.path}`", "DELTA_MISSING_ICEBERG_CLASS"),
    ):
        with table.refused(condition):
            table.spark.sql(f"CONVERT TO DELTA {name}")
    for name, missing in (
        ("nowhere.to_be_found", "TABLE_OR_VIEW_NOT_FOUND"),
        ("nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("some.other.catalog", "REQUIRES_SINGLE_PART_NAMESPACE"),
    ):
        assert refusal(table.spark, f"CONVERT TO DELTA {name}") == missing
    with table.refused("DELTA_PARTITION_SCHEMA_IN_ICEBERG_TABLES"):
        table.spark.sql(f"CONVERT TO DELTA iceberg.`{table.path}` PARTITIONED BY (p INT)")
    with (
        conf(table.spark, spark__databricks__delta__convert__iceberg__enabled="false"),
        table.refused("DELTA_CONVERT_NON_PARQUET_TABLE"),
    ):
        table.spark.sql(f"CONVERT TO DELTA iceberg.`{table.path}`")
    with table.refused("DELTA_CONVERT_NON_PARQUET_TABLE") as error:
        table.spark.sql(f"CONVERT TO DELTA json.`{table.path}`")
    assert (
        "CONVERT TO DELTA only supports parquet tables, but you are trying to convert a json "
        f"source: `json`.`{table.path}`"
    ) in str(error.value)
    assert list(table.path.iterdir()) == []


def _nothing(path: Path) -> None:
    pass


def _empty(path: Path) -> None:
    path.mkdir()


def _hidden_only(path: Path) -> None:
    parquet_file(path / "_temporary" / "0.parquet", id=[1])
    parquet_file(path / ".hidden.parquet", id=[1])


def _no_parquet(path: Path) -> None:
    path.mkdir()
    (path / "readme.txt").write_text("no Parquet at all, but long enough to have had a footer")


def _corrupt(path: Path) -> None:
    parquet_file(path / "1.parquet", id=[1])
    whole = (path / "1.parquet").read_bytes()
    (path / "2.parquet").write_bytes(whole[:-20])


def _clashing(path: Path) -> None:
    parquet_file(path / "1.parquet", id=[1])
    parquet_file(path / "2.parquet", id=["a"])


def _numbers_clash(path: Path) -> None:
    parquet_file(path / "1.parquet", id=pa.array([1], pa.int32()))
    parquet_file(path / "2.parquet", id=[1.5])


def _twice(path: Path) -> None:
    parquet_file(path / "1.parquet", id=[1], ID=[1])


def _blank_in_a_name(path: Path) -> None:
    parquet_file(path / "1.parquet", **{"a b": [1]})


def _by_p(path: Path) -> None:
    parquet_file(path / "p=1" / "1.parquet", id=[1])
    parquet_file(path / "p=x" / "1.parquet", id=[1])


def _half(path: Path) -> None:
    parquet_file(path / "1.parquet", id=[1])
    parquet_file(path / "p=1" / "1.parquet", id=[1])


@pytest.mark.parametrize(
    ("make", "schema", "condition"),
    [
        (_nothing, None, "DELTA_PATH_DOES_NOT_EXIST"),
        (_empty, None, "DELTA_EMPTY_DIRECTORY"),
        (_hidden_only, None, "DELTA_EMPTY_DIRECTORY"),
        (_no_parquet, None, "DELTA_FAILED_READ_FILE_FOOTER"),
        (_corrupt, None, "DELTA_FAILED_READ_FILE_FOOTER"),
        (_clashing, None, "DELTA_FAILED_TO_MERGE_FIELDS"),
        (_numbers_clash, None, "DELTA_FAILED_TO_MERGE_FIELDS"),
        (_twice, None, "DELTA_DUPLICATE_COLUMNS_FOUND.CONVERT_TO_DELTA"),
        (_blank_in_a_name, None, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        (_by_p, None, "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        (_by_p, "p INT, q INT", "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        (_by_p, "q STRING", "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME"),
        (_by_p, "p INT", "DELTA_FAILED_CAST_PARTITION_VALUE"),
        (_half, "p INT", "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        (_half, None, "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"),
        (_by_p, "p STRUCT<a: INT>", "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
    ],
)
def test_what_cannot_be_converted_stays_as_it_was(
    table: SparkTable, make: Callable[[Path], None], schema: str | None, condition: str
) -> None:
    make(table.path)
    before = tree(table.path.parent)
    with pytest.raises(DeltaError) as error:
        converted(table, schema)
    assert error.value.condition == condition
    assert tree(table.path.parent) == before


def test_the_number_of_partition_columns_is_told_word_for_word(table: SparkTable) -> None:
    parquet_file(table.path / "p=1" / "q=2" / "1.parquet", id=[1])
    with pytest.raises(DeltaError) as error:
        converted(table, "p INT")
    assert (
        "Expecting 1 partition column(s): [`p`], but found 2 partition column(s): [`p`, `q`] "
        "from parsing the file name: "
    ) in str(error.value)
    assert "p=1/q=2/1.parquet" in str(error.value)


def test_corrupt_files_are_left_out_where_the_session_ignores_them(table: SparkTable) -> None:
    _corrupt(table.path)
    with conf(table.spark, spark__sql__files__ignoreCorruptFiles="true"):
        converted(table)
    assert table.rows == [(1,)]
    assert table.parameters["numFiles"] == 1
    assert table.metrics == {"numConvertedFiles": 1}


def test_defaults_that_files_cannot_follow_are_refused(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1, 2, 3])
    name = f"parquet.`{table.path}`"
    with conf(table.spark, **{f"{DEFAULTS}columnMapping__mode": "name"}):
        with pytest.raises(DeltaError) as error:
            converted(table)
        assert error.value.condition == "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING"
        setting = "spark.databricks.delta.properties.defaults.columnMapping.mode"
        assert error.value.parameters == {"config": setting, "mode": "name"}
    with conf(table.spark, **{f"{DEFAULTS}enableRowTracking": "true"}):
        with pytest.raises(DeltaError) as error:
            table.spark.sql(f"CONVERT TO DELTA {name} NO STATISTICS")
        assert error.value.condition == "DELTA_CONVERT_TO_DELTA_ROW_TRACKING_WITHOUT_STATS"
        assert not (table.path / "_delta_log").exists()
        parquet_file(table.path / "2.parquet", id=[4])
        table.spark.sql(f"CONVERT TO DELTA {name}")
    assert [file.base_row_id for file in table.files] == [0, 3]
    assert len(table.rows) == 4


def test_the_defaults_of_the_session_hold_for_a_converted_table(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    with conf(table.spark, **{f"{DEFAULTS}appendOnly": "true"}):
        converted(table)
    assert table.log.update().metadata.configuration == {"delta.appendOnly": "true"}


def test_a_table_that_somebody_makes_meanwhile_wins(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    command = ConvertToDeltaCommand(("parquet", str(table.path)))
    target = resolve_convert_target(table.spark, ("parquet", str(table.path)))
    found = command.get_target_table(table.spark, target)
    txn = table.log.start_transaction()
    table.write(table.data("id long", (7,)))
    with pytest.raises(ConcurrentWriteException) as error:
        command.perform_convert(table.spark, txn, target, found)
    assert error.value.condition == "DELTA_CONCURRENT_WRITE"
    assert table.rows == [(7,)]
    assert table.log.update().version == 0


def test_the_log_may_be_elsewhere(table: SparkTable, tmp_path: Path) -> None:
    parquet_file(table.path / "p=1" / "1.parquet", id=[1])
    before = tree(table.path)
    elsewhere = tmp_path / "ëlse where 5%"
    columns = from_spark(StructType([StructField("p", IntegerType())]))
    name = f"parquet.`{table.path}`"
    ConvertToDeltaCommand(name, columns, delta_path=str(elsewhere)).run(table.spark)
    assert tree(table.path) == before
    there = SparkTable(table.spark, elsewhere)
    assert [file.path.startswith("file:/") for file in there.files] == [True]
    assert os.listdir(elsewhere) == ["_delta_log"]
    assert there.rows == [(1, 1)]
    # A log leads out of its table only where the session says so.
    table.spark.conf.unset(ALLOWED_LOCATIONS.key)
    with pytest.raises(PySparkException, match="DELTA_UNSAFE_PATH"):
        there.read().collect()


def test_bad_arguments_are_python_errors(table: SparkTable) -> None:
    for bad in (
        lambda: DeltaTable.convertToDelta(None, "t"),  # type: ignore[call-overload]
        lambda: DeltaTable.convertToDelta(table.spark, 3),  # type: ignore[call-overload]
        lambda: DeltaTable.convertToDelta(table.spark, "t", 3),  # type: ignore[call-overload]
    ):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(ValueError, match="identifier is empty"):
        DeltaTable.convertToDelta(table.spark, "")
