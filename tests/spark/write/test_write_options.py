"""Options and settings of writes: what each changes in the table, its files and its history."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata, RemoveFile
from pyspark_delta.kernel.protocol.domains import CLUSTERING
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.spark.write.request import TableWrite, WriteRequest
from tests.support.agreement import deltalake_rows
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import create_table


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


def test_a_session_can_make_writes_idempotent(table: SparkTable) -> None:
    spark = table.spark
    data = spark.range(2)
    once = {
        "spark__databricks__delta__write__txnAppId": "job",
        "spark__databricks__delta__write__txnVersion": "3",
    }
    with conf(spark, **once):
        assert table.write(data) == 0
        assert table.write(data) is None
        # Options stand before settings.
        assert table.write(data, txnAppId="other", txnVersion="0") == 1
        with conf(
            spark,
            spark__databricks__delta__write__txnVersion="4",
            spark__databricks__delta__write__txnVersion__autoReset__enabled="true",
        ):
            assert table.write(data) == 2
            assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
            with table.refused("DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS"):
                table.write(data)
    found = table.log.snapshot.transactions
    assert {app_id: txn.version for app_id, txn in found.items()} == {"job": 4, "other": 0}
    assert found["job"].last_updated is not None


def test_user_metadata_comes_from_the_option_or_the_session(table: SparkTable) -> None:
    with conf(table.spark, spark__databricks__delta__commitInfo__userMetadata="session"):
        table.write(table.spark.range(1))
        assert table.info.user_metadata == "session"
        table.write(table.spark.range(1), userMetadata="option")
        assert table.info.user_metadata == "option"


def test_data_change_false_only_rearranges(table: SparkTable) -> None:
    with table.refused("DELTA_DATA_CHANGE_FALSE"):
        table.write(table.spark.range(6), dataChange="false")
    table.write(table.spark.range(0, 6, 1, 3))
    table.write(table.read().coalesce(1), "overwrite", dataChange="false")
    files = [a for a in table.last_commit if isinstance(a, AddFile | RemoveFile)]
    assert len(files) == 4
    assert not any(file.data_change for file in files)
    assert len(table.files) == 1
    assert table.rows == [(i,) for i in range(6)]
    more = table.spark.range(1).withColumn("v", F.lit(1))
    for option in ("mergeSchema", "overwriteSchema"):
        with table.refused("DELTA_DATA_CHANGE_FALSE"):
            table.write(more, "overwrite", **{option: "true", "dataChange": "false"})


def test_append_only_tables_refuse_every_overwrite(table: SparkTable) -> None:
    table.write(table.spark.range(2), **{"delta.appendOnly": "true"})
    for options in ({}, {"dataChange": "false"}, {"replaceWhere": "id = 77"}):
        with table.refused("DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            table.write(table.spark.range(2), "overwrite", **options)
    assert table.write(table.spark.range(2)) == 1


def test_files_are_as_large_and_packed_as_asked(table: SparkTable) -> None:
    data = table.spark.range(0, 10, 1, 1)
    options = {"maxRecordsPerFile": "4", "compression": "gzip", "parquet.writer.version": "v2"}
    table.write(data, **options)
    footers = [pq.ParquetFile(table.path / decode_path(f.path)).metadata for f in table.files]
    assert sorted(footer.num_rows for footer in footers) == [2, 4, 4]
    assert {footer.row_group(0).column(0).compression for footer in footers} == {"GZIP"}
    encodings = footers[0].row_group(0).column(0).encodings
    assert "DELTA_BINARY_PACKED" in encodings or "RLE_DICTIONARY" in encodings
    assert table.rows == sorted([(i,) for i in range(10)], key=repr)


def test_rows_are_brought_together_before_they_are_written(table: SparkTable) -> None:
    data = table.spark.range(0, 40, 1, 8).selectExpr("id", "id % 2 AS p")
    with conf(table.spark, spark__databricks__delta__optimizeWrite__enabled="true"):
        table.write(data, "append", "p")
        assert len(table.files) == 2
        table.write(data, "overwrite", optimizeWrite="false")
        assert len(table.files) == 16
    table.write(data, "overwrite", optimizeWrite="true")
    assert len(table.files) == 2
    assert len(table.rows) == 40


def test_a_table_can_ask_for_rows_to_be_brought_together(table: SparkTable) -> None:
    data = table.spark.range(0, 40, 1, 8)
    table.write(data, **{"delta.autoOptimize.optimizeWrite": "true"})
    assert len(table.files) == 1
    with conf(table.spark, spark__databricks__delta__optimizeWrite__enabled="false"):
        table.write(data, "overwrite")
    assert len(table.files) > 1


@pytest.mark.parametrize("by_table", [False, True])
def test_files_are_about_as_large_as_asked(table: SparkTable, by_table: bool) -> None:
    size = 256 << 10
    text = "md5(cast(id AS string)) || md5(cast(-id AS string)) AS v"  # nothing to compress
    data = table.spark.range(0, 20_000, 1, 8).selectExpr("id", text)
    if by_table:
        asked = {"optimizeWrite": "true", "delta.targetFileSize": "256kb"}
        table.write(data, **asked)
    else:
        with conf(table.spark, spark__databricks__delta__optimizeWrite__binSize=str(size) + "b"):
            table.write(data, optimizeWrite="true")
    sizes = [file.size for file in table.files]
    assert len(sizes) > 2
    assert max(sizes) < 2 * size
    assert sum(sizes) / len(sizes) > size / 2
    # One file where all of it fits into one, however many cores there are.
    with conf(table.spark, spark__databricks__delta__optimizeWrite__binSize="64"):
        table.write(data, "overwrite", optimizeWrite="true")
    assert len(table.files) == 1
    wrong = conf(table.spark, spark__databricks__delta__optimizeWrite__binSize="much")
    with wrong, table.refused("DELTA_ILLEGAL_OPTION"):
        table.write(data, optimizeWrite="true")


def test_a_write_that_brings_rows_together_is_observed(table: SparkTable) -> None:
    seen = Observation()
    data = table.spark.range(0, 30, 1, 4).observe(seen, F.count(F.lit(1)).alias("rows"))
    table.write(data, optimizeWrite="true")
    assert seen.get == {"rows": 30}


@pytest.mark.parametrize(
    ("properties", "length"),
    [
        ({"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}, 5),
        ({"delta.columnMapping.mode": "name"}, 2),
        ({"delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"}, 2),
    ],
    ids=["asked", "name", "id-cdf"],
)
def test_files_go_into_random_directories(
    table: SparkTable, properties: dict[str, str], length: int
) -> None:
    data = table.spark.range(0, 8, 1, 1).selectExpr("id", "id % 2 AS p")
    schema = StructType((StructField("id", LONG), StructField("p", LONG)))
    create_table(table.path, schema, partition_by=["p"], configuration=properties, log=table.log)
    for _ in range(4):
        table.write(data)
    if "delta.enableChangeDataFeed" in properties:
        table.write(data.where("id = 1"), "overwrite", replaceWhere="id = 1")
        changes = [a.path for a in table.last_commit if isinstance(a, AddCDCFile)]
        assert changes
        assert all(re.match(r"_change_data/[A-Za-z0-9]{2}/", path) for path in changes)
    first = [file.path.partition("/")[0] for file in table.files]
    assert all(re.fullmatch(f"[A-Za-z0-9]{{{length}}}", name) for name in first)
    assert len(set(first)) > 1
    assert {tuple(file.partition_values.values()) for file in table.files} == {("0",), ("1",)}
    assert sorted(set(table.rows)) == [(i, i % 2) for i in range(8)]
    assert len(deltalake_rows(table.path)) == len(table.rows)


def test_new_tables_have_the_defaults_of_the_session(table: SparkTable) -> None:
    prefix = "spark__databricks__delta__properties__defaults__"
    defaults = {
        f"{prefix}enableChangeDataFeed": "true",
        f"{prefix}checkpointInterval": "7",
    }
    with conf(table.spark, **defaults):
        table.write(table.spark.range(1), **{"delta.checkpointInterval": "5"})
        table.write(table.spark.range(1), "overwrite")
    assert dict(table.log.snapshot.metadata.configuration) == {
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": "5",
    }
    assert "changeDataFeed" in supported_features(table.log.snapshot.protocol)


def test_properties_and_comments_of_a_table_that_exists_are_not_touched(table: SparkTable) -> None:
    table.write(table.spark.range(1), comment="no description of a path")
    metadata = table.log.snapshot.metadata
    table.write(table.spark.range(1), **{"delta.appendOnly": "true", "comment": "other"})
    assert table.log.snapshot.metadata == metadata
    assert metadata.description is None


def test_clustering_is_a_domain_of_the_table(table: SparkTable) -> None:
    data = table.spark.range(3).selectExpr("id", "named_struct('x', id) AS s", "id AS v")
    mapped = {"delta.columnMapping.mode": "name"}
    table.ask(data, WriteRequest(cluster_by=("s.x", "ID"), options=mapped))
    snapshot = table.log.update()
    assert {"clustering", "domainMetadata"} <= supported_features(snapshot.protocol)
    schema = snapshot.metadata.schema
    key = "delta.columnMapping.physicalName"
    inner = schema["s"].data_type["x"]  # type: ignore[index]
    assert json.loads(snapshot.domains[CLUSTERING].configuration) == {
        "clusteringColumns": [
            [schema["s"].metadata[key], inner.metadata[key]],
            [schema["id"].metadata[key]],
        ],
        "domainName": CLUSTERING,
    }
    table.ask(data, WriteRequest(mode="append", cluster_by=("s.x", "id")))
    with table.refused("DELTA_CLUSTERING_COLUMNS_MISMATCH"):
        table.ask(data, WriteRequest(mode="append", cluster_by=("id",)))
    table.ask(data, WriteRequest(mode="overwrite", cluster_by=("id",)))
    assert json.loads(table.log.snapshot.domains[CLUSTERING].configuration)[
        "clusteringColumns"
    ] == [[schema["id"].metadata[key]]]
    with table.refused("DELTA_CLUSTER_BY_WITH_PARTITIONED_BY"):
        table.ask(
            data,
            WriteRequest(
                mode="overwrite",
                cluster_by=("id",),
                partition_by=("v",),
                options={"overwriteSchema": "true"},
            ),
        )


def test_new_columns_merge_when_the_session_says_so(table: SparkTable) -> None:
    table.write(table.spark.range(1))
    more = table.spark.range(1, 2).withColumn("v", F.lit("x"))
    with conf(table.spark, spark__databricks__delta__schema__autoMerge__enabled="true"):
        with table.refused("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
            table.write(more, mergeSchema="false")
        table.write(more)
    assert table.rows == [(0, None), (1, "x")]
    assert table.parameters == {"mode": "Append", "partitionBy": "[]", "canMergeSchema": True}
    table.write(more.withColumn("w", F.lit(1)), "overwrite", mergeSchema="true")
    assert table.rows == [(1, "x", 1)]


def test_types_widen_where_the_table_allows_it(table: SparkTable) -> None:
    table.write(table.spark.sql("SELECT 1S AS n, 'a' AS s"), **{"delta.enableTypeWidening": "true"})
    wider = table.spark.sql("SELECT 70000 AS n, 'b' AS s")
    fraction = table.spark.sql("SELECT 1.5D AS n, 'c' AS s")
    setting = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
    with (
        conf(table.spark, **{setting: "same_family_type"}),
        table.refused("DELTA_FAILED_TO_MERGE_FIELDS"),
    ):
        table.write(fraction, mergeSchema="true")
    table.write(wider, mergeSchema="true")
    assert table.rows == [(1, "a"), (70000, "b")]
    field = table.log.snapshot.metadata.schema["n"]
    assert field.metadata["delta.typeChanges"] == [{"fromType": "short", "toType": "integer"}]
    # The families are no border for who does not ask for one.
    table.write(fraction, mergeSchema="true")
    assert table.rows == [(1.0, "a"), (1.5, "c"), (70000.0, "b")]


def test_overwrite_schema_goes_with_whole_overwrites_only(table: SparkTable) -> None:
    data = table.spark.sql("SELECT 1 AS id, 'x' AS p")
    table.write(data, "append", "p")
    with table.refused("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"):
        table.write(data, "overwrite", "id")
    other = table.spark.sql("SELECT 'x' AS p, 'new' AS id")
    with table.refused("DELTA_FAILED_TO_MERGE_FIELDS"):
        table.write(other, "append", overwriteSchema="true")
    with table.refused("DELTA_FAILED_TO_MERGE_FIELDS"):
        table.write(other, "overwrite", overwriteSchema="true", replaceWhere="p = 'x'")
    # As in delta-spark: the new partitioning is the one given, none here.
    table.write(other, "overwrite", overwriteSchema="true")
    metadata = table.log.snapshot.metadata
    assert metadata.partition_columns == ()
    assert metadata.schema.simple_string == "struct<p:string,id:string>"
    assert deltalake_rows(table.path) == [{"p": "x", "id": "new"}]


def test_a_table_of_the_catalog_is_made_and_replaced(table: SparkTable) -> None:
    made = TableWrite(
        verb="create",
        is_managed=True,
        comment="first",
        properties={"own": "1", "delta.appendOnly": "false"},
    )
    table.ask(
        table.spark.sql("SELECT 1 AS id, 'x' AS p"),
        WriteRequest(partition_by=("p",), as_table=made),
    )
    first = table.log.snapshot.metadata
    assert first.description == "first"
    assert table.info.operation == "CREATE TABLE AS SELECT"
    assert table.parameters == {
        "isManaged": "true",
        "description": "first",
        "partitionBy": '["p"]',
        "clusterBy": "[]",
        "properties": '{"own":"1","delta.appendOnly":"false"}',
    }
    assert table.metrics == {"numFiles": 1, "numOutputRows": 1}
    again = TableWrite(verb="create or replace", is_managed=True)
    table.ask(table.spark.range(2), WriteRequest(mode="overwrite", as_table=again))
    second: Metadata = table.log.snapshot.metadata
    assert second.id != first.id
    assert dict(second.configuration) == {}
    assert second.partition_columns == ()
    assert table.info.operation == "CREATE OR REPLACE TABLE AS SELECT"
    assert "isV1SaveAsTableOverwrite" not in table.parameters
    assert table.metrics == {"numFiles": 2, "numOutputRows": 2, "numRemovedFiles": 1}
    # As saveAsTable does it, the table stays what it is.
    where = {"replaceWhere": "id = 1"}
    first_api = replace(again, is_v1_overwrite=True)
    request = WriteRequest(mode="overwrite", as_table=first_api, options=where)
    table.ask(table.spark.range(1, 2), request)
    assert table.log.snapshot.metadata.id == second.id
    assert table.parameters["predicate"] == "id = 1"
    assert table.parameters["isV1SaveAsTableOverwrite"] is True
    assert table.rows == [(0,), (1,)]


def test_casts_follow_the_table(table: SparkTable) -> None:
    table.write(table.spark.sql("SELECT 1L AS id, 'x' AS s"))
    narrow = table.spark.sql("SELECT 'y' AS s, 2 AS id")
    with table.refused("DELTA_FAILED_TO_MERGE_FIELDS"):
        table.write(narrow)
    table.ask(narrow, WriteRequest(mode="append", casts=True))
    table.ask(
        table.spark.sql("SELECT 3 AS a, 'z' AS b"),
        WriteRequest(mode="append", casts=True, by_position=True),
    )
    assert table.rows == [(1, "x"), (2, "y"), (3, "z")]


def test_text_that_looks_like_a_null_partition_stays_text(table: SparkTable) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    rows = [(1, null), (2, None), (3, ""), (4, null + "_")]
    table.write(table.data("id long, p string", *rows), "append", "p")
    assert table.rows == [(1, null), (2, None), (3, None), (4, null + "_")]
    values = {file.partition_values["p"] for file in table.files}
    assert values == {null, None, null + "_"}
    apart = {"delta.writePartitionColumnsToParquet": "false"}
    other = SparkTable(table.spark, table.path.with_name("ö ther%"))
    other.write(other.data("id long, p string", *rows), "append", "p", **apart)
    assert other.rows == table.rows
