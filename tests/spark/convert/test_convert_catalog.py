"""Tables of Spark's catalog that become Delta tables: files, properties and the entry itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import ConvertToDeltaCommand, DeltaLog, DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from pyspark_delta.spark.convert.command import ALREADY_DELTA
from pyspark_delta.spark.tables.names import look_up
from tests.support.catalog_tables import own_database, rows
from tests.support.parquet_tables import parquet_file, save_parquet
from tests.support.spark_tables import SparkTable, conf


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    with own_database(enable(spark)) as name:
        yield name
    spark.conf.unset(ALLOWED_LOCATIONS.key)


def location(spark: SparkSession, name: str) -> Path:
    found = look_up(spark, name)
    assert found is not None
    assert found.location is not None
    return Path(found.location.removeprefix("file:"))


def provider(spark: SparkSession, name: str) -> str | None:
    found = look_up(spark, name)
    assert found is not None
    assert found.entry is not None
    return found.entry.provider


def test_a_managed_table_becomes_a_delta_table(spark: SparkSession, database: str) -> None:
    spark.sql(
        "CREATE TABLE t (id INT COMMENT 'which', v VARCHAR(5), p INT) USING parquet "
        "PARTITIONED BY (p) COMMENT 'about' "
        "TBLPROPERTIES ('my.own' = '1', 'delta.appendOnly' = 'true')"
    )
    spark.sql("INSERT INTO t VALUES (1, 'a', 7), (2, 'b', NULL)")
    assert spark.table("t").count() == 2
    given = DeltaTable.convertToDelta(spark, "t")
    assert rows(given.toDF()) == [(1, "a", 7), (2, "b", None)]
    assert provider(spark, "t") == "delta"
    table = SparkTable(spark, location(spark, "t"))
    metadata = table.log.update().metadata
    assert metadata.configuration == {"my.own": "1", "delta.appendOnly": "true"}
    assert metadata.partition_columns == ("p",)
    assert metadata.description == "about"
    assert metadata.schema["id"].metadata == {"comment": "which"}
    assert {file.partition_values["p"] for file in table.files} == {"7", None}
    assert table.parameters == {
        "numFiles": 2,
        "partitionedBy": "[]",
        "collectStats": True,
        "catalogTable": f"`spark_catalog`.`{database}`.`t`",
        "sourceFormat": "parquet",
    }
    # Names resolve to the log from here on, and writes go through it.
    spark.sql("INSERT INTO t VALUES (3, 'c', 8)")
    assert table.log.update().version == 1
    assert rows(spark.table("t")) == [(1, "a", 7), (2, "b", None), (3, "c", 8)]
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()][:3] == ["id", "v", "p"]
    assert spark.catalog.tableExists("t")
    with pytest.raises(DeltaError) as error:
        spark.sql("INSERT INTO t VALUES (4, 'too long', 8)")
    assert error.value.condition == "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"


def test_an_external_table_becomes_one_where_its_files_are(
    spark: SparkSession, database: str, table_path: Path
) -> None:
    save_parquet(spark.range(3), table_path)
    spark.sql(f"CREATE TABLE e USING parquet LOCATION '{table_path}'")
    spark.sql("CREATE VIEW v AS SELECT max(id) AS m FROM e")
    assert rows(spark.table("v")) == [(2,)]
    spark.sql(f"CONVERT TO DELTA spark_catalog.{database}.e NO STATISTICS")
    assert (table_path / "_delta_log").is_dir()
    assert rows(spark.table("e")) == [(0,), (1,), (2,)]
    spark.sql("INSERT INTO e VALUES (5)")
    assert rows(spark.table("v")) == [(5,)]
    spark.sql("DROP TABLE e")
    assert DeltaLog.for_table(table_path).update().version == 1


def test_the_partitions_that_the_catalog_knows_are_the_tables(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, p STRING) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'x y%/é')")
    # A directory that nobody told the catalog of, and one that is somewhere else.
    parquet_file(location(spark, "t") / "p=stray" / "1.parquet", id=[99])
    elsewhere = tmp_path / "öut side 5%"
    parquet_file(elsewhere / "1.parquet", id=[3])
    spark.sql(f"ALTER TABLE t ADD PARTITION (p = 'far') LOCATION '{elsewhere}'")
    expected = [(1, "a"), (2, "x y%/é"), (3, "far")]
    assert rows(spark.table("t")) == expected
    DeltaTable.convertToDelta(spark, f"{database}.t", "p STRING")
    assert rows(spark.table("t")) == expected
    assert rows(spark.table("t").where("p = 'far'")) == [(3, "far")]
    files = SparkTable(spark, location(spark, "t")).files
    assert sorted(file.path.startswith("file:/") for file in files) == [False, False, True]
    # The catalog vouches for the place in sessions that know nothing of the conversion.
    fresh = spark.newSession()
    fresh.conf.unset(ALLOWED_LOCATIONS.key)
    assert rows(fresh.sql(f"SELECT * FROM {database}.t")) == expected
    spark.conf.unset(ALLOWED_LOCATIONS.key)
    assert rows(DeltaTable.forName(spark, f"{database}.t").toDF()) == expected


def test_the_files_may_be_asked_instead_of_the_catalog(spark: SparkSession, database: str) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (1, 1)")
    parquet_file(location(spark, "t") / "p=2" / "1.parquet", id=[2], more=["m"])
    with conf(spark, spark__databricks__delta__convert__useCatalogPartitions="false"):
        spark.sql("CONVERT TO DELTA t")
    assert rows(spark.table("t").select("id", "more", "p")) == [(1, None, 1), (2, "m", 2)]


def test_the_schema_may_be_the_files_instead_of_the_catalogs(
    spark: SparkSession, database: str
) -> None:
    spark.sql("CREATE TABLE t (id BIGINT) USING parquet")
    parquet_file(location(spark, "t") / "1.parquet", id=[1], more=["m"])
    with conf(spark, spark__databricks__delta__convert__useCatalogSchema="false"):
        spark.sql("CONVERT TO DELTA t")
    assert rows(spark.table("t")) == [(1, "m")]


def test_what_is_no_parquet_table_is_refused(spark: SparkSession, database: str) -> None:
    spark.sql("CREATE TABLE j (a INT) USING json")
    spark.sql("CREATE VIEW v AS SELECT 1 AS a")
    spark.range(1).createOrReplaceTempView("tv")
    spark.sql("CREATE TABLE p (id INT, d INT) USING parquet PARTITIONED BY (d)")
    try:
        for statement, condition in (
            ("CONVERT TO DELTA j", "DELTA_CONVERT_NON_PARQUET_TABLE"),
            ("CONVERT TO DELTA v", "DELTA_OPERATION_NOT_ALLOWED_DETAIL"),
            ("CONVERT TO DELTA tv", "DELTA_OPERATION_NOT_ALLOWED_DETAIL"),
            ("CONVERT TO DELTA p", "DELTA_CONVERSION_NO_PARTITION_FOUND"),
            (
                "CONVERT TO DELTA p PARTITIONED BY (d STRING)",
                "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER",
            ),
            (
                "CONVERT TO DELTA j PARTITIONED BY (d STRING)",
                "DELTA_CONVERT_NON_PARQUET_TABLE",
            ),
        ):
            with pytest.raises(DeltaError) as error:
                spark.sql(statement)
            assert error.value.condition == condition, statement
        assert "trying to convert a json source: `j`" in str(error.value)
    finally:
        spark.catalog.dropTempView("tv")
    assert provider(spark, "j") == "json"
    assert provider(spark, "p") == "parquet"
    assert not (location(spark, "p") / "_delta_log").exists()


def test_a_delta_table_of_the_catalog_is_left_alone(
    spark: SparkSession, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("CONVERT TO DELTA t")
    assert capfd.readouterr().out == f"{ALREADY_DELTA}\n"
    assert DeltaLog.for_table(location(spark, "t")).update().version == 0


def test_a_table_over_converted_files_gets_its_properties_into_the_log(
    spark: SparkSession, database: str, table_path: Path
) -> None:
    save_parquet(spark.range(2), table_path)
    spark.sql(f"CREATE TABLE e USING parquet LOCATION '{table_path}' TBLPROPERTIES ('a' = '1')")
    spark.sql(f"CREATE TABLE f USING parquet LOCATION '{table_path}' TBLPROPERTIES ('a' = '2')")
    spark.sql(f"CREATE TABLE g USING parquet LOCATION '{table_path}' TBLPROPERTIES ('a' = '1')")
    DeltaTable.convertToDelta(spark, f"parquet.`{table_path}`")
    table = SparkTable(spark, table_path)
    # The log has no properties yet: those of the catalog enter it.
    spark.sql("CONVERT TO DELTA e")
    assert table.log.update().version == 1
    assert table.log.update().metadata.configuration == {"a": "1"}
    assert table.parameters == {
        "numFiles": 0,
        "partitionedBy": "[]",
        "collectStats": False,
        "catalogTable": f"`spark_catalog`.`{database}`.`e`",
        "sourceFormat": "parquet",
    }
    assert provider(spark, "e") == "delta"
    # It has others now.
    with pytest.raises(DeltaError) as error:
        spark.sql("CONVERT TO DELTA f")
    assert error.value.condition == "DELTA_CONVERT_METASTORE_METADATA_MISMATCH"
    assert provider(spark, "f") == "parquet"
    with conf(spark, spark__databricks__delta__convert__metadataCheck__enabled="false"):
        spark.sql("CONVERT TO DELTA f")
    assert table.log.update().metadata.configuration == {"a": "2"}
    with conf(spark, spark__databricks__delta__convert__metadataCheck__enabled="false"):
        spark.sql("CONVERT TO DELTA g")
    assert table.log.update().version == 3
    assert rows(spark.table("g")) == [(0,), (1,)]
    assert {provider(spark, name) for name in "efg"} == {"delta"}


def test_a_catalog_that_already_agrees_commits_nothing(
    spark: SparkSession, database: str, table_path: Path
) -> None:
    save_parquet(spark.range(2), table_path)
    DeltaTable.convertToDelta(spark, f"parquet.`{table_path}`")
    spark.sql(f"CREATE TABLE e USING parquet LOCATION '{table_path}'")
    spark.sql("CONVERT TO DELTA e")
    assert DeltaLog.for_table(table_path).update().version == 0
    assert provider(spark, "e") == "delta"
    assert rows(spark.table("e")) == [(0,), (1,)]


def test_a_database_called_parquet_stands_before_a_path(spark: SparkSession) -> None:
    enable(spark).sql("CREATE DATABASE parquet")
    try:
        spark.sql("CREATE TABLE parquet.t (id INT) USING parquet")
        spark.sql("INSERT INTO parquet.t VALUES (1)")
        command = ConvertToDeltaCommand("parquet.t")
        assert command.is_catalog_table(spark)
        assert not ConvertToDeltaCommand("parquet.`/t`").is_catalog_table(spark)
        command.run(spark)
        assert provider(spark, "parquet.t") == "delta"
        assert rows(spark.table("parquet.t")) == [(1,)]
    finally:
        spark.sql("DROP DATABASE parquet CASCADE")


def test_a_log_elsewhere_leaves_the_catalog_alone(
    spark: SparkSession, database: str, table_path: Path
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING parquet")
    spark.sql("INSERT INTO t VALUES (1)")
    ConvertToDeltaCommand("t", delta_path=str(table_path)).run(spark)
    assert provider(spark, "t") == "parquet"
    assert SparkTable(spark, table_path).rows == [(1,)]
