"""`spark.sql.caseSensitive`: names that statements give are found as they are spelled alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.spark.tables.names import table_log
from tests.support.catalog_tables import own_database, rows
from tests.support.refusals import condition

_UNRESOLVED = "UNRESOLVED_COLUMN.WITH_SUGGESTION"
_NO_FIELD = "FIELD_NOT_FOUND"
_NO_TARGET = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
_LAYOUT = "UNSUPPORTED_FEATURE.PARTITION_WITH_NESTED_COLUMN_IS_UNSUPPORTED"
_MERGE = "MERGE INTO t USING (SELECT 1 AS Id, 'new' AS V) AS n ON t.Id = n.Id"


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    """A database with a table, in a session that tells cases apart."""
    enable(spark)
    with own_database(spark) as name:
        spark.sql(
            "CREATE TABLE t (Id INT, V STRING, S STRUCT<A: INT>, P INT) USING delta "
            "PARTITIONED BY (P) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
        spark.sql("INSERT INTO t VALUES (1, 'a', named_struct('A', 1), 1)")
        spark.conf.set("spark.sql.caseSensitive", "true")
        yield name
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO t (id, V) VALUES (2, 'b')", _UNRESOLVED),
        ("INSERT INTO t (Id, V, v) VALUES (2, 'b', 'c')", _UNRESOLVED),
        ("INSERT INTO t BY NAME SELECT 2 AS id, 'b' AS V", "DELTA_FAILED_TO_MERGE_FIELDS"),
        ("INSERT INTO t PARTITION (p = 1) (Id) VALUES (2)", "NON_PARTITION_COLUMN"),
        ("INSERT OVERWRITE t PARTITION (p = 1) (Id) VALUES (2)", "NON_PARTITION_COLUMN"),
        ("UPDATE t SET v = 'x'", _UNRESOLVED),
        ("UPDATE t SET V = 'x', v = 'y'", _UNRESOLVED),
        ("UPDATE t SET s.A = 1", _UNRESOLVED),
        ("UPDATE t SET S.a = 1", _NO_FIELD),
        ("UPDATE t SET T.V = 'x'", _UNRESOLVED),
        ("UPDATE t AS u SET U.V = 'x'", _UNRESOLVED),
        ("DELETE FROM t WHERE id = 1", _UNRESOLVED),
        (f"{_MERGE} WHEN MATCHED THEN UPDATE SET v = 'x'", _NO_TARGET),
        (f"{_MERGE} WHEN MATCHED THEN UPDATE SET T.V = 'x'", _NO_TARGET),
        (f"{_MERGE} WHEN MATCHED THEN UPDATE SET S.a = 1", _NO_FIELD),
        (f"{_MERGE} WHEN NOT MATCHED THEN INSERT (id) VALUES (1)", _NO_TARGET),
        ("ALTER TABLE t ADD COLUMN id INT", "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS"),
        ("ALTER TABLE t ADD COLUMN Id INT", "FIELD_ALREADY_EXISTS"),
        ("ALTER TABLE t ADD COLUMN S.a INT", "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS"),
        ("ALTER TABLE t ADD COLUMN s.B INT", _UNRESOLVED),
        ("ALTER TABLE t ADD COLUMN n INT AFTER id", _NO_FIELD),
        ("ALTER TABLE t ALTER COLUMN id COMMENT 'c'", _UNRESOLVED),
        ("ALTER TABLE t ALTER COLUMN S.a COMMENT 'c'", _UNRESOLVED),
        ("ALTER TABLE t ALTER COLUMN V AFTER s", _UNRESOLVED),
        ("ALTER TABLE t RENAME COLUMN v TO w", _UNRESOLVED),
        ("ALTER TABLE t RENAME COLUMN V TO id", "DELTA_DUPLICATE_COLUMNS_FOUND.METADATA_UPDATE"),
        ("ALTER TABLE t DROP COLUMN v", _UNRESOLVED),
        ("ALTER TABLE t DROP COLUMNS (V, v)", _UNRESOLVED),
        (
            "CREATE TABLE u (a INT, b INT) USING delta PARTITIONED BY (A)",
            "DELTA_PARTITION_COLUMN_NOT_FOUND",
        ),
        (
            "CREATE TABLE u USING delta PARTITIONED BY (A) AS SELECT 1 AS a, 2 AS b",
            "DELTA_PARTITION_COLUMN_NOT_FOUND",
        ),
        ("CREATE TABLE u (a INT, b INT) USING delta CLUSTER BY (A)", _LAYOUT),
        ("CREATE TABLE u (a INT, b INT GENERATED ALWAYS AS (A)) USING delta", _UNRESOLVED),
    ],
)
def test_a_name_in_another_case_is_another_name(
    spark: SparkSession, db: str, statement: str, expected: str
) -> None:
    before = rows(spark.table("t"))
    assert condition(spark, statement) == expected
    assert rows(spark.table("t")) == before
    assert table_log(spark, "t").update().version == 1


def test_names_as_the_table_spells_them_are_found(spark: SparkSession, db: str) -> None:
    for statement in (
        "INSERT INTO t (Id, P) VALUES (2, 2)",
        "INSERT INTO t BY NAME SELECT 3 AS Id, 'c' AS V, 3 AS P",
        "INSERT INTO t PARTITION (P = 4) (Id) VALUES (4)",
        "UPDATE t SET V = 'x', S.A = 7 WHERE Id = 1",
        "UPDATE t SET t.V = 'y' WHERE Id = 2",
        f"{_MERGE} WHEN MATCHED THEN UPDATE SET t.V = n.V",
        f"{_MERGE} WHEN NOT MATCHED THEN INSERT (Id) VALUES (0)",
        "ALTER TABLE t ADD COLUMNS (S.B INT, n INT AFTER Id)",
        "ALTER TABLE t ALTER COLUMN S.A COMMENT 'c'",
        "ALTER TABLE t ALTER COLUMN V AFTER S",
        "ALTER TABLE t RENAME COLUMN V TO v",
        "ALTER TABLE t DROP COLUMN IF EXISTS N",
        "ALTER TABLE t DROP COLUMN n",
    ):
        spark.sql(statement)
    assert spark.table("t").columns == ["Id", "S", "v", "P"]
    assert {row[0]: row[2] for row in rows(spark.table("t"))} == {1: "new", 2: "y", 3: "c", 4: None}


def test_a_star_takes_columns_of_the_very_name_alone(spark: SparkSession, db: str) -> None:
    target = DeltaTable.forName(spark, "t").alias("t")
    source = spark.sql("SELECT 1 AS id, 'n' AS V, named_struct('A', 1) AS S, 1 AS P").alias("s")
    with pytest.raises(PySparkException) as caught:
        target.merge(source, "t.Id = s.id").whenMatchedUpdateAll().execute()
    assert caught.value.getCondition() == _NO_TARGET
    spark.conf.unset("spark.sql.caseSensitive")
    target.merge(source, "t.Id = s.id").whenMatchedUpdateAll().execute()
    assert rows(spark.table("t"))[0][1] == "n"


def test_a_clustered_table_is_clustered_by_columns_of_the_very_name(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE c (Id INT) USING delta")
    assert condition(spark, "ALTER TABLE c CLUSTER BY (id)") == "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
    spark.sql("ALTER TABLE c CLUSTER BY (Id)")
