"""MERGE and structs that are null: whether one stays null when its fields change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.support.merges import MergeTable
from tests.support.spark_tables import conf

WHOLE = "spark.databricks.delta.merge.preserveNullSourceStructs"
STAR = f"{WHOLE}.updateStar"

# What becomes of a null in the types of the evolved column, struct<y struct<d, e, c>, z, x>: as
# one value, and as a star sets its fields one by one.
EMPTY = ((None, None, None), None, None)
SPREAD = ((None, None, None), None, (None,))
NO_FIELDS = (None, None, None)


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.mark.parametrize(
    ("settings", "star_keeps", "keeps"),
    [({}, True, True), ({WHOLE: "false"}, False, False), ({STAR: "false"}, False, True)],
    ids=["by default", "for nothing", "not for a star"],
)
def test_a_null_struct_stays_null_where_the_session_does_not_say_otherwise(
    spark: SparkSession,
    table_path: Path,
    settings: dict[str, str],
    star_keeps: bool,
    keeps: bool,
) -> None:
    target = "id int, col struct<y: struct<d: int, e: int>, z: struct<f: int>>"
    there, nulls = ((4, 5), (6,)), (None, None)
    table = MergeTable.of(
        spark,
        table_path,
        target,
        *[(1, there), (2, None), (3, nulls), (11, there), (12, None), (13, nulls)],
        *[(31, None), (41, None)],
    )
    given = "id int, col struct<x: struct<a: int>, y: struct<c: int, d: int>>"
    absent = [(id_, None) for id_ in (1, 2, 11, 12, 21, 41)]
    source = table.data(given, *absent, *[(id_, nulls) for id_ in (3, 13, 22)])
    merge = (
        table.merge(source)
        .whenMatchedUpdateAll("s.id < 10")
        .whenMatchedUpdate("s.id < 20", {"t.col": "s.col"})
        .whenMatchedUpdate(set={"id": "s.id"})
        .whenNotMatchedInsertAll()
    )
    with conf(spark, **settings):
        table.done(merge.withSchemaEvolution())
    assert dict(table.rows) == {
        # What only the target has stays when a star updates.
        1: ((None, 5, None), (6,), None if star_keeps else (None,)),
        2: None if star_keeps else SPREAD,
        3: NO_FIELDS if star_keeps else SPREAD,
        11: None if keeps else EMPTY,
        12: None if keeps else EMPTY,
        13: NO_FIELDS if keeps else EMPTY,
        21: None if keeps else EMPTY,
        22: NO_FIELDS if keeps else EMPTY,
        31: None,
        41: None if keeps else EMPTY,
    }


@pytest.mark.parametrize("setting", [WHOLE, STAR])
def test_nulls_of_a_type_that_stays_and_nulls_in_arrays(
    spark: SparkSession, table_path: Path, setting: str
) -> None:
    target = "id int, same struct<a: int>, l array<struct<a: int, c: int>>"
    table = MergeTable.of(spark, table_path, target, (1, (1,), [(1, 2)]))
    given = "id int, same struct<a: int>, new struct<a: int>, l array<struct<a: int, b: int>>"
    source = table.data(given, (1, None, None, [None]), (2, None, None, [None]))
    merge = table.merge(source).whenMatchedUpdateAll().whenNotMatchedInsertAll()
    with conf(spark, **{setting: "false"}):
        # Without evolution a star sets columns, and no fields.
        table.done(table.merge(table.data(target, (1, None, [None]))).whenMatchedUpdateAll())
        assert table.rows == [(1, None, [None])]
        table.done(merge.withSchemaEvolution())
    items = [(None, None, None)] if setting == WHOLE else [None]
    assert table.read().columns == ["id", "same", "l", "new"]
    assert table.rows == [(1, (None,), items, (None,)), (2, None, items, None)]


def test_an_update_follows_the_setting_for_whole_structs(
    spark: SparkSession, table_path: Path
) -> None:
    table = MergeTable.of(spark, table_path, "id int, col struct<a: int, b: int>", (1, (1, 2)))
    update = (
        f"UPDATE delta.`{table_path}` SET col = IF(id = 1, NULL, named_struct('b', 1L, 'a', 2L))"
    )
    spark.sql(update)
    assert table.rows == [(1, None)]
    with conf(spark, **{WHOLE: "false"}):
        spark.sql(update)
    assert table.rows == [(1, (None, None))]
