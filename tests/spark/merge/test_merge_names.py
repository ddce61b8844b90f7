"""MERGE: which column or field an assigned name means, on the table and on a source that adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from tests.support import refusals
from tests.support.merges import MergeTable
from tests.support.spark_tables import conf

Row = tuple[Any, ...]

UNRESOLVED = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
NO_FIELD = "FIELD_NOT_FOUND"
NO_STRUCT = "INVALID_EXTRACT_BASE_FIELD_TYPE"
TWICE = "DELTA_DUPLICATE_COLUMNS_ON_INSERT"

# The table (id, t struct<a>) is called t, and its row is (1, (2,)); the source (id, b,
# t struct<a, b>) is called s.  The row that a 7 makes, with schema evolution and without.
NAMES: dict[str, tuple[Row | str, Row | str]] = {
    "t.id": ((7, (2,)), (7, (2,))),
    "t.a": ((1, (7,)), (1, (7,))),
    "t.t.a": ((1, (7,)), (1, (7,))),
    "b": ((1, (2,), 7), UNRESOLVED),
    # The table has a struct of that name, and the field is one of the source's.
    "t.b": ((1, (2, 7)), NO_FIELD),
    "t.c": (NO_FIELD, NO_FIELD),
    "t.t.b": (NO_FIELD, NO_FIELD),
    "t.t.t.b": (NO_FIELD, NO_FIELD),
    "t.id.x": (NO_FIELD, NO_STRUCT),
    # What the source is called may stand before its columns once they may become the table's.
    "s.id": ((7, (2,)), UNRESOLVED),
    "s.b": ((1, (2,), 7), UNRESOLVED),
    "s.t.a": ((1, (7,)), UNRESOLVED),
    "s.t.b": ((1, (2, 7)), UNRESOLVED),
    "s.id.x": (NO_STRUCT, UNRESOLVED),
    "s.t.nope": (NO_FIELD, UNRESOLVED),
    "s.nope": (UNRESOLVED, UNRESOLVED),
    "nope.x": (UNRESOLVED, UNRESOLVED),
}


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


def outcome(table: MergeTable, merge: DeltaMergeBuilder) -> Row | str | None:
    """The last row after a MERGE; the condition of the error when it is refused."""
    try:
        table.done(merge)
    except DeltaError as error:
        return error.condition
    except PySparkException as error:
        return error.getCondition()
    return table.rows[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_looked_up_on_the_table_and_then_on_the_source(
    spark: SparkSession, table_path: Path, name: str
) -> None:
    table = MergeTable.of(spark, table_path, "id int, t struct<a: int>", (1, (2,)))
    source = table.data("id int, b int, t struct<a: int, b: int>", (1, 3, (4, 5)))
    merge = table.merge(source, "true").whenMatchedUpdate(set={name: "7"})
    evolved, plain = NAMES[name]
    assert outcome(table, merge) == plain
    assert outcome(table, merge.withSchemaEvolution()) == evolved


def test_a_name_that_only_a_new_column_can_have_may_have_the_table_s_before_it(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(spark, table_path, "id int, x struct<a: int>", (1, (2,)))
    source = table.data("id int, b int, x struct<a: int, B: int>", (1, 3, (4, 5)), (9, 8, (7, 6)))
    merge = (
        table.merge(source)
        .whenMatchedUpdate(set={"t.b": "s.b", "t.x.b": "6"})
        .whenNotMatchedInsert(values={"s.id": "s.id", "t.b": "s.b"})
    )
    table.done(merge.withSchemaEvolution())
    assert table.read().schema["x"].dataType.simpleString() == "struct<a:int,B:int>"
    assert table.rows == [(1, (2, 6), 3), (9, None, 8)]
    alone = table.merge(source, "false").whenNotMatchedBySourceUpdate(set={"s.b": "1"})
    assert outcome(table, alone.withSchemaEvolution()) == UNRESOLVED


def test_names_of_tables_stand_before_columns_in_statements(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(spark, table_path, "a int, target struct<a: int>", (0, (1,)))
    source = table.data("a int, b int, target struct<a: int, b: int>", (2, 3, (4, 5)))
    source.createOrReplaceTempView("source")
    spark.sql("DROP TABLE IF EXISTS target")
    spark.sql(f"CREATE TABLE target USING delta LOCATION '{table_path}'")
    merge = "MERGE {}INTO target USING source ON true WHEN MATCHED THEN UPDATE SET {}"
    evolves = "WITH SCHEMA EVOLUTION "
    for assigned in ("target.b = source.b", "target.target.b = source.target.b"):
        assert refusals.condition(spark, merge.format("", assigned)) == NO_FIELD
    assert refusals.condition(spark, merge.format(evolves, assigned)) == NO_FIELD
    spark.sql(merge.format(evolves, "target.b = source.b"))
    assert table.rows == [(0, (1, 3))]
    spark.sql(merge.format(evolves, "target.a = source.a, target.target.a = source.target.a"))
    assert table.rows == [(2, (4, 3))]
    spark.sql("DROP TABLE target")


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("v map<string, int>", "v.a"),
        ("v map<int, int>", "v.a"),
        ("v map<string, struct<b: int>>", "v.a.b"),
        ("v array<struct<a: int>>", "t.v.a"),
        ("v struct<m: map<string, int>>", "v.m.a"),
    ],
)
def test_only_structs_have_fields_that_can_be_set(
    spark: SparkSession, table_path: Path, column: str, name: str
) -> None:
    table = MergeTable.of(spark, table_path, f"id int, {column}", (1, None))
    source = table.data("id int, m map<string, int>", (1, {"a": 1}))
    merge = table.merge(source).whenMatchedUpdate(set={name: "2"})
    wanted = "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE"
    assert outcome(table, merge) == wanted
    assert outcome(table, merge.withSchemaEvolution()) == wanted
    of_source = table.merge(source).whenMatchedUpdate(set={"m.a": "2"})
    assert outcome(table, of_source.withSchemaEvolution()) == wanted


@pytest.mark.parametrize("evolves", [False, True])
def test_an_insert_may_name_a_column_again_in_another_case_and_the_first_counts(
    spark: SparkSession, table_path: Path, evolves: bool
) -> None:
    table = MergeTable.of(spark, table_path, "key int, value int", (1, 10))
    source = table.data("key int, VALUE int", (2, 2))

    def inserted(**values: str) -> Row | str | None:
        merge = table.merge(source, "false").whenNotMatchedInsert(values=values)
        return outcome(table, merge.withSchemaEvolution() if evolves else merge)

    assert inserted(key="s.key", value="s.value", VALUE="s.VALUE") == (2, 2)
    assert inserted(key="3", VALUE="7", value="8") == (3, 7)
    assert inserted(KEY="4", Key="5") == (4, None)
    assert inserted(**{"key": "6", "t.key": "7"}) == TWICE
    assert inserted(KEY="6", key="nope") == UNRESOLVED
    assert (
        refusals.condition(
            spark,
            f"MERGE INTO delta.`{table_path}` t USING (SELECT 8 key) s ON t.key = s.key"
            " WHEN NOT MATCHED THEN INSERT (key, key) VALUES (1, 2)",
        )
        == TWICE
    )
    with conf(spark, spark__sql__caseSensitive="true"):
        assert inserted(key="6", KEY="7") == UNRESOLVED


@pytest.mark.parametrize(
    "column", ["INT GENERATED ALWAYS AS (v)", "BIGINT GENERATED ALWAYS AS IDENTITY"]
)
def test_a_table_that_computes_columns_knows_each_name_in_any_case(
    spark: SparkSession, table_path: Path, column: str
) -> None:
    spark.sql(f"CREATE TABLE delta.`{table_path}` (id INT, v INT, g {column}) USING delta")
    table = MergeTable(spark, table_path)
    source = table.data("id int, v int", (2, 2))
    merge = table.merge(source).whenNotMatchedInsert(values={"id": "1", "v": "7", "V": "8"})
    assert outcome(table, merge) == TWICE
