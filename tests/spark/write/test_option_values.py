"""Options of writes with empty, blank and malformed values: refused, or without effect on rows.

An option that says which rows go must never mean all of them because its value was left empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaError, enable
from pyspark_delta.spark.datasource.writer import writer_for
from pyspark_delta.spark.streaming.sink import DeltaSink
from tests.support.spark_tables import SparkTable

BLANK = ("", " ", "\t\n")
FLAGS = (*BLANK, "no", "1", "true ")
NUMBERS = (*BLANK, "-1", "1.5", "many", "9" * 20)
REFUSED: Mapping[str, tuple[str, ...]] = {
    "replaceUsing": (*BLANK, ",", "id,", ",id", "id,,p", "`id", "``", "`id` p", "id`"),
    "partitionOverwriteMode": (*BLANK, "no", "dynamic static"),
    "overwriteSchema": FLAGS,
    "mergeSchema": FLAGS,
    "dataChange": FLAGS,
    "optimizeWrite": FLAGS,
    "useNullIntolerantEqualityWithDPO": FLAGS,
    "txnAppId": BLANK,
    "txnVersion": NUMBERS,
    "maxRecordsPerFile": NUMBERS,
    "spark.sql.parquet.outputTimestampType": (*BLANK, "INT64"),
    "parquet.block.size": (*NUMBERS, "0"),
    "parquet.page.size": (*NUMBERS, "0"),
    "parquet.enable.dictionary": FLAGS,
    "parquet.writer.version": (*BLANK, "3"),
    "parquet.bloom.filter.fpp": (*BLANK, "1", "nan"),
}
# What one option needs beside it.
COMPANIONS = {"txnAppId": {"txnVersion": "1"}, "txnVersion": {"txnAppId": "app"}}
NO_STREAM_OPTIONS = ("txnAppId", "txnVersion", "dataChange")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkTable:
    path = tmp_path_factory.mktemp("ta ble 100% ü") / "t"
    table = SparkTable(enable(spark), path)
    rows = ((0, 0), (1, 1), (2, 0))
    table.write(table.data("id long, p long", *rows), "append", "p")
    return table


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_means_nothing_is_refused_by_every_way_to_write(
    table: SparkTable, name: str
) -> None:
    data = table.data("id long, p long", (1, 1))
    for value in REFUSED[name]:
        options = {**COMPANIONS.get(name, {}), name: value}
        for mode in ("overwrite", "append"):
            with table.refused("DELTA_ILLEGAL_OPTION") as error:
                table.write(data, mode, **options)
            assert error.value.parameters["name"] == name
            assert error.value.parameters["input"] == value
        with pytest.raises(DeltaError) as refused:
            writer_for({**options, "path": str(table.path)}, data.schema, True)
        needs_enabling = name == "replaceUsing"
        assert (refused.value.condition == "DELTA_ILLEGAL_OPTION") is not needs_enabling
        if name not in NO_STREAM_OPTIONS:
            for mode in ("append", "complete"):
                with pytest.raises(DeltaError) as refused:
                    DeltaSink(table.spark, str(table.path), [], mode, options)
                assert refused.value.condition == "DELTA_ILLEGAL_OPTION"
    assert table.log.update().version == 0


def test_what_spark_reads_spark_refuses_and_no_row_goes(table: SparkTable) -> None:
    data = table.data("id long, p long", (1, 1)).alias("s")
    for name in ("replaceWhere", "replaceOn"):
        for value in (*BLANK, "(", ",", "`", "id,"):
            with pytest.raises(ParseException):
                table.write(data, "overwrite", **{name: value})
        for value in ("-1", "'all'"):
            with pytest.raises(PySparkException):
                table.write(data, "overwrite", **{name: value})
    for value in (*BLANK, "no"):
        with pytest.raises((PySparkException, DeltaError)):
            table.write(data, "overwrite", compression=value)
    for columns in ("()", "( )", "(id,)", "(``)"):
        with pytest.raises((ParseException, DeltaError)):
            table.spark.sql(
                f"INSERT INTO delta.`{table.path}` REPLACE USING {columns} SELECT 1L AS id, 1L AS p"
            )
    assert table.log.update().version == 0


def test_names_and_notes_may_be_any_text(spark: SparkSession, table_path: Path) -> None:
    table = SparkTable(enable(spark), table_path)
    table.write(table.data("id long", (0,), (1,)))
    data = table.data("id long", (1,)).alias("s")
    for value in ("", "`"):
        # The condition can name the columns of the table without the alias.
        table.write(data, "overwrite", replaceOn="s.id = 1 AND false", targetAlias=value)
        table.write(data, "overwrite", replaceWhere="id = 1", userMetadata=value)
        assert table.info.user_metadata == value
        assert table.rows == [(0,), (1,)]


def test_a_path_that_is_empty_is_refused(spark: SparkSession) -> None:
    data = enable(spark).range(1)
    for path in BLANK:
        with pytest.raises(DeltaError) as refused:
            writer_for({"path": path}, data.schema, False)
        assert refused.value.condition == "DELTA_ILLEGAL_OPTION"
    with pytest.raises((PySparkException, DeltaError)):
        data.write.format("delta").mode("append").save("")
