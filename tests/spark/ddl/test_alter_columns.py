"""ALTER TABLE on columns: rows written before are read right after, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import ConcurrentAppendException, DeltaError
from pyspark_delta.kernel.protocol.column_mapping import column_id
from pyspark_delta.kernel.protocol.operations import change_column
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.ddl.alteration import Alteration
from pyspark_delta.spark.tables.names import look_up
from tests.support.altering import alter, last_commit, metadata, refused, snapshot
from tests.support.catalog_tables import own_database, rows

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def test_added_columns_are_null_in_rows_that_were_there(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, st STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>) USING delta")
    spark.sql("INSERT INTO t SELECT 1, named_struct('a', 2), array(named_struct('x', 3))")
    alter(
        spark,
        "ADD COLUMNS (first STRING COMMENT 'ä' FIRST, st.b INT, l.element.y INT, v VARCHAR(3))",
        "ADD COLUMN mid INT AFTER ID",
    )
    assert rows(spark.table("t")) == [(None, 1, None, ((2, None)), [(3, None)], None)]
    operation, told = last_commit(spark)
    column = {"name": "mid", "type": "integer", "nullable": True, "metadata": {}}
    assert operation == "ADD COLUMNS"
    assert told == {"columns": [{"column": column, "position": "AFTER id"}]}
    spark.sql("INSERT INTO t SELECT 'f', 4, 5, named_struct('a', 6, 'b', 7), array(), 'abc'")
    assert spark.sql("SELECT mid, st.b FROM t WHERE id = 4").collect() == [(5, 7)]
    assert spark.catalog.listColumns("t")[0].description == "ä"
    assert [each.name for each in spark.catalog.listColumns("t")][:3] == ["first", "id", "mid"]
    with pytest.raises(DeltaError, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        spark.sql("INSERT INTO t (id, v) VALUES (1, 'four')")


def test_columns_that_cannot_be_added(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, s STRING) USING delta")
    expected = {
        "ADD COLUMN ID INT": "FIELD_ALREADY_EXISTS",
        "ADD COLUMN s.x INT": "INVALID_FIELD_NAME",
        "ADD COLUMN no.x INT": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "ADD COLUMN x INT AFTER no": "FIELD_NOT_FOUND",
        "ADD COLUMN x INT NOT NULL": "DELTA_OPERATION_NOT_ALLOWED",
        "ADD COLUMN x INT DEFAULT 3": (
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED"
        ),
        "ADD COLUMN `a b` INT": "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
        "ADD COLUMN x INTERVAL DAY": "DELTA_UNSUPPORTED_DATA_TYPES",
        "ADD COLUMN x TIMESTAMP_NTZ": "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
        "DROP COLUMN s": "DELTA_UNSUPPORTED_DROP_COLUMN",
        "RENAME COLUMN s TO x": "DELTA_UNSUPPORTED_RENAME_COLUMN",
    }
    assert {change: refused(spark, change) for change in expected} == expected
    alter(spark, "DROP COLUMN IF EXISTS no")
    assert snapshot(spark).version == 0
    with pytest.raises(ParseException, match="PARSE_SYNTAX_ERROR"):
        spark.sql("ALTER TABLE t ADD COLUMN x INT y")


def test_renamed_and_dropped_columns_in_files_of_several_ages(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id INT, p STRING, s STRING, st STRUCT<a: INT, b: INT>) USING delta "
        "PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.dataSkippingStatsColumns' = 'id,s,st.a,st.b')"
    )
    spark.sql("INSERT INTO t SELECT 1, 'x', 'one', named_struct('a', 10, 'b', 11)")
    alter(
        spark,
        "RENAME COLUMN s TO `a b`",
        "RENAME COLUMN st.a TO A2",
        "RENAME COLUMN p TO part",
        "DROP COLUMN st.b",
    )
    found = metadata(spark)
    assert found.partition_columns == ("part",)
    assert found.configuration["delta.dataSkippingStatsColumns"] == "id,`a b`,st.A2"
    spark.sql("INSERT INTO t SELECT 2, 'y', 'two', named_struct('A2', 20)")
    assert rows(spark.table("t")) == [(1, "x", "one", (10,)), (2, "y", "two", (20,))]
    assert spark.sql("SELECT id FROM t WHERE part = 'x' AND st.a2 = 10").collect() == [(1,)]
    alter(spark, "DROP COLUMNS (`a b`)", "ADD COLUMN s STRING", "ADD COLUMN st.b INT")
    assert rows(spark.table("t")) == [
        (1, "x", (10, None), None),
        (2, "y", (20, None), None),
    ]
    assert metadata(spark).configuration["delta.dataSkippingStatsColumns"] == "id,st.A2"
    names = [f.metadata["delta.columnMapping.physicalName"] for f in metadata(spark).schema]
    assert len(set(names)) == 4
    alter(spark, "DROP COLUMNS IF EXISTS (no, S, id)")
    assert last_commit(spark) == ("DROP COLUMNS", {"columns": ["s", "id"]})
    assert spark.table("t").columns == ["part", "st"]
    assert refused(spark, "DROP COLUMN PART") == "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"
    assert refused(spark, "RENAME COLUMN st TO Part") == "FIELD_ALREADY_EXISTS"


def test_a_table_that_becomes_mapped_keeps_reading_its_files(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    table = f"delta.`{table_path}`"
    spark.sql(f"CREATE TABLE {table} (id INT, v STRING) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    alter(
        spark,
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "RENAME COLUMN v TO w",
        "ADD COLUMN v INT FIRST",
        table=table,
    )
    spark.sql(f"INSERT INTO {table} VALUES (7, 2, 'b')")
    assert rows(spark.table(table)) == [(7, 2, "b"), (None, 1, "a")]
    alter(spark, "DROP COLUMN w", table=table)
    assert rows(spark.table(table)) == [(7, 2), (None, 1)]


def test_widened_columns_are_read_from_files_of_both_widths(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (i INT, d DECIMAL(4, 1), dt DATE, l ARRAY<SMALLINT>, "
        "m MAP<TINYINT, STRUCT<f: FLOAT>>) USING delta TBLPROPERTIES "
        "('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    spark.sql(
        "INSERT INTO t SELECT 1, 1.5BD, DATE'2020-01-02', array(3S), map(4Y, named_struct('f', 5F))"
    )
    alter(
        spark,
        "ALTER COLUMN i TYPE BIGINT",
        "ALTER COLUMN d TYPE DECIMAL(10, 3), dt TYPE TIMESTAMP_NTZ",
        "ALTER COLUMN l.element TYPE INT",
        "ALTER COLUMN m.key TYPE INT",
        "CHANGE COLUMN m.value.f f DOUBLE COMMENT 'wide' FIRST",
    )
    assert metadata(spark).schema["l"].metadata == {
        "delta.typeChanges": [{"fromType": "short", "toType": "integer", "fieldPath": "element"}]
    }
    spark.sql(
        "INSERT INTO t SELECT 1L << 40, 1234567.125BD, TIMESTAMP_NTZ'2020-01-02 03:04:05', "
        "array(100000), map(100000, named_struct('f', 1e300D))"
    )
    found = spark.table("t").orderBy("i").collect()
    assert found[0][:3] == (1, Decimal("1.500"), datetime(2020, 1, 2))
    assert (found[0].l, found[0].m[4].f) == ([3], 5.0)
    assert found[1][:3] == (1 << 40, Decimal("1234567.125"), datetime(2020, 1, 2, 3, 4, 5))
    expected = {
        "ALTER COLUMN i TYPE INT": "NOT_SUPPORTED_CHANGE_COLUMN",
        "ALTER COLUMN i TYPE DOUBLE": "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        "ALTER COLUMN l TYPE ARRAY<BIGINT>": "CANNOT_UPDATE_FIELD.ARRAY_TYPE",
        "ALTER COLUMN no TYPE INT": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "ALTER COLUMN m.key COMMENT 'x'": "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY",
        "ALTER COLUMN i COMMENT 'x', i FIRST": "NOT_SUPPORTED_CHANGE_SAME_COLUMN",
    }
    assert {change: refused(spark, change) for change in expected} == expected


def test_comments_and_places(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (a INT, b STRING, st STRUCT<x: INT, y: INT>) USING delta")
    spark.sql("INSERT INTO t SELECT 1, 'b', named_struct('x', 2, 'y', 3)")
    alter(
        spark,
        "ALTER COLUMN a COMMENT 'thé a', b FIRST",
        "ALTER COLUMN st.y FIRST",
        "CHANGE COLUMN st.x x INT COMMENT 'inner'",
        "ALTER COLUMN a TYPE INT",
    )
    assert snapshot(spark).version == 4
    assert rows(spark.table("t")) == [("b", 1, (3, 2))]
    assert [f.comment for f in metadata(spark).schema] == [None, "thé a", None]
    spark.sql("COMMENT ON COLUMN t.b IS 'söme'")
    spark.sql(f"COMMENT ON COLUMN {db}.t.st.y IS 'why'")
    spark.sql("COMMENT ON COLUMN t.a IS NULL")
    shown = {each.name: each.description for each in spark.catalog.listColumns("t")}
    assert shown == {"b": "söme", "a": None, "st": None}
    assert last_commit(spark)[0] == "CHANGE COLUMN"
    with pytest.raises(DeltaError, match="UNRESOLVED_COLUMN"):
        spark.sql("COMMENT ON COLUMN t.no IS 'x'")


def test_not_null_is_set_where_no_row_breaks_it_and_enforced_from_then_on(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (a INT NOT NULL, b INT, st STRUCT<x: INT>) USING delta")
    spark.sql("INSERT INTO t SELECT 1, 2, named_struct('x', 3)")
    spark.sql("INSERT INTO t SELECT 1, NULL, NULL")
    assert refused(spark, "ALTER COLUMN b SET NOT NULL") == "DELTA_NEW_NOT_NULL_VIOLATION"
    assert refused(spark, "ALTER COLUMN st.x SET NOT NULL") == "DELTA_NEW_NOT_NULL_VIOLATION"
    spark.sql("INSERT OVERWRITE t SELECT 1, 2, named_struct('x', 3)")
    alter(spark, "ALTER COLUMN b SET NOT NULL, st.x SET NOT NULL, a DROP NOT NULL")
    with pytest.raises(DeltaError, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        spark.sql("INSERT INTO t SELECT 1, 2, NULL")
    spark.sql("INSERT INTO t SELECT NULL, 2, named_struct('x', 3)")
    assert [f.nullable for f in metadata(spark).schema] == [True, False, True]


def test_not_null_is_not_set_past_rows_of_another_writer(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (a INT) USING delta")
    name = look_up(spark, "t")
    assert name is not None
    alteration = Alteration.start(spark, name)
    alteration.txn.filter_files()
    spark.sql("INSERT INTO t VALUES (NULL)")
    new = alteration.schema["a"].with_nullable(False)
    with pytest.raises(ConcurrentAppendException):
        alteration.commit_schema(StructType((new,)), change_column((), new))


def test_defaults_are_set_and_dropped(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, s STRING, st STRUCT<x: INT>) USING delta")
    feature = "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    assert refused(spark, "ALTER COLUMN id SET DEFAULT 5") == feature
    alter(
        spark,
        "SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "ALTER COLUMN id SET DEFAULT 40 + 2, s SET DEFAULT concat('ä', 'b')",
    )
    spark.sql("INSERT INTO t (st) VALUES (NULL)")
    alter(spark, "ALTER COLUMN s DROP DEFAULT")
    spark.sql("INSERT INTO t (st) VALUES (NULL)")
    assert rows(spark.table("t")) == [(42, "äb", None), (42, None, None)]
    expected = {
        "ALTER COLUMN id SET DEFAULT 'x'": "INVALID_DEFAULT_VALUE.DATA_TYPE",
        "ALTER COLUMN id SET DEFAULT s": "INVALID_DEFAULT_VALUE.NOT_CONSTANT",
        "ALTER COLUMN s SET DEFAULT uuid()": "INVALID_DEFAULT_VALUE.NON_DETERMINISTIC",
        "ALTER COLUMN id SET DEFAULT (SELECT 1)": "INVALID_DEFAULT_VALUE.SUBQUERY_EXPRESSION",
        "ALTER COLUMN s SET DEFAULT java_method('java.lang.System', 'lineSeparator')": (
            "INVALID_DEFAULT_VALUE.UNRESOLVED_EXPRESSION"
        ),
        "ALTER COLUMN st.x SET DEFAULT 1": "DELTA_INVALID_COLUMN_DEFAULT",
    }
    assert {change: refused(spark, change) for change in expected} == expected


def test_all_columns_are_replaced_and_the_same_ones_stay(spark: SparkSession, db: str) -> None:
    spark.sql(f"CREATE TABLE t (a INT, b STRING, st STRUCT<x: INT>) USING delta {MAPPED}")
    spark.sql("INSERT INTO t SELECT 1, 'b', named_struct('x', 2)")
    alter(spark, "REPLACE COLUMNS (st STRUCT<x: INT, y: INT>, A INT COMMENT 'new', b STRING)")
    assert rows(spark.table("t")) == [((2, None), 1, "b")]
    alter(spark, "REPLACE COLUMNS (b STRING, a INT)")
    assert rows(spark.table("t")) == [("b", 1)]
    refusal = "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
    assert refused(spark, "REPLACE COLUMNS (b STRING, c INT)") == refusal
    assert refused(spark, "REPLACE COLUMNS (b BINARY, a INT)") == refusal
    assert refused(spark, "REPLACE COLUMNS (b STRING, b INT)") == "COLUMN_ALREADY_EXISTS"
    assert refused(spark, "DROP COLUMNS (a, b)") == "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"


def test_columns_that_the_tables_own_sql_needs_stay_as_they_are(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE t (id INT, s STRING, g INT GENERATED ALWAYS AS (id + 1), "
        "st STRUCT<a: INT, b: INT>, k INT) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    alter(spark, "ADD CONSTRAINT short CHECK (length(s) < 10 AND st.a > 0)")
    by_check = "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
    generated = "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"
    expected = {
        "DROP COLUMN S": by_check,
        "RENAME COLUMN st TO x": by_check,
        "RENAME COLUMN st.a TO x": by_check,
        "ALTER COLUMN st.a TYPE BIGINT": by_check,
        "REPLACE COLUMNS (id INT, g INT, st STRUCT<a: INT, b: INT>, k INT)": by_check,
        "DROP COLUMN id": generated,
        "RENAME COLUMN ID TO x": generated,
        "ALTER COLUMN id TYPE BIGINT": generated,
        "ALTER COLUMN g TYPE BIGINT": "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
    }
    assert {change: refused(spark, change) for change in expected} == expected
    alter(spark, "DROP COLUMN st.b", "ALTER COLUMN k TYPE BIGINT", "DROP COLUMN g")
    alter(spark, "RENAME COLUMN id TO key", "DROP CONSTRAINT short", "DROP COLUMN s")
    assert spark.table("t").columns == ["key", "st", "k"]


def test_a_column_may_be_said_to_have_the_type_that_it_has(spark: SparkSession, db: str) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, s STRUCT<a: INT, b: STRING>, "
        "l ARRAY<STRUCT<a: INT>>) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    before = metadata(spark).schema
    alter(spark, "CHANGE COLUMN id id BIGINT COMMENT 'key'", "ALTER COLUMN s.a TYPE BIGINT")
    alter(spark, "CHANGE COLUMN s s STRUCT<a: BIGINT, b: STRING> COMMENT 'both' FIRST")
    alter(spark, "CHANGE COLUMN l l ARRAY<STRUCT<a: INT>> AFTER s")
    after = metadata(spark).schema
    assert after.names == ("s", "l", "id")
    assert (after["s"].comment, after["id"].comment) == ("both", "key")
    for name in before.names:  # nobody's files lost their columns
        assert column_id(after[name]) == column_id(before[name])
    assert after["l"] == before["l"]
    spark.sql("INSERT INTO t (s, l) VALUES (struct(1, 'x'), array(struct(2)))")
    assert rows(spark.sql("SELECT s.a, l[0].a, id FROM t")) == [(1, 2, 1)]
    other = "CHANGE COLUMN s s STRUCT<a: BIGINT, b: STRING COMMENT 'c'>"
    assert refused(spark, other) == "CANNOT_UPDATE_FIELD.STRUCT_TYPE"


def test_the_tables_own_sql_may_name_columns_that_need_backticks(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE t (`a b` INT, `c.d` INT, `e``f` INT, `1` INT, s STRUCT<`g h`: INT>, free INT)"
        " USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    alter(spark, "ADD CONSTRAINT one CHECK (`a b` > 0 AND `c.d` > 0)")
    alter(spark, "ADD CONSTRAINT two CHECK (`e``f` > 0 AND `1` > 0 AND s.`g h` > 0)")
    for column in ("`a b`", "`c.d`", "`e``f`", "`1`", "s.`g h`", "s"):
        refusal = "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"
        assert refused(spark, f"RENAME COLUMN {column} TO x") == refusal
    alter(spark, "RENAME COLUMN free TO `fr ee`", "DROP COLUMN `fr ee`", "DROP CONSTRAINT one")
    alter(spark, "DROP COLUMN `a b`")
    assert spark.table("t").columns == ["c.d", "e`f", "1", "s"]


def test_a_table_is_altered_by_an_identifier_that_arguments_give(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    spark.sql("ALTER TABLE IDENTIFIER(:name) ADD COLUMN x INT", args={"name": f"{db}.t"})
    spark.sql("ALTER TABLE IDENTIFIER('t') ALTER COLUMN x COMMENT 'y'")
    assert spark.table("t").columns == ["id", "x"]
    assert metadata(spark).schema["x"].comment == "y"


def test_tables_of_others_are_sparks_to_alter(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE p (id INT) USING parquet")
    spark.sql("ALTER TABLE p ADD COLUMN x INT")
    spark.sql("COMMENT ON TABLE p IS 'söme'")
    assert spark.table("p").columns == ["id", "x"]
    spark.sql("CREATE VIEW v AS SELECT 1 AS id")
    for change in ("ADD COLUMN x INT", "SET TBLPROPERTIES ('a' = 'b')"):
        with pytest.raises(AnalysisException, match="EXPECT_TABLE_NOT_VIEW"):
            spark.sql(f"ALTER TABLE v {change}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("ALTER TABLE no ADD COLUMN x INT")
    with pytest.raises(DeltaError, match="DELTA_MISSING_DELTA_TABLE"):
        spark.sql("ALTER TABLE delta.`/nowhere at all` ADD COLUMN x INT")
