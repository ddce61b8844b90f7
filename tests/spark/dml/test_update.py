"""UPDATE: new values for rows, what becomes of their files, and what the commit says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, enable
from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.spark.dml.update import run_update
from tests.support.agreement import kernel_rows
from tests.support.dml_tables import FEED, KINDS, TRACKED, VECTORS, DmlTable, filled
from tests.support.spark_tables import conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


@KINDS
def test_rows_that_meet_the_condition_get_new_values(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties)
    table.handle.update("v = 'x'", {"v": "concat(v, p)", "p": "v"})
    assert table.rows[:3] == [(1, "x", "xa"), (2, "a", "y"), (3, "x", "xb")]
    # What is null is not true.
    table.handle.alias("t").update(F.col("t.v") != "y", {"t.id": F.col("t.id") * 10})
    assert [row[0] for row in table.rows] == [10, 2, 30, 4, 50]
    table.check_log()
    assert len(kernel_rows(table.path)) == 5


def counts(table: DmlTable) -> dict[str, int]:
    """The metrics that are not zero, but for times."""
    found = {k: n for k, n in table.metrics.items() if n and not k.endswith("Ms")}
    assert table.info.operation == "UPDATE"
    return {name.removeprefix("num"): count for name, count in found.items()}


def test_the_history_of_a_rewrite(table: DmlTable) -> None:
    filled(table)
    done = run_update(table.spark, table.log, {"v": F.lit("n")}, F.expr("id < 3"))
    assert (done.version, done.num_rows) == (1, 2)
    assert counts(table) == {"AddedFiles": 1, "RemovedFiles": 1, "UpdatedRows": 2, "CopiedRows": 3}
    assert set(table.metrics) == {
        *("numAddedFiles", "numRemovedFiles", "numAddedChangeFiles"),
        *("numDeletionVectorsAdded", "numDeletionVectorsRemoved", "numDeletionVectorsUpdated"),
        *("numUpdatedRows", "numCopiedRows", "executionTimeMs", "scanTimeMs", "rewriteTimeMs"),
    }
    table.handle.update(set={"v": "'m'"})
    assert table.parameters == {"predicate": "[]"}
    assert counts(table) == {"AddedFiles": 1, "RemovedFiles": 1, "UpdatedRows": 5}
    assert {row[2] for row in table.rows} == {"m"}


def test_the_history_of_vectors(table: DmlTable) -> None:
    filled(table, **VECTORS)
    once = {"AddedFiles": 1, "RemovedFiles": 1, "UpdatedRows": 1}
    table.handle.update("id = 1", {"v": "'n'"})
    assert counts(table) == {**once, "DeletionVectorsAdded": 1}
    table.handle.update("id = 2", {"v": "'n'"})
    vectors = {f"DeletionVectors{kind}": 1 for kind in ("Added", "Removed", "Updated")}
    assert counts(table) == {**once, **vectors}
    table.handle.update("v <> 'n' OR id = 4", {"v": "'m'"})
    assert counts(table) == {**once, "UpdatedRows": 3, "DeletionVectorsRemoved": 1}
    assert [row[2] for row in table.rows] == ["n", "n", "m", "m", "m"]
    table.check_log()


@KINDS
def test_a_commit_is_made_only_when_a_row_changes(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties)
    for nothing in ("id = 77", "v = 'xx'", "false", "id = null"):
        done = run_update(table.spark, table.log, {"v": F.lit("n")}, F.expr(nothing))
        assert (done.version, done.num_rows) == (None, 0)


@KINDS
def test_rows_move_to_the_partition_of_their_new_value(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, "p", **properties)
    table.handle.update("id = 1 OR p IS NULL", {"p": "'b'"})
    assert [row[:2] for row in table.rows] == [
        (1, "b"),
        (2, "a"),
        (3, "b"),
        (4, "b"),
        (5, "c/é %"),
    ]
    table.handle.update("p = 'b'", {"v": "'all'"})
    assert table.metrics["numUpdatedRows"] == 3
    assert table.metrics["numCopiedRows"] == table.metrics["numDeletionVectorsAdded"] == 0
    table.check_log()


NESTED = "id int, s struct<a: int, b: string, c: struct<d: int>>, l array<struct<x: int, y: int>>"


def nested(table: DmlTable, **properties: str) -> DmlTable:
    """Three rows; the last has no struct."""
    rows = [(1, (1, "x", (1,)), [(1, 2)]), (2, (2, "x", None), None), (3, None, [])]
    table.write(table.data(NESTED, *rows), **properties)
    return table


def test_a_field_is_set_and_the_others_stay(table: DmlTable) -> None:
    nested(table)
    table.handle.update("id >= 2", {"S.a": "5"})
    structs = [row[1] for row in table.rows]
    assert structs == [(1, "x", (1,)), (5, "x", None), (5, None, None)]
    table.handle.update("id = 1", {"s.c.d": "s.a + 5", "`s`.b": "null"})
    assert table.rows[0][1] == (1, None, (6,))


def test_a_struct_is_set_field_by_field_in_order(table: DmlTable) -> None:
    nested(table)
    table.handle.update("id = 1", {"s": "named_struct('b', 7L, 'a', 'u', 'x', struct('2'))"})
    table.handle.update("id = 2", {"s": "null", "l": "array(named_struct('y', '5', 'x', 6L))"})
    assert [row[1:] for row in table.rows] == [
        ((7, "u", (2,)), [(1, 2)]),
        (None, [(5, 6)]),
        (None, []),
    ]


def test_structs_in_a_statement_go_by_name(table: DmlTable) -> None:
    nested(table)
    run = table.spark.sql
    named = f"delta.`{table.path}`"
    run(
        f"UPDATE {named} SET s = named_struct('c', named_struct('D', '8'), 'a', 7L, 'b', 9),"
        " l = array(named_struct('y', 1, 'x', '2'), null) WHERE id = 1"
    )
    run(f"UPDATE {named} SET s.c = if(id = 3, named_struct('d', 4L), null) WHERE id > 1")
    assert [row[1:] for row in table.rows] == [
        ((7, "9", (8,)), [(2, 1), None]),
        ((2, "x", None), None),
        ((None, None, (4,)), []),
    ]
    # A field less, or more, or of another name.
    for value in ("'a', 7", "'a', 7, 'b', 'x', 'c', s.c, 'd', 1", "'z', 7, 'b', 'x', 'c', s.c"):
        with table.refused("DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION"):
            run(f"UPDATE {named} SET s = named_struct({value}) WHERE id = 1")


def test_values_that_no_single_row_has_are_refused(table: DmlTable) -> None:
    filled(table)
    before = table.rows
    refused = {
        "row_number() OVER (ORDER BY id)": "UNSUPPORTED_EXPR_FOR_OPERATOR",
        "max(id)": "UNSUPPORTED_EXPR_FOR_OPERATOR",
        "id + count(*)": "UNSUPPORTED_EXPR_FOR_OPERATOR",
        "explode(array(id))": "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT",
    }
    for value, expected in refused.items():
        with pytest.raises(AnalysisException) as error:
            table.spark.sql(f"UPDATE delta.`{table.path}` SET id = {value}")
        assert error.value.getCondition() == expected
    assert table.rows == before
    # In a subquery they are values like any other.
    table.handle.update(set={"id": "(SELECT max(n) OVER (ORDER BY n) FROM VALUES (7) AS v(n))"})
    assert {row[0] for row in table.rows} == {7}


def test_what_cannot_be_set_is_refused(table: DmlTable) -> None:
    nested(table)
    refused: list[tuple[dict[str, str], str]] = [
        ({"s.a": "1", "s": "null"}, "DELTA_CONFLICT_SET_COLUMN"),
        ({"s.c.d": "1", "s.c": "null"}, "DELTA_CONFLICT_SET_COLUMN"),
        ({"id": "1", "ID": "2"}, "DELTA_CONFLICT_SET_COLUMN"),
        ({"l.x": "1"}, "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE"),
        ({"s": "named_struct('a', 7)"}, "DELTA_INSERT_COLUMN_ARITY_MISMATCH"),
        ({"id": "cast(rand() AS INT)"}, "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ({"id": "max(id)"}, "UNSUPPORTED_EXPR_FOR_OPERATOR"),
    ]
    for assigned, expected in refused:
        with table.refused(expected):
            table.handle.update("id = 1", assigned)
    meaningless: list[tuple[dict[str, str], str]] = [
        ({"id": "zz"}, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ({"zz": "1"}, "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ({"s.zz": "1"}, "FIELD_NOT_FOUND"),
        ({"id.x": "1"}, "INVALID_EXTRACT_BASE_FIELD_TYPE"),
        ({"id": "date'2020-01-01'"}, "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION"),
    ]
    for assigned, expected in meaningless:
        with pytest.raises(AnalysisException) as error:
            table.handle.update("id = 1", assigned)
        assert error.value.getCondition() == expected
    assert table.log.update().version == 0


def test_values_are_cast_as_spark_stores_them(table: DmlTable) -> None:
    nested(table)
    table.handle.update("id = 1", {"id": "'17'", "s.b": "id"})
    assert table.rows[0][:2] == (17, (1, "1", (1,)))
    before = table.paths
    with table.refused("DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"):
        table.handle.update("id = 2", {"id": "id + 99999999999L"})
    with conf(table.spark, spark__sql__storeAssignmentPolicy="LEGACY"):
        table.handle.update("id = 2", {"id": "'x'"})
    assert [row[0] for row in table.rows] == [17, 3, None]
    assert len(table.paths) == len(before) + 1


def test_arguments_are_checked(table: DmlTable) -> None:
    filled(table)
    update: Any = table.handle.update
    with pytest.raises(ValueError, match="cannot be None"):
        update("id = 1")
    with pytest.raises(TypeError, match="must be a dict"):
        update("id = 1", [3])
    with pytest.raises(TypeError, match=r"Keys of dict in .* must contain only"):
        update("id = 1", {3: "v"})
    with pytest.raises(TypeError, match=r"Values of dict in .* must contain only"):
        update("id = 1", {"v": 3})
    with pytest.raises(TypeError, match="must be a Spark SQL Column"):
        update(3, {"v": "'q'"})
    with table.refused("DELTA_UNSUPPORTED_SUBQUERY"):
        update("id = (SELECT 1)", {"v": "'q'"})
    with table.refused("INVALID_NON_DETERMINISTIC_EXPRESSIONS"):
        update("rand() < 2", {"v": "'q'"})


def test_a_value_may_come_from_a_subquery(table: DmlTable) -> None:
    filled(table)
    table.handle.update("id = 1", {"v": "(SELECT max(id) || '!' FROM range(7))"})
    assert table.rows[0] == (1, "a", "6!")


def test_rows_that_a_subquery_read_must_not_have_changed(
    table: DmlTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable(table.spark)
    filled(table, "p")
    table.read().createOrReplaceTempView("old_rows")
    late = DeltaLog.for_table(table.path)
    begun = late.start_transaction()
    table.handle.delete("p = 'b'")
    monkeypatch.setattr(late, "start_transaction", lambda **_: begun)
    largest = F.expr("(SELECT cast(max(id) AS STRING) FROM old_rows)")
    with pytest.raises(DeltaConcurrentModificationException):
        run_update(table.spark, late, {"v": largest}, F.expr("p = 'a'"))
    table.spark.catalog.dropTempView("old_rows")
    assert [row[2] for row in table.rows] == ["x", "y", None, "z"]


def test_a_table_for_appends_keeps_its_rows(table: DmlTable) -> None:
    filled(table, **{"delta.appendOnly": "true"})
    with table.refused("DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        table.handle.update("id = 99", {"v": "'q'"})


@KINDS
def test_rows_keep_their_ids_and_get_the_commits_version(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties, **TRACKED)

    def ids() -> dict[int, tuple[int, int]]:
        found = table.read().select("id", "_metadata.row_id", "_metadata.row_commit_version")
        return {row[0]: (row[1], row[2]) for row in found.collect()}

    before = ids()
    table.handle.update("id = 2", {"v": "'n'"})
    table.handle.update("id IN (2, 4)", {"v": "'m'"})
    assert ids() == {**before, 2: (before[2][0], 2), 4: (before[4][0], 2)}
    table.handle.update(set={"v": "'k'"})
    assert ids() == {i: (row_id, 3) for i, (row_id, _) in before.items()}
    assert (table.info.tags or {})["delta.rowTracking.preserved"] == "true"


@KINDS
def test_the_feed_has_every_row_before_and_after(
    table: DmlTable, properties: dict[str, str]
) -> None:
    filled(table, **properties, **FEED)
    table.handle.update("id IN (2, 3)", {"v": "'n'"})
    assert table.change_rows == [
        (2, "a", "n", "update_postimage"),
        (2, "a", "y", "update_preimage"),
        (3, "b", "n", "update_postimage"),
        (3, "b", "x", "update_preimage"),
    ]
    assert table.metrics["numAddedChangeFiles"] == 1
    # A time is told as it came into the table.
    table.handle.update("id = 2", {"v": "cast(current_timestamp() AS STRING)"})
    stored = next(row for row in table.rows if row[0] == 2)
    assert table.change_rows[0] == (*stored, "update_postimage")
    table.handle.update(set={"p": "'q'"})
    assert len(table.change_rows) == 10
    table.check_log()


@KINDS
def test_columns_under_other_names(table: DmlTable, properties: dict[str, str]) -> None:
    mapped = {**properties, "delta.columnMapping.mode": "name"}
    schema = "id long, `a.b c` struct<x: int, `y.z`: string>, p string"
    table.write(table.data(schema, (1, (1, "q"), "q"), (2, None, "r")), "append", "p", **mapped)
    table.handle.update("`a.b c`.x = 1", {"`a.b c`.`y.z`": "p || id", "p": "'r'"})
    assert table.rows == [(1, (1, "q1"), "r"), (2, None, "r")]
    table.handle.update("p = 'r'", {"`a.b c`": "struct(id, p)"})
    assert table.rows == [(1, (1, "r"), "r"), (2, (2, "r"), "r")]
    table.check_log()


def test_two_updates_of_other_rows_of_one_file_both_stand(
    table: DmlTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(table, **VECTORS)
    late = DeltaLog.for_table(table.path)
    begun = late.start_transaction()
    table.handle.update("id = 1", {"v": "'n'"})
    monkeypatch.setattr(late, "start_transaction", lambda **_: begun)
    run_update(table.spark, late, {"v": F.lit("m")}, F.expr("id = 2"))
    assert [row[2] for row in table.rows] == ["n", "m", "x", None, "z"]
    table.check_log()


def test_a_file_of_which_little_is_left_is_written_anew(table: DmlTable) -> None:
    table.write(table.spark.range(0, 20_000, 1, 1).selectExpr("id", "'x' AS v"), **VECTORS)
    table.write(table.data("id long, v string", (-1, "x"), (-2, "x")))
    table.handle.update("id >= 500 OR id = -1", {"v": "'n'"})
    assert (table.metrics["numCopiedRows"], table.metrics["numUpdatedRows"]) == (500, 19_501)
    assert table.metrics["numDeletionVectorsAdded"] == 1
    table.check_log()
    table.handle.delete("v = 'n' AND id >= 600 AND id <> -1")
    assert table.metrics["numCopiedRows"] in (100, 101)
    assert table.read().count() == 602


def test_a_query_among_the_values_that_reads_an_older_version_holds_the_update_to_it(
    table: DmlTable,
) -> None:
    enable(table.spark)
    filled(table, "p")
    table.read().createOrReplaceTempView("old_rows")
    update = f"UPDATE delta.`{table.path}` SET v = (SELECT cast(max(id) AS STRING) FROM old_rows)"
    table.handle.delete("p = 'b'")
    with pytest.raises(DeltaConcurrentModificationException):
        table.spark.sql(f"{update} WHERE p = 'a'")
    assert [row[2] for row in table.rows] == ["x", "y", None, "z"]
    table.read().createOrReplaceTempView("old_rows")
    table.spark.sql(f"{update} WHERE p = 'a'")
    table.spark.catalog.dropTempView("old_rows")
    assert [row[2] for row in table.rows] == ["5", "5", None, "z"]


def test_values_that_do_not_fit_are_refused_where_no_row_is_updated(table: DmlTable) -> None:
    enable(table.spark)
    filled(table)
    with pytest.raises(AnalysisException):
        table.spark.sql(f"UPDATE delta.`{table.path}` SET id = array(1) WHERE id = 99")
    table.spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    with pytest.raises(AnalysisException, match="CANNOT_UP_CAST_DATATYPE"):
        table.spark.sql(f"UPDATE delta.`{table.path}` SET id = 'q' WHERE id = 99")
