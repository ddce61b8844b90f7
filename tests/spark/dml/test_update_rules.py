"""UPDATE of tables with rules: generated, identity and default columns, constraints, lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType
from pyspark_delta.spark.dml.update import run_update
from tests.support.dml_tables import FEED, MODES, VECTORS, DmlTable
from tests.support.tables import create_table

KINDS = pytest.mark.parametrize("properties", MODES.values(), ids=MODES.keys())


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


def made(table: DmlTable, *fields: StructField, **properties: str) -> DmlTable:
    """A table with three rows, whose ids are 0, 1 and 2, in one file."""
    create_table(table.path, StructType(fields), configuration=properties)
    table.write(table.spark.range(0, 3, 1, 1).selectExpr("cast(id AS INT) AS id"))
    return table


def field(name: str, data_type: Any = STRING, **metadata: Any) -> StructField:
    return StructField(name, data_type, metadata=metadata)


ID = StructField("id", INTEGER)
TENFOLD = StructField("g", INTEGER, metadata={"delta.generationExpression": "id * 10"})


@KINDS
def test_generated_columns_follow_unless_they_are_given(
    table: DmlTable, properties: dict[str, str]
) -> None:
    made(table, ID, TENFOLD, field("w"), **properties, **FEED)
    table.handle.update("id = 1", {"id": "id + 6", "w": "cast(g AS STRING)"})
    assert table.rows == [(0, 0, None), (2, 20, None), (7, 70, "10")]
    assert table.change_rows == [
        (1, 10, None, "update_preimage"),
        (7, 70, "10", "update_postimage"),
    ]
    table.handle.update("id = 7", {"id": "8", "g": "80"})
    with table.refused("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        table.handle.update("id = 8", {"g": "81"})
    table.handle.update(set={"id": "id + 1"})
    assert [row[:2] for row in table.rows] == [(1, 10), (3, 30), (9, 90)]


def test_identity_columns_keep_their_numbers(table: DmlTable) -> None:
    made(table, ID, with_identity(StructField("i", LONG), start=5, step=5))
    assert table.rows == [(0, 5), (1, 10), (2, 15)]
    with table.refused("DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED"):
        table.handle.update("id = 1", {"i": "7"})
    table.handle.update("id = 1", {"id": "7"})
    assert table.rows == [(0, 5), (2, 15), (7, 10)]


def test_default_is_a_value(table: DmlTable) -> None:
    supported = {"delta.feature.allowColumnDefaults": "supported"}
    made(table, ID, field("v", CURRENT_DEFAULT="'d' || 'd'"), field("w"), **supported)
    table.handle.update("id = 1", {"v": "'x'", "w": "'x'"})
    table.handle.update("id > 0", {"v": "DEFAULT", "w": "default"})
    assert table.rows == [(0, "dd", None), (1, "dd", None), (2, "dd", None)]


@KINDS
def test_a_row_that_breaks_a_rule_leaves_everything_as_it_was(
    table: DmlTable, properties: dict[str, str]
) -> None:
    limited = field("s", __CHAR_VARCHAR_TYPE_STRING="varchar(3)")
    made(
        table,
        StructField("id", INTEGER, nullable=False),
        limited,
        **properties,
        **FEED,
        **{"delta.constraints.small": "coalesce(id, 0) < 10"},
    )
    before = table.paths
    for assigned, expected in [
        ({"id": "nullif(id, 2)"}, "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"),
        ({"id": "id * 5"}, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"),
        ({"s": "repeat('x', id * 2)"}, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"),
    ]:
        with table.refused(expected):
            table.handle.update("id >= 1", assigned)
    assert table.paths == before
    assert [row[0] for row in table.rows] == [0, 1, 2]
    table.handle.update("id >= 1", {"s": "'abc'", "id": "id + 7"})
    assert table.rows == [(0, None), (8, "abc"), (9, "abc")]


def test_values_of_rows_that_stay_are_not_computed(table: DmlTable) -> None:
    made(table, ID, field("v"))
    table.handle.update("id <> 0", {"v": "cast(10 div id AS STRING)"})
    assert table.rows == [(0, None), (1, "10"), (2, "5")]


def test_a_conflict_leaves_no_files(table: DmlTable, monkeypatch: pytest.MonkeyPatch) -> None:
    made(table, ID, field("v"), **VECTORS)
    late = type(table.log).for_table(table.path)
    begun = late.start_transaction()
    table.handle.delete("id = 1")
    before = table.paths
    monkeypatch.setattr(table.log, "start_transaction", lambda **_: begun)
    with pytest.raises(DeltaConcurrentModificationException):
        run_update(table.spark, table.log, {"v": F.lit("x")}, F.expr("id < 2"))
    assert table.paths == before
