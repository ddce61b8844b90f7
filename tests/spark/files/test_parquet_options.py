"""Options of Parquet, of the file system and of a table: what they make of the files written."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.tables.locations import open_log
from tests.support.agreement import deltalake_rows
from tests.support.spark_tables import SparkTable, conf

SECRET = "planted-secret"
SMALL = {"parquet.block.size": "32768", "parquet.page.size": "1024"}
BLOOM = {
    "parquet.enable.dictionary": "false",
    "parquet.bloom.filter.enabled#key": "true",
    "parquet.bloom.filter.expected.ndv#key": "3000",
}


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


@pytest.fixture
def data(spark: SparkSession) -> DataFrame:
    return spark.range(0, 3000, 1, 1).selectExpr("id", "md5(cast(id AS string)) AS key")


@pytest.fixture
def hadoop(spark: SparkSession) -> Iterator[Any]:
    """Hadoop's configuration of the context, as it was once the test is over."""
    found = spark.sparkContext._jsc.hadoopConfiguration()
    before = {key: found.get(key) for key in (*SMALL, *BLOOM)}
    yield found
    for key, value in before.items():
        found.unset(key) if value is None else found.set(key, value)


def footer_facts(file: Path) -> list[Any]:
    """What options change in a file: rows of its groups; encodings and filters of its columns."""
    footer = pq.read_metadata(file)
    return [
        (
            group.num_rows,
            [
                (sorted(column.encodings), column.compression, column.bloom_filter_length)
                for column in map(group.column, range(group.num_columns))
            ],
        )
        for group in map(footer.row_group, range(footer.num_row_groups))
    ]


def facts(table: SparkTable) -> list[Any]:
    (file,) = table.files
    return footer_facts(table.path / decode_path(file.path))


def spark_facts(data: DataFrame, folder: Path, **options: str) -> list[Any]:
    data.write.options(**options).mode("overwrite").parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    return footer_facts(file)


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        BLOOM,
        {"parquet.writer.version": "v2", "parquet.enable.dictionary": "false"},
        {"parquet.writer.version": "PARQUET_2_0", "compression": "zstd"},
        {"parquet.compression": "gzip"},
    ],
    ids=["sizes", "bloom", "v2", "v2-zstd", "codec"],
)
def test_options_do_what_they_do_to_plain_parquet(
    table: SparkTable, data: DataFrame, tmp_path: Path, options: dict[str, str]
) -> None:
    table.write(data, **options)
    found = facts(table)
    assert found == spark_facts(data, tmp_path / "plain", **options)
    assert found != spark_facts(data, tmp_path / "plain")
    if options is SMALL:
        assert len(found) > 1
    if options is BLOOM:
        (_, (by_id, by_key)), *_ = found
        assert by_id[2] is None
        assert by_key[2] > 1000
        assert table.read().where(F.col("key") == "none").count() == 0


def test_configurations_count_where_no_option_answers(
    table: SparkTable, data: DataFrame, hadoop: Any
) -> None:
    for key, value in {**SMALL, "parquet.enable.dictionary": "false"}.items():
        hadoop.set(key, value)
    table.write(data)
    assert len(facts(table)) > 1
    with conf(table.spark, parquet__writer__version="v2"):
        table.write(data, "overwrite", **{"parquet.block.size": str(1 << 24)})
    ((_, (by_id, _)),) = facts(table)
    assert "DELTA_BINARY_PACKED" in by_id[0]


def test_a_table_can_say_how_its_files_are_written(table: SparkTable, data: DataFrame) -> None:
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.parquet.format.version": "2.12.0",
    }
    mapped = {f"{key.replace('#key', '#KEY')}": value for key, value in BLOOM.items()}
    table.write(data, **properties, **mapped)
    # The option named the column as users do.
    ((_, (by_id, by_key)),) = facts(table)
    assert "DELTA_BINARY_PACKED" in by_id[0]
    assert by_key[2] > 1000
    table.write(data, "overwrite", **{"parquet.writer.version": "v1"})
    ((_, (by_id, by_key)),) = facts(table)
    assert "DELTA_BINARY_PACKED" not in by_id[0]
    assert by_key[2] is None
    txn = table.log.start_transaction()
    metadata = txn.metadata
    own = {**metadata.configuration, **BLOOM, "parquet.crypto.factory.class": "no.such.Class"}
    txn.update_metadata(replace(metadata, configuration=own))
    txn.commit([], "SET TBLPROPERTIES")
    table.write(data, "overwrite")
    ((_, (_, by_key)),) = facts(table)
    assert by_key[2] > 1000
    assert len(deltalake_rows(table.path)) == 3000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parquet.block.size", "big"),
        ("parquet.page.size", "0"),
        ("parquet.writer.version", "v9"),
        ("parquet.bloom.filter.enabled#id", "maybe"),
        ("parquet.bloom.filter.fpp", "2"),
        ("maxRecordsPerFile", "few"),
        ("spark.sql.parquet.outputTimestampType", "SECONDS"),
    ],
)
def test_values_that_mean_nothing_are_refused_before_any_job(
    table: SparkTable, name: str, value: str
) -> None:
    with table.refused("DELTA_ILLEGAL_OPTION") as error:
        table.write(table.spark.range(1), **{name: value})
    assert value in str(error.value)
    assert not table.path.exists()


def test_statistics_are_kept_whatever_the_options_say(table: SparkTable) -> None:
    off = {"parquet.column.statistics.enabled": "false"}
    with conf(table.spark, parquet__column__statistics__enabled="false"):
        table.write(
            table.spark.range(5), **off, **{"parquet.column.statistics.enabled#id": "false"}
        )
    found = [json.loads(file.stats or "") for file in table.files]
    assert min(stats["minValues"]["id"] for stats in found) == 0
    assert max(stats["maxValues"]["id"] for stats in found) == 4


@pytest.mark.parametrize(
    ("said", "physical", "has_bounds"),
    [
        ("INT96", "INT96", False),
        ("timestamp_millis", "INT64", True),
        ("TIMESTAMP_MICROS", "INT64", True),
    ],
)
def test_timestamps_are_of_the_type_that_was_asked_for(
    table: SparkTable, said: str, physical: str, has_bounds: bool
) -> None:
    data = table.spark.sql("SELECT timestamp'2024-01-02 03:04:05.678' AS t").coalesce(1)
    name = "spark.sql.parquet.outputTimestampType"
    table.write(data, **{name: said})
    with conf(table.spark, **{name.replace(".", "__"): said.upper()}):
        table.write(data)
    for file in table.files:
        footer = pq.read_metadata(table.path / decode_path(file.path))
        assert footer.schema.column(0).physical_type == physical
        lowest = json.loads(file.stats or "")["minValues"].get("t")
        assert (lowest is not None) == has_bounds
        if has_bounds:
            assert data.where(F.lit(lowest).cast("timestamp") == F.col("t")).count() == 1
    assert table.read().distinct().count() == 1
    assert table.read().where("t = timestamp'2024-01-02 03:04:05.678'").count() == 2


def test_options_of_the_file_system_reach_the_job_and_show_nowhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = enable(spark)
    target = tmp_path / "möunt 100%"
    target.mkdir()
    host = f"m{uuid4().hex}"
    options = {
        f"fs.viewfs.mounttable.{host}.link./data": target.as_uri(),
        "fs.s3a.secret.key": SECRET,
        "fs.azure.account.key.x": SECRET,
    }
    location = f"viewfs://{host}/data/t"

    def save(data: DataFrame, mode: str = "append") -> None:
        data.write.format("delta").mode(mode).options(**options).save(location)

    save(session.range(3))
    save(session.range(3, 5))
    texts = []
    broken = F.raise_error(F.lit("no")).cast("long").alias("id")
    with pytest.raises(PySparkException) as caught:
        save(session.range(1).coalesce(1).select(broken))
    texts += ["".join(traceback.format_exception(caught.value))]
    log = open_log(session, location, options)
    assert log.update().version == 1
    assert len(list((target / "t").glob("*.parquet"))) == log.update().files.num_rows
    texts += [path.read_text() for path in (target / "t" / "_delta_log").glob("*.json")]
    texts += [repr(log), str(log.history(5))]
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = session._jsparkSession.sharedState().statusStore()
    count = store.executionsCount()
    queries = store.executionsList(count - 3, 3)
    texts += [queries.apply(i).physicalPlanDescription() for i in range(queries.size())]
    texts += [str(queries.apply(i).details()) for i in range(queries.size())]
    assert len(texts) > 8
    assert not any(SECRET in text for text in texts)


def test_a_variant_is_written_in_one_piece(spark: SparkSession, table: SparkTable) -> None:
    """Spark 4.3 takes variants apart by itself, which only tables that say so may hold."""
    enable(spark)
    rows = spark.range(100).selectExpr("id", """parse_json('{"a": ' || id || '}') AS v""")
    rows.coalesce(1).write.format("delta").save(str(table.path))
    spark.sql(f"UPDATE delta.`{table.path}` SET id = id + 1 WHERE id < 5")
    for path in table.path.glob("*.parquet"):
        columns = pq.ParquetFile(path).metadata.schema
        found = {columns.column(i).path for i in range(len(columns))}
        assert found >= {"v.value", "v.metadata"}
        assert not any("typed" in each for each in found)
    assert len(table.log.update().to_table()) == 100
