"""What we take for granted of the plans that Spark's parser makes of statements about rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.spark.jvm.catalog.functions import Argument, install_table_functions
from pyspark_delta.spark.jvm.expressions.catalyst import constant, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.changes import (
    ParsedDelete,
    ParsedMerge,
    ParsedTruncate,
    ParsedUpdate,
    parse_change,
)
from pyspark_delta.spark.jvm.parser.inserts import (
    ParsedInsert,
    parse_inserts,
    writes_directory,
)
from pyspark_delta.spark.jvm.plans.frames import named_rows
from pyspark_delta.spark.jvm.plans.merge import Default


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def only(parsed: list[ParsedInsert] | None) -> ParsedInsert:
    assert parsed is not None
    assert len(parsed) == 1
    return parsed[0]


def test_changes_are_taken_apart(jvm: JvmSession) -> None:
    update = parse_change(jvm, "UPDATE a.t AS x SET s.`b c` = 1, v = DEFAULT WHERE id = 2")
    assert isinstance(update, ParsedUpdate)
    assert (update.target.name, update.target.alias) == (("a", "t"), "x")
    assert [name for name, _ in update.assignments] == ["`s`.`b c`", "`v`"]
    delete = parse_change(jvm, "DELETE FROM pyspark_delta.`/p`")
    assert isinstance(delete, ParsedDelete)
    assert (delete.target.name, delete.condition) == (("delta", "/p"), None)
    merge = parse_change(
        jvm,
        "MERGE WITH SCHEMA EVOLUTION INTO t USING s ON true WHEN MATCHED AND x THEN UPDATE SET * "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1, DEFAULT) "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = 1",
    )
    assert isinstance(merge, ParsedMerge)
    assert merge.evolves
    assert [(each.kind, each.action) for each in merge.clauses] == [
        ("matched", "update"),
        ("matched", "delete"),
        ("not matched", "insert"),
        ("not matched by source", "update"),
    ]
    values = [each.assignments for each in merge.clauses]
    assert (values[0], values[1]) == (None, ())
    assert [value is Default.VALUE for _, value in values[2] or ()] == [False, True]
    assert isinstance(parse_change(jvm, "TRUNCATE TABLE t PARTITION (p = 1)"), ParsedTruncate)
    assert parse_change(jvm, "SELECT 1") is None


def test_arguments_take_the_places_of_their_marks(jvm: JvmSession) -> None:
    for sql, args in (
        ("DELETE FROM IDENTIFIER(:t) WHERE id = :n AND a = :a", {"t": "x", "n": 1, "a": [1, 2]}),
        ("DELETE FROM IDENTIFIER(?) WHERE id = ? AND a = ?", ["x", 1, F.array(F.lit(1))]),
    ):
        found = parse_change(jvm, sql, args)
        assert isinstance(found, ParsedDelete)
        assert found.target.name == ("x",)
        assert found.condition is not None
        assert "id = 1" in str(expression_of(jvm, found.condition).sql())


def test_inserts_are_taken_apart(jvm: JvmSession) -> None:
    one = only(parse_inserts(jvm, "INSERT OVERWRITE t PARTITION (p = 1, q) VALUES (1, 'a')"))
    assert (one.overwrite, dict(one.fixed), one.open) == (True, {"p": "1"}, ("q",))
    one = only(parse_inserts(jvm, "INSERT INTO t (b, a) VALUES (DEFAULT, 1), (2, default)"))
    assert (one.columns, one.query.defaults()) == (("b", "a"), {0: False, 1: False})
    filled = one.query.with_defaults(jvm, {0: F.lit(7), 1: F.lit(8)}).frame(jvm)
    assert sorted(tuple(row) for row in filled.collect()) == [(2, 8), (7, 1)]
    one = only(parse_inserts(jvm, "INSERT INTO t SELECT DEFAULT, 1 AS a"))
    assert one.query.defaults() == {0: True}
    assert one.query.with_defaults(jvm, {0: F.lit(7)}).frame(jvm).collect() == [(7, 1)]
    one = only(parse_inserts(jvm, "INSERT INTO t REPLACE WHERE p = 1 SELECT 1"))
    assert one.replace_where is not None
    one = only(parse_inserts(jvm, "INSERT INTO t AS x REPLACE ON x.a = s.a SELECT 1 AS a"))
    assert (one.replace_on, one.replace_alias) == ("(x.a = s.a)", "x")
    one = only(parse_inserts(jvm, "INSERT INTO t REPLACE USING (a, b) SELECT 1, 2"))
    assert one.replace_using == ("a", "b")
    both = parse_inserts(jvm, "FROM s INSERT INTO t SELECT a INSERT OVERWRITE u SELECT b")
    assert [each.target.name for each in both or ()] == [("t",), ("u",)]
    assert writes_directory(jvm, "INSERT OVERWRITE DIRECTORY '/x' USING delta SELECT 1")


def test_functions_of_tables_stand_among_spark_s_own(jvm: JvmSession) -> None:
    asked: list[Argument] = []

    def found(arguments: Sequence[Argument]) -> DataFrame:
        asked.extend(arguments)
        return jvm.spark.range(2)

    install_table_functions(jvm, {"seam_rows": found})
    assert jvm.spark.sql("SELECT * FROM seam_rows('a', 1 + 1, null) x").count() == 2
    assert [(each.value, each.type_name) for each in asked[:3]] == [
        ("a", "string"),
        (2, "integer"),
        (None, "void"),
    ]


def test_rows_have_all_parts_of_a_name(jvm: JvmSession) -> None:
    rows = named_rows(jvm.spark.range(1), ("c", "d", "t"))
    assert rows.selectExpr("c.d.t.id", "d.t.id", "t.id", "id").collect() == [(0, 0, 0, 0)]
    assert str(expression_of(jvm, constant(jvm, F.lit("7").cast("int"))).sql()) == "7"
