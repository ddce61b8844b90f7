"""ADD and DROP CONSTRAINT, and SYNC IDENTITY: rules that look at the rows which are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import ConcurrentAppendException, DeltaError
from pyspark_delta.kernel.protocol.constraints import Check, constraint_text, table_checks
from pyspark_delta.kernel.protocol.features import protocol_text
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.spark.ddl.alteration import Alteration
from pyspark_delta.spark.tables.names import look_up
from tests.support.altering import alter, last_commit, metadata, refused, snapshot
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def test_a_constraint_holds_from_the_rows_that_are_there_on(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, s STRING, st STRUCT<a: INT>) USING delta")
    spark.sql("INSERT INTO t SELECT 1, 'ä', named_struct('a', 2)")
    alter(spark, "ADD CONSTRAINT `Wörd Length` CHECK (length(s)<3 AND st.a>=2 /* so */)")
    text = "length ( s ) < 3 AND st . a >= 2"
    assert table_checks(metadata(spark).configuration) == (
        Check(name="wörd length", expression=text),
    )
    told = {"name": "Wörd Length", "expr": text}
    assert last_commit(spark) == ("ADD CONSTRAINT", told)
    assert protocol_text(snapshot(spark).protocol) == "1,3"
    for values in ("1, 'long', named_struct('a', 2)", "1, 'x', NULL"):
        with pytest.raises(DeltaError, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
            spark.sql(f"INSERT INTO t SELECT {values}")
    spark.sql("INSERT INTO t SELECT 2, 'x', named_struct('a', 3)")
    alter(spark, "DROP CONSTRAINT `WÖRD length`")
    assert last_commit(spark) == (
        "DROP CONSTRAINT",
        {"name": "WÖRD length", "expr": text, "existed": "true"},
    )
    spark.sql("INSERT INTO t SELECT 3, 'long', NULL")
    assert len(rows(spark.table("t"))) == 3


def test_constraints_that_cannot_be_added_or_dropped(spark: SparkSession, db: str) -> None:
    spark.sql("CREATE TABLE t (id INT, s STRING) USING delta")
    spark.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    spark.udf.register("mine", lambda value: True, "boolean")
    alter(spark, "ADD CONSTRAINT c CHECK (id > 0)")
    expected = {
        "ADD CONSTRAINT C CHECK (id > 1)": "DELTA_CONSTRAINT_ALREADY_EXISTS",
        "ADD CONSTRAINT d CHECK (id > 1)": "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        "ADD CONSTRAINT d CHECK (s = 'a')": "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        "ADD CONSTRAINT d CHECK (id)": "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT",
        "ADD CONSTRAINT d CHECK (no > 1)": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "ADD CONSTRAINT d CHECK (sum(id) > 1)": "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT",
        "ADD CONSTRAINT d CHECK (rand() < 2)": (
            "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT"
        ),
        "ADD CONSTRAINT d CHECK (mine(id))": "DELTA_UDF_IN_CHECK_CONSTRAINT",
        "ADD CONSTRAINT d CHECK (id IN (SELECT 1))": (
            "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT"
        ),
        "ADD CONSTRAINT d CHECK (id > 0) ENFORCED": "UNSUPPORTED_FEATURE.TABLE_OPERATION",
        "ADD CHECK (id > 0)": "UNSUPPORTED_FEATURE.TABLE_OPERATION",
        "DROP CONSTRAINT no": "DELTA_CONSTRAINT_DOES_NOT_EXIST",
        "DROP CONSTRAINT c CASCADE": "UNSUPPORTED_FEATURE.TABLE_OPERATION",
    }
    assert {change: refused(spark, change) for change in expected} == expected
    with pytest.raises(ParseException) as found:
        spark.sql("ALTER TABLE t ADD CONSTRAINT d CHECK (id >)")
    assert "(id >)" in str(found.value)
    alter(spark, "DROP CONSTRAINT IF EXISTS no")
    assert last_commit(spark) == ("DROP CONSTRAINT", {"name": "no", "existed": "false"})


def test_a_constraint_is_not_added_past_rows_of_another_writer(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t (id INT) USING delta")
    name = look_up(spark, "t")
    assert name is not None
    alteration = Alteration.start(spark, name)
    alteration.txn.filter_files()
    spark.sql("INSERT INTO t VALUES (-1)")
    with pytest.raises(ConcurrentAppendException):
        alteration.commit(alteration.metadata, operation("ADD CONSTRAINT", name="c", expr="id > 0"))


def test_a_constraint_by_path_counts_only_rows_that_are_not_deleted(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    table = f"delta.`{table_path}`"
    spark.sql(
        f"CREATE TABLE {table} (id INT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} SELECT CAST(id AS INT) FROM RANGE(0, 4, 1, 1)")
    spark.sql(f"DELETE FROM {table} WHERE id = 0")
    alter(spark, "ADD CONSTRAINT positive CHECK (id > 0)", table=table)
    assert refused(spark, "ADD CONSTRAINT more CHECK (id > 1)", table) == (
        "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"
    )


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("a.b>=1.5e3 or c<>-2", "a . b >= 1.5e3 or c <> - 2"),
        ("x!='it''s' -- so\n and y<=>r'\\n'", "x != 'it''s' and y <=> r'\\n'"),
        (
            "größe::int > 1 and exists(l, x -> x > 0)",
            "größe :: int > 1 and exists ( l , x -> x > 0 )",
        ),
        ("`a ``b`||\"q\" == 'z'", "`a ``b` || \"q\" == 'z'"),
    ],
)
def test_the_text_of_a_constraint_is_kept_as_its_words(written: str, kept: str) -> None:
    assert constraint_text(written) == kept


def test_an_identity_column_goes_on_behind_values_that_rows_brought(
    spark: SparkSession, db: str
) -> None:
    spark.sql(
        "CREATE TABLE t (id BIGINT GENERATED BY DEFAULT AS IDENTITY, "
        "down BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY -3), v INT) "
        "USING delta"
    )
    spark.sql("INSERT INTO t (id, down, v) VALUES (20, 2, 1)")
    alter(spark, "ALTER COLUMN ID SYNC IDENTITY", "CHANGE down SYNC IDENTITY;")
    operation, told = last_commit(spark)
    assert (operation, told["column"]["name"]) == ("CHANGE COLUMN", "down")
    assert "delta.identity.highWaterMark" not in told["column"]["metadata"]
    marks = [f.metadata.get("delta.identity.highWaterMark") for f in metadata(spark).schema]
    assert marks == [20, 1, None]
    spark.sql("INSERT INTO t (v) VALUES (2)")
    found = spark.sql("SELECT id, down FROM t WHERE v = 2").collect()
    assert found[0].id > 20
    assert found[0].down < 2
    expected = {
        "ALTER COLUMN v SYNC IDENTITY": "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN",
        "ALTER COLUMN no SYNC IDENTITY": "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "ALTER COLUMN id DROP NOT NULL": "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED",
        "ALTER COLUMN id TYPE INT": "NOT_SUPPORTED_CHANGE_COLUMN",
    }
    assert {change: refused(spark, change) for change in expected} == expected
