"""Interleaved commands on rows against a model: every outcome is that of the order of versions.

As `test_schedules`, but commands find rows inside of files, by conditions on an id, and take them
out by deletion vectors; several of them do so on one file at a time.  Vectors are real, rows are
known to the test alone.  After every version the table must hold what the model holds, which ran
the committed commands one after the other.

Every row is a word that depends on what its writer read, so that a stale read shows in the table.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pytest

from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import Action, AddFile, CommitInfo, RemoveFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.scan.predicates.tree import (
    Column,
    In,
    Predicate,
    Unknown,
    compare,
    conjunction,
    literal,
)
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.commit import Committed
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import (
    path_in_table,
    take_back,
    with_vector,
    write_vectors,
)
from tests.support.interleaving import InterruptibleCommitter, interleave
from tests.support.transactions import NO_HOOKS, TABLE, add, metadata

IDS = range(16)
PARTITIONS = (1, 2)
SCHEDULES_PER_TABLE = 10
TABLES = 160


class Row(NamedTuple):
    part: int
    id: int | None
    word: str


State = frozenset[Row]


def word(ident: str, *read: object) -> str:
    """What `ident` writes, having read that."""
    return f"{ident}:{crc32(repr(sorted(map(str, read))).encode()):08x}"


def is_odd(row: Row) -> bool:
    """A condition that only a look at the row decides."""
    return bool(crc32(row.word.encode()) & 1)


@dataclass(frozen=True)
class Where:
    """A condition on rows, of which the log understands all but `odd`."""

    low: int = min(IDS)
    high: int = max(IDS)
    part: int | None = None
    odd: bool | None = None

    def __call__(self, row: Row) -> bool:
        if row.id is None or not self.low <= row.id <= self.high:
            return False
        return self.part in (None, row.part) and self.odd in (None, is_odd(row))

    @property
    def predicate(self) -> Predicate:
        parts: list[Predicate] = []
        if self.low == self.high:
            parts.append(compare("id", "=", self.low))
        elif (self.low, self.high) != (min(IDS), max(IDS)):
            parts += [compare("id", ">=", self.low), compare("id", "<=", self.high)]
        else:
            parts.append(compare("id", ">=", min(IDS)))
        if self.part is not None:
            parts.append(compare("part", "=", self.part))
        if self.odd is not None:
            parts.append(Unknown(f"is_odd(value) = {self.odd}"))
        return conjunction(parts)


class Touched(NamedTuple):
    """A file, the rows that are left in it with their positions, and those that go."""

    file: AddFile
    live: dict[int, Row]
    gone: DeletionVector
    changed: list[int]


class View:
    """A transaction with what only the test knows: the rows of files."""

    def __init__(self, txn: OptimisticTransaction, bench: Bench, run: Running) -> None:
        assert txn.snapshot is not None
        self.txn = txn
        self.bench = bench
        self.chance = bench.chance
        self._run = run

    def rows(
        self, predicate: Predicate, *, by_row: bool, narrow: Callable[[], Predicate] | None = None
    ) -> list[tuple[AddFile, dict[int, Row]]]:
        """The files that a read finds, and the rows that are left in them."""
        files = add_files(self.txn.filter_files(predicate, by_row=by_row, narrow=narrow))
        return [(file, self.bench.live_rows(file)) for file in files]

    def touched(
        self,
        where: Callable[[Row], bool],
        predicate: Predicate,
        narrow: Callable[[], Predicate] | None = None,
    ) -> list[Touched]:
        """Look through the table row by row."""
        found = []
        for file, live in self.rows(predicate, by_row=True, narrow=narrow):
            changed = [position for position, row in live.items() if where(row)]
            if changed:
                found.append(Touched(file, live, self.bench.vector_of(file), changed))
        return found

    def take_out(self, touched: list[Touched]) -> list[Action]:
        """Remove, rewrite or put vectors on files, so that the rows that are touched go."""
        actions: list[Action] = []
        by_vector: list[tuple[Touched, DeletionVector]] = []
        for each in touched:
            rows = DeletionVector(each.changed)
            kept = {p: row for p, row in each.live.items() if p not in each.changed}
            if not kept:
                actions.append(each.file.remove(1))
            elif self.chance.random() < 0.12:
                actions += [each.file.remove(1), self.new_file(kept.values())]
                self._run.rewrites = True
            else:
                by_vector.append((each, each.gone.union(rows)))
                self.txn.touch_rows({each.file.path: rows})
        written = write_vectors(
            self.bench.store,
            [vector for _, vector in by_vector],
            new_uuid=random_uuid,
            prefix=self.chance.choice(("", "k7/")),
            target_size=self.chance.choice((1, 100, 2 << 20)),
        )
        self._run.staged += written.paths
        for (each, _), descriptor in zip(by_vector, written.descriptors, strict=True):
            actions += [each.file.remove(1), with_vector(each.file, descriptor)]
        return actions

    def new_files(self, rows: Iterable[Row]) -> list[Action]:
        """Files for rows, one for each partition, their order left to chance."""
        by_part: dict[int, list[Row]] = {}
        for row in sorted(rows, key=str):
            by_part.setdefault(row.part, []).append(row)
        return [self.new_file(some) for some in by_part.values()]

    def new_file(self, rows: Iterable[Row], *, data_change: bool = True) -> AddFile:
        held = sorted(rows, key=str)
        self.chance.shuffle(held)
        return self.bench.file_of(held, data_change=data_change)


@dataclass(frozen=True)
class Command:
    """What a transaction means: how it runs on a table, and what it makes of the rows."""

    ident: str
    where: Where
    other: Where
    ids: tuple[int, ...]

    operation = "WRITE"

    def plan(self, view: View) -> list[Action]:
        raise NotImplementedError

    def apply(self, state: State) -> State:
        raise NotImplementedError


class BlindAppend(Command):
    def plan(self, view: View) -> list[Action]:
        return view.new_files(self.rows())

    def apply(self, state: State) -> State:
        return state | self.rows()

    def rows(self) -> State:
        part = self.where.part or 1
        return frozenset(Row(part, i, word(self.ident, i)) for i in self.ids)


class AppendNull(BlindAppend):
    def rows(self) -> State:
        return frozenset({Row(1, None, word(self.ident))})


class AppendAfterRead(Command):
    """A read of whole files: what it wrote depends on every row it saw."""

    def plan(self, view: View) -> list[Action]:
        found = view.rows(self.where.predicate, by_row=False)
        return view.new_files(self.made(row for _, rows in found for row in rows.values()))

    def apply(self, state: State) -> State:
        return state | self.made(state)

    def made(self, rows: Iterable[Row]) -> State:
        seen = [row for row in rows if self.where(row)]
        return frozenset({Row(self.other.part or 2, self.ids[0], word(self.ident, *seen))})


class Delete(Command):
    operation = "DELETE"

    def plan(self, view: View) -> list[Action]:
        return view.take_out(view.touched(self.where, self.where.predicate))

    def apply(self, state: State) -> State:
        return frozenset(row for row in state if not self.where(row))


class Update(Command):
    operation = "UPDATE"
    shift = 0

    def plan(self, view: View) -> list[Action]:
        touched = view.touched(self.where, self.where.predicate)
        old = [each.live[position] for each in touched for position in each.changed]
        return view.take_out(touched) + view.new_files(map(self.changed, old))

    def apply(self, state: State) -> State:
        return frozenset(self.changed(row) if self.where(row) else row for row in state)

    def changed(self, row: Row) -> Row:
        assert row.id is not None
        return Row(row.part, (row.id + self.shift) % len(IDS), word(self.ident, row.word))


class UpdateKey(Update):
    shift = 1


class UpdateAfterRead(Update):
    """A value with a look at much of the table, as one that a self-join computes has."""

    def plan(self, view: View) -> list[Action]:
        found = view.rows(self.scope.predicate, by_row=False)
        seen = self.seen(row for _, rows in found for row in rows.values())
        touched = view.touched(self.where, self.where.predicate)
        old = [each.live[position] for each in touched for position in each.changed]
        return view.take_out(touched) + view.new_files(self.told(row, seen) for row in old)

    def apply(self, state: State) -> State:
        seen = self.seen(state)
        return frozenset(self.told(row, seen) if self.where(row) else row for row in state)

    def seen(self, rows: Iterable[Row]) -> str:
        return word(self.ident, *(row for row in rows if self.scope(row)))

    def told(self, row: Row, seen: str) -> Row:
        return Row(row.part, row.id, word(self.ident, row.word, seen))

    @property
    def scope(self) -> Where:
        return Where(low=self.other.low, part=self.other.part)


class Merge(Command):
    """Ids of a source: rows that match are changed if they are odd, ids without one inserted."""

    operation = "MERGE"

    def plan(self, view: View) -> list[Action]:
        touched = view.touched(self.matches, *self.reads)
        matched = [each.live[position] for each in touched for position in each.changed]
        found = {row.id for row in matched}
        changing = [
            each._replace(changed=[p for p in each.changed if is_odd(each.live[p])])
            for each in touched
        ]
        needed = {
            each.file.path: DeletionVector(p for p in each.changed if not is_odd(each.live[p]))
            for each in touched
        }
        view.txn.touch_rows({}, needed=needed)
        new = [self.changed(row) for row in matched if is_odd(row)]
        new += [self.inserted(i) for i in self.ids if i not in found]
        return view.take_out([each for each in changing if each.changed]) + view.new_files(new)

    def apply(self, state: State) -> State:
        matched = [row for row in state if self.matches(row)]
        found = {row.id for row in matched}
        gone = frozenset(row for row in matched if is_odd(row))
        new = [self.changed(row) for row in gone]
        return (state - gone) | {*new, *(self.inserted(i) for i in self.ids if i not in found)}

    def matches(self, row: Row) -> bool:
        return row.id in self.ids and (self.where.part is None or row.part == self.where.part)

    def changed(self, row: Row) -> Row:
        return Row(row.part, row.id, word(self.ident, row.word))

    def inserted(self, each: int) -> Row:
        return Row(self.where.part or 1, each, word(self.ident, each))

    @property
    def reads(self) -> tuple[Predicate, Callable[[], Predicate] | None]:
        """What is read: by the source's ids, or by less and these only when a conflict asks."""
        if self.ids[0] % 2:
            return self.predicate, None
        return compare("id", ">=", min(IDS)), lambda: self.predicate

    @property
    def predicate(self) -> Predicate:
        listed = In(Column(("id",)), tuple(literal(i) for i in self.ids))
        parts = [] if self.where.part is None else [compare("part", "=", self.where.part)]
        return conjunction([listed, *parts])


class InsertOnlyMerge(Merge):
    """Which rows matched is not known: the dependence is on whole files."""

    def plan(self, view: View) -> list[Action]:
        predicate, narrow = self.reads
        found = view.rows(predicate, by_row=False, narrow=narrow)
        there = {row.id for _, rows in found for row in rows.values() if self.matches(row)}
        return view.new_files(self.inserted(i) for i in self.ids if i not in there)

    def apply(self, state: State) -> State:
        there = {row.id for row in state if self.matches(row)}
        return state | {self.inserted(i) for i in self.ids if i not in there}


class Optimize(Command):
    """Rows move into other files, and those that are gone stay behind."""

    operation = "OPTIMIZE"

    def plan(self, view: View) -> list[Action]:
        assert view.txn.snapshot is not None
        part = self.where.part or 1
        files = [f for f in add_files(view.txn.snapshot.files) if view.bench.part_of(f) == part]
        some = files[: 1 + self.ids[0] % 3]
        view.txn.read_files(file.path for file in some)
        rows = [row for file in some for row in view.bench.live_rows(file).values()]
        if not rows:
            return []
        removes = [file.remove(1, data_change=False) for file in some]
        return [*removes, view.new_file(rows, data_change=False)]

    def apply(self, state: State) -> State:
        return state


class Restore(Command):
    """An older version comes back: rows that vectors took out are there again."""

    operation = "RESTORE"

    @property
    def back(self) -> int:
        return 1 + self.ids[0] % 3

    def plan(self, view: View) -> list[Action]:
        txn = view.txn
        txn.read_whole_table()
        versions = view.bench.files_at
        wanted = versions[max(0, txn.read_version - self.back)]
        live = versions[txn.read_version]
        gone = [file for key, file in live.items() if key not in wanted]
        back = [file for key, file in wanted.items() if key not in live]
        return [*(file.remove(1) for file in gone), *(replace(f, data_change=True) for f in back)]

    def apply(self, state: State) -> State:
        raise AssertionError("the bench knows what was restored")


ON_ROWS: tuple[type[Command], ...] = (*(Delete, Delete, Update, UpdateKey, Merge, Merge),)
KINDS: tuple[type[Command], ...] = (
    *ON_ROWS,
    *(InsertOnlyMerge, UpdateAfterRead, UpdateAfterRead, AppendAfterRead),
    *(BlindAppend, BlindAppend, AppendNull, Optimize, Restore, Restore),
)


@dataclass(eq=False)
class Running:
    """A transaction on its way, and what became of it."""

    command: Command
    log: DeltaLog
    steps: Iterator[None] = field(default_factory=lambda: iter(()))
    staged: list[str] = field(default_factory=list)
    rewrites: bool = False
    is_busy: bool = False
    is_done: bool = False
    committed: Committed | None = None


class Bench:
    """One table, and the schedules that run on it one after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = MemoryStore(None, TABLE)
        self.committer = InterruptibleCommitter(self.store)
        self.log = DeltaLog(
            self.store, now_ms=lambda: 1_000, hooks=NO_HOOKS, committer=self.committer
        )
        self.is_serializable = seed % 4 != 3
        self.is_partitioned = seed % 3 != 0
        self.tracks_rows = seed % 5 == 0
        self.escapes_paths = seed % 7 == 0
        self.read_vector = VectorReader(Locations(self.store)).read
        self.contents: dict[str, list[Row]] = {}
        self.numbers = iter(range(1_000_000))
        self.num_rebased = 0
        self.live: dict[str, AddFile] = {}
        self.files_at: dict[int, dict[tuple[str, str | None], AddFile]] = {}
        self.states: dict[int, State] = {}
        self._create()

    def _create(self) -> None:
        configuration = {
            "delta.isolationLevel": "Serializable" if self.is_serializable else "WriteSerializable",
            "delta.enableDeletionVectors": "true",
        }
        if self.tracks_rows:
            configuration["delta.enableRowTracking"] = "true"
        parts = ("part",) if self.is_partitioned else ()
        new = metadata(*parts, configuration=configuration)
        if not self.is_partitioned:
            new = replace(metadata("part", configuration=configuration), partition_columns=())
        txn = self.log.start_transaction()
        txn.update_metadata(new)
        files = []
        for part in PARTITIONS:
            rows = [Row(part, i, f"base-{part}-{i}-{copy}") for i in IDS for copy in "ab"]
            middle = self.chance.choice((len(rows), len(rows), 10))
            files += [self.file_of(some) for some in (rows[:middle], rows[middle:]) if some]
        committed = txn.commit(files, "CREATE TABLE AS SELECT")
        self._follow(committed)
        self.states[0] = self._actual()

    # Files.

    def file_of(self, rows: list[Row], *, data_change: bool = True) -> AddFile:
        """A file in the log, with statistics that are true but not always of much use."""
        name = f"{next(self.numbers)}.parquet"
        part = rows[0].part
        path = f"part={part}/{name}" if self.is_partitioned else name
        assert not self.is_partitioned or all(row.part == part for row in rows)
        file = add(path, None if self.is_partitioned else {}, data_change=data_change)
        if self.escapes_paths:
            file = replace(file, path=file.path.replace(".", "%20%25."))
        self.contents[file.path] = rows
        return replace(file, stats=json.dumps(self._stats(rows)))

    def _stats(self, rows: list[Row]) -> dict[str, object]:
        found: dict[str, object] = {"numRecords": len(rows)}
        ids = [row.id for row in rows if row.id is not None]
        chance = self.chance.random()
        if chance < 0.1:
            return found
        slack = 1 if chance < 0.25 else 0
        if slack:
            found["tightBounds"] = False
        if ids:
            found |= {"minValues": {"id": min(ids) - slack}, "maxValues": {"id": max(ids) + slack}}
        return {**found, "nullCount": {"id": len(rows) - len(ids)}}

    def part_of(self, file: AddFile) -> int:
        return self.contents[file.path][0].part

    def vector_of(self, file: AddFile) -> DeletionVector:
        vector = file.deletion_vector
        return DeletionVector() if vector is None else self.read_vector(vector)

    def live_rows(self, file: AddFile) -> dict[int, Row]:
        """The rows that are left in a file, by position."""
        gone = self.vector_of(file)
        return {p: row for p, row in enumerate(self.contents[file.path]) if p not in gone}

    # Running.

    def run_schedule(self) -> None:
        """Interleave some transactions, then compare every version with the model."""
        kinds = self.chance.choice((KINDS, ON_ROWS))
        runs = [self._new_run(kinds) for _ in range(self.chance.choice((2, 2, 3, 3, 4)))]
        interleave(runs, self.committer, self.chance, self._step)
        self._check(runs)

    def _new_run(self, kinds: tuple[type[Command], ...]) -> Running:
        kind = self.chance.choice(kinds)
        ids = tuple(sorted(self.chance.sample(IDS, self.chance.choice((1, 1, 2, 3)))))
        command = kind(f"t{next(self.numbers)}", self._where(), self._where(), ids)
        run = Running(command, self.log)
        run.steps = self._steps(run)
        return run

    def _where(self) -> Where:
        low = self.chance.choice(IDS)
        width = self.chance.choice((0, 0, 0, 0, 0, 1, 2, len(IDS)))
        return Where(
            low=min(IDS) if width == len(IDS) else low,
            high=min(low + width, max(IDS)),
            part=self.chance.choice((None, *PARTITIONS)),
            odd=self.chance.choice((None, None, True, False)),
        )

    def _step(self, run: Running) -> None:
        run.is_busy = True
        try:
            next(run.steps, None)
        finally:
            run.is_busy = False

    def _steps(self, run: Running) -> Iterator[None]:
        txn = run.log.start_transaction()
        yield
        actions = run.command.plan(View(txn, self, run))
        yield
        with suppress(DeltaConcurrentModificationException):
            run.committed = txn.commit_if_needed(actions, run.command.operation)
        if run.committed is None:
            take_back(self.store, run.staged)
        else:
            self._follow(run.committed)
            self.states[run.committed.version] = self._actual()
            self.num_rebased += _vectors(run.committed.actions) != _vectors(actions)
        run.is_done = True

    # Judging.

    def _follow(self, committed: Committed) -> None:
        """Keep the live files of every version: commits come in the order of versions."""
        assert committed.version == len(self.files_at)
        for action in committed.actions:
            if isinstance(action, RemoveFile):
                # The very pair of path and vector that is there, and its ids.
                file = self.live.pop(action.path)
                assert action.deletion_vector == file.deletion_vector
                assert action.base_row_id == file.base_row_id
                assert action.partition_values == file.partition_values
        for action in committed.actions:
            if isinstance(action, AddFile):
                assert action.path not in self.live, "a file is there twice"
                self.live[action.path] = action
        self.files_at[committed.version] = {
            (path, _vector_id(file)): file for path, file in self.live.items()
        }

    def _actual(self) -> State:
        """What the table means now."""
        rows = [row for file in self.live.values() for row in self.live_rows(file).values()]
        assert len(rows) == len(set(rows)), "a row is doubled"
        counted = sum(
            (file.num_records or 0) - self.vector_of(file).cardinality
            for file in self.live.values()
        )
        assert counted == len(rows)
        return frozenset(rows)

    def _check(self, runs: list[Running]) -> None:
        for run in in_order(runs):
            assert run.committed is not None
            version = run.committed.version
            before, actual = self.states[version - 1], self.states[version]
            unseen = frozenset() if self.is_serializable else self._unseen(run, runs)
            expected = self._expected(run, before, unseen)
            assert expected == actual, (
                version,
                [(each.command, each.committed and each.committed.version) for each in runs],
                {"missing": sorted(expected - actual), "too many": sorted(actual - expected)},
            )
            self._check_feed(run, before, actual)

    def _expected(self, run: Running, before: State, unseen: State) -> State:
        info = info_of(run)
        if info.isolation_level == "SnapshotIsolation":
            return before
        if isinstance(run.command, Restore):
            assert info.read_version is not None
            restored = self.states[max(0, info.read_version - run.command.back)]
            return restored | (before & unseen)
        return run.command.apply(before - unseen) | (before & unseen)

    def _unseen(self, run: Running, runs: list[Running]) -> State:
        """Rows of appends that read nothing, between the version `run` read and its own."""
        assert run.committed is not None
        read_version = info_of(run).read_version
        assert read_version is not None
        rows: set[Row] = set()
        for other in in_order(runs):
            assert other.committed is not None
            is_between = read_version < other.committed.version < run.committed.version
            if is_between and info_of(other).is_blind_append:
                rows |= {
                    row
                    for action in other.committed.actions
                    if isinstance(action, AddFile)
                    for row in self.contents[action.path]
                }
        return frozenset(rows)

    def _check_feed(self, run: Running, before: State, after: State) -> None:
        """What a change feed would tell of a DELETE by vectors is what went."""
        if not isinstance(run.command, Delete) or run.rewrites or run.committed is None:
            return
        adds = {a.path: a for a in run.committed.actions if isinstance(a, AddFile)}
        gone: list[Row] = []
        for action in run.committed.actions:
            if isinstance(action, RemoveFile):
                old = action.deletion_vector
                was = DeletionVector() if old is None else self.read_vector(old)
                left = self.live_rows(adds[action.path]) if action.path in adds else {}
                rows = self.contents[action.path]
                gone += [r for p, r in enumerate(rows) if p not in was and p not in left]
        assert sorted(gone, key=str) == sorted(before - after, key=str)

    def check_files(self) -> None:
        """No vector file that nobody names, none missing; ids that stay with their files."""
        named: set[str] = set()
        ids: dict[str, tuple[int | None, int | None]] = {}
        for _, actions in self.log.get_changes(0):
            for action in actions:
                if isinstance(action, AddFile):
                    if (path := path_in_table(action.deletion_vector)) is not None:
                        named.add(path)
                    known = (action.base_row_id, action.default_row_commit_version)
                    assert ids.setdefault(action.path, known) == known
        there = {info.path for info in self.store.list_recursive("") if ".bin" in info.path}
        assert there == named
        if self.tracks_rows:
            starts = sorted((base, path) for path, (base, _) in ids.items() if base is not None)
            assert len(starts) == len(ids)
            for (base, path), (following, _) in pairwise(starts):
                assert base + len(self.contents[path]) <= following
        files = self.log.update().files_with(["path"]).column("path").to_pylist()
        assert sorted(files) == sorted(self.live)


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


def _vector_id(file: AddFile) -> str | None:
    return None if file.deletion_vector is None else file.deletion_vector.unique_id


def _vectors(actions: Iterable[Action]) -> set[tuple[str, str | None]]:
    return {(a.path, _vector_id(a)) for a in actions if isinstance(a, AddFile)}


def run_table(seed: int, schedules: int = SCHEDULES_PER_TABLE) -> Bench:
    bench = Bench(seed)
    for _ in range(schedules):
        bench.run_schedule()
    bench.check_files()
    return bench


def run_tables(seeds: Iterable[int]) -> int:
    """How many commits were rebased by rows."""
    rebased = 0
    for seed in seeds:
        try:
            rebased += run_table(seed).num_rebased
        except BaseException as error:
            error.add_note(f"replay with run_table({seed})")
            raise
    return rebased


@pytest.mark.parametrize("group", range(8))
def test_every_schedule_of_commands_on_rows_ends_as_the_order_of_versions(group: int) -> None:
    size = TABLES // 8
    rebased = run_tables(range(group * size, (group + 1) * size))
    assert rebased >= size // 2, "too few of the commits met another on the same file"


@pytest.mark.slow
@pytest.mark.parametrize("group", range(100))
def test_many_more_schedules_of_commands_on_rows(group: int) -> None:
    run_tables(range(1_000 + group * 20, 1_000 + (group + 1) * 20))
