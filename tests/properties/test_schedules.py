"""Interleaved transactions against a model: every outcome is that of some serial order.

Two to four transactions run step by step (start, read, commit, and between the attempts of a
commit), in an order that a seed decides; one thread does it all, so that a seed replays.  The
model runs those that committed one after the other, in the order of versions, and must come to
the same table.  Under WriteSerializable a commit need not have seen appends that read nothing.

A row is a word that depends on what its writer read, so that a stale read shows in the table.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from zlib import crc32

import pyarrow as pa
import pytest

from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Predicate, compare
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.commit import Committed
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.reads import READ_SCHEMA
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.interleaving import InterruptibleCommitter, interleave
from tests.support.transactions import NO_HOOKS, TABLE, add, metadata

PARTITIONS = (1, 2, 3)
FEATURES = ("vacuumProtocolCheck", "v2Checkpoint")
SCHEDULES_PER_TABLE = 50
TABLES = 400


@dataclass
class Logical:
    """What a table means, whatever its files are."""

    rows: dict[int, frozenset[str]]
    description: str = ""
    features: frozenset[str] = frozenset()
    versions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Logical:
        return Logical(
            dict(self.rows), self.description, self.features, {**self.versions}, {**self.domains}
        )

    def among(self, partitions: Iterable[int]) -> list[str]:
        return sorted(row for p in partitions for row in self.rows[p])


def word(ident: str, read: Iterable[str] = ()) -> str:
    """A row of `ident`, which read those rows."""
    return f"{ident}:{crc32(' '.join(sorted(read)).encode()):08x}"


class View:
    """A transaction's snapshot, with the rows that only the test knows.

    Which files are live at each version the test knows too; with `through_scan` it asks the table
    all the same and compares.
    """

    def __init__(self, txn: OptimisticTransaction, bench: Bench) -> None:
        assert txn.snapshot is not None
        self.txn = txn
        self.snapshot: Snapshot = txn.snapshot
        self.contents = bench.contents
        self.paths = sorted(bench.live_at[self.snapshot.version])
        self._through_scan = bench.reads_through_scan
        self._tables = bench.tables

    def read(self, partitions: tuple[int, ...], predicate: Predicate) -> list[str]:
        """Read partitions by a predicate on them: the paths found."""
        found = [path for path in self.paths if self.contents[path][0] in partitions]
        if self._through_scan:
            table = self.txn.filter_files(predicate)
            assert sorted(table.column("path").to_pylist()) == found
        else:
            self.txn.record_read(predicate, self._table(tuple(found)))
        return found

    def read_files(self, paths: list[str]) -> None:
        """Read files by name, or where that is left out, by the predicate of their partition."""
        if self._through_scan:
            assert self.txn.read_files(paths).num_rows == len(paths)
            return
        for path in paths:
            self.read(*one(self.contents[path][0]))

    def _table(self, paths: tuple[str, ...]) -> pa.Table:
        known = self._tables.get(paths)
        if known is None:
            values = [[("part", str(self.contents[path][0]))] for path in paths]
            columns = {"path": paths, "partitionValues": values}
            known = self._tables[paths] = pa.table(columns, schema=READ_SCHEMA)
        return known

    def rows(self, paths: Iterable[str]) -> list[str]:
        return sorted(row for path in paths for row in self.contents[path][1])


@dataclass(frozen=True)
class Op:
    """One transaction's intent: how it runs on a table, and what it means."""

    ident: str
    part: int
    other: int

    operation = "WRITE"

    def plan(self, view: View) -> list[Action]:
        raise NotImplementedError

    def apply(self, state: Logical) -> None:
        raise NotImplementedError

    def new_file(
        self, view: View, part: int, rows: Iterable[str], *, data_change: bool = True
    ) -> list[Action]:
        held = frozenset(rows)
        if not held:
            return []
        file = add(f"part={part}/{self.ident}-{part}", data_change=data_change)
        view.contents[file.path] = (part, held)
        return [file]

    def removes(
        self, view: View, paths: Iterable[str], *, data_change: bool = True
    ) -> list[Action]:
        return [
            RemoveFile(
                path=path,
                deletion_timestamp=1,
                partition_values={"part": str(view.contents[path][0])},
                size=100,
                data_change=data_change,
            )
            for path in paths
        ]


def one(part: int) -> tuple[tuple[int, ...], Predicate]:
    return (part,), compare("part", "=", part)


def everything(part: int) -> tuple[tuple[int, ...], Predicate]:
    return EVERYTHING


EVERYTHING: tuple[tuple[int, ...], Predicate] = (PARTITIONS, TRUE)
UPPER: tuple[tuple[int, ...], Predicate] = ((2, 3), compare("part", ">=", 2))


class BlindAppend(Op):
    def plan(self, view: View) -> list[Action]:
        return self.new_file(view, self.part, [word(self.ident)])

    def apply(self, state: Logical) -> None:
        state.rows[self.part] |= {word(self.ident)}


class AppendAfterRead(Op):
    scope = staticmethod(one)

    def plan(self, view: View) -> list[Action]:
        seen = view.rows(view.read(*self.scope(self.other)))
        return self.new_file(view, self.part, [word(self.ident, seen)])

    def apply(self, state: Logical) -> None:
        seen = state.among(self.scope(self.other)[0])
        state.rows[self.part] |= {word(self.ident, seen)}


class AppendAfterFullRead(AppendAfterRead):
    scope = staticmethod(everything)


class DeletePartition(Op):
    operation = "DELETE"

    def plan(self, view: View) -> list[Action]:
        return self.removes(view, view.read(*one(self.part)))

    def apply(self, state: Logical) -> None:
        state.rows[self.part] = frozenset()


@dataclass(frozen=True)
class DeleteRow(Op):
    """Copy on write: the file with the row goes, another comes with the rest of its rows."""

    row: str = ""
    operation = "DELETE"

    def plan(self, view: View) -> list[Action]:
        found = [path for path in view.paths if self.row in view.contents[path][1]]
        if self.other == 1:
            view.read(*EVERYTHING)
        elif self.other == 2:
            view.read_files(found)
        # Else nothing but the remove itself protects the file from others.
        actions: list[Action] = []
        for path in found:
            part, rows = view.contents[path]
            actions += self.removes(view, [path])
            actions += self.new_file(view, part, rows - {self.row})
        return actions

    def apply(self, state: Logical) -> None:
        for part in PARTITIONS:
            state.rows[part] -= {self.row}


class Overwrite(Op):
    def plan(self, view: View) -> list[Action]:
        gone = self.removes(view, view.read(*EVERYTHING))
        return gone + self.new_file(view, self.part, [word(self.ident)])

    def apply(self, state: Logical) -> None:
        state.rows = dict.fromkeys(PARTITIONS, frozenset())
        state.rows[self.part] = frozenset({word(self.ident)})


class ReplaceWhere(Op):
    def plan(self, view: View) -> list[Action]:
        gone = self.removes(view, view.read(*UPPER))
        return gone + self.new_file(view, 2, [word(self.ident)])

    def apply(self, state: Logical) -> None:
        state.rows[2], state.rows[3] = frozenset({word(self.ident)}), frozenset()


class Update(Op):
    operation = "UPDATE"

    def plan(self, view: View) -> list[Action]:
        paths = view.read(*one(self.part))
        changed = [word(self.ident, [row]) for row in view.rows(paths)]
        return self.removes(view, paths) + self.new_file(view, self.part, changed)

    def apply(self, state: Logical) -> None:
        old = state.rows[self.part]
        state.rows[self.part] = frozenset(word(self.ident, [row]) for row in old)


class Optimize(Op):
    operation = "OPTIMIZE"

    def plan(self, view: View) -> list[Action]:
        paths = view.read(*one(self.part))
        if len(paths) < 2:
            return []
        rows = view.rows(paths)
        gone = self.removes(view, paths, data_change=False)
        return gone + self.new_file(view, self.part, rows, data_change=False)

    def apply(self, state: Logical) -> None:
        """The rows stay as they are."""


class ChangeMetadata(Op):
    operation = "SET TBLPROPERTIES"

    def plan(self, view: View) -> list[Action]:
        old = view.snapshot.metadata
        return [replace(old, description=word(self.ident, [old.description or ""]))]

    def apply(self, state: Logical) -> None:
        state.description = word(self.ident, [state.description])


class UpgradeProtocol(Op):
    operation = "UPGRADE PROTOCOL"

    def plan(self, view: View) -> list[Action]:
        return [upgraded(view.snapshot.protocol, [self._feature()])]

    def apply(self, state: Logical) -> None:
        state.features |= {self._feature()}

    def _feature(self) -> str:
        return FEATURES[self.part % len(FEATURES)]


class Stream(Op):
    operation = "STREAMING UPDATE"

    def plan(self, view: View) -> list[Action]:
        app = f"app-{self.other % 2}"
        version = view.txn.txn_version(app) + 1
        txn = SetTransaction(app_id=app, version=version)
        return [txn, *self.new_file(view, self.part, [word(self.ident, [str(version)])])]

    def apply(self, state: Logical) -> None:
        app = f"app-{self.other % 2}"
        version = state.versions[app] = state.versions.get(app, -1) + 1
        state.rows[self.part] |= {word(self.ident, [str(version)])}


class WriteDomain(Op):
    def plan(self, view: View) -> list[Action]:
        name = f"domain-{self.other % 2}"
        old = view.snapshot.domains.get(name)
        text = word(self.ident, [old.configuration if old else ""])
        return [DomainMetadata(domain=name, configuration=text)]

    def apply(self, state: Logical) -> None:
        name = f"domain-{self.other % 2}"
        state.domains[name] = word(self.ident, [state.domains.get(name, "")])


KINDS: tuple[type[Op], ...] = (
    BlindAppend,
    BlindAppend,
    AppendAfterRead,
    AppendAfterRead,
    AppendAfterFullRead,
    DeletePartition,
    DeletePartition,
    DeleteRow,
    DeleteRow,
    Overwrite,
    ReplaceWhere,
    Update,
    Update,
    Optimize,
    Optimize,
    ChangeMetadata,
    UpgradeProtocol,
    Stream,
    Stream,
    WriteDomain,
)


@dataclass
class Running:
    """A transaction on its way: what it will do next, and what became of it."""

    op: Op
    log: DeltaLog
    steps: Iterator[None] = field(default_factory=lambda: iter(()))
    is_busy: bool = False
    is_done: bool = False
    committed: Committed | None = None


class Bench:
    """One table, and the schedules that run on it one after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStore(None, TABLE)
        self.committer = InterruptibleCommitter(self.store)
        # Two logs are two processes: neither sees what the other knows.
        count = 2 if seed % 8 == 0 else 1
        self.logs = [
            DeltaLog(self.store, now_ms=lambda: 1_000, hooks=NO_HOOKS, committer=self.committer)
            for _ in range(count)
        ]
        self.is_serializable = seed % 4 != 3
        self.tracks_rows = seed % 5 == 0
        self.reads_through_scan = seed % 20 == 1
        self.contents: dict[str, tuple[int, frozenset[str]]] = {}
        self.tables: dict[tuple[str, ...], pa.Table] = {}
        self.numbers = iter(range(1_000_000))
        self.state = Logical(dict.fromkeys(PARTITIONS, frozenset()))
        self._create()

    def _create(self) -> None:
        level = "Serializable" if self.is_serializable else "WriteSerializable"
        configuration = {
            "delta.isolationLevel": level,
            "delta.feature.domainMetadata": "supported",
        }
        if self.tracks_rows:
            configuration["delta.enableRowTracking"] = "true"
            configuration["delta.enableInCommitTimestamps"] = "true"
        txn = self.logs[0].start_transaction()
        txn.update_metadata(metadata("part", configuration=configuration))
        files: list[Action] = []
        for part in PARTITIONS:
            for name in "ab":
                row = f"base-{part}{name}"
                file = add(f"part={part}/{row}")
                self.contents[file.path] = (part, frozenset({row}))
                self.state.rows[part] |= {row}
                files.append(file)
        txn.commit(files, "CREATE TABLE AS SELECT")
        self.live = {file.path for file in files if isinstance(file, AddFile)}
        self.live_at = {0: frozenset(self.live)}
        self.state.features = self._actual().features

    # Running.

    def run_schedule(self) -> None:
        """Interleave some transactions, then compare the table with the model."""
        runs = [self._new_run() for _ in range(self.chance.choice((2, 2, 2, 2, 3, 3, 4)))]
        interleave(runs, self.committer, self.chance, self._step)
        self._check(runs)

    def _new_run(self) -> Running:
        kind = self.chance.choice(KINDS)
        ident = f"t{next(self.numbers)}"
        part, other = self.chance.choice(PARTITIONS), self.chance.choice(PARTITIONS)
        if kind is DeleteRow:
            rows = self.state.among(PARTITIONS) or ["none"]
            op: Op = DeleteRow(ident, part, other, self.chance.choice(rows))
        else:
            op = kind(ident, part, other)
        run = Running(op, self.chance.choice(self.logs))
        run.steps = self._steps(run)
        return run

    def _step(self, run: Running) -> None:
        run.is_busy = True
        try:
            next(run.steps, None)
        finally:
            run.is_busy = False

    def _steps(self, run: Running) -> Iterator[None]:
        txn = run.log.start_transaction()
        yield
        actions = run.op.plan(View(txn, self))
        yield
        with suppress(DeltaConcurrentModificationException):
            run.committed = txn.commit_if_needed(actions, run.op.operation)
        if run.committed is not None:
            self._note(run.committed)
        run.is_done = True

    # Judging.

    def _note(self, committed: Committed) -> None:
        """Keep the live files of every version: commits come in the order of versions."""
        assert committed.version == len(self.live_at)
        for action in committed.actions:
            match action:
                case AddFile():
                    assert action.path not in self.live, "a file is added twice"
                    self.live.add(action.path)
                case RemoveFile():
                    self.live.remove(action.path)  # KeyError: it was not there
        self.live_at[committed.version] = frozenset(self.live)

    def _actual(self) -> Logical:
        """What the table means now."""
        rows: dict[int, list[str]] = {part: [] for part in PARTITIONS}
        for path in self.live:
            part, held = self.contents[path]
            rows[part] += held
        assert all(len(found) == len(set(found)) for found in rows.values()), "a row is doubled"
        snapshot = self.logs[0].update()
        return Logical(
            {part: frozenset(found) for part, found in rows.items()},
            snapshot.metadata.description or "",
            frozenset(supported_features(snapshot.protocol)),
            {app: txn.version for app, txn in snapshot.transactions.items()},
            {
                name: domain.configuration
                for name, domain in snapshot.domains.items()
                if not name.startswith("delta.")
            },
        )

    def _check(self, runs: list[Running]) -> None:
        actual = self._actual()
        assert self._replayed(runs) == actual, (
            [(run.op, run.committed and run.committed.version) for run in runs],
            actual,
        )
        self.state = actual

    def _replayed(self, runs: list[Running]) -> Logical:
        """The meaning of the commits one after the other.

        Under WriteSerializable an append that read nothing may count as later than a commit that
        read the table before it: that commit did not see its rows.
        """
        state = self.state.copy()
        for run in in_order(runs):
            info = info_of(run)
            if info.isolation_level == "SnapshotIsolation":
                continue  # it moved rows, and changed none
            unseen = frozenset() if self.is_serializable else self._unseen(run, runs)
            hidden = {part: state.rows[part] & unseen for part in PARTITIONS}
            state.rows = {part: state.rows[part] - unseen for part in PARTITIONS}
            run.op.apply(state)
            state.rows = {part: state.rows[part] | hidden[part] for part in PARTITIONS}
        return state

    def _unseen(self, run: Running, runs: list[Running]) -> frozenset[str]:
        """Rows of appends that read nothing, between the version `run` read and its own."""
        assert run.committed is not None
        read_version = info_of(run).read_version
        assert read_version is not None
        rows: set[str] = set()
        for other in in_order(runs):
            assert other.committed is not None
            is_between = read_version < other.committed.version < run.committed.version
            if is_between and info_of(other).is_blind_append:
                for action in other.committed.actions:
                    if isinstance(action, AddFile):
                        rows |= self.contents[action.path][1]
        return frozenset(rows)

    def check_history(self) -> None:
        """Versions without gaps, times that rise, row ids that nobody shares."""
        times: list[int] = []
        ids: list[int] = []
        for expected, (version, actions) in enumerate(self.logs[0].get_changes(0)):
            assert version == expected
            info = actions[0]
            assert isinstance(info, CommitInfo)
            assert info.in_commit_timestamp is not None
            times.append(info.in_commit_timestamp)
            for action in actions:
                if isinstance(action, AddFile):
                    assert action.default_row_commit_version == version
                    assert action.base_row_id is not None
                    ids.append(action.base_row_id)
        assert len(ids) == len(set(ids))
        assert all(base % 10 == 0 for base in ids)
        assert times == sorted(set(times))
        assert len(times) == version + 1


def in_order(runs: list[Running]) -> list[Running]:
    """Those that committed, by version."""
    done = [(run.committed.version, run) for run in runs if run.committed is not None]
    return [run for _, run in sorted(done, key=lambda pair: pair[0])]


def info_of(run: Running) -> CommitInfo:
    """What a commit says of itself."""
    assert run.committed is not None
    info = run.committed.actions[0]
    assert isinstance(info, CommitInfo)
    return info


def run_table(seed: int, schedules: int = SCHEDULES_PER_TABLE) -> Bench:
    bench = Bench(seed)
    for _ in range(schedules):
        bench.run_schedule()
    for log in bench.logs:
        assert set(log.update().files_with(["path"]).column("path").to_pylist()) == bench.live
    if bench.tracks_rows:
        bench.check_history()
    return bench


@pytest.mark.parametrize("group", range(20))
def test_every_schedule_ends_as_some_serial_order_would(group: int) -> None:
    for seed in range(group * TABLES // 20, (group + 1) * TABLES // 20):
        try:
            run_table(seed)
        except BaseException as error:
            error.add_note(f"replay with run_table({seed})")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("group", range(100))
def test_many_more_schedules_end_as_some_serial_order_would(group: int) -> None:
    for seed in range(1_000 + group * 40, 1_000 + (group + 1) * 40):
        try:
            run_table(seed)
        except BaseException as error:
            error.add_note(f"replay with run_table({seed})")
            raise


def test_a_schedule_replays_from_its_seed() -> None:
    first, second = run_table(7, 20), run_table(7, 20)
    assert first.state == second.state
    assert first.logs[0].snapshot.version == second.logs[0].snapshot.version


def test_there_are_as_many_schedules_as_there_should_be() -> None:
    assert TABLES * SCHEDULES_PER_TABLE >= 20_000
