"""CREATE TABLE in its rarer forms, CREATE TABLE LIKE, DROP and RENAME."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import without_mapping
from pyspark_delta.kernel.protocol.features import supported_features
from tests.support.catalog_tables import own_database, rows, table_log
from tests.support.refusals import condition


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def refused(spark: SparkSession, statement: str) -> str | None:
    return condition(spark, statement, kinds=DeltaError)


def refused_by_spark(spark: SparkSession, statement: str) -> str | None:
    return condition(spark, statement, kinds=(AnalysisException, ParseException))


def newest(spark: SparkSession, name: str) -> Snapshot:
    return table_log(spark, name).update()


def shown(spark: SparkSession, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def test_a_table_like_another_has_its_definition_and_no_rows(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT NOT NULL COMMENT 'the id', p STRING, "
        "g BIGINT GENERATED ALWAYS AS (id + 1), n BIGINT GENERATED ALWAYS AS IDENTITY, "
        "v VARCHAR(4)) USING delta PARTITIONED BY (p) COMMENT 'hello' TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableRowTracking' = 'true', own = '1', "
        "'delta.constraints.c' = 'id > 0')"
    )
    spark.sql("INSERT INTO t (id, p) VALUES (1, 'a')")
    source = newest(spark, "t")
    spark.sql("CREATE TABLE l LIKE t")
    spark.sql(
        f"CREATE TABLE e LIKE t LOCATION '{table_path}' TBLPROPERTIES (own = '2', more = '3')"
    )
    spark.sql(f"CREATE TABLE delta.`{table_path} 2` LIKE t")
    spark.sql(f"CREATE TABLE r LIKE delta.`{table_path} 2` USING delta")
    for name in ("l", "e", f"delta.`{table_path} 2`", "r"):
        made = newest(spark, name)
        metadata = made.metadata
        assert without_mapping(metadata.schema) == without_mapping(source.metadata.schema)
        assert metadata.partition_columns == ("p",)
        assert metadata.description == "hello"
        assert made.protocol == source.protocol
        assert metadata.id != source.metadata.id
        assert metadata.configuration["delta.constraints.c"] == "id > 0"
        own = metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
        key = "delta.rowTracking.materializedRowIdColumnName"
        assert own != source.metadata.configuration[key]
        assert spark.sql(f"SELECT * FROM {name}").count() == 0
    assert newest(spark, "l").metadata.configuration["own"] == "1"
    assert newest(spark, "e").metadata.configuration["own"] == "2"
    assert newest(spark, "e").metadata.configuration["more"] == "3"
    assert spark.catalog.getTable("l").tableType == "MANAGED"
    assert spark.catalog.getTable("e").tableType == "EXTERNAL"
    assert [info.operation for info in table_log(spark, "l").history()] == ["CREATE TABLE"]
    assert refused(spark, "CREATE TABLE l LIKE t") == "TABLE_OR_VIEW_ALREADY_EXISTS"
    spark.sql("CREATE TABLE IF NOT EXISTS l LIKE r")
    spark.sql("INSERT INTO l (id, p) VALUES (5, 'x')")
    assert rows(spark.sql("SELECT id, g FROM l")) == [(5, 6)]


def test_a_delta_table_is_made_like_any_table_or_view(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE p (a INT COMMENT 'c', b STRING, v CHAR(3)) USING parquet "
        "PARTITIONED BY (b) COMMENT 'said' TBLPROPERTIES (k = 'v')"
    )
    spark.sql("CREATE VIEW w AS SELECT a, b FROM p")
    spark.sql("CREATE TEMP VIEW like_me AS SELECT 1 AS x, 'y' AS y")
    spark.sql("CREATE TABLE d LIKE p USING delta TBLPROPERTIES (z = '1')")
    metadata = newest(spark, "d").metadata
    assert metadata.schema.names == ("a", "v", "b")
    assert metadata.schema["a"].comment == "c"
    assert metadata.schema["v"].metadata["__CHAR_VARCHAR_TYPE_STRING"] == "char(3)"
    assert (metadata.partition_columns, metadata.description) == (("b",), "said")
    assert dict(metadata.configuration) == {"k": "v", "z": "1"}
    spark.sql("CREATE TABLE dw LIKE w USING delta")
    assert newest(spark, "dw").schema.names == ("a", "b")
    spark.sql("CREATE TABLE dt LIKE like_me USING delta")
    assert newest(spark, "dt").schema.names == ("x", "y")
    # Formats of others stay theirs, also when the source is a Delta table.
    spark.sql("CREATE TABLE pp LIKE d USING parquet")
    assert spark.catalog.getTable("pp") is not None
    assert spark.table("pp").columns == ["a", "v", "b"]
    spark.sql("CREATE TABLE same LIKE p")
    assert "USING parquet" in shown(spark, "SHOW CREATE TABLE same")[0][0]
    assert refused_by_spark(spark, "CREATE TABLE x LIKE missing USING delta") == (
        "TABLE_OR_VIEW_NOT_FOUND"
    )
    spark.sql("DROP VIEW like_me")


def test_a_table_may_be_made_without_columns(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql("CREATE TABLE t USING delta")
    spark.sql(f"CREATE TABLE e USING delta LOCATION '{table_path}'")
    assert shown(spark, "DESCRIBE t") == []
    assert spark.table("t").columns == []
    assert newest(spark, "e").version == 0
    grown = spark.range(2).write.format("delta").mode("append").option("mergeSchema", True)
    for name in ("t", "e"):
        grown.saveAsTable(name)
        assert rows(spark.table(name)) == [(0,), (1,)]


def test_options_are_properties_and_the_path_is_the_location(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE t (a INT) USING delta OPTIONS (path '{table_path}', foo 'bar', "
        "'delta.appendOnly' 'true')"
    )
    metadata = DeltaLog.for_table(table_path).update().metadata
    assert dict(metadata.configuration) == {
        "foo": "bar",
        "option.foo": "bar",
        "delta.appendOnly": "true",
        "option.delta.appendOnly": "true",
    }
    assert spark.catalog.getTable("t").tableType == "EXTERNAL"
    spark.sql("CREATE EXTERNAL TABLE x (a INT) USING delta")
    assert spark.catalog.getTable("x").tableType == "MANAGED"


@pytest.mark.parametrize(
    ("definition", "condition"),
    [
        ("(a INT PRIMARY KEY) USING delta", "UNSUPPORTED_FEATURE.TABLE_OPERATION"),
        ("(a INT) USING delta CLUSTER BY NONE", "PARSE_SYNTAX_ERROR"),
        ("(a INT) USING delta CLUSTER BY AUTO", "PARSE_SYNTAX_ERROR"),
        ("(a INT) USING delta CLUSTER BY ()", "PARSE_SYNTAX_ERROR"),
        (
            "(a BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 0)) USING delta",
            "IDENTITY_COLUMNS_ILLEGAL_STEP",
        ),
    ],
)
def test_what_spark_refuses_is_refused_by_its_name(
    spark: SparkSession, db: str, definition: str, condition: str
) -> None:
    assert refused_by_spark(spark, f"CREATE TABLE t {definition}") == condition
    assert not spark.catalog.tableExists("t")


@pytest.mark.parametrize(
    ("definition", "condition"),
    [
        (
            "(a INT, b TIMESTAMP) USING delta PARTITIONED BY (years(b))",
            "DELTA_OPERATION_NOT_ALLOWED",
        ),
        (
            "(a INT) USING delta CLUSTERED BY (a) INTO 4 BUCKETS",
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
        ),
        ("(a INT) USING delta TBLPROPERTIES ('delta.nope' = '1')", "DELTA_UNKNOWN_CONFIGURATION"),
        ("(`a b` INT) USING delta", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("(a INT DEFAULT 1) USING delta", "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"),
        (
            "(a INT GENERATED ALWAYS AS IDENTITY) USING delta",
            "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
        ),
        (
            "(a INT, b ARRAY<INT>) USING delta CLUSTER BY (b)",
            "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        ),
        (
            "(a INT, b INT) USING delta CLUSTER BY (a, a)",
            "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY",
        ),
    ],
)
def test_what_delta_refuses_leaves_nothing(
    spark: SparkSession, db: str, definition: str, condition: str
) -> None:
    assert refused(spark, f"CREATE TABLE t {definition}") == condition
    assert not spark.catalog.tableExists("t")
    spark.sql("CREATE TABLE t (a INT) USING delta")  # the place is free


def test_tables_are_dropped(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta")
    home = Path(spark.sql("DESCRIBE DETAIL t").collect()[0].location.removeprefix("file:"))
    spark.sql("DROP TABLE t PURGE")
    assert not home.exists()
    assert refused_by_spark(spark, "DROP TABLE t") == "TABLE_OR_VIEW_NOT_FOUND"
    spark.sql("DROP TABLE IF EXISTS t")
    # A path is in no catalog: nothing to drop, and nothing is deleted.
    spark.range(1).write.format("delta").save(str(table_path))
    spark.sql(f"DROP TABLE delta.`{table_path}`")
    spark.sql(f"DROP TABLE IF EXISTS delta.`{table_path}`")
    assert spark.read.format("delta").load(str(table_path)).count() == 1
    spark.sql(f"DROP TABLE IF EXISTS delta.`{table_path}x`")
    missing = f"DROP TABLE delta.`{table_path}x`"
    assert refused_by_spark(spark, missing) == "TABLE_OR_VIEW_NOT_FOUND"
    spark.sql(f"CREATE TABLE e USING delta LOCATION '{table_path}'")
    spark.sql("DROP TABLE e")
    assert table_path.exists()


def test_tables_are_renamed(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t USING delta AS SELECT 1 AS a")
    spark.sql("CREATE TABLE taken (a INT) USING delta")
    assert refused_by_spark(spark, "ALTER TABLE t RENAME TO taken") in (
        "TABLE_OR_VIEW_ALREADY_EXISTS",
        "LOCATION_ALREADY_EXISTS",
    )
    spark.sql(f"ALTER TABLE t RENAME TO {db}.u")
    assert rows(spark.table("u")) == [(1,)]
    spark.sql("INSERT INTO u VALUES (2)")
    assert rows(spark.table("u")) == [(1,), (2,)]
    assert not spark.catalog.tableExists("t")
    assert refused_by_spark(spark, "ALTER TABLE t RENAME TO v") == "TABLE_OR_VIEW_NOT_FOUND"


def test_checks_are_part_of_the_definition(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(
        "CREATE TABLE c (id INT, v STRING CHECK (length(v) < 4), CONSTRAINT Positive CHECK (id>0)) "
        f"USING delta LOCATION '{table_path}'"
    )
    snapshot = newest(spark, "c")
    checks = {
        key: str(text)
        for key, text in snapshot.metadata.configuration.items()
        if "constraints" in key
    }
    assert sorted(checks.values()) == ["id > 0", "length ( v ) < 4"]
    assert checks["delta.constraints.positive"] == "id > 0"
    assert "checkConstraints" in supported_features(snapshot.protocol)
    spark.sql("INSERT INTO c VALUES (1, 'a')")
    for values in ("(0, 'a')", "(1, 'long')"):
        assert refused(spark, f"INSERT INTO c VALUES {values}") == (
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
        )
    spark.sql("ALTER TABLE c DROP CONSTRAINT positive")
    spark.sql("CREATE OR REPLACE TABLE c (id INT, CONSTRAINT even CHECK (id % 2 = 0)) USING delta")
    assert newest(spark, "c").metadata.configuration == {"delta.constraints.even": "id % 2 = 0"}


def test_checks_that_cannot_be_kept_leave_nothing(spark: SparkSession, db: str) -> None:
    create = "CREATE TABLE c (id INT, {}) USING delta"
    assert refused(spark, create.format("CONSTRAINT a CHECK (id + 1)")) == (
        "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT"
    )
    twice = "CONSTRAINT a CHECK (id > 0), CONSTRAINT A CHECK (id > 1)"
    for columns in (twice, "CONSTRAINT a CHECK (nope > 0)", "CONSTRAINT a CHECK (rand() > 0)"):
        with pytest.raises((DeltaError, AnalysisException, ParseException)):
            spark.sql(create.format(columns))
    for kind in (
        "PRIMARY KEY (id)",
        "UNIQUE (id)",
        "CONSTRAINT f FOREIGN KEY (id) REFERENCES o (id)",
        "CONSTRAINT a CHECK (id > 0) NORELY",
    ):
        assert refused_by_spark(spark, create.format(kind)) == (
            "UNSUPPORTED_FEATURE.TABLE_OPERATION"
        )
    assert shown(spark, "SHOW TABLES") == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT p, count(*) AS n FROM {t} GROUP BY p HAVING count(*) >= :n",
        "WITH c AS (SELECT p FROM {t}) SELECT p, count(*) AS n FROM c GROUP BY p ORDER BY p",
        "(SELECT p, 3L AS n FROM {t} WHERE :n = 1) UNION SELECT p, 3L FROM {t}",
        "SELECT DISTINCT p, n FROM (SELECT p, count(*) OVER (PARTITION BY p) AS n FROM {t} @v0)",
    ],
)
def test_a_query_of_any_form_may_read_tables_by_their_paths(
    spark: SparkSession, db: str, table_path: Path, query: str
) -> None:
    """The place that Spark notes for a query may be that of its GROUP BY."""
    spark.range(6).selectExpr("id % 2 AS p").write.format("delta").save(str(table_path))
    text = query.format(t=f"delta.`{table_path}`").replace(" @v0", " VERSION AS OF 0")
    spark.sql(f"CREATE TABLE made USING delta AS {text}", args={"n": 1})
    assert sorted(shown(spark, "SELECT * FROM made")) == [(0, 3), (1, 3)]
    assert newest(spark, "made").version == 0
