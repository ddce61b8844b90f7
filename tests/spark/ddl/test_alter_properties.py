"""SET and UNSET TBLPROPERTIES, comments, locations, clustering, and what no Delta table can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.features import protocol_text
from tests.support.altering import alter, last_commit, metadata, refused, snapshot
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def test_properties_are_set_in_their_own_spelling_and_taken_away(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    alter(
        spark, "SET TBLPROPERTIES ('Mine' = 'ä', 'DELTA.APPENDONLY' = 'true', comment = 'cömment')"
    )
    assert dict(metadata(spark).configuration) == {"Mine": "ä", "delta.appendOnly": "true"}
    assert metadata(spark).description == "cömment"
    told = {"Mine": "ä", "delta.appendOnly": "true", "comment": "cömment"}
    assert last_commit(spark) == ("SET TBLPROPERTIES", {"properties": told})
    alter(spark, "UNSET TBLPROPERTIES ('no', 'delta.appendonly', 'comment')")
    keys = ["no", "delta.appendOnly", "comment"]
    assert last_commit(spark) == (
        "UNSET TBLPROPERTIES",
        {"properties": keys, "ifExists": "true"},
    )
    assert (dict(metadata(spark).configuration), metadata(spark).description) == (
        {"Mine": "ä"},
        None,
    )
    spark.sql("COMMENT ON TABLE t IS 'whät'")
    assert metadata(spark).description == "whät"
    spark.sql("COMMENT ON TABLE t IS NULL")
    assert not metadata(spark).description
    assert last_commit(spark) == ("SET TBLPROPERTIES", {"properties": {"comment": ""}})


def test_properties_that_are_refused(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, _change_type INT) USING delta")
    expected = {
        "'delta.nope' = '1'": "DELTA_UNKNOWN_CONFIGURATION",
        "'delta.checkpointInterval' = 'x'": "DELTA_INVALID_TABLE_PROPERTY",
        "'delta.constraints.c' = 'id > 0'": "DELTA_ADD_CONSTRAINTS",
        "'delta.columnMapping.maxColumnId' = '9'": "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        "'clusteringColumns' = 'id'": "DELTA_CANNOT_MODIFY_TABLE_PROPERTY",
        "'delta.columnMapping.mode' = 'id'": "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        "'delta.logRetentionDuration' = 'interval 1 day'": "DELTA_INVALID_TABLE_PROPERTY",
        "'delta.minReaderVersion' = '9'": "DELTA_INVALID_TABLE_PROPERTY",
        "'delta.feature.nope' = 'supported'": "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
        "'delta.feature.deletionVectors' = 'x'": "DELTA_UNSUPPORTED_FEATURE_STATUS",
        "'delta.feature.clustering' = 'supported'": (
            "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED"
        ),
        "'delta.dataSkippingStatsColumns' = 'nope'": "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        "'delta.enableChangeDataFeed' = 'true'": "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        "'location' = '/x'": "UNSUPPORTED_FEATURE.SET_TABLE_PROPERTY",
    }
    found = {key: refused(spark, f"SET TBLPROPERTIES ({key})") for key in expected}
    assert found == expected
    spark.conf.set("spark.databricks.delta.allowArbitraryProperties.enabled", "true")
    try:
        alter(spark, "SET TBLPROPERTIES ('delta.nope' = '1')")
    finally:
        spark.conf.unset("spark.databricks.delta.allowArbitraryProperties.enabled")
    assert dict(metadata(spark).configuration) == {"delta.nope": "1"}


def test_properties_that_ask_for_features_raise_the_protocol(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("INSERT INTO t VALUES (1)")
    alter(
        spark, "SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )
    assert protocol_text(snapshot(spark).protocol) == "2,5"
    alter(
        spark,
        "SET TBLPROPERTIES ('delta.feature.deletionVectors' = 'supported', "
        "'delta.enableRowTracking' = 'true')",
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    )
    features = set(snapshot(spark).protocol.writer_features or ())
    assert {"deletionVectors", "rowTracking", "domainMetadata", "inCommitTimestamp"} <= features
    assert not any(key.startswith("delta.feature") for key in metadata(spark).configuration)
    assert spark.sql("SELECT _metadata.row_id FROM t").collect() == [(0,)]
    alter(
        spark,
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "RENAME COLUMN id TO `the key`",
    )
    assert rows(spark.table("t")) == [(1,)]
    with pytest.raises(DeltaError, match="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"):
        alter(spark, "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    alter(
        spark,
        "RENAME COLUMN `the key` TO key",
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'mine' = '1')",
    )
    assert metadata(spark).configuration["mine"] == "1"
    assert rows(spark.table("t")) == [(1,)]
    assert metadata(spark).schema["key"].metadata == {}


def test_a_name_gets_another_place(spark: SparkSession, db: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first ä 1%", tmp_path / "sëcond 2%"
    spark.sql(f"CREATE TABLE t (id INT) USING delta LOCATION '{first}'")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql(f"CREATE TABLE u (id INT, x INT) USING delta LOCATION '{second}'")
    spark.sql("INSERT INTO u VALUES (2, 3)")
    place = f"SET LOCATION '{second}'"
    assert refused(spark, place) == "DELTA_SET_LOCATION_SCHEMA_MISMATCH"
    assert refused(spark, "SET LOCATION '/nowhere'") == "DELTA_MISSING_DELTA_TABLE"
    by_path = f"delta.`{first}`"
    assert refused(spark, place, by_path) == "DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER"
    spark.conf.set("spark.databricks.delta.alterLocation.bypassSchemaCheck", "true")
    try:
        alter(spark, place)
    finally:
        spark.conf.unset("spark.databricks.delta.alterLocation.bypassSchemaCheck")
    assert rows(spark.table("t")) == [(2, 3)]
    assert [each.name for each in spark.catalog.listColumns("t")] == ["id", "x"]
    spark.sql("INSERT INTO t VALUES (4, 5)")
    assert rows(spark.table("u")) == [(2, 3), (4, 5)]
    assert rows(spark.table(by_path)) == [(1,)]
    assert "PARTITION_MANAGEMENT_IS_UNSUPPORTED" in (
        refused(spark, f"PARTITION (id = 1) {place}") or ""
    )


def test_a_table_gets_another_name(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("INSERT INTO t VALUES (1)")
    spark.sql("ALTER TABLE t RENAME TO u")
    assert rows(spark.table("u")) == [(1,)]
    spark.sql("CREATE TABLE t (other STRING) USING delta")
    alter(spark, "ADD COLUMN x INT", table="u")
    spark.sql("INSERT INTO u VALUES (2, 3)")
    assert rows(spark.table("u")) == [(1, None), (2, 3)]
    assert rows(spark.table("t")) == []


def test_a_table_is_clustered_by_others_and_by_none(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id INT, s STRING, st STRUCT<a: INT>, l ARRAY<INT>, b BOOLEAN) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    alter(spark, "CLUSTER BY NONE")
    assert snapshot(spark).version == 0
    alter(spark, "CLUSTER BY (ID, st.a)")
    told = {"oldClusteringColumns": "", "newClusteringColumns": "id,st.a"}
    assert last_commit(spark) == ("CLUSTER BY", told)
    physical = clustering_columns(snapshot(spark).domains)
    assert physical is not None
    assert [len(path) for path in physical] == [1, 2]
    assert "clustering" in (snapshot(spark).protocol.writer_features or ())
    expected = {
        "CLUSTER BY (nope)": "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        "CLUSTER BY (id, ID)": "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY",
        "CLUSTER BY (l)": "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        "DROP COLUMN id": "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
        "DROP COLUMN st": "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN",
    }
    assert {change: refused(spark, change) for change in expected} == expected
    alter(spark, "RENAME COLUMN id TO key")
    assert clustering_columns(snapshot(spark).domains) == physical
    alter(spark, "CLUSTER BY (s)", "CLUSTER BY NONE")
    told = {"oldClusteringColumns": "s", "newClusteringColumns": ""}
    assert last_commit(spark) == ("CLUSTER BY", told)
    assert clustering_columns(snapshot(spark).domains) == ()
    alter(spark, "SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 's')")
    assert refused(spark, "CLUSTER BY (key)") == "DELTA_CLUSTERING_COLUMN_MISSING_STATS"
    spark.sql("CREATE TABLE p (id INT, p INT) USING delta PARTITIONED BY (p)")
    assert refused(spark, "CLUSTER BY (id)", "p") == (
        "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED"
    )


def test_a_list_of_columns_with_statistics_can_become_empty_and_stays_so(
    spark: SparkSession, db: str
) -> None:
    listed = "delta.dataSkippingStatsColumns"
    spark.sql(
        "CREATE TABLE t (id INT, st STRUCT<a: INT, l: ARRAY<INT>>) USING delta TBLPROPERTIES"
        f" ('{listed}' = 'st', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql("INSERT INTO t VALUES (1, named_struct('a', 2, 'l', array(3)))")
    alter(spark, "DROP COLUMN st")
    assert metadata(spark).configuration[listed] == ""
    spark.sql("INSERT INTO t VALUES (4)")
    alter(spark, f"SET TBLPROPERTIES ('{listed}' = ' ')")
    stats = [json.loads(text) for text in snapshot(spark).files.column("stats").to_pylist()]
    assert [found.get("minValues") for found in stats if "nullCount" not in found] == [None]
    assert rows(spark.sql("SELECT id FROM t ORDER BY id")) == [(1,), (4,)]


def test_what_belongs_to_other_tables_is_refused(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p)")
    partitions = "INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED"
    hive = "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
    expected = {
        "ADD PARTITION (p = 1)": partitions,
        "DROP PARTITION (p = 1)": partitions,
        "PARTITION (p = 1) RENAME TO PARTITION (p = 2)": partitions,
        "RECOVER PARTITIONS": hive,
        "SET SERDEPROPERTIES ('a' = 'b')": hive,
        "SET SERDE 'x'": hive,
        "ADD CONSTRAINT k PRIMARY KEY (id)": "UNSUPPORTED_FEATURE.TABLE_OPERATION",
        "SET FILEFORMAT parquet": "INVALID_STATEMENT_OR_CLAUSE",
        "ALTER COLUMN id COMMENT 'i' FIRST": "PARSE_SYNTAX_ERROR",
        "ALTER COLUMN id SYNC IDENTITY now": "PARSE_SYNTAX_ERROR",
    }
    assert {change: refused(spark, change) for change in expected} == expected
