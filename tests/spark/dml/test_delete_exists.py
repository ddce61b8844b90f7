"""DELETE of rows for which a query has, or has not, a row: where the session allows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import ConcurrentAppendException
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.dml_tables import FEED, MODES, DmlTable, filled
from tests.support.spark_tables import conf

ALLOWED = "spark__databricks__delta__delete__allowExistsSubquery"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[DmlTable]:
    spark.range(2, 4).selectExpr("id AS src_id").createOrReplaceTempView("src")
    yield DmlTable(spark, table_path)
    spark.catalog.dropTempView("src")


def deleted(table: DmlTable) -> list[int]:
    """The ids of the rows that the newest version took away, by the change feed."""
    version = table.log.update().version
    rows = table.handle.changes(version, version).collect()
    assert {row["_change_type"] for row in rows} <= {"delete"}
    return sorted(row["id"] for row in rows)


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("properties", MODES.values(), ids=MODES)
def test_rows_go_for_which_a_query_has_a_row_or_has_none(
    table: DmlTable, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    filled(table, *partition_by, **properties, **FEED)
    name = f"delta.`{table.path}`"
    with conf(table.spark, **{ALLOWED: "true"}):
        exists = "EXISTS (SELECT 1 FROM src s WHERE s.src_id = id AND s.src_id IN (SELECT 3))"
        assert table.spark.sql(f"DELETE FROM {name} WHERE {exists}").first() == (1,)
        assert deleted(table) == [3]
        assert "exists" in str(table.parameters["predicate"])
        either = "id = 4 OR EXISTS (SELECT 1 FROM src s WHERE s.src_id = t.id AND p = 'nobody')"
        table.handle.alias("t").delete(either)
        assert deleted(table) == [4]
        absent = "NOT EXISTS (SELECT 1 FROM src s WHERE s.src_id = t.id)"
        assert table.spark.sql(f"DELETE FROM {name} t WHERE {absent}").first() == (2,)
        assert deleted(table) == [1, 5]
        version = table.info.version
        nothing = "EXISTS (SELECT 1 FROM src WHERE src_id = id AND src_id > 7)"
        assert table.spark.sql(f"DELETE FROM {name} WHERE {nothing}").first() == (0,)
        assert table.info.version == version
        table.check_log()
        # Of a query that knows nothing of the row there is one answer for all.
        assert table.handle.delete("EXISTS (SELECT 1 FROM src)").first() == (1,)
    assert table.rows == []


def test_other_subqueries_are_refused_and_so_is_this_one_elsewhere(table: DmlTable) -> None:
    filled(table)
    exists = "EXISTS (SELECT 1 FROM src WHERE src_id = id)"
    with table.refused("DELTA_UNSUPPORTED_SUBQUERY"):
        table.handle.delete(exists)
    with conf(table.spark, **{ALLOWED: "true"}):
        for condition in (
            "id IN (SELECT src_id FROM src)",
            "id = (SELECT max(src_id) FROM src)",
            f"{exists} AND id = (SELECT max(src_id) FROM src)",
            f"{exists} OR id NOT IN (SELECT src_id FROM src)",
        ):
            with table.refused("DELTA_UNSUPPORTED_SUBQUERY"):
                table.handle.delete(condition)
        with table.refused("DELTA_UNSUPPORTED_SUBQUERY"):
            table.handle.update(exists, {"v": "'new'"})
        shown = table.spark.sql(f"EXPLAIN DELETE FROM delta.`{table.path}` WHERE {exists}").first()
    assert shown is not None
    assert "DeleteCommand" in shown[0]


def test_a_row_of_the_very_table_that_comes_meanwhile_is_a_conflict(
    table: DmlTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(table)
    commit = OptimisticTransaction.commit

    def late(self: OptimisticTransaction, *given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        filled(table)
        return commit(self, *given, **named)

    table.read().createOrReplaceTempView("own")
    twin = "EXISTS (SELECT 1 FROM own WHERE own.id = t.id + 4)"
    with conf(table.spark, **{ALLOWED: "true"}):
        monkeypatch.setattr(OptimisticTransaction, "commit", late)
        with pytest.raises(ConcurrentAppendException):
            table.handle.alias("t").delete(twin)
    table.spark.catalog.dropTempView("own")
    assert len(table.rows) == 10
