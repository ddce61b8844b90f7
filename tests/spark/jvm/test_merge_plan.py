"""What MERGE takes for granted of Spark's plans: the next version tells here what moved."""

from __future__ import annotations

import re

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.spark.jvm.expressions.catalyst import Moment, column_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import (
    broadcast_threshold,
    observed,
    release,
    running_once,
    size_in_bytes,
    stored_bytes,
)
from pyspark_delta.spark.jvm.plans.merge import (
    JoinedRows,
    columns_in_scope,
    condition_texts,
    find,
    joined_scope,
    named_scope,
    scope_of,
)
from pyspark_delta.spark.jvm.scan.file_index import is_steady


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def test_expressions_stand_where_their_branch_is(jvm: JvmSession) -> None:
    source = jvm.spark.range(3).alias("s")
    target = jvm.spark.range(1, 5).selectExpr("id", "id - 1 AS zero")
    left, right = scope_of(source), named_scope(jvm, target, ("c", "d", "t"))
    both = joined_scope(jvm, left, right)
    named = {
        "on": F.expr("d.t.id = s.id"),
        "part": F.expr("10 / zero"),
        "where": F.expr("zero > 0"),
    }
    found = find(jvm, both, named, {}, Moment(jvm))
    assert found.is_plain
    assert columns_in_scope(found.expression("on"), right) == ["id"]
    assert not find(jvm, left, {"most": F.expr("max(id)")}, {}, Moment(jvm)).is_plain
    columns = find(jvm, right, {}, {"t0": "`id`"}, Moment(jvm))
    rows = JoinedRows.join(jvm, left, right, "Inner", found.expression("on"), [found, columns])
    rows = rows.with_values({"twice": column_of(jvm, columns.expression("t0")) * 2}, Moment(jvm))
    # A division by zero would fail, were it computed for every row.
    texts = {"id": "t0", "made": "CASE choice WHEN 1 THEN part ELSE twice END"}
    made = rows.select("CASE WHEN where THEN 1 WHEN t0 > 0 THEN 0 END", "choice", texts)
    assert sorted(map(tuple, made.collect())) == [(1, 2.0), (2, 10.0)]


def test_conditions_are_told_with_constants_computed(jvm: JvmSession) -> None:
    scope = scope_of(jvm.spark.range(3).selectExpr("id", "7L AS seven"))
    named = {"a": F.expr("id > 1 + 1"), "b": F.expr("seven BETWEEN 1 AND id")}
    found = find(jvm, scope, named, {}, Moment(jvm))
    told = condition_texts(jvm, [scope], {name: found.expression(name) for name in named})
    # That `seven` is 7 everywhere is the plan's affair.
    shown = {name: re.sub(r"#\d+L", "", text) for name, text in told.items()}
    assert shown == {"a": "(id > 2)", "b": "((seven >= 1) AND (seven <= id))"}
    # Code that the optimizer takes out of a projection stays where it is.
    is_large = F.udf(lambda number: number > 1, "boolean", useArrow=False)
    named = {"code": is_large("id")}
    code = find(jvm, scope, named, {}, Moment(jvm)).expression("code")
    assert "#" in condition_texts(jvm, [scope], {"code": code})["code"]


@pytest.mark.parametrize("kind", ["Inner", "LeftAnti"])
def test_a_small_side_is_broadcast(jvm: JvmSession, kind: str) -> None:
    source, target = jvm.spark.range(3).alias("s"), jvm.spark.range(1, 5)
    counted = source.observe("seen", F.count(F.lit(1)).alias("n"))
    left, right = scope_of(counted), named_scope(jvm, target, ("t",))
    on = find(jvm, joined_scope(jvm, left, right), {"on": F.expr("t.id = s.id")}, {}, Moment(jvm))
    found = find(jvm, left, {}, {"s0": "id"}, Moment(jvm))
    rows = JoinedRows.join(
        jvm, left, right, kind, on.expression("on"), [found], broadcasts_source=True
    )
    made = rows.select("1", "choice", {"id": "s0"})
    assert "BroadcastHashJoin" in made._jdf.queryExecution().executedPlan().toString()
    kept = running_once(jvm, made)
    assert sorted(row[0] for row in kept.collect()) == ([1, 2] if kind == "Inner" else [0])
    assert observed(made, "seen") == 3
    assert observed(made, "nothing") is None


def test_rows_are_computed_once_and_kept(jvm: JvmSession) -> None:
    made = jvm.spark.range(100).select("id", F.rand().alias("chance"))
    kept = made.localCheckpoint(eager=False)
    assert 0 < size_in_bytes(made) < 10_000
    first = sorted(map(tuple, kept.collect()))
    assert sorted(map(tuple, kept.collect())) == first
    assert stored_bytes(jvm, kept) > 0
    release(kept)
    with pytest.raises(Py4JJavaError, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        kept.collect()


def test_plans_that_give_the_same_rows_each_time_are_known(jvm: JvmSession) -> None:
    spark = jvm.spark
    assert is_steady(jvm, spark.range(3).where("id > 1").alias("s"))
    for frame in (
        spark.range(3).select(F.rand()),
        spark.range(3).limit(1),
        spark.createDataFrame([(1,)], "id int"),
        spark.range(3).select(F.current_timestamp()),
        # What stands below the last step counts as well.
        spark.range(3).where("id IN (SELECT id FROM range(2))").select("id"),
        spark.range(3).where("id = (SELECT max(id) FROM range(2))").alias("s"),
    ):
        assert not is_steady(jvm, frame)
    assert broadcast_threshold(jvm) > 0
