"""Commands that race for one table, and a replay that says whether their outcome is serialisable.

A task is made of its seed alone, so that a process can run it and a test know what it means.  Rows
of a table live in worlds, told apart by the column `w`; most tasks keep to one of them, and files
hold several.  `Replay` runs the tasks that were committed in the order of versions, each by the
model of `dml_model`, and compares every version with what the table holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pyspark_delta import DeltaTable
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.layout.bins import Sizes, plan_compaction
from pyspark_delta.kernel.protocol.actions import Action, AddCDCFile, AddFile, CommitInfo
from pyspark_delta.kernel.protocol.operations import optimize
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.vector_files import path_in_table
from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder, merge_request
from pyspark_delta.spark.dml.delete import run_delete
from pyspark_delta.spark.dml.update import run_update
from pyspark_delta.spark.files.stage import StagedFiles, hidden_columns
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.maintenance.compaction import compact
from pyspark_delta.spark.merge.request import MergeRequest, MergeResult
from pyspark_delta.spark.merge.run import merge_into
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.run import run_write
from tests.support.dml_model import (
    Clause,
    Command,
    Formula,
    Outcome,
    Row,
    as_bag,
    both,
    column,
    compared,
    frozen,
    literal,
    random_command,
    run,
    some_rows,
    without_side,
)
from tests.support.dml_runs import COLUMNS, check_files, with_clause
from tests.support.tables import table_log

WORLDS = 5
SCHEMA = "w INT, k INT, x BIGINT, p STRING, st STRUCT<a: INT, b: STRING>, v STRING"
ARROW_SCHEMA = pa.schema(
    [
        ("w", pa.int32()),
        ("k", pa.int32()),
        ("x", pa.int64()),
        ("p", pa.string()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("v", pa.string()),
    ]
)
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting under which a process tells the log which task a commit is."""

_REWRITES = 0.12
_EVERYWHERE = 0.1


@dataclass(frozen=True)
class Task:
    """One change of the table; without a command files are written anew, and no row changes."""

    name: str
    command: Command | None = None
    paths: tuple[str, ...] | None = None
    """For a rewrite the files, by their paths; chance decides without."""

    def on(self, rows: Sequence[Row]) -> Outcome:
        """What the task makes of rows."""
        return Outcome(list(rows)) if self.command is None else run(self.command, rows, COLUMNS)


def task_of(seed: int) -> Task:
    """The task of a seed."""
    rng = random.Random(seed)
    if rng.random() < _REWRITES:
        return Task(str(seed))
    numbers = count()
    command = random_command(rng, WORLDS, lambda: f"{seed}/{next(numbers)}")
    if rng.random() >= _EVERYWHERE:
        command = _confined(command, rng.randrange(WORLDS))
    return Task(str(seed), command)


def _confined(command: Command, world: int) -> Command:
    """The same command in one world alone."""
    here = compared(column("t", "w"), "=", literal(world))
    rows = [row for row in command.rows if row["w"] == world]
    if command.kind in ("delete", "update", "replace"):
        return replace(command, condition=_and(here, command.condition), rows=rows)
    clauses = [_confined_clause(clause, here) for clause in command.clauses]
    on = command.on
    if on is not None and len(rows) % 2 == 0:
        on = both(here, on)  # else the keys of the source say so, to whoever asks it
    return replace(command, rows=rows, clauses=clauses, on=on)


def _confined_clause(clause: Clause, here: Formula) -> Clause:
    if clause.when != "not matched by source":
        return clause
    return replace(clause, condition=_and(here, clause.condition))


def _and(one: Formula, other: Formula | None) -> Formula:
    return one if other is None else both(one, other)


def run_task(spark: SparkSession, log: DeltaLog, task: Task) -> int | None:
    """Run it on Spark; the version that it made, None when there was nothing to do.

    Spark knows that the source of a MERGE gives the same rows again if their number is odd.
    """
    command = task.command
    if command is None:
        return _rewrite(spark, log, task)
    if command.kind == "append":
        data = frame_of(spark, command.rows).coalesce(1)
        return run_write(spark, log, data, WriteRequest(mode="append"))
    if command.kind == "merge":
        return _merge(spark, log, command)
    condition = None if command.condition is None else F.expr(without_side(command.condition).sql)
    if command.kind == "replace":
        data = frame_of(spark, command.rows).coalesce(1)
        request = WriteRequest(mode="overwrite", replace_where=condition)
        return run_write(spark, log, data, request)
    if command.kind == "delete":
        return run_delete(spark, log, condition).version
    sets = {name: F.expr(without_side(each).sql) for name, each in command.sets.items()}
    return run_update(spark, log, sets, condition).version


def _merge(spark: SparkSession, log: DeltaLog, command: Command) -> int | None:
    assert command.on is not None
    made: list[MergeResult] = []

    def execute(request: MergeRequest) -> MergeResult:
        made.append(merge_into(spark, log, request))
        return made[0]

    is_steady = len(command.rows) % 2 == 1
    source = frame_of(spark, command.rows, is_steady=is_steady).alias("s")
    merge = DeltaMergeBuilder(merge_request(source, command.on.sql, ("t",)), execute)
    for clause in command.clauses:
        merge = with_clause(merge, clause)
    merge.execute()
    return made[0].version


def _rewrite(spark: SparkSession, log: DeltaLog, task: Task) -> int | None:
    """Write some files together, as OPTIMIZE does."""
    txn = log.start_transaction()
    assert txn.snapshot is not None
    files = txn.snapshot.files
    paths = files.column("path").to_pylist()
    if task.paths is None:
        chance = random.Random(task.name)
        chosen = chance.sample(range(len(paths)), chance.randint(1, 4) % (len(paths) + 1))
    else:
        chosen = [number for number, path in enumerate(paths) if path in task.paths]
    some = files.take(pa.array(sorted(chosen), pa.int64()))
    bins = plan_compaction(some, txn.metadata, Sizes())
    if not bins:
        return None
    with StagedFiles(txn) as staged:
        done = compact(JvmSession(spark), txn, bins, staged)
        staged.offer()
        return txn.commit(
            done.actions(log.now_ms()),
            optimize(),
            tags={PRESERVED_TAG: "true"} if hidden_columns(txn).fields else None,
            user_metadata=spark.conf.get(USER_METADATA, None),
            metrics=done.metrics,
        ).version


def frame_of(spark: SparkSession, rows: Sequence[Row], *, is_steady: bool = True) -> DataFrame:
    """Rows of the model as a DataFrame; Spark need not know that one gives the same rows again."""
    if is_steady:
        columns = [pa.array([row[f.name] for row in rows], f.type) for f in ARROW_SCHEMA]
        table = pa.table(columns, schema=ARROW_SCHEMA)
        schema: Any = StructType.fromDDL(SCHEMA)
        frame: DataFrame = spark.createDataFrame(table, schema=schema)
        return frame
    values = [tuple(row[name] for name in COLUMNS) for row in rows]
    return spark.createDataFrame(values, SCHEMA)


def new_rows(seed: int, most: int = 8) -> list[Row]:
    """Rows that a table may have at first, in every world."""
    numbers = count()
    return some_rows(random.Random(seed), WORLDS, most, lambda: f"old/{next(numbers)}")


class Replay:
    """The model of a table at `path`, which follows it from version to version.

    Its first version holds the first rows.
    """

    def __init__(self, path: Path, rows: Sequence[Row]) -> None:
        self.path = path
        self.version = 0
        self.rows = list(rows)
        self.changes: dict[int, list[tuple[str, Row]]] = {}
        self._log = table_log(path)
        self._appended: dict[int, Sequence[Row]] = {}

    @classmethod
    def of_new_table(
        cls,
        spark: SparkSession,
        path: Path,
        rows: Sequence[Row],
        properties: Mapping[str, str],
        partition_by: tuple[str, ...] = (),
        *,
        files: int = 1,
    ) -> Replay:
        """A table that holds `rows`, in so many files for each partition."""
        data = frame_of(spark, rows).repartitionByRange(files, "k")
        request = WriteRequest(partition_by=partition_by, options=properties)
        assert run_write(spark, DeltaLog.for_table(path), data, request) == 0
        return cls(path, rows)

    def follow(self, made: Mapping[int, Task] | None = None) -> None:
        """Go on to the newest version, comparing each; `made` are tasks by version.

        Without it the log tells which task a version is.
        """
        for version, info, actions in self._commits():
            task = task_of(int(info.user_metadata or "")) if made is None else made[version]
            told = f"version {version} is {shown(task)}, on version {info.read_version}"
            before, later = self._apart(info)
            done = task.on(before)
            self.rows = done.rows + later
            self.changes[version] = done.changes
            if info.is_blind_append:
                assert task.command is not None
                self._appended[version] = task.command.rows
            found = self._log.snapshot_at(version).to_table().to_pylist()
            assert as_bag(found) == as_bag(self.rows), told
            assert _num_live(self._log, version) == len(found), told
            missing = [name for name in named_files(actions) if not (self.path / name).exists()]
            assert missing == [], told
            self.version = version

    def check(self, spark: SparkSession, *, has_feed: bool, is_tidy: bool) -> None:
        """All that must hold in the end, whoever did what.

        A table that `is_tidy` has no file that no commit names.
        """
        check_files(self.path, len(self.rows))
        table = DeltaTable.forPath(spark, str(self.path))
        found = [row.asDict(recursive=True) for row in table.toDF().collect()]
        assert as_bag(found) == as_bag(self.rows)
        if has_feed and self.version:
            self._check_feed(table)
        if is_tidy:
            named = {
                name for _, actions in self._log.get_changes(0) for name in named_files(actions)
            }
            assert data_files(self.path) == named

    def _commits(self) -> Iterator[tuple[int, CommitInfo, list[Action]]]:
        expected = self.version
        for version, actions in self._log.get_changes(self.version + 1):
            expected += 1
            assert version == expected
            (info,) = (action for action in actions if isinstance(action, CommitInfo))
            yield version, info, actions

    def _apart(self, info: CommitInfo) -> tuple[list[Row], list[Row]]:
        """The rows that a commit comes after, and those that come after it.

        Under WriteSerializable rows that were only appended while it ran may be later than it.
        """
        if info.isolation_level != "WriteSerializable" or info.is_blind_append:
            return self.rows, []
        assert info.read_version is not None
        unseen = range(info.read_version + 1, self.version + 1)
        new = as_bag(row for v in unseen for row in self._appended.get(v, ()))
        before: list[Row] = []
        later: list[Row] = []
        for row in self.rows:
            name = frozen(row)
            (later if new[name] else before).append(row)
            new[name] -= bool(new[name])
        return before, later

    def _check_feed(self, table: DeltaTable) -> None:
        by_version: dict[int, list[dict[str, Any]]] = {}
        for row in table.changes(1, self.version).drop("_commit_timestamp").collect():
            told = row.asDict(recursive=True)
            by_version.setdefault(told.pop("_commit_version"), []).append(told)
        for version, changes in self.changes.items():
            wanted = as_bag({**row, "_change_type": kind} for kind, row in changes)
            assert as_bag(by_version.get(version, [])) == wanted, f"the feed of version {version}"


def shown(task: Task) -> str:
    """A task for whoever has to find out."""
    command = task.command
    if command is None:
        return f"{task.name}: rewrite"
    clauses = [
        (each.when, each.action, each.condition and each.condition.sql) for each in command.clauses
    ]
    formulas = [each.sql for each in (command.condition, command.on) if each is not None]
    return f"{task.name}: {command.kind} {formulas} {clauses}"


def named_files(actions: Sequence[Action]) -> set[str]:
    """Every file that the actions of a commit put into the table: data, changes and vectors."""
    found = set()
    for action in actions:
        if isinstance(action, AddFile | AddCDCFile):
            found.add(decode_path(action.path))
        if isinstance(action, AddFile):
            found.add(path_in_table(action.deletion_vector) or decode_path(action.path))
    return found


def data_files(path: Path) -> set[str]:
    """The files of data, changes and vectors that there are."""
    found = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return {
        str(file)
        for file in found
        if file.suffix in (".parquet", ".bin") and file.parts[0] != "_delta_log"
    }


def _num_live(log: DeltaLog, version: int) -> int:
    files = list(add_files(log.snapshot_at(version).files))
    gone = sum(file.deletion_vector.cardinality for file in files if file.deletion_vector)
    return sum(file.num_records or 0 for file in files) - gone
