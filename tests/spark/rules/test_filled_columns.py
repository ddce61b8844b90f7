"""What a table fills in: generated columns, defaults, identity; and when it is given them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import (
    ConstraintError,
    InvalidActionsError,
    OperationNotAllowedError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.identity_columns import HIGH_WATER_MARK, with_identity
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    StructField,
)
from pyspark_delta.spark.files.stats import moved_identity
from pyspark_delta.spark.rules.rows import filled_columns
from tests.support.ruled_tables import RuledTable
from tests.support.transactions import add

Tables = Callable[..., RuledTable]


@pytest.fixture
def table(spark: SparkSession) -> Tables:
    def of(*fields: StructField, **settings: Any) -> RuledTable:
        return RuledTable(spark=spark, fields=fields, **settings)

    return of


def generated(name: str, data_type: Any, sql: str, **settings: Any) -> StructField:
    return StructField(name, data_type, metadata={"delta.generationExpression": sql}, **settings)


def default(name: str, data_type: Any, sql: str, **settings: Any) -> StructField:
    return StructField(name, data_type, metadata={"CURRENT_DEFAULT": sql}, **settings)


def events(table: Tables) -> RuledTable:
    return table(
        StructField("ts", TIMESTAMP),
        generated("day", DATE, "CAST(ts AS DATE)"),
        generated("y", INTEGER, "year(TS)", nullable=False),
        StructField("n", LONG),
        partition_by=["day"],
    )


AT = "TIMESTAMP'2024-01-02 03:04:05'"


def test_a_generated_column_is_computed_from_columns_given_or_null(table: Tables) -> None:
    query = f"SELECT {AT} ts, 1L N"
    assert [row[1:] for row in events(table).rows(query)] == [(date(2024, 1, 2), 2024, 1)]
    loose = table(
        StructField("a", INTEGER), generated("b", INTEGER, "a + 1"), StructField("c", LONG)
    )
    assert loose.rows("SELECT 5L c") == [(None, None, 5)]


def test_a_generated_column_may_be_given_when_it_is_right(table: Tables) -> None:
    query = f"SELECT {AT} ts, DATE'2024-01-02' day"
    assert events(table).rows(query)[0][1:] == (date(2024, 1, 2), 2024, None)
    for wrong, shown in (("DATE'2020-01-01'", "2020-01-01"), ("CAST(NULL AS DATE)", "null")):
        with pytest.raises(ConstraintError) as error:
            events(table).rows(f"SELECT {AT} ts, {wrong} day")
        assert error.value.condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
        assert error.value.parameters == {
            "constraintName": "Generated Column",
            "expression": "(day <=> CAST(ts AS DATE))",
            "values": f" - day : {shown}\n - ts : 2024-01-02T03:04:05.000-08:00",
        }


def test_a_generated_column_obeys_the_rules_of_its_column(table: Tables) -> None:
    with pytest.raises(ConstraintError) as error:
        events(table).rows("SELECT 1L n")
    assert error.value.condition == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert error.value.parameters == {"columnName": "y"}


def test_generated_columns_use_defaults_and_are_stored_in_their_type(table: Tables) -> None:
    made = table(
        default("a", INTEGER, "40 + 2"),
        generated("b", LONG, "a * 2"),
        generated("c", STRING, "concat('x', a)"),
    )
    assert made.rows("SELECT 1 z") == [(42, 84, "x42")]
    assert made.rows("SELECT 1 a") == [(1, 2, "x1")]


def test_a_default_fills_a_column_that_is_missing_and_not_one_that_is_null(table: Tables) -> None:
    defaults = table(
        StructField("i", INTEGER),
        default("d", BYTE, "5L"),
        default("s", STRING, "concat('a', 'b')"),
        default("n", INTEGER, "7", nullable=False),
        default("ar", ArrayType(INTEGER, contains_null=False), "array(1, 2)"),
        default("nothing", STRING, "NULL"),
        default("day", DATE, "DATE'2020-02-29'"),
    )
    assert defaults.rows("SELECT 1 i") == [(1, 5, "ab", 7, [1, 2], None, date(2020, 2, 29))]
    assert defaults.rows("SELECT 1 i, CAST(NULL AS STRING) s")[0][2] is None


def test_a_default_may_be_the_time_of_the_write(table: Tables) -> None:
    timed = table(StructField("i", INTEGER), default("at", TIMESTAMP, "current_timestamp()"))
    first, second = timed.rows("SELECT explode(array(1, 2)) i")
    assert first[1] is not None
    assert first[1] == second[1]


def test_what_the_table_fills_in_is_known(table: Tables) -> None:
    made = table(
        StructField("a", INTEGER),
        default("b", INTEGER, "1"),
        generated("c", INTEGER, "a"),
        with_identity(StructField("d", LONG)),
    )
    assert filled_columns(made.metadata, made.protocol) == {"b", "c", "d"}


def numbered(table: Tables, **settings: Any) -> RuledTable:
    return table(with_identity(StructField("id", LONG), **settings), StructField("v", LONG))


@pytest.mark.parametrize("codegen", ["CODEGEN_ONLY", "NO_CODEGEN"])
def test_every_row_has_its_own_number_of_the_sequence(
    spark: SparkSession, table: Tables, codegen: str
) -> None:
    many = numbered(table, start=10, step=5)
    base = spark.range(0, 20, 1, 3).withColumnRenamed("id", "v")
    shapes = {
        "partitions": base,
        "fewer": base.coalesce(2),
        "shuffled": base.repartition(3),
        "summed": base.groupBy((F.col("v") % 7).alias("v")).count().select("v"),
        "twice": base.union(base),
        "local": spark.sql("SELECT * FROM VALUES (1L), (2L), (3L) AS t(v)"),
        "none": base.where("v < 0"),
    }
    spark.conf.set("spark.sql.codegen.factoryMode", codegen)
    try:
        for shape, data in shapes.items():
            numbers = [number for number, _ in many.rows(data)]
            assert len(set(numbers)) == len(numbers), shape
            assert all(number >= 10 and number % 5 == 0 for number in numbers), shape
    finally:
        spark.conf.unset("spark.sql.codegen.factoryMode")
    assert sorted(n for n, _ in many.rows(base.coalesce(1))) == [10 + 5 * i for i in range(20)]


def test_numbers_go_on_from_the_mark_also_downwards(spark: SparkSession, table: Tables) -> None:
    down = with_identity(StructField("id", LONG), start=-1, step=-3)
    marked = table(down.with_metadata_items({HIGH_WATER_MARK: -7}), StructField("v", LONG))
    data = spark.range(3).coalesce(1).withColumnRenamed("id", "v")
    assert marked.rows(data) == [(-10, 0), (-13, 1), (-16, 2)]


def test_a_number_that_does_not_fit_is_refused(spark: SparkSession, table: Tables) -> None:
    last = 2**63 - 1
    data = spark.range(2).coalesce(1).withColumnRenamed("id", "v")
    assert numbered(table, start=last - 1).rows(data) == [(last - 1, 0), (last, 1)]
    full = with_identity(StructField("id", LONG)).with_metadata_items({HIGH_WATER_MARK: last})
    for crowded in (numbered(table, start=last), table(full, StructField("v", LONG))):
        with pytest.raises(SchemaError) as error:
            crowded.rows(data)
        assert error.value.condition == "DELTA_IDENTITY_COLUMN_OVERFLOW"
        assert error.value.parameters == {"colName": "id"}


def test_values_for_an_identity_column_need_by_default(table: Tables) -> None:
    with pytest.raises(OperationNotAllowedError) as error:
        numbered(table).plan("SELECT 1L ID, 2L v")
    assert error.value.condition == "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
    assert error.value.parameters == {"colName": "id"}
    open_ = numbered(table, allow_explicit_insert=True)
    assert open_.rows("SELECT 100L ID, 2L v") == [(100, 2)]
    assert open_.rows("SELECT CAST(NULL AS BIGINT) id, 2L v") == [(None, 2)]
    assert open_.rows("SELECT 2L v") == [(1, 2)]


def written(**stats: Any) -> AddFile:
    text = "{" + ",".join(f'"{key}":{value}' for key, value in stats.items()) + "}"
    return add("a.parquet", stats=text)


def marks(metadata: Metadata | None) -> dict[str, Any]:
    assert metadata is not None
    return {f.name: f.metadata.get(HIGH_WATER_MARK) for f in metadata.schema}


def test_the_mark_moves_to_the_furthest_number_written(table: Tables) -> None:
    mapped = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    up = with_identity(StructField("up", LONG), start=1, step=1)
    down = with_identity(StructField("down", LONG), start=0, step=-2, allow_explicit_insert=True)
    metadata = table(up, down).metadata
    files = [
        written(numRecords=2, minValues='{"up":1,"down":-4}', maxValues='{"up":7,"down":0}'),
        written(numRecords=2, minValues='{"up":2,"down":-8}', maxValues='{"up":3,"down":-6}'),
    ]
    assert marks(moved_identity(metadata, files)) == {"up": 7, "down": -8}
    assert marks(moved_identity(metadata, files, given=["v", "DOWN"])) == {"up": 7, "down": None}
    assert moved_identity(metadata, []) is None
    assert moved_identity(table(StructField("v", LONG)).metadata, files) is None
    ahead = table(up.with_metadata_items({HIGH_WATER_MARK: 9})).metadata
    assert moved_identity(ahead, files) is None
    renamed = table(up.with_metadata_items(mapped)).metadata
    by_name = Metadata(
        id="t",
        schema_string=renamed.schema_string,
        configuration={"delta.columnMapping.mode": "name"},
    )
    file = written(numRecords=1, minValues='{"col-1":5}', maxValues='{"col-1":5}')
    assert marks(moved_identity(by_name, [file])) == {"up": 5}


def test_a_mark_is_never_guessed(table: Tables) -> None:
    metadata = numbered(table).metadata
    with pytest.raises(InvalidActionsError) as error:
        moved_identity(metadata, [written(numRecords=1)])
    assert error.value.condition == "DELTA_IDENTITY_COLUMN_WITHOUT_STATISTICS"
    nulls = written(numRecords=2, nullCount='{"id":2}')
    assert moved_identity(metadata, [nulls, written(numRecords=0)]) is None
