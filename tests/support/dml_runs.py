"""Commands of `dml_model` on a real table, and what must hold of its log after each of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantVal

from pyspark_delta import DeltaTable
from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.support.dml_model import (
    Clause,
    Command,
    Outcome,
    Row,
    as_bag,
    frozen,
    run,
    some_rows,
    without_side,
)
from tests.support.naive_feed import Changes
from tests.support.tables import table_log

COLUMNS = ("w", "k", "x", "p", "st", "v")
_File = tuple[str, str | None]

PAYLOADS: dict[str, Callable[[random.Random], Any]] = {
    "STRING": lambda rng: rng.choice(["", "ä", "long " * 20]),
    "DOUBLE": lambda rng: rng.choice([0.0, -1.5, 1e300]),
    "DECIMAL(20,4)": lambda rng: rng.choice([Decimal("1.5000"), Decimal("-99999.1234")]),
    "DATE": lambda rng: rng.choice([date(1960, 5, 5), date(2024, 2, 29)]),
    "TIMESTAMP": lambda rng: datetime(2024, 1, 1, 12, 0, 0, rng.randint(0, 999_999), tzinfo=UTC),
    "BINARY": lambda rng: bytearray([0, rng.randint(0, 255)]),
    "BOOLEAN": lambda rng: rng.random() < 0.5,
    "ARRAY<INT>": lambda rng: [rng.randint(0, 9) for _ in range(rng.randint(0, 3))],
    "MAP<STRING, INT>": lambda rng: {"a": rng.randint(0, 9)},
    "TINYINT": lambda rng: rng.randint(-5, 5),
    "SMALLINT": lambda rng: rng.randint(-5, 5),
    "BIGINT": lambda rng: rng.choice([-(1 << 63), 0, (1 << 63) - 1]),
    "FLOAT": lambda rng: rng.choice([0.0, -1.5, float("inf")]),
    "DECIMAL(38,18)": lambda rng: Decimal(f"{rng.randint(-9, 9)}{'1' * 19}.{'2' * 18}"),
    "TIMESTAMP_NTZ": lambda rng: datetime(1900, 1, 2, 0, 0, 0, rng.randint(0, 999_999)),
    "ARRAY<STRUCT<a: INT, b: STRING>>": lambda rng: [
        rng.choice([None, {"a": rng.randint(0, 9), "b": rng.choice([None, "x"])}])
        for _ in range(rng.randint(0, 2))
    ],
    "STRUCT<m: MAP<INT, STRING>, l: ARRAY<DATE>>": lambda rng: {
        "m": rng.choice([None, {rng.randint(0, 3): rng.choice([None, "y"])}]),
        "l": rng.choice([None, [], [date(1582, 10, 4)]]),
    },
    "VARIANT": lambda rng: VariantVal(bytes([12, rng.randint(0, 99)]), b"\x01\x00\x00"),
}
"""Values of every type that a table can hold, but for VOID, by the type's name."""


@dataclass(frozen=True)
class Shape:
    """What kind of table a program runs on."""

    payload: str
    properties: dict[str, str]
    partition_by: tuple[str, ...]
    files: int

    @property
    def schema(self) -> str:
        """The columns as DDL."""
        return f"w INT, k INT, x BIGINT, p STRING, st STRUCT<a: INT, b: STRING>, v {self.payload}"


def random_shape(rng: random.Random, *, payload: str | None = None) -> Shape:
    """Any mix of features; the change feed is on, for the model knows it too."""
    properties = {"delta.enableChangeDataFeed": "true"}
    if rng.random() < 0.5:
        properties["delta.enableDeletionVectors"] = "true"
    if rng.random() < 0.3:
        properties["delta.columnMapping.mode"] = rng.choice(["name", "id"])
    if rng.random() < 0.3:
        properties["delta.enableRowTracking"] = "true"
    return Shape(
        payload=payload or rng.choice(sorted(PAYLOADS)),
        properties=properties,
        partition_by=rng.choice([(), (), (), ("p",), ("k",), ("p", "k")]),
        files=rng.randint(1, 4),
    )


class Program:
    """A table and its model, which take the same commands."""

    def __init__(self, spark: SparkSession, path: Path, rng: random.Random, worlds: int) -> None:
        self.shape = random_shape(rng)
        self.worlds = worlds
        self._spark, self._path, self._rng = spark, path, rng
        self.rows = some_rows(rng, worlds, 6, self.payload)
        # Without rows at first: none may come with a mapping of columns that changes are told by.
        empty = self._frame([]).write.format("delta").partitionBy(*self.shape.partition_by)
        empty.options(**self.shape.properties).save(str(path))
        first = self._frame(self.rows).repartition(self.shape.files).write.format("delta")
        first.mode("append").save(str(path))

    def payload(self) -> Any:
        """A value for the column `v`."""
        return PAYLOADS[self.shape.payload](self._rng)

    def step(self, command: Command) -> None:
        """Run it here and in the model, and compare all there is to compare."""
        before = table_log(self._path).snapshot
        expected = run(command, self.rows, COLUMNS)
        counts = carried_out(self._spark, self._path, command, self._frame(command.rows))
        after = table_log(self._path).snapshot
        loaded = self._spark.read.format("delta").load(str(self._path))
        found = [row.asDict(recursive=True) for row in loaded.collect()]
        assert as_bag(found) == as_bag(expected.rows), self.told(command)
        changed = expected.counts.total()
        if counts is not None:
            assert counts == counted(expected, command), self.told(command)
        if changed:
            feed = changes_by_spark(self._spark, self._path, before.version + 1, after.version)
            assert feed == changes_of(expected), self.told(command)
        check_files(self._path, len(expected.rows))
        self.rows = expected.rows

    def told(self, command: Command) -> str:
        """The command and its table, for whoever has to find out."""
        return f"{self.shape}\n{told(command)}"

    def _frame(self, rows: Sequence[Row]) -> DataFrame:
        values = [tuple(row[name] for name in COLUMNS) for row in rows]
        return self._spark.createDataFrame(values, self.shape.schema)


def carried_out(
    spark: SparkSession, path: Path, command: Command, rows: DataFrame
) -> list[int] | None:
    """Run a command on the table at `path`; the counts that it gives back, where it does."""
    table = DeltaTable.forPath(spark, str(path))
    if command.kind == "append":
        rows.coalesce(1).write.format("delta").mode("append").save(str(path))
        return None
    if command.kind == "merge":
        assert command.on is not None
        merge = table.alias("t").merge(rows.alias("s"), command.on.sql)
        for clause in command.clauses:
            merge = with_clause(merge, clause)
        return list(merge.execute().collect()[0])
    condition = without_side(command.condition).sql if command.condition else None
    if command.kind == "replace":
        overwrite = rows.coalesce(1).write.format("delta").mode("overwrite")
        overwrite.option("replaceWhere", condition).save(str(path))
        return None
    if command.kind == "delete":
        return list(table.delete(condition).collect()[0])
    sets = {name: without_side(formula).sql for name, formula in command.sets.items()}
    return list(table.update(condition, sets).collect()[0])


def changes_by_spark(spark: SparkSession, path: Path, first: int, last: int) -> Changes:
    """The changes of some versions, as our reader of the feed gives them."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    feed = reader.option("startingVersion", first).option("endingVersion", last)
    found = feed.load(str(path)).drop("_commit_version", "_commit_timestamp").collect()
    rows = [row.asDict(recursive=True) for row in found]
    return Counter((row.pop("_change_type"), frozen(row)) for row in rows)


def changes_of(outcome: Outcome) -> Changes:
    """Those that the model has."""
    return Counter((kind, frozen(row)) for kind, row in outcome.changes)


def told(command: Command) -> str:
    """A command, for whoever has to find out what it did."""
    clauses = [
        (c.when, c.action, c.condition and c.condition.sql, c.sets and _sql(c.sets))
        for c in command.clauses
    ]
    condition = command.condition and command.condition.sql
    on = command.on and command.on.sql
    return f"{command.kind} {condition} {_sql(command.sets)} {on} {clauses}"


def _sql(sets: Any) -> dict[str, str]:
    return {name: formula.sql for name, formula in (sets or {}).items()}


def counted(expected: Outcome, command: Command) -> list[int]:
    counts = expected.counts
    if command.kind != "merge":
        return [counts.total()]
    return [counts.total(), counts["updated"], counts["deleted"], counts["inserted"]]


def with_clause(merge: Any, clause: Clause) -> Any:
    """A builder of a MERGE with one clause more."""
    condition = None if clause.condition is None else clause.condition.sql
    sets = None if clause.sets is None else _sql(clause.sets)
    match clause.when, clause.action:
        case "matched", "delete":
            return merge.whenMatchedDelete(condition)
        case "matched", "update" if sets is None:
            return merge.whenMatchedUpdateAll(condition)
        case "matched", "update":
            return merge.whenMatchedUpdate(condition, sets)
        case "not matched", "insert" if sets is None:
            return merge.whenNotMatchedInsertAll(condition)
        case "not matched", "insert":
            return merge.whenNotMatchedInsert(condition, sets)
        case "not matched by source", "delete":
            return merge.whenNotMatchedBySourceDelete(condition)
    return merge.whenNotMatchedBySourceUpdate(condition, sets)


@contextmanager
def conserving(path: Path, *, inserted: int = 0, deleted: int = 0) -> Iterator[None]:
    """What happens inside adds and takes away so many rows, and no row besides."""
    before = _num_rows(path)
    yield
    after = before + inserted - deleted
    assert _num_rows(path) == after
    check_files(path, after)


def check_files(path: Path, num_rows: int) -> None:
    """What no command may break: no file twice, only live files removed, rows add up."""
    log = table_log(path)
    live: dict[str, str | None] = {}
    for version in range(log.snapshot.version + 1):
        removed, added = _files(path, version)
        for name, vector in removed:
            assert name in live, f"version {version} removes {name}, which is not there"
            # A file is told from others by its vector too.
            assert live.pop(name) == vector, f"version {version} removes {name} without its vector"
        for name, vector in added:
            assert name not in live, f"version {version} adds {name} again"
            live[name] = vector
    files = list(add_files(log.snapshot.files))
    assert sorted(file.path for file in files) == sorted(live)
    vectors = [file.deletion_vector for file in files]
    gone = sum(vector.cardinality for vector in vectors if vector is not None)
    counts = [file.num_records for file in files if file.num_records is not None]
    # Writers may leave statistics out, but not where there is a vector.
    assert all(file.num_records is not None for file in files if file.deletion_vector)
    assert len(counts) < len(files) or sum(counts) - gone == num_rows


def _num_rows(path: Path) -> int:
    """How many rows there are when each is read, whatever the log says."""
    return sum(batch.num_rows for batch in table_log(path).snapshot.to_batches())


def _files(path: Path, version: int) -> tuple[list[_File], list[_File]]:
    """What a version removes and adds: paths, each with the id of its vector."""
    text = (path / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in text.splitlines()]
    return (
        [_file(action["remove"]) for action in actions if "remove" in action],
        [_file(action["add"]) for action in actions if "add" in action],
    )


def _file(action: dict[str, Any]) -> _File:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], None
    return action[
        "path"
    ], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"
