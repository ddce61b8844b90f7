"""MERGE that cannot be run: a typed error each, and a table as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from tests.support.merges import MergeTable

Merge = DeltaMergeBuilder
REFUSED: dict[str, Callable[[Merge], Merge]] = {
    "DELTA_MERGE_MISSING_WHEN": lambda m: m,
    "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION": lambda m: (
        m.whenMatchedDelete().whenMatchedUpdateAll("s.v = 'a'")
    ),
    "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION": lambda m: (
        m.whenNotMatchedInsertAll().whenNotMatchedInsertAll()
    ),
    "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION": lambda m: (
        m.whenNotMatchedBySourceDelete().whenNotMatchedBySourceDelete("t.id = 1")
    ),
    "DELTA_CONFLICT_SET_COLUMN": lambda m: m.whenMatchedUpdate(set={"st": "t.st", "st.a": "1"}),
    "DELTA_DUPLICATE_COLUMNS_ON_INSERT": lambda m: m.whenNotMatchedInsert(
        values={"id": "1", "t.id": "2"}
    ),
    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION": lambda m: m.whenNotMatchedInsert(
        values={"st.a": "1"}
    ),
    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE": lambda m: m.whenMatchedUpdate(
        set={"l.element": "1"}
    ),
    "DELTA_UNSUPPORTED_SUBQUERY": lambda m: m.whenMatchedDelete(
        "t.id IN (SELECT id FROM range(3))"
    ),
    "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED": lambda m: m.whenMatchedDelete("rand() < 0.5"),
    "DELTA_AGGREGATION_NOT_SUPPORTED": lambda m: m.whenMatchedDelete("max(t.id) > 1"),
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": lambda m: m.whenMatchedDelete("t.id"),
    "UNSUPPORTED_EXPR_FOR_OPERATOR": lambda m: m.whenMatchedUpdate(set={"id": "max(s.id)"}),
    "FIELD_NOT_FOUND": lambda m: m.whenMatchedUpdate(set={"st.nope": "1"}),
    "INVALID_EXTRACT_BASE_FIELD_TYPE": lambda m: m.whenMatchedUpdate(set={"t.v.nope": "1"}),
}
UNKNOWN: dict[str, Callable[[Merge], Merge]] = {
    "a column of the table": lambda m: m.whenMatchedUpdate(set={"nope": "1"}),
    "a column of a value": lambda m: m.whenMatchedUpdate(set={"id": "nope"}),
    "a column of a condition": lambda m: m.whenMatchedDelete("nope = 1"),
    "the target in an insert": lambda m: m.whenNotMatchedInsert(values={"id": "t.id"}),
    "the source alone": lambda m: m.whenNotMatchedBySourceUpdate(set={"v": "s.v"}),
    "a column of the source": lambda m: m.whenMatchedUpdateAll(),
}


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MergeTable:
    enable(spark)
    path = tmp_path_factory.mktemp("merge") / "tä ble 100%"
    schema = "id int, v string, st struct<a: int>, l array<int>"
    return MergeTable.of(spark, path, schema, (1, "a", (1,), [1]))


def merge_of(table: MergeTable) -> Merge:
    """Its source has not all of the table's columns."""
    return table.merge(table.data("id int, v string", (1, "A"), (2, "B")))


@pytest.mark.parametrize("condition", REFUSED)
def test_what_makes_no_sense_is_refused_by_name(table: MergeTable, condition: str) -> None:
    with pytest.raises(DeltaError) as caught:
        REFUSED[condition](merge_of(table)).execute()
    assert caught.value.condition == condition
    assert table.version == 0


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_unknown_name_is_refused(table: MergeTable, what: str) -> None:
    with pytest.raises(DeltaError) as caught:
        UNKNOWN[what](merge_of(table)).execute()
    assert caught.value.condition == "DELTA_MERGE_UNRESOLVED_EXPRESSION"
    assert table.version == 0


def test_an_aggregate_beside_columns_is_refused_as_one(table: MergeTable) -> None:
    source = table.data("id int, v string", (1, "A"))
    by_condition = table.merge(source, "s.id = t.id AND max(t.id) > 20").whenMatchedDelete()
    by_value = table.merge(source).whenMatchedUpdate(set={"id": "t.id + max(s.id)"})
    for merge, condition in (
        (by_condition, "DELTA_AGGREGATION_NOT_SUPPORTED"),
        (by_value, "UNSUPPORTED_EXPR_FOR_OPERATOR"),
    ):
        with pytest.raises(DeltaError) as caught:
            merge.execute()
        assert caught.value.condition == condition
    assert table.version == 0


def test_what_is_made_of_many_rows_is_refused_wherever_it_stands(table: MergeTable) -> None:
    source = table.data("id int, v string", (1, "A"))
    numbered = "row_number() OVER (ORDER BY t.id)"
    for merge, condition in (
        (table.merge(source, f"{numbered} = 1").whenMatchedDelete(), "UNSUPPORTED_EXPR"),
        (table.merge(source).whenMatchedDelete(f"{numbered} = 1"), "UNSUPPORTED_EXPR"),
        (table.merge(source).whenMatchedUpdate(set={"id": numbered}), "UNSUPPORTED_EXPR"),
        (table.merge(source, "explode(array(1)) = 1").whenMatchedDelete(), "OUTSIDE_SELECT"),
        (table.merge(source).whenMatchedUpdate(set={"id": "explode(l)"}), "OUTSIDE_SELECT"),
    ):
        with pytest.raises(AnalysisException, match=condition):
            merge.execute()
    assert table.version == 0


def test_a_condition_of_the_join_that_is_no_condition_is_refused_as_one(table: MergeTable) -> None:
    source = table.data("id int, v string", (1, "A"))
    for condition in ("t.id", "1", "'true'", "t.st"):
        with pytest.raises(DeltaError) as caught:
            table.merge(source, condition).whenMatchedDelete().execute()
        assert caught.value.condition == "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE"
    assert table.version == 0


def test_other_errors_of_names_are_spark_s_own(spark: SparkSession, table: MergeTable) -> None:
    handle = DeltaTable.forPath(spark, str(table.path))
    source = table.data("id int, v string", (1, "A"))
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        handle.merge(source, "id = 1").whenMatchedDelete().execute()
    with pytest.raises(AnalysisException, match="UNRESOLVED_ROUTINE"):
        table.merge(source, "nope(t.id)").whenMatchedDelete().execute()
    other = spark.range(3).toDF("elsewhere")
    merge = table.handle.merge(source, other["elsewhere"] == source["id"]).whenMatchedDelete()
    with pytest.raises(DeltaError, match="DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT"):
        merge.execute()
    assert table.version == 0


@pytest.mark.parametrize(
    ("error", "words", "use"),
    [
        (TypeError, "must be DataFrame", lambda t, s: t.merge(1, "id = k")),
        (TypeError, "must be a Spark SQL Column or a string", lambda t, s: t.merge(s, 1)),
        (
            ValueError,
            "cannot be None",
            lambda t, s: t.merge(s, "true").whenMatchedUpdate({"v": "v"}),
        ),
        (ValueError, "cannot be None", lambda t, s: t.merge(s, "true").whenNotMatchedInsert(1)),
        (
            ValueError,
            "cannot be None",
            lambda t, s: t.merge(s, "true").whenNotMatchedBySourceUpdate("id = 1"),
        ),
        (
            TypeError,
            "must be a Spark SQL Column or a string",
            lambda t, s: t.merge(s, "true").whenMatchedUpdate(1, {"v": "v"}),
        ),
        (TypeError, "must be a dict", lambda t, s: t.merge(s, "true").whenMatchedUpdate("true", 1)),
        (
            TypeError,
            "Values of dict in .* must contain only",
            lambda t, s: t.merge(s, "true").whenNotMatchedInsert(values={"v": 1}),
        ),
        (
            TypeError,
            "Keys of dict in .* must contain only",
            lambda t, s: t.merge(s, "true").whenNotMatchedBySourceUpdate(set={1: "v"}),
        ),
        (TypeError, "Column or a string", lambda t, s: t.merge(s, "true").whenMatchedDelete(1)),
        (
            TypeError,
            "Column or a string",
            lambda t, s: t.merge(s, "true").whenNotMatchedBySourceDelete(1),
        ),
        (
            TypeError,
            "names of columns",
            lambda t, s: t.merge(s, "true").whenMatchedUpdateAll(except_cols="v"),
        ),
    ],
)
def test_arguments_are_checked_when_they_are_given(
    table: MergeTable, error: type[Exception], words: str, use: Callable[[Any, Any], Any]
) -> None:
    with pytest.raises(error, match=words):
        use(table.handle, table.data("id int", (1,)))


def test_a_builder_can_be_used_twice(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"))
    base = table.merge(table.data("id int, v string", (2, "B")))
    insert = base.whenNotMatchedInsertAll()
    assert table.done(insert) == (0, 0, 1)
    assert table.done(insert) == (0, 0, 0)
    assert table.done(base.whenMatchedUpdate(set={"v": F.lit("z")})) == (1, 0, 0)
    assert table.rows == [(1, "a"), (2, "z")]


def test_spark_s_own_words_merge_into_delta_tables(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(spark, table_path, "id int, v string", (1, "a"), (2, "b"), (3, "c"))
    spark.sql("DROP TABLE IF EXISTS merge_words")
    spark.sql(f"CREATE TABLE merge_words USING delta LOCATION '{table_path}'")
    source = table.data("id int, v string, n int", (2, "B", 5), (4, "D", 6)).alias("s")
    writer = source.mergeInto("merge_words", F.expr("merge_words.id = s.id"))
    writer = writer.whenMatched(F.expr("s.v = 'B'")).updateAll()
    writer = writer.whenNotMatched().insert({"id": F.col("s.id"), "v": F.lit("new")})
    writer = writer.whenNotMatchedBySource(F.expr("id = 3")).delete()
    writer.withSchemaEvolution().merge()
    assert table.rows == [(1, "a", None), (2, "B", 5), (4, "new", None)]
    assert spark.table("merge_words").columns == ["id", "v", "n"]
    # Where no source row is, there are no columns of it to take.
    alone = source.mergeInto("merge_words", F.expr("merge_words.id = s.id"))
    with pytest.raises(DeltaError, match="DELTA_UNEXPECTED_ACTION_EXPRESSION"):
        alone.whenNotMatchedBySource(F.expr("id > 9")).updateAll().merge()
    by_path = source.mergeInto(f"delta.`{table_path}`", F.expr("n = s.n"))
    with pytest.raises(AnalysisException, match="AMBIGUOUS_REFERENCE"):
        by_path.whenMatched().delete().merge()
    spark.sql("DROP TABLE merge_words")
    spark.range(3).write.mode("overwrite").saveAsTable("merge_plain")
    with pytest.raises(PySparkException):
        source.mergeInto("merge_plain", F.expr("true")).whenMatched().delete().merge()
    spark.sql("DROP TABLE merge_plain")
