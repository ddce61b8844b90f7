"""UPDATE, DELETE, MERGE and TRUNCATE in SQL: names, aliases, parameters, results, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from tests.support.catalog_tables import own_database, rows, table_log
from tests.support.refusals import condition

CREATE = "CREATE TABLE {} (id BIGINT, v STRING, s STRUCT<a: INT, b: STRING>) USING delta"
ROWS = "SELECT id, concat('v', id), named_struct('a', cast(id AS INT), 'b', 'x') FROM range(4)"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.fixture
def t(spark: SparkSession, db: str) -> str:
    """A table of four rows."""
    spark.sql(CREATE.format("t"))
    spark.sql(f"INSERT INTO t {ROWS}")
    return "t"


def values(spark: SparkSession, table: str = "t") -> dict[int, str]:
    return dict(sorted(tuple(row) for row in spark.sql(f"SELECT id, v FROM {table}").collect()))


def last(spark: SparkSession, table: str = "t") -> Any:
    """What the newest version says of itself."""
    return table_log(spark, table).history(1)[0]


def test_update_sets_columns_and_fields_under_any_name(
    spark: SparkSession, db: str, t: str
) -> None:
    done = spark.sql("UPDATE t SET v = 'one' WHERE id = 1")
    assert (done.columns, rows(done)) == (["num_affected_rows"], [(1,)])
    assert last(spark).operation == "UPDATE"
    spark.sql("UPDATE t AS x SET x.v = concat(x.v, '!'), s.a = x.s.a + 10 WHERE x.id = 2")
    spark.sql(f"UPDATE {db}.t SET {db}.t.v = 'three' WHERE spark_catalog.{db}.t.id = 3")
    spark.sql(f"update spark_catalog.{db}.t set t.s.b = 'y' where t.id = 3;")
    assert values(spark) == {0: "v0", 1: "one", 2: "v2!", 3: "three"}
    found = spark.sql("SELECT s.a, s.b FROM t WHERE id > 1 ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(12, "x"), (3, "y")]
    assert rows(spark.sql("UPDATE t SET v = 'nobody' WHERE id = 77")) == [(0,)]
    assert rows(spark.sql("UPDATE t SET v = (SELECT max(v) FROM t) WHERE id = 0")) == [(1,)]
    spark.sql("WITH c AS (SELECT 'cte' AS x) UPDATE t SET v = (SELECT max(x) FROM c) WHERE id = 0")
    assert values(spark)[0] == "cte"
    assert rows(spark.sql("UPDATE t SET v = DEFAULT")) == [(4,)]
    assert set(values(spark).values()) == {None}


def test_delete_takes_conditions_and_all(
    spark: SparkSession, db: str, t: str, table_path: Path
) -> None:
    done = spark.sql("DELETE FROM t WHERE id = 1")
    assert (done.columns, rows(done)) == (["num_affected_rows"], [(1,)])
    assert rows(spark.sql(f"DELETE FROM {db}.t AS x WHERE x.id = 2")) == [(1,)]
    assert rows(spark.sql(f"DELETE FROM t WHERE spark_catalog.{db}.t.id = 77")) == [(0,)]
    assert list(values(spark)) == [0, 3]
    assert rows(spark.sql("DELETE FROM t")) == [(2,)]
    assert last(spark).operation_parameters == {"predicate": '["true"]'}
    assert rows(spark.sql("DELETE FROM t WHERE true")) == [(0,)]
    path = f"delta.`{table_path}`"
    spark.range(4).write.format("delta").save(str(table_path))
    assert rows(spark.sql(f"DELETE FROM {path} WHERE id = 1")) == [(1,)]
    assert rows(spark.sql(f"DELETE FROM {path} WHERE {path}.id = 2")) == [(1,)]
    assert rows(spark.sql(f"SELECT * FROM {path}")) == [(0,), (3,)]


def test_merge_takes_every_clause(spark: SparkSession, db: str, t: str) -> None:
    spark.sql("CREATE TABLE s (id BIGINT, v STRING) USING delta")
    spark.sql("INSERT INTO s VALUES (1, 'n1'), (2, 'n2'), (9, 'n9'), (10, 'n10')")
    done = spark.sql(
        """MERGE INTO t USING s ON t.id = s.id
        WHEN MATCHED AND s.id = 1 THEN UPDATE SET v = s.v, t.s.b = 'merged'
        WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED AND s.id = 9 THEN INSERT (id, v) VALUES (s.id, upper(s.v))
        WHEN NOT MATCHED BY TARGET AND s.id < 0 THEN INSERT (id) VALUES (s.id)
        WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN UPDATE SET v = 'alone'
        WHEN NOT MATCHED BY SOURCE AND id = 3 THEN DELETE"""
    )
    assert done.columns == [
        *("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")
    ]
    assert rows(done) == [(5, 2, 2, 1)]
    assert values(spark) == {0: "alone", 1: "n1", 9: "N9"}
    assert last(spark).operation == "MERGE"
    assert rows(spark.sql("SELECT s.b FROM t WHERE id = 1")) == [("merged",)]


def test_merge_takes_any_source(spark: SparkSession, db: str, t: str, table_path: Path) -> None:
    spark.range(2).selectExpr("id", "'path' AS v").write.format("delta").save(str(table_path))
    spark.sql(f"INSERT INTO delta.`{table_path}` VALUES (2, 'newer')")
    spark.createDataFrame([(3, "view")], "id LONG, v STRING").createOrReplaceTempView("tv")
    update = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    sources = {
        "(SELECT * FROM VALUES (0L, 'values') AS x(id, v)) AS s": {0: "values"},
        "(SELECT id, 'query' AS v FROM t WHERE id = 1) s": {1: "query"},
        f"(SELECT * FROM delta.`{table_path}` VERSION AS OF 0) AS s": {0: "path", 1: "path"},
        f"delta.`{table_path}` s": {2: "newer"},
        f"delta.`{table_path}@v0` s": {0: "path", 1: "path"},
        "tv s": {3: "view"},
        "(SELECT * FROM t VERSION AS OF 1) AS s": {i: f"v{i}" for i in range(4)},
    }
    expected = values(spark)
    for source, changed in sources.items():
        spark.sql(f"MERGE INTO t USING {source} {update}")
        expected |= changed
        assert values(spark) == expected, source
    spark.sql(f"WITH s AS (SELECT 0 AS id, 'cte' AS v) MERGE INTO t USING s {update}")
    spark.sql(
        "MERGE INTO t AS a USING t AS b ON a.id = b.id + 1 WHEN MATCHED THEN UPDATE SET v = b.v"
    )
    assert values(spark) == {0: "cte", 1: "cte", 2: "v1", 3: "v2"}


def test_merge_stars_follow_names_and_may_evolve(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id BIGINT, v STRING) USING delta")
    spark.sql("INSERT INTO t VALUES (1, 'a')")
    star = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    source = "(SELECT * FROM VALUES ('b', 1L, 5), ('c', 2L, 6) AS x(v, id, more)) AS s"
    spark.sql(f"MERGE INTO t USING {source} {star}")
    assert rows(spark.table("t")) == [(1, "b"), (2, "c")]
    spark.sql(f"MERGE WITH SCHEMA EVOLUTION INTO t USING {source} {star}")
    assert rows(spark.table("t")) == [(1, "b", 5), (2, "c", 6)]
    assert [column.name for column in spark.catalog.listColumns("t")] == ["id", "v", "more"]


def test_parameters_and_frames_go_into_statements(spark: SparkSession, db: str, t: str) -> None:
    named = {"id": 1, "v": "na'med"}
    assert rows(spark.sql("UPDATE t SET v = :v WHERE id = :id", args=named)) == [(1,)]
    assert rows(spark.sql("UPDATE t SET v = ? WHERE id = ?", args=["first", 2])) == [(1,)]
    assert values(spark) == {0: "v0", 1: "na'med", 2: "first", 3: "v3"}
    assert rows(spark.sql("DELETE FROM t WHERE id IN (:a, :b)", args={"a": 3, "b": 8})) == [(1,)]
    spark.sql("DELETE FROM IDENTIFIER(:table) WHERE id = 2", args={"table": "t"})
    merge = (
        "WHEN MATCHED THEN UPDATE SET v = {} WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, ?)"
    )
    spark.sql(
        f"MERGE INTO t USING (SELECT ? AS id) s ON t.id = s.id {merge.format('?')}",
        args=[7, "updated", "inserted"],
    )
    frame = spark.createDataFrame([(0, "frame")], "id LONG, v STRING")
    spark.sql(
        "MERGE INTO t USING {source} AS s ON t.id = s.id AND s.id >= :low "
        "WHEN MATCHED THEN UPDATE SET v = concat(s.v, {end})",
        args={"low": 0},
        source=frame,
        end="!",
    )
    assert values(spark) == {0: "frame!", 1: "na'med", 7: "inserted"}
    assert condition(spark, "UPDATE t SET v = :missing", {"v": 1}) == "UNBOUND_SQL_PARAMETER"


def test_a_view_of_a_table_stands_for_it(
    spark: SparkSession, db: str, t: str, table_path: Path
) -> None:
    spark.sql("CREATE TEMP VIEW whole AS SELECT * FROM t AS x")
    spark.sql("CREATE TEMP VIEW part AS SELECT v, id FROM t")
    assert rows(spark.sql("UPDATE whole SET whole.v = 'w' WHERE whole.id = 1")) == [(1,)]
    assert rows(spark.sql("DELETE FROM part WHERE id = 2")) == [(1,)]
    # Columns that a view does not show stay as they are.
    assert rows(spark.sql("UPDATE part AS p SET p.v = 'p' WHERE p.id = 3")) == [(1,)]
    assert rows(spark.sql("SELECT id, v, s.a FROM t")) == [(0, "v0", 0), (1, "w", 1), (3, "p", 3)]
    merged = "MERGE INTO whole USING (SELECT 0 AS id) s ON whole.id = s.id WHEN MATCHED THEN DELETE"
    assert rows(spark.sql(merged)) == [(1, 0, 1, 0)]
    spark.range(3).write.format("delta").save(str(table_path))
    frame = spark.read.format("delta").load(str(table_path))
    frame.createOrReplaceTempView("by_path")
    assert rows(spark.sql("DELETE FROM by_path WHERE id = 1")) == [(1,)]
    frame.where("id > 0").createOrReplaceTempView("some")
    spark.sql("CREATE TEMP VIEW swapped AS SELECT id AS n, v AS id FROM t")
    spark.sql("CREATE VIEW kept AS SELECT * FROM t")
    spark.sql("CREATE TEMP VIEW joined AS SELECT a.* FROM t a JOIN t b ON a.id = b.id")
    spark.sql("CREATE TEMP VIEW united AS SELECT id FROM t UNION ALL SELECT id FROM range(3)")
    spark.sql("CREATE TEMP VIEW summed AS SELECT id, count(*) AS n FROM t GROUP BY id")
    refused = {
        "DELETE FROM some": "DELTA_UNEXPECTED_PARTIAL_SCAN",
        "UPDATE swapped SET id = 'x'": "DELTA_CANNOT_RESOLVE_COLUMN",
        "DELETE FROM kept": "DELTA_UNSUPPORTED_SOURCE",
        "DELETE FROM joined WHERE id = 1": "DELTA_UNSUPPORTED_SOURCE",
        "UPDATE united SET id = 1": "DELTA_UNSUPPORTED_SOURCE",
        "MERGE INTO summed USING t ON t.id = summed.id WHEN MATCHED THEN DELETE": (
            "DELTA_UNSUPPORTED_SOURCE"
        ),
        "TRUNCATE TABLE whole": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
    }
    for statement, wanted in refused.items():
        assert condition(spark, statement) == wanted, statement
    for name in ("whole", "part", "by_path", "some", "swapped"):
        spark.catalog.dropTempView(name)


def test_truncate_removes_files_without_reading_them(spark: SparkSession, db: str, t: str) -> None:
    done = spark.sql("TRUNCATE TABLE t")
    assert (done.columns, rows(done), values(spark)) == ([], [], {})
    said = last(spark)
    assert (said.operation, said.operation_parameters) == ("TRUNCATE", {})
    assert set(said.operation_metrics) == {"numRemovedFiles", "executionTimeMs"}
    version = table_log(spark, "t").update().version
    spark.sql("TRUNCATE TABLE t")
    assert table_log(spark, "t").update().version == version
    refused = "TRUNCATE TABLE t PARTITION (id = 1)"
    assert condition(spark, refused) == "DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED"


def test_what_makes_no_sense_is_refused_by_name(spark: SparkSession, db: str, t: str) -> None:
    spark.sql("CREATE TABLE s USING delta AS SELECT 1L AS id, 'x' AS v")
    merge = "MERGE INTO t USING s ON t.id = s.id"
    twice = "MERGE INTO t USING (SELECT 1L AS id FROM range(2)) s"
    refused = {
        "UPDATE t SET nope = 1": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "UPDATE t SET s.nope = 1": "FIELD_NOT_FOUND",
        "UPDATE t SET v = nope": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "UPDATE t x SET v = 1 WHERE t.id = 1": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "UPDATE t SET v = 'a', v = 'b'": "DELTA_CONFLICT_SET_COLUMN",
        "UPDATE t SET v = 1 WHERE id IN (SELECT id FROM s)": "DELTA_UNSUPPORTED_SUBQUERY",
        "DELETE FROM t WHERE nope = 1": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "DELETE FROM t WHERE id IN (SELECT id FROM s)": "DELTA_UNSUPPORTED_SUBQUERY",
        f"{merge} WHEN MATCHED THEN UPDATE SET nope = 1": "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"{merge} WHEN MATCHED THEN UPDATE SET v = nope": "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"{merge} WHEN MATCHED AND t.id IN (SELECT id FROM s) THEN DELETE": (
            "DELTA_UNSUPPORTED_SUBQUERY"
        ),
        f"{merge} WHEN NOT MATCHED THEN INSERT *": "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        f"{twice} ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = ''": (
            "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
        ),
        "DELETE FROM delta.`/nowhere`": "DELTA_MISSING_DELTA_TABLE",
    }
    version = table_log(spark, "t").update().version
    for statement, wanted in refused.items():
        assert condition(spark, statement) == wanted, statement
    assert table_log(spark, "t").update().version == version


def test_a_statement_changes_no_part_of_a_table(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    rows = spark.sql("SELECT id, id % 2 AS p FROM range(4)")
    rows.write.format("delta").partitionBy("p").save(str(table_path))
    part = f"delta.`{table_path}/p=1`"
    for statement in (
        f"DELETE FROM {part}",
        f"DELETE FROM {part} WHERE id = 1",
        f"UPDATE {part} SET id = 7",
        f"MERGE INTO {part} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"TRUNCATE TABLE {part}",
    ):
        assert condition(spark, statement) == "DELTA_UNEXPECTED_PARTIAL_SCAN", statement
    log = f"delta.`{table_path}/_delta_log`"
    assert condition(spark, f"DELETE FROM {log}") == "DELTA_MISSING_DELTA_TABLE"
    assert spark.read.format("delta").load(str(table_path)).count() == 4


def test_sparks_own_errors_stay_sparks(spark: SparkSession, db: str, t: str) -> None:
    spark.sql("CREATE TABLE p (id BIGINT) USING parquet")
    merge = "MERGE INTO t USING p ON t.id = p.id"
    for statement in (
        "UPDATE t SET",
        "DELETE t",
        merge,
        f"{merge} WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = ''",
        f"{merge} WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)",
    ):
        with pytest.raises(ParseException):
            spark.sql(statement)
    refused = {
        "UPDATE nope SET v = 1": "TABLE_OR_VIEW_NOT_FOUND",
        "DELETE FROM nope": "TABLE_OR_VIEW_NOT_FOUND",
        "MERGE INTO nope USING t ON true WHEN MATCHED THEN DELETE": "TABLE_OR_VIEW_NOT_FOUND",
        "MERGE INTO t USING nope ON true WHEN MATCHED THEN DELETE": "TABLE_OR_VIEW_NOT_FOUND",
        "DELETE FROM p": "UNSUPPORTED_FEATURE.TABLE_OPERATION",
    }
    for statement, wanted in refused.items():
        with pytest.raises(AnalysisException) as found:
            spark.sql(statement)
        assert found.value.getCondition() == wanted, statement
    with pytest.raises(PySparkException):
        spark.sql("DELETE FROM t WHERE id = 1", args=5)  # type: ignore[arg-type]


def test_unknown_columns_are_told_with_the_tables_own(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE w (row_of_it INT, delta_file INT) USING delta "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
    )
    spark.sql("INSERT INTO w VALUES (1, 1)")
    spark.sql("CREATE TEMP VIEW delta_source AS SELECT 1 AS other")
    merge = "MERGE INTO w USING delta_source ON"
    for statement in (
        "UPDATE w SET row_of_it = __delta_ro",
        "UPDATE w SET __delta_ro = 1",
        "DELETE FROM w WHERE __delta_ro = 1",
        f"{merge} w.__delta_ro = 1 WHEN MATCHED THEN DELETE",
        f"{merge} true WHEN MATCHED AND __delta_ro THEN DELETE",
        f"{merge} true WHEN MATCHED THEN UPDATE SET row_of_it = __delta_ro",
        f"{merge} true WHEN NOT MATCHED BY SOURCE AND __delta_ro = 1 THEN DELETE",
    ):
        with pytest.raises((DeltaError, AnalysisException)) as error:
            spark.sql(statement)
        # Behind that word Spark shows the plan, as it is.
        said = str(error.value).split("SQLSTATE")[0].replace("`__delta_ro`", "")
        for hidden in ("__delta_row", "__delta_file", "row-id-col", "row-commit-version-col"):
            assert hidden not in said, statement
        assert "row_of_it" in said, statement
    spark.catalog.dropTempView("delta_source")
