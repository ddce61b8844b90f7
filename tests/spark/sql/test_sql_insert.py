"""INSERT in SQL: partitions, columns by name and place, DEFAULT, what is replaced, many tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
from pyspark_delta.errors import SchemaError
from tests.support.catalog_tables import own_database, rows, table_log
from tests.support.refusals import condition, refused
from tests.support.spark_tables import conf


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.fixture
def parts(spark: SparkSession, db: str) -> str:
    """A table of two partition columns, which stand in the middle and at the end."""
    spark.sql("CREATE TABLE t (a INT, p INT, b STRING, q STRING) USING delta PARTITIONED BY (p, q)")
    spark.sql("INSERT INTO t VALUES (1, 1, 'x', 'm'), (2, 2, 'y', 'm'), (3, 1, 'z', 'n')")
    return "t"


@pytest.fixture
def defaults(spark: SparkSession, db: str) -> str:
    """A table whose columns get values by themselves."""
    spark.sql(
        "CREATE TABLE d (id BIGINT, c INT DEFAULT 42, e STRING DEFAULT 'dd', n STRING) USING delta "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    return "d"


def parameters(spark: SparkSession, table: str = "t") -> dict[str, Any]:
    """The newest operation's parameters."""
    return dict(table_log(spark, table).history(1)[0].operation_parameters or {})


def test_values_of_partitions_stand_in_the_clause(spark: SparkSession, db: str, parts: str) -> None:
    done = spark.sql("INSERT INTO t PARTITION (p = 7) VALUES (10, 'b', 'q')")
    assert (done.columns, rows(done)) == ([], [])
    spark.sql("INSERT INTO t PARTITION (P = 7, q = 'w') VALUES (11, 'b')")
    spark.sql("INSERT INTO t PARTITION (p, q) SELECT 12, 8, 'b', 'open'")
    spark.sql("INSERT INTO t PARTITION (q = 'only') SELECT 13, 33, 'b'")
    spark.sql("INSERT INTO t PARTITION (p = null, q = 'nil') SELECT 14, 'b'")
    spark.sql("INSERT INTO t PARTITION (p = 9) (q, a) SELECT 'list', 15")
    assert rows(spark.sql("SELECT * FROM t WHERE a >= 10")) == [
        (10, 7, "b", "q"),
        (11, 7, "b", "w"),
        (12, 8, "b", "open"),
        (13, 33, "b", "only"),
        (14, None, "b", "nil"),
        (15, 9, None, "list"),
    ]


def test_partitions_are_overwritten(spark: SparkSession, db: str, parts: str) -> None:
    spark.sql("INSERT OVERWRITE t PARTITION (p = 1) SELECT 20, 'o', 'm'")
    assert rows(spark.table("t")) == [(2, 2, "y", "m"), (20, 1, "o", "m")]
    spark.sql("INSERT OVERWRITE t PARTITION (p = 2, q = 'm') SELECT 21, 'o'")
    assert rows(spark.table("t")) == [(20, 1, "o", "m"), (21, 2, "o", "m")]
    with conf(spark, spark__sql__sources__partitionOverwriteMode="dynamic"):
        spark.sql("INSERT OVERWRITE t PARTITION (p = 1, q) SELECT 22, 'd', 'new'")
        spark.sql("INSERT OVERWRITE t SELECT 23, 2, 'd', 'm'")
        assert parameters(spark)["isDynamicPartitionOverwrite"] is True
    assert rows(spark.table("t")) == [(20, 1, "o", "m"), (22, 1, "d", "new"), (23, 2, "d", "m")]
    spark.sql("INSERT OVERWRITE TABLE t SELECT 24, 2, 'all', 'm'")
    assert rows(spark.table("t")) == [(24, 2, "all", "m")]


def test_a_partition_column_that_is_left_out_is_null(
    spark: SparkSession, db: str, parts: str
) -> None:
    spark.sql("INSERT INTO t (q, a) VALUES ('list', 10)")
    spark.sql("INSERT INTO t BY NAME SELECT 11 AS a, 'name' AS q")
    spark.sql("INSERT INTO t (p) VALUES (12)")
    spark.sql("SELECT 13 AS a, 'v2' AS q").writeTo("t").append()
    spark.sql("SELECT 14 AS a").write.mode("append").saveAsTable("t")
    assert rows(spark.table("t").where("coalesce(a, p) >= 10")) == [
        (10, None, None, "list"),
        (11, None, None, "name"),
        (13, None, None, "v2"),
        (14, None, None, None),
        (None, 12, None, None),
    ]
    spark.sql("INSERT INTO t BY NAME REPLACE WHERE p IS NULL SELECT 15 AS a, 'where' AS q")
    spark.sql("INSERT OVERWRITE t (a, q) VALUES (16, 'all')")
    assert rows(spark.table("t")) == [(16, None, None, "all")]
    rest = spark.sql("SELECT 17 AS a, 'rest' AS q")
    rest.writeTo("t").overwrite(F.col("p").isNull())
    assert rows(spark.table("t")) == [(17, None, None, "rest")]
    writer, path = rest.write.format("delta"), table_log(spark, "t").store.root_uri
    for write in (
        rest.writeTo("t").overwritePartitions,
        lambda: writer.mode("overwrite").saveAsTable("t"),
        lambda: writer.mode("append").save(path),
    ):
        with refused(SchemaError, match="DELTA_PARTITION_COLUMN_NOT_FOUND"):
            write()


def test_a_partition_column_that_is_left_out_takes_the_value_of_the_table(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE g (a INT, d STRING DEFAULT 'dd', g INT GENERATED ALWAYS AS (a + 1), "
        "n INT NOT NULL) USING delta PARTITIONED BY (d, g, n) "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql("INSERT INTO g (a, n) VALUES (1, 5)")
    spark.sql("SELECT 2 AS a, 6 AS n").writeTo("g").append()
    assert rows(spark.table("g")) == [(1, "dd", 2, 5), (2, "dd", 3, 6)]
    assert condition(spark, "INSERT INTO g (a) VALUES (1)") == "DELTA_INSERT_COLUMN_MISMATCH"
    with refused(SchemaError, match="DELTA_PARTITION_COLUMN_NOT_FOUND"):
        spark.sql("SELECT 2 AS a").writeTo("g").append()


def test_rows_are_replaced_where_a_condition_holds(
    spark: SparkSession, db: str, parts: str
) -> None:
    spark.sql("INSERT INTO t REPLACE WHERE p = 1 SELECT 30, 1, 'w', 'm'")
    assert rows(spark.table("t")) == [(2, 2, "y", "m"), (30, 1, "w", "m")]
    spark.sql("INSERT INTO t REPLACE WHERE a = :a VALUES (:a, 5, 'data', 'm')", args={"a": 30})
    assert rows(spark.table("t")) == [(2, 2, "y", "m"), (30, 5, "data", "m")]
    refused = "INSERT INTO t REPLACE WHERE p = 5 SELECT 31, 6, 'w', 'm'"
    assert condition(spark, refused) == "DELTA_REPLACE_WHERE_MISMATCH"
    assert rows(spark.table("t")) == [(2, 2, "y", "m"), (30, 5, "data", "m")]


def test_rows_are_replaced_that_the_new_ones_match(
    spark: SparkSession, db: str, parts: str
) -> None:
    spark.sql("INSERT INTO t REPLACE USING (p) SELECT 40, 1, 'using', 'm'")
    assert rows(spark.table("t")) == [(2, 2, "y", "m"), (40, 1, "using", "m")]
    assert parameters(spark)["replaceUsingCols"]
    source = "(SELECT 2 AS a, 9 AS p, 'on' AS b, 'm' AS q) AS s"
    spark.sql(f"INSERT INTO t AS x REPLACE ON x.a = s.a SELECT * FROM {source}")
    assert rows(spark.table("t")) == [(2, 9, "on", "m"), (40, 1, "using", "m")]


def test_default_is_a_value(spark: SparkSession, db: str, defaults: str) -> None:
    spark.sql("INSERT INTO d VALUES (1, DEFAULT, 'x', 'y')")
    spark.sql("INSERT INTO d VALUES (2, 3, DEFAULT, DEFAULT), (3, default, 'k', 'DEFAULT')")
    spark.sql("INSERT INTO d (id, c) VALUES (4, DEFAULT)")
    spark.sql("INSERT INTO d SELECT 5, DEFAULT, DEFAULT, 'sel'")
    spark.sql("INSERT INTO d (n, id) VALUES (?, DEFAULT)", args=["arg"])
    assert rows(spark.table("d")) == [
        (1, 42, "x", "y"),
        (2, 3, "dd", None),
        (3, 42, "k", "DEFAULT"),
        (4, 42, "dd", None),
        (5, 42, "dd", "sel"),
        (None, 42, "dd", "arg"),
    ]
    spark.sql(
        "CREATE TABLE g (i BIGINT GENERATED ALWAYS AS IDENTITY, a INT, "
        "g INT GENERATED ALWAYS AS (a + 1)) USING delta"
    )
    spark.sql("INSERT INTO g VALUES (DEFAULT, 5, DEFAULT)")
    assert rows(spark.sql("SELECT i, a, g FROM g")) == [(1, 5, 6)]


def test_columns_are_found_by_name(spark: SparkSession, db: str, defaults: str) -> None:
    spark.sql("INSERT INTO d (id) VALUES (1)")
    spark.sql("INSERT INTO d BY NAME SELECT 'n' AS n, 2 AS id")
    spark.sql("INSERT INTO d (N, ID) SELECT 'r', 3")
    assert rows(spark.table("d")) == [(1, 42, "dd", None), (2, 42, "dd", "n"), (3, 42, "dd", "r")]
    with conf(spark, spark__sql__defaultColumn__useNullsForMissingDefaultValues="false"):
        assert condition(spark, "INSERT INTO d (id) VALUES (5)") == "DELTA_INSERT_COLUMN_MISMATCH"
    spark.sql("INSERT WITH SCHEMA EVOLUTION INTO d BY NAME SELECT 4 AS id, 5 AS more")
    spark.sql("INSERT WITH SCHEMA EVOLUTION INTO d SELECT 6, 1, 'e', 'n', 7, 8 AS most")
    assert spark.table("d").columns == ["id", "c", "e", "n", "more", "most"]
    assert rows(spark.sql("SELECT id, more, most FROM d WHERE id > 3")) == [
        (4, 5, None),
        (6, 7, 8),
    ]


def test_rows_come_from_anywhere(spark: SparkSession, db: str, defaults: str) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, v STRING) USING delta")
    spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    spark.sql("INSERT INTO t TABLE t")
    assert spark.table("t").count() == 4
    spark.sql("INSERT OVERWRITE t SELECT * FROM t VERSION AS OF 1")
    assert rows(spark.table("t")) == [(1, "a"), (2, "b")]
    spark.sql("WITH c AS (SELECT 3L AS id) INSERT INTO t SELECT id, 'c' FROM c")
    spark.sql("INSERT INTO t WITH c AS (SELECT 4L AS id) SELECT id, 'd' FROM c")
    spark.sql("FROM t INSERT INTO t SELECT id + 4, v WHERE id = 1")
    spark.sql("FROM t INSERT INTO t SELECT 6, v WHERE id = 2 INSERT INTO d (id) SELECT id")
    spark.sql("CREATE TABLE p (id BIGINT) USING parquet")
    spark.sql("FROM t INSERT INTO p SELECT id WHERE id < 3 INSERT INTO d (id) SELECT id LIMIT 1")
    assert rows(spark.table("p")) == [(1,), (2,)]
    spark.sql("INSERT INTO IDENTIFIER(:t) VALUES (:id, :v)", args={"t": "t", "id": 7, "v": "g"})
    frame = spark.createDataFrame([(8, "h")], "id LONG, v STRING")
    spark.sql("INSERT INTO t SELECT * FROM {frame}", frame=frame)
    assert [row[0] for row in rows(spark.table("t"))] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert spark.table("d").count() == 6


def test_what_does_not_fit_is_refused_by_name(
    spark: SparkSession, db: str, parts: str, defaults: str
) -> None:
    refused = {
        "INSERT INTO t PARTITION (a = 7) VALUES (1, 'b', 'q')": "NON_PARTITION_COLUMN",
        "INSERT INTO t PARTITION (p = 7) VALUES (1, 'b')": "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        "INSERT OVERWRITE t PARTITION (p = 1, q = 'm') IF NOT EXISTS VALUES (1, 'b')": (
            "UNSUPPORTED_FEATURE.INSERT_PARTITION_SPEC_IF_NOT_EXISTS"
        ),
        "INSERT INTO d VALUES (1)": "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        "INSERT INTO d (id, c) VALUES (1)": "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS",
        "INSERT INTO d (id, c) VALUES (1, 2, 3)": (
            "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"
        ),
        "INSERT INTO d (id, nope) VALUES (1, 2)": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "INSERT INTO d (id, ID) VALUES (1, 2)": "COLUMN_ALREADY_EXISTS",
        "INSERT INTO d BY NAME SELECT 1 AS id, 2 AS nope": "DELTA_MISSING_COLUMN",
        "INSERT INTO t PARTITION (p = 7) (p, a) SELECT 1, 2": (
            "STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST"
        ),
        "INSERT OVERWRITE DIRECTORY '/x' USING delta SELECT 1": "DELTA_OPERATION_NOT_ALLOWED",
        "INSERT INTO nope VALUES (1)": "TABLE_OR_VIEW_NOT_FOUND",
    }
    before = [table_log(spark, name).update().version for name in ("t", "d")]
    for statement, wanted in refused.items():
        assert condition(spark, statement) == wanted, statement
    assert [table_log(spark, name).update().version for name in ("t", "d")] == before


def test_a_column_that_must_have_a_value_is_not_left_out(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE n (id INT NOT NULL, v STRING, g INT NOT NULL) USING delta")
    for statement, expected in {
        "INSERT INTO n (id, v) VALUES (1, 'x')": "DELTA_INSERT_COLUMN_MISMATCH",
        "INSERT OVERWRITE n (v) VALUES ('x')": "DELTA_INSERT_COLUMN_MISMATCH",
        "INSERT INTO n BY NAME SELECT 1 AS g": "DELTA_INSERT_COLUMN_MISMATCH",
        "INSERT INTO n VALUES (DEFAULT, 'x', 1)": "NO_DEFAULT_COLUMN_VALUE_AVAILABLE",
        "INSERT INTO n (id, g) SELECT 1, DEFAULT": "NO_DEFAULT_COLUMN_VALUE_AVAILABLE",
        "UPDATE n SET id = DEFAULT": "NO_DEFAULT_COLUMN_VALUE_AVAILABLE",
        "INSERT INTO n VALUES (NULL, 'x', 1)": "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    }.items():
        assert condition(spark, statement) == expected
    spark.sql("INSERT INTO n (id, g) VALUES (1, 2)")
    assert rows(spark.table("n")) == [(1, None, 2)]


def test_fields_of_structs_go_by_their_places_unless_all_goes_by_name(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE s (a INT, s STRUCT<x: INT, y: INT>, l ARRAY<STRUCT<x: INT, y: INT>>, "
        "g INT GENERATED ALWAYS AS (a)) USING delta"
    )
    for statement, wanted in {
        "INSERT INTO s (a, s) SELECT 1, struct(7, 8)": (1, 7, 8),
        "INSERT INTO s (s, a) SELECT named_struct('y', 7L, 'x', 8L), 2": (2, 7, 8),
        "INSERT INTO s (a, l, s) VALUES (3, array(struct(5, 6)), struct(7, 8))": (3, 7, 8),
        "INSERT INTO s VALUES (4, named_struct('y', 7, 'x', 8), null, DEFAULT)": (4, 7, 8),
        "INSERT INTO s BY NAME SELECT 5 AS a, named_struct('y', 7, 'x', 8) AS s": (5, 8, 7),
    }.items():
        spark.sql(statement)
        found = spark.sql(f"SELECT a, s.x, s.y FROM s WHERE g = {wanted[0]}")
        assert rows(found) == [wanted], statement
    assert rows(spark.sql("SELECT l[0].x, l[0].y FROM s WHERE a = 3")) == [(5, 6)]
    refused = condition(spark, "INSERT INTO s (a, s) SELECT 1, struct(7)")
    assert refused == "DELTA_INSERT_COLUMN_ARITY_MISMATCH"


def test_rows_go_into_the_table_that_a_temporary_view_is(
    spark: SparkSession, db: str, parts: str
) -> None:
    spark.table("t").createOrReplaceTempView("named")
    path = table_log(spark, "t").store.root_uri
    spark.read.format("delta").load(path).createOrReplaceTempView("placed")
    spark.table("t").alias("other").createOrReplaceGlobalTempView("everywhere")
    spark.sql("INSERT INTO named VALUES (10, 1, 'v', 'm')")
    spark.sql("INSERT INTO placed (a, q) VALUES (11, 'list')")
    spark.sql("INSERT INTO global_temp.everywhere BY NAME SELECT 12 AS a")
    spark.sql("SELECT 13, 1, 'w', 'm'").write.insertInto("placed")
    assert rows(spark.sql("SELECT * FROM t WHERE a >= 10")) == [
        (10, 1, "v", "m"),
        (11, None, None, "list"),
        (12, None, None, None),
        (13, 1, "w", "m"),
    ]
    spark.sql("INSERT OVERWRITE named VALUES (20, 2, 'all', 'm')")
    assert rows(spark.table("t")) == [(20, 2, "all", "m")]
    history = table_log(spark, "t").history()
    assert [info.operation for info in history[:5]] == ["WRITE"] * 5


def test_views_that_are_queries_take_no_rows(spark: SparkSession, db: str, parts: str) -> None:
    spark.sql("CREATE TEMPORARY VIEW asked AS SELECT * FROM t")
    spark.table("t").where("p = 1").createOrReplaceTempView("part")
    spark.table("t").select("a", "p").createOrReplaceTempView("narrow")
    spark.table("t").createOrReplaceTempView("whole")
    spark.table("whole").createOrReplaceTempView("twice")
    path = table_log(spark, "t").store.root_uri
    old = spark.read.format("delta").option("versionAsOf", "0").load(path)
    old.createOrReplaceTempView("old")
    refused = {
        "INTO asked VALUES (1, 1, 'x', 'm')": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "INTO twice VALUES (1, 1, 'x', 'm')": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "INTO part VALUES (1, 1, 'x', 'm')": "UNSUPPORTED_INSERT.RDD_BASED",
        "OVERWRITE narrow VALUES (1, 1)": "UNSUPPORTED_INSERT.RDD_BASED",
        "INTO old VALUES (1, 1, 'x', 'm')": "DELTA_FAILED_SCAN_WITH_HISTORICAL_VERSION",
        "INTO whole REPLACE WHERE p = 1 VALUES (1, 1, 'x', 'm')": "VIEW_WRITE_NOT_ALLOWED",
    }
    before = table_log(spark, "t").update().version
    for text, wanted in refused.items():
        assert condition(spark, f"INSERT {text}") == wanted
    with pytest.raises(PySparkException):
        spark.table("t").write.insertInto("part")
    assert table_log(spark, "t").update().version == before
    assert len(rows(spark.table("t"))) == 3
