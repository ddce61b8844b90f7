"""Options of writes with empty, blank and malformed values: refused, or without effect on rows.

An option that says which rows go must never mean all of them because its value was left empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from pyspark_delta import DeltaError, enable
from pyspark_delta.kernel.protocol.properties import PROPERTIES
from pyspark_delta.kernel.protocol.property_kinds import COLUMNS, TEXT
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.datasource.writer import writer_for
from pyspark_delta.spark.files import write_options
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.streaming.sink import DeltaSink
from tests.support.catalog_tables import own_database
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
    "parquet.page.row.count.limit": (*NUMBERS, "0"),
    "parquet.dictionary.page.size": (*NUMBERS, "0"),
    "parquet.enable.dictionary": FLAGS,
    "parquet.writer.version": (*BLANK, "3"),
    "parquet.bloom.filter.enabled": FLAGS,
    "parquet.bloom.filter.adaptive.enabled": FLAGS,
    "parquet.bloom.filter.candidates.number": (*NUMBERS, "0"),
    "parquet.bloom.filter.expected.ndv": (*NUMBERS, "0"),
    "parquet.bloom.filter.max.bytes": (*NUMBERS, "0"),
    "parquet.bloom.filter.fpp": (*BLANK, "1", "nan"),
    "parquet.bloom.filter.fpp#id": (*BLANK, "0"),
}
# Options that Spark's parser or writer checks, and those that may be any text.
OF_SPARK = {"replaceWhere", "replaceOn", "compression"}
ANY_TEXT = {"userMetadata", "targetAlias"}
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


class Recorded(DeltaOptions):
    """Options, and the names under which they were looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.names.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)


def test_every_option_that_a_write_looks_up_is_tried_below() -> None:
    given = Recorded()
    WriteOptions.parse(given, {}.get)
    tried = REFUSED.keys() | OF_SPARK | ANY_TEXT
    assert given.names - tried == set()
    assert write_options._KINDS.keys() - tried == set()
    assert given.names | write_options._KINDS.keys() >= tried - {"parquet.bloom.filter.fpp#id"}


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


NO_ROWS_TO_REPLACE = "DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING"
# Spark drops the options of insertInto.
WAYS: Mapping[str, Callable[[DataFrame, Mapping[str, str]], object]] = {
    "insert": lambda data, options: (
        data.write.options(**options).mode("append").format("delta").saveAsTable("t")
    ),
    "overwrite a table": lambda data, options: (
        data.write.options(**options).mode("overwrite").format("delta").saveAsTable("t")
    ),
    "create a table": lambda data, options: (
        data.write.options(**options).format("delta").saveAsTable("new")
    ),
    "append": lambda data, options: data.writeTo("t").options(**options).append(),
    "overwrite": lambda data, options: data.writeTo("t").options(**options).overwrite(lit(True)),
    "overwritePartitions": lambda data, options: (
        data.writeTo("t").options(**options).overwritePartitions()
    ),
    "create": lambda data, options: data.writeTo("new").using("delta").options(**options).create(),
    "createOrReplace": lambda data, options: (
        data.writeTo("t").using("delta").options(**options).createOrReplace()
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_so_does_every_way_to_write_by_name(table: SparkTable, way: str) -> None:
    data = table.data("id long, p long", (1, 1))
    with own_database(table.spark):
        table.spark.sql(f"CREATE TABLE t USING delta LOCATION '{table.path}'")
        for name, values in REFUSED.items():
            for value in (values[0], values[-1]):
                with pytest.raises(DeltaError) as refused:
                    WAYS[way](data, {**COMPANIONS.get(name, {}), name: value})
                if name == "replaceUsing" and way.startswith("create") and "table" not in way:
                    assert refused.value.condition == NO_ROWS_TO_REPLACE
                else:
                    assert refused.value.condition == "DELTA_ILLEGAL_OPTION", name
                    assert refused.value.parameters["name"] == name
        assert [each.name for each in table.spark.catalog.listTables()] == ["t"]
    assert table.log.update().version == 0


def test_a_property_given_as_an_option_is_checked_as_others_are(
    spark: SparkSession, table_path: Path
) -> None:
    table = SparkTable(enable(spark), table_path)
    data = table.data("id long", (1,))
    checked = [row for row in PROPERTIES.values() if row.kind not in (TEXT, COLUMNS)]
    assert len(checked) > 40
    for row in checked:
        for value in (" ", "no such value"):
            for key in (row.key, row.key.upper()):
                with pytest.raises(DeltaError):
                    table.write(data, "append", **{key: value})
                with pytest.raises(DeltaError):
                    writer_for({key: value, "path": str(table.path)}, data.schema, False)
            with pytest.raises(DeltaError):
                data.writeTo(f"delta.`{table.path}`").using("delta").option(row.key, value).create()
    assert not table_path.exists()


@pytest.mark.parametrize("place", BLANK)
def test_a_stream_without_a_place_for_its_progress_writes_nothing(
    spark: SparkSession, table_path: Path, tmp_path: Path, place: str
) -> None:
    stream = enable(spark).readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = stream.writeStream.format("delta").option("checkpointLocation", place)
    with pytest.raises(DeltaError) as refused:
        writer.start(str(table_path))
    assert refused.value.condition == "DELTA_ILLEGAL_OPTION"
    assert refused.value.parameters["name"] == "checkpointLocation"
    assert not table_path.exists()


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
