"""SHOW COLUMNS, PARTITIONS, TBLPROPERTIES, TABLES and CREATE TABLE of Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.column_mapping import without_mapping
from pyspark_delta.kernel.protocol.features import protocol_text
from pyspark_delta.kernel.protocol.identity_columns import HIGH_WATER_MARK
from pyspark_delta.kernel.protocol.properties import PROPERTIES
from pyspark_delta.spark.tables.names import logical_clustering
from tests.support.catalog_tables import own_database, rows, table_log
from tests.support.refusals import condition


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def refused(spark: SparkSession, statement: str) -> str | None:
    return condition(spark, statement, kinds=DeltaError)


def shown(spark: SparkSession, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def test_columns_are_those_of_the_log(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(
        "CREATE TABLE t (b INT, `a c` STRING) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name')"
    )
    names = [("b",), ("a c",)]
    for form in ("IN t", "FROM t", f"IN {db}.t", f"IN t IN {db}", f"FROM t FROM {db}"):
        assert shown(spark, f"SHOW COLUMNS {form}") == names
    spark.sql("USE default")
    assert spark.sql(f"SHOW COLUMNS IN t IN {db}").columns == ["col_name"]
    spark.sql(f"USE {db}")
    spark.range(1).write.format("delta").save(str(table_path))
    assert shown(spark, f"SHOW COLUMNS IN delta.`{table_path}`") == [("id",)]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SHOW COLUMNS IN missing")


def test_partitions_have_columns_of_their_own_types(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql("CREATE TABLE t (id INT, p INT, d DATE) USING delta PARTITIONED BY (p, d)")
    assert shown(spark, "SHOW PARTITIONS t") == []
    spark.sql(
        "INSERT INTO t VALUES (1, 2, DATE'2024-01-02'), (2, 2, DATE'2024-01-02'), "
        "(3, 1, NULL), (4, NULL, DATE'1970-01-01')"
    )
    found = spark.sql("SHOW PARTITIONS t")
    assert found.schema.simpleString() == "struct<p:int,d:date>"
    assert [(row.p, row.d and str(row.d)) for row in found.collect()] == [
        (1, None),
        (2, "2024-01-02"),
        (None, "1970-01-01"),
    ]
    assert [row.p for row in spark.sql("SHOW PARTITIONS t PARTITION (p = 2)").collect()] == [2]
    dated = spark.sql("SHOW PARTITIONS t PARTITION (d = '1970-01-01')").collect()
    assert [row.p for row in dated] == [None]
    assert refused(spark, "SHOW PARTITIONS t PARTITION (id = 1)") == (
        "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN"
    )
    spark.range(1).write.format("delta").save(str(table_path))
    assert refused(spark, f"SHOW PARTITIONS delta.`{table_path}`") == (
        "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE"
    )
    # What is gone is not shown, whoever took it away.
    spark.sql("DELETE FROM t WHERE p = 2")
    assert [row.p for row in spark.sql("SHOW PARTITIONS t").collect()] == [1, None]


def test_properties_are_those_of_the_log(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(
        "CREATE TABLE t (a INT) USING delta CLUSTER BY (a) TBLPROPERTIES "
        "('delta.appendOnly' = 'true', own = '1')"
    )
    found = {row[0]: row[1] for row in shown(spark, "SHOW TBLPROPERTIES t")}
    assert list(found) == sorted(found)
    assert found["delta.appendOnly"] == "true"
    assert found["own"] == "1"
    assert (found["delta.minReaderVersion"], found["delta.minWriterVersion"]) == ("1", "7")
    assert found["delta.feature.clustering"] == "supported"
    assert shown(spark, "SHOW TBLPROPERTIES t ('own')") == [("own", "1")]
    [(key, value)] = shown(spark, "SHOW TBLPROPERTIES t (nope)")
    assert key == "nope"
    assert "does not have property: nope" in value
    spark.range(1).write.format("delta").save(str(table_path))
    assert shown(spark, f"SHOW TBLPROPERTIES delta.`{table_path}`") == [
        ("delta.minReaderVersion", "1"),
        ("delta.minWriterVersion", "2"),
    ]


def test_tables_are_listed(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta COMMENT 'said'")
    # A session's temporary views are listed with the tables of every database.
    tables = [row for row in shown(spark, "SHOW TABLES") if not row[2]]
    assert tables == [(db, "t", False)]
    extended = shown(spark, "SHOW TABLE EXTENDED LIKE 't*'")
    [(_, name, _, told)] = [row for row in extended if not row[2]]
    assert name == "t"
    assert "Provider: delta" in told


DEFINITIONS = (
    "CREATE TABLE {} (id BIGINT) USING delta",
    """CREATE TABLE {} (
        id BIGINT NOT NULL COMMENT 'it''s \\\\ "the" id',
        `a b``c` STRUCT<`x y`: INT COMMENT 'in', l: ARRAY<STRUCT<m: MAP<STRING, DECIMAL(9, 2)>>>>,
        at TIMESTAMP,
        day DATE GENERATED ALWAYS AS (CAST(at AS DATE)) COMMENT 'from at',
        no BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY -2),
        always BIGINT GENERATED ALWAYS AS IDENTITY,
        s STRING DEFAULT 'it''s', n DECIMAL(4, 1) DEFAULT 1.5,
        v VARCHAR(4) NOT NULL, c CHAR(2), constraint INT, ntz TIMESTAMP_NTZ
    ) USING delta PARTITIONED BY (day, c) COMMENT 'hé''llo'
    TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.appendOnly' = 'true',
        mine = 'a ''b''', 'delta.feature.allowColumnDefaults' = 'supported',
        'delta.constraints.positive' = 'id > 0 AND s <> ''x''')""",
    "CREATE TABLE {} (a INT, b STRUCT<c: INT>) USING delta CLUSTER BY (b.c, a)",
    "CREATE TABLE {} (a INT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
    "'delta.enableDeletionVectors' = 'true', 'delta.feature.vacuumProtocolCheck' = 'supported')",
    "CREATE TABLE {} (a INT) USING delta TBLPROPERTIES "
    "('delta.minReaderVersion' = '1', 'delta.minWriterVersion' = '1')",
    "CREATE TABLE {} (a INT) USING delta TBLPROPERTIES "
    "('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')",
    "CREATE TABLE {} (a INT) USING delta TBLPROPERTIES "
    "('delta.checkpointPolicy' = 'v2', 'delta.enableInCommitTimestamps' = 'true')",
)


def definition(spark: SparkSession, name: str) -> tuple[object, ...]:
    """All that a table is, but for names and numbers that are its own."""
    snapshot = table_log(spark, name).update()
    metadata = snapshot.metadata
    return (
        protocol_text(snapshot.protocol),
        without_mapping(metadata.schema),
        metadata.partition_columns,
        metadata.description,
        {
            key: value
            for key, value in metadata.configuration.items()
            if key not in PROPERTIES or PROPERTIES[key].settable
        },
        logical_clustering(snapshot),
    )


@pytest.mark.parametrize("number", range(len(DEFINITIONS)))
def test_the_statement_that_is_shown_makes_an_equal_table(
    spark: SparkSession, db: str, table_path: Path, number: int
) -> None:
    spark.sql(DEFINITIONS[number].format("t"))
    before = definition(spark, "t")
    [(statement,)] = shown(spark, "SHOW CREATE TABLE t")
    assert statement.startswith(f"CREATE TABLE spark_catalog.{db}.t (\n")
    spark.sql("DROP TABLE t")
    spark.sql(statement)
    assert definition(spark, "t") == before
    assert shown(spark, "SHOW CREATE TABLE t") == [(statement,)]
    assert spark.catalog.getTable("t").tableType == "MANAGED"
    # Again by its path, and again as an external table: the place belongs to the statement.
    spark.sql(statement.replace(f"spark_catalog.{db}.t", f"delta.`{table_path}`", 1))
    [(by_path,)] = shown(spark, f"SHOW CREATE TABLE delta.`{table_path}`")
    assert by_path == statement.replace(f"spark_catalog.{db}.t", f"delta.`{table_path}`", 1)
    assert definition(spark, f"delta.`{table_path}`") == before
    spark.sql(f"CREATE TABLE e USING delta LOCATION '{table_path}'")
    [(external,)] = shown(spark, "SHOW CREATE TABLE e")
    assert f"\nLOCATION 'file:{table_path}'" in external
    spark.sql("DROP TABLE e")
    spark.sql(external)
    assert definition(spark, "e") == before


def test_how_far_an_identity_column_counted_is_no_part_of_the_statement(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (a INT, n BIGINT GENERATED ALWAYS AS IDENTITY) USING delta")
    [(fresh,)] = shown(spark, "SHOW CREATE TABLE t")
    spark.sql("INSERT INTO t (a) VALUES (1), (2)")
    assert HIGH_WATER_MARK in table_log(spark, "t").update().schema["n"].metadata
    assert shown(spark, "SHOW CREATE TABLE t") == [(fresh,)]
    assert refused(spark, "SHOW CREATE TABLE t AS SERDE") == "DELTA_OPERATION_NOT_ALLOWED_DETAIL"


def test_tables_of_others_are_shown_by_spark(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE p (a INT, b INT) USING parquet PARTITIONED BY (b)")
    spark.sql("INSERT INTO p VALUES (1, 2)")
    assert shown(spark, "SHOW PARTITIONS p") == [("b=2",)]
    assert "USING parquet" in shown(spark, "SHOW CREATE TABLE p")[0][0]
    assert rows(spark.sql("SHOW COLUMNS IN p")) == [("a",), ("b",)]
