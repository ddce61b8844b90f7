"""MERGE and columns: casts, fields of structs, schemas that follow the source, computed columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import ConstraintError, DeltaError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from tests.support.merges import FEED, MODES, MergeTable
from tests.support.spark_tables import conf


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


def test_values_are_cast_to_the_types_of_their_columns(
    spark: SparkSession, table_path: Path
) -> None:
    schema = "id bigint, n smallint, d decimal(10,2), s string, a array<bigint>"
    table = MergeTable.of(spark, table_path, schema, (1, 1, Decimal("1.00"), "a", [1]))
    source = table.data(
        "id int, n int, d double, s int, a array<int>", (1, 7, 2.5, 8, [2]), (2, 9, 3.5, 4, [3])
    )
    table.done(table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll())
    assert table.rows == [
        (1, 7, Decimal("2.50"), "8", [2]),
        (2, 9, Decimal("3.50"), "4", [3]),
    ]
    large = table.data("id int, n int", (1, 70_000), (3, 1))
    before = table.version
    with pytest.raises(SchemaError, match="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"):
        table.merge(large).whenMatchedUpdate(set={"n": "s.n"}).execute()
    with pytest.raises(SchemaError, match="DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"):
        table.merge(large, "false").whenNotMatchedInsert(values={"id": "id", "n": "n"}).execute()
    assert table.version == before


def test_only_values_of_the_clause_that_is_for_a_row_are_computed(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(spark, table_path, "id int, v int", (1, 10), (2, 20))
    source = table.data("id int, w int", (1, 0), (2, 5), (3, 0))
    merge = (
        table.merge(source)
        .whenMatchedUpdate("s.w != 0", {"v": "t.v / s.w"})
        .whenMatchedUpdate(set={"v": "-1"})
        .whenNotMatchedInsert("s.w != 0", {"id": "s.id", "v": "1 / s.w"})
        .whenNotMatchedInsert(values={"id": "s.id"})
    )
    assert table.done(merge) == (2, 0, 1)
    assert table.rows == [(1, -1), (2, 4), (3, None)]


def test_fields_of_structs_are_updated_one_by_one(spark: SparkSession, table_path: Path) -> None:
    schema = "id int, st struct<a: int, b: struct<c: int, d: string>>"
    rows = [(1, (1, (2, "x"))), (2, None)]
    table = MergeTable.of(spark, table_path, schema, *rows)
    source = table.data("id int, k int", (1, 5), (2, 6))
    merge = table.merge(source).whenMatchedUpdate(set={"st.b.c": "s.k", "t.st.a": "s.k + 1"})
    table.done(merge)
    # What was null is a struct now.
    assert table.rows == [(1, (6, (5, "x"))), (2, (7, (6, None)))]
    # Structs go by name, and nothing may be missing.
    other = "id int, st struct<b: struct<d: string, c: int>, a: bigint>"
    table.done(table.merge(table.data(other, (1, (("y", 1), 2)))).whenMatchedUpdateAll())
    assert table.rows[0] == (1, (2, (1, "y")))
    less = table.data("id int, st struct<a: int>", (1, (1,)))
    with pytest.raises(SchemaError, match="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION"):
        table.merge(less).whenMatchedUpdateAll().execute()


def test_structs_go_by_position_where_the_session_says_so(
    spark: SparkSession, table_path: Path
) -> None:
    schema = "id int, st struct<a: int, b: int>, l array<struct<a: int, b: int>>"
    table = MergeTable.of(spark, table_path, schema, (1, (1, 2), [(3, 4)]))
    given = "id int, st struct<b: int, c: int>, l array<struct<b: int, a: bigint>>"
    source = table.data(given, (1, (5, 6), [(7, 8)]), (2, None, None))
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with pytest.raises(SchemaError, match="DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION"):
        merge.execute()
    by_name = "spark.databricks.delta.resolveMergeUpdateStructsByName.enabled"
    with conf(spark, **{by_name: "false"}):
        table.done(merge)
        set_whole = "SET st = named_struct('b', 9, 'a', 0) WHERE id = 2"
        spark.sql(f"UPDATE delta.`{table_path}` {set_whole}")
    assert table.rows == [(1, (5, 6), [(7, 8)]), (2, (9, 0), None)]
    spark.sql(f"UPDATE delta.`{table_path}` {set_whole}")
    assert table.rows[1] == (2, (0, 9), None)


@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_a_schema_follows_the_source_where_clauses_assign(
    spark: SparkSession, table_path: Path, properties: dict[str, str]
) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, v string", (1, "a"), (2, "b"), (3, "c"), **properties, **FEED
    )
    source = table.data("ID int, n int, m string", (2, 20, "x"), (4, 40, "y"))
    merge = (
        table.merge(source)
        .whenMatchedUpdateAll()
        .whenNotMatchedInsert(values={"id": "s.id", "n": "s.n * 2"})
        .whenNotMatchedBySourceUpdate("t.id = 3", {"v": "'z'"})
        .withSchemaEvolution()
    )
    assert table.done(merge) == (2, 0, 1)
    assert table.read().columns == ["id", "v", "n", "m"]
    assert table.rows == [
        (1, "a", None, None),
        (2, "b", 20, "x"),
        (3, "z", None, None),
        (4, None, 80, None),
    ]
    assert (2, "b", None, None, "update_preimage") in table.feed
    assert sum(isinstance(action, Metadata) for action in table.last_commit) == 1
    # Without a clause that assigns to it nothing is added; nor without being asked.
    more = table.data("id int, o int", (1, 9))
    merge = table.merge(more).whenMatchedUpdate(set={"n": "s.o"}).withSchemaEvolution()
    table.done(merge)
    assert table.read().columns == ["id", "v", "n", "m"]
    with pytest.raises(DeltaError, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        table.merge(more).whenMatchedUpdate(set={"o": "s.o"}).execute()


def test_the_session_can_ask_for_evolution_and_structs_follow_too(
    spark: SparkSession, table_path: Path
) -> None:
    schema = "id int, st struct<a: int, b: int>, l array<struct<a: int>>"
    rows = [(1, (1, 2), [(1,)]), (2, (3, 4), None), (3, None, None)]
    table = MergeTable.of(spark, table_path, schema, *rows)
    given = "id int, st struct<a: int, c: string>, l array<struct<a: int, n: int>>"
    source = table.data(given, (2, (30, "x"), [(3, 5)]), (3, None, None), (4, (50, "y"), None))
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        table.done(table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll())
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    # Fields that the source lacks stay when a row is updated, and are null when it is new.
    assert table.rows == [
        (1, (1, 2, None), [(1, None)]),
        (2, (30, 4, "x"), [(3, 5)]),
        (3, None, None),
        (4, (50, None, "y"), None),
    ]


def test_types_widen_where_the_table_allows_it(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(
        spark, table_path, "id int, n int", (1, 1), (2, 2), **{"delta.enableTypeWidening": "true"}
    )
    source = table.data("id int, n bigint", (2, 2**40), (3, 3))
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    table.done(merge.withSchemaEvolution())
    assert dict(table.read().dtypes)["n"] == "bigint"
    assert table.rows == [(1, 1), (2, 2**40), (3, 3)]


def test_whole_numbers_become_fractions_unless_the_session_keeps_types_in_their_families(
    spark: SparkSession, table_path: Path
) -> None:
    properties = {"delta.enableTypeWidening": "true"}
    table = MergeTable.of(spark, table_path, "id int, n int, d int", (1, 1, 1), **properties)
    source = table.data("id int, n double, d decimal(12, 1)", (1, 1.5, Decimal("2.5")))
    merge = table.merge(source).whenMatchedUpdateAll().withSchemaEvolution()
    setting = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
    with conf(spark, **{setting: "same_family_type"}):
        table.done(merge)
    assert table.rows == [(1, 1, 2)]
    table.done(merge)
    assert table.read().dtypes[1:] == [("n", "double"), ("d", "decimal(12,1)")]
    assert table.rows == [(1, 1.5, Decimal("2.5"))]


def test_columns_can_be_left_out_of_a_star(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string, w string", (1, "a", "x"))
    source = table.data("id int, v string, w string", (1, "A", "X"), (2, "B", "Y"))
    merge = table.merge(source).whenMatchedUpdateAll(except_cols=["W"])
    table.done(merge.whenNotMatchedInsertAll(except_cols=["v"]))
    assert table.rows == [(1, "A", "x"), (2, None, "Y")]
    with pytest.raises(DeltaError, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        table.merge(source).whenMatchedUpdateAll(except_cols=["nope"]).execute()


def test_rules_of_the_table_hold_for_rows_that_are_written(
    spark: SparkSession, table_path: Path
) -> None:
    spark.sql("DROP TABLE IF EXISTS merge_rules")
    spark.sql(
        f"CREATE TABLE merge_rules (id STRING NOT NULL, v INT, c VARCHAR(3)) USING delta"
        f" LOCATION '{table_path}' TBLPROPERTIES ('delta.constraints.small' = 'v < 100',"
        " 'delta.enableChangeDataFeed' = 'true')"
    )
    table = MergeTable(spark, table_path)
    table.write(table.data("id string, v int, c string", ("1", 1, "a"), ("2", 2, "b")))
    source = table.data("id string, v int, c string", ("1", 500, "long text"), (None, 1, "x"))
    before = (table.version, sorted(table_path.glob("*.parquet")))
    bad = {
        "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": table.merge(source).whenMatchedUpdate(
            set={"v": "s.v"}
        ),
        "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": table.merge(source).whenMatchedUpdate(set={"c": "s.c"}),
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": table.merge(source).whenNotMatchedInsertAll(),
    }
    for condition, merge in bad.items():
        with pytest.raises(ConstraintError, match=condition):
            merge.execute()
    assert (table.version, sorted(table_path.glob("*.parquet"))) == before
    # Rows that are deleted, or that no clause is for, may be anything.
    merge = table.merge(source).whenMatchedDelete().whenNotMatchedInsertAll("s.id > 0")
    assert table.done(merge) == (0, 1, 0)
    # A new row has nothing of what no row of the table is without.
    source = table.data("id string, v int, c string", ("2", 3, "c"), ("4", 4, "d"))
    table.done(table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll())
    assert table.rows == [("2", 3, "c"), ("4", 4, "d")]
    assert table.feed == [
        ("2", 2, "b", "update_preimage"),
        ("2", 3, "c", "update_postimage"),
        ("4", 4, "d", "insert"),
    ]
    spark.sql("DROP TABLE merge_rules")


def test_generated_default_and_identity_columns_get_their_values(
    spark: SparkSession, table_path: Path
) -> None:
    spark.sql("DROP TABLE IF EXISTS merge_computed")
    spark.sql(
        "CREATE TABLE merge_computed (n BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10),"
        " id INT, v INT DEFAULT 7, g INT GENERATED ALWAYS AS (v * 2)) USING delta"
        f" LOCATION '{table_path}'"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported',"
        " 'delta.enableChangeDataFeed' = 'true')"
    )
    table = MergeTable(spark, table_path)
    handle = DeltaTable.forName(spark, "merge_computed")
    first = table.data("id int, v int", (1, 1), (2, 2)).alias("s")
    new = {"id": "s.id", "v": "s.v"}
    handle.merge(first, "merge_computed.id = s.id").whenNotMatchedInsert(values=new).execute()
    assert table.rows == [(10, 1, 1, 2), (11, 2, 2, 4)]
    second = table.data("id int, v int", (2, 20), (3, 30), (4, 40)).alias("s")
    merge = handle.merge(second, "default.merge_computed.id = s.id")
    merge = merge.whenMatchedUpdate(set={"v": "s.v"})
    merge = merge.whenNotMatchedInsert("s.id = 3", {"id": "s.id", "v": "DEFAULT"})
    merge.whenNotMatchedInsert(values={"id": "s.id", "g": F.lit(14)}).execute()
    rows = table.rows
    assert {row[1:] for row in rows} == {(1, 1, 2), (2, 20, 40), (3, 7, 14), (4, 7, 14)}
    numbers = [row[0] for row in rows]
    assert len(set(numbers)) == 4
    assert {row[0] for row in rows if row[1] <= 2} == {10, 11}
    assert {row[:4] for row in table.feed if row[4] == "insert"} == {
        row for row in rows if row[1] > 2
    }
    with pytest.raises(
        OperationNotAllowedError, match="DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED"
    ):
        table.merge(second).whenMatchedUpdate(set={"n": "1"}).execute()
    with pytest.raises(OperationNotAllowedError, match="EXPLICIT_INSERT_NOT_SUPPORTED"):
        table.merge(second).whenNotMatchedInsert(values={"n": "1"}).execute()
    with pytest.raises(ConstraintError, match="Generated Column"):
        table.merge(second).whenMatchedUpdate(set={"g": "1"}).execute()
    spark.sql("DROP TABLE merge_computed")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_and_partitioned_tables_are_merged_by_their_logical_names(
    spark: SparkSession, table_path: Path, mode: str
) -> None:
    rows = [(1, "a", "p 1"), (2, "b", "p%2"), (3, "c", None)]
    table = MergeTable.of(
        spark,
        table_path,
        "id int, `v 1` string, p string",
        *rows,
        partition_by=("p",),
        **{"delta.columnMapping.mode": mode, "delta.enableDeletionVectors": "true"},
    )
    source = table.data(
        "id int, `v 1` string, p string", (2, "B", "p%2"), (4, "D", "p 1"), (3, "C", None)
    )
    merge = table.merge(source, "t.id = s.id AND t.p <=> s.p")
    assert table.done(merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()) == (2, 0, 1)
    assert table.rows == [(1, "a", "p 1"), (2, "B", "p%2"), (3, "C", None), (4, "D", "p 1")]
