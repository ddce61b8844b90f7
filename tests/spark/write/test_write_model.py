"""Random writes against a model in plain Python: a list of rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.agreement import deltalake_rows, kernel_rows
from tests.support.spark_tables import Row, SparkTable

SCHEMA = "id long, p string, q long"
STEPS = 12
PROPERTIES = {
    1: {"delta.enableChangeDataFeed": "true"},
    2: {"delta.enableRowTracking": "true"},
    3: {"delta.columnMapping.mode": "id"},
}
# A condition in SQL, and what it is in Python: three-valued, None for null.
CONDITIONS = [
    ("p = 'a'", lambda r: None if r[1] is None else r[1] == "a"),
    ("p IS NULL", lambda r: r[1] is None),
    ("id < 5", lambda r: r[0] < 5),
    ("q % 2 = 0", lambda r: None if r[2] is None else r[2] % 2 == 0),
    ("p <> 'a' OR q = 1", lambda r: _or(_ne(r[1], "a"), _eq(r[2], 1))),
    ("p <=> 'b' AND id >= 3", lambda r: r[1] == "b" and r[0] >= 3),
]


def _eq(left: object, right: object) -> bool | None:
    return None if left is None else left == right


def _ne(left: object, right: object) -> bool | None:
    return None if left is None else left != right


def _or(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def random_rows(chance: random.Random) -> list[Row]:
    return [
        (
            chance.randrange(10),
            chance.choice(["a", "b", None, "c d/%"]),
            chance.choice([None, 1, 2]),
        )
        for _ in range(chance.randrange(6))
    ]


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("seed", [*PROPERTIES])
def test_any_sequence_of_writes_leaves_the_rows_of_the_model(
    spark: SparkSession, table_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    table = SparkTable(spark, table_path)
    model = random_rows(chance)
    table.write(table.data(SCHEMA, *model), "append", "p", **PROPERTIES[seed])
    for _ in range(STEPS):
        rows = random_rows(chance)
        step = chance.choice(["append", "overwrite", "where", "where", "dynamic", "using", "self"])
        if step == "append":
            table.write(table.data(SCHEMA, *rows))
            model = model + rows
        elif step == "overwrite":
            table.write(table.data(SCHEMA, *rows), "overwrite")
            model = rows
        elif step == "where":
            text, holds = chance.choice(CONDITIONS)
            rows = [row for row in rows if holds(row) is True]
            table.write(table.data(SCHEMA, *rows), "overwrite", replaceWhere=text)
            model = [row for row in model if holds(row) is not True] + rows
        elif step == "dynamic":
            written = {row[1] for row in rows}
            options = {"partitionOverwriteMode": "dynamic"}
            table.write(table.data(SCHEMA, *rows), "overwrite", **options)
            model = [row for row in model if row[1] not in written] + rows
        elif step == "using":
            keys = {(row[0], row[1]) for row in rows if row[1] is not None}
            table.write(table.data(SCHEMA, *rows), "overwrite", replaceUsing="id, p")
            model = [row for row in model if (row[0], row[1]) not in keys] + rows
        else:
            table.write(table.read().where("id <> 3"), "overwrite")
            model = [row for row in model if row[0] != 3]
        assert table.rows == in_order(model), step
    expected = in_order(model)
    assert in_order([tuple(row.values()) for row in kernel_rows(table_path)]) == expected
    assert in_order([tuple(row.values()) for row in deltalake_rows(table_path)]) == expected
