"""Commands of `dml_model` on a real table, and what must hold of its log after each of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable
from pyspark_delta.kernel.log.frames import add_files
from tests.support.dml_model import (
    Clause,
    Command,
    Outcome,
    Row,
    as_bag,
    run,
    some_rows,
    without_side,
)
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
    "SMALLINT": lambda rng: rng.randint(-5, 5),
}


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


def random_shape(rng: random.Random) -> Shape:
    """Any mix of features; the change feed is on, for the model knows it too."""
    properties = {"delta.enableChangeDataFeed": "true"}
    if rng.random() < 0.5:
        properties["delta.enableDeletionVectors"] = "true"
    if rng.random() < 0.3:
        properties["delta.columnMapping.mode"] = rng.choice(["name", "id"])
    if rng.random() < 0.3:
        properties["delta.enableRowTracking"] = "true"
    return Shape(
        payload=rng.choice(sorted(PAYLOADS)),
        properties=properties,
        partition_by=rng.choice([(), (), ("p",)]),
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
        counts = self._run(command)
        after = table_log(self._path).snapshot
        loaded = self._spark.read.format("delta").load(str(self._path))
        found = [row.asDict(recursive=True) for row in loaded.collect()]
        assert as_bag(found) == as_bag(expected.rows), self.told(command)
        changed = expected.counts.total()
        if counts is not None:
            assert counts == _counted(expected, command), self.told(command)
        if changed:
            self._check_changes(command, expected, before.version + 1, after.version)
        check_files(self._path, len(expected.rows))
        self.rows = expected.rows

    def told(self, command: Command) -> str:
        """The command and its table, for whoever has to find out."""
        clauses = [
            (c.when, c.action, c.condition and c.condition.sql, c.sets and _sql(c.sets))
            for c in command.clauses
        ]
        condition = command.condition and command.condition.sql
        on = command.on and command.on.sql
        return f"{self.shape}\n{command.kind} {condition} {_sql(command.sets)} {on} {clauses}"

    def _frame(self, rows: Sequence[Row]) -> Any:
        values = [tuple(row[name] for name in COLUMNS) for row in rows]
        return self._spark.createDataFrame(values, self.shape.schema)

    def _run(self, command: Command) -> list[int] | None:
        table = DeltaTable.forPath(self._spark, str(self._path))
        if command.kind == "append":
            writer = self._frame(command.rows).coalesce(1).write.format("delta")
            writer.mode("append").save(str(self._path))
            return None
        if command.kind == "merge":
            assert command.on is not None
            source = self._frame(command.rows).alias("s")
            merge = table.alias("t").merge(source, command.on.sql)
            for clause in command.clauses:
                merge = with_clause(merge, clause)
            return list(merge.execute().collect()[0])
        condition = without_side(command.condition).sql if command.condition else None
        if command.kind == "delete":
            return list(table.delete(condition).collect()[0])
        sets = {name: without_side(formula).sql for name, formula in command.sets.items()}
        return list(table.update(condition, sets).collect()[0])

    def _check_changes(self, command: Command, expected: Outcome, first: int, last: int) -> None:
        reader = self._spark.read.format("delta").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", first).option("endingVersion", last)
        rows = feed.load(str(self._path)).drop("_commit_version", "_commit_timestamp").collect()
        found = as_bag(row.asDict(recursive=True) for row in rows)
        wanted = as_bag({**row, "_change_type": kind} for kind, row in expected.changes)
        assert found == wanted, self.told(command)


def _sql(sets: Any) -> dict[str, str]:
    return {name: formula.sql for name, formula in (sets or {}).items()}


def _counted(expected: Outcome, command: Command) -> list[int]:
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
    assert sum(file.num_records or 0 for file in files) - gone == num_rows


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
