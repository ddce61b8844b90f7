"""VACUUM over random histories: nothing that is needed goes, and nothing else stays.

A model beside the table knows which files each version, vector and change file needs, and how old
every file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.kernel.ops.vacuum.run import HOUR_MS
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.kernel.txn.vector_files import path_in_table
from tests.support.clock import FrozenClock
from tests.support.vacuum_tables import VacuumTable

DIRECTORIES = ("", "p=a b/", "p=ü%2F/", "_change_data/", "deep/er/")
HIDDEN = ("_tmp/f", ".hidden", "deep/_x", "_delta_log/stray.txt")
# The table keeps removed files for ten hours.
KEEPS = {"delta.deletedFileRetentionDuration": "interval 10 hours"}

STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 4), st.integers(1, 3)),
    st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("vector"), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("change"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("orphan"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("late"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("readd"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 8), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
    st.tuples(st.just("vacuum"), st.sampled_from((None, 0, 3, 10, 15)), st.sampled_from((0, 1, 2))),
)


@dataclass
class Version:
    """What one version needs, and when it was made."""

    made_ms: int
    files: frozenset[str]
    changes: frozenset[str] = frozenset()


@dataclass
class Model:
    """A table, what its versions need, and the time before which nothing is promised any more."""

    table: VacuumTable
    versions: list[Version] = field(default_factory=list)
    live: dict[str, AddFile] = field(default_factory=dict)
    removed: list[AddFile] = field(default_factory=list)
    waiting: list[AddFile] = field(default_factory=list)
    horizon_ms: int = 0
    count: int = 0

    def step(self, kind: str, first: int | None, second: int) -> None:
        self.table.clock.advance(1)
        getattr(self, kind)(first, second)

    # What happens to the table.

    def add(self, where: int, count: int) -> None:
        files = [self.table.file(self.new_name(where)) for _ in range(count)]
        self.table.commit(*files)
        self.note(added=files)

    def remove(self, which: int, _: int) -> None:
        if file := self.chosen(which):
            self.table.remove(file)
            self.note(gone=file)

    def vector(self, which: int, count: int) -> None:
        if file := self.chosen(which):
            known = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
            rows = range(known + count)
            changed = self.table.delete_rows(file, rows, prefix="" if which % 2 else "ab")
            self.note(added=[changed], gone=file)

    def change(self, which: int, _: int) -> None:
        path = f"_change_data/{self.new_name(which % 2)}"
        self.table.store.create(path, b"changes")
        self.table.clock.advance(minutes=which)
        file = self.table.file(self.new_name(0))
        self.table.commit(AddCDCFile(path=encode_path(path), size=7, partition_values={}), file)
        self.note(added=[file], changes=frozenset({path}))

    def orphan(self, where: int, _: int) -> None:
        self.table.store.create(self.new_name(where), b"of a write that failed")

    def late(self, where: int, _: int) -> None:
        """A write that takes its time: the file is there, the commit comes with the next one."""
        for file in self.waiting:
            if self.table.store.exists(self.path(file)):
                self.table.commit(file)
                self.note(added=[file])
        self.waiting = [self.table.file(self.new_name(where))]

    def readd(self, which: int, _: int) -> None:
        """What RESTORE does: a file comes back that was removed."""
        there = [f for f in self.removed if self.table.store.exists(self.path(f))]
        there = [f for f in there if all(map(self.table.store.exists, self.needs(f)))]
        there = [f for f in there if self.path(f) not in self.live]
        if there:
            file = there[which % len(there)]
            self.table.commit(file, operation="RESTORE")
            self.note(added=[file])

    def wait(self, hours: int, _: int) -> None:
        self.table.clock.advance(hours=hours)

    def checkpoint(self, _: int, __: int) -> None:
        self.table.log.checkpoint()

    def vacuum(self, hours: int | None, mode: int) -> None:
        cutoff_ms = self.table.clock() - (10 if hours is None else hours) * HOUR_MS
        ages = {info.path: info.modified_ms for info in self.table.store.list_recursive("")}
        needed = self.needed(cutoff_ms)
        found = self.table.vacuum(hours, lite=mode == 1, dry_run=mode == 2)
        left = {info.path for info in self.table.store.list_recursive("")}
        gone = ages.keys() - left
        self.horizon_ms = max(self.horizon_ms, cutoff_ms) if mode < 2 else self.horizon_ms
        assert gone == (set() if mode == 2 else set(found.paths))
        assert found.num_deleted == len(gone)
        assert not set(found.paths) & needed
        assert all(path in left for path in HIDDEN)
        assert all(path in left for path in ages if path.startswith("_delta_log/"))
        if mode == 1:
            # What commits before the retention removed, and no later one needs, is gone.
            assert not self.done_with(cutoff_ms) & left - needed
            return
        # Young files are perhaps of a write that runs; all others must have somebody to need them.
        assert all(ages[path] < cutoff_ms for path in found.paths)
        hidden = {path for path in ages if path.startswith("_delta_log/")} | set(HIDDEN)
        useless = {path for path, age in ages.items() if age < cutoff_ms} - needed - hidden
        assert set(found.paths) == useless

    # What is known of it.

    def note(
        self,
        added: list[AddFile] | None = None,
        gone: AddFile | None = None,
        changes: frozenset[str] = frozenset(),
    ) -> None:
        if gone is not None:
            del self.live[self.path(gone)]
            self.removed.append(gone)
        for file in added or ():
            self.live[self.path(file)] = file
        files = frozenset(path for file in self.live.values() for path in self.needs(file))
        self.versions.append(Version(self.table.clock(), files, changes))

    def needed(self, cutoff_ms: int) -> set[str]:
        """What the newest version needs, and each that was it at some time since `cutoff_ms`."""
        found: set[str] = set()
        until = [version.made_ms for version in self.versions[1:]] + [2**62]
        for version, replaced_ms in zip(self.versions, until, strict=True):
            if replaced_ms >= cutoff_ms:
                found |= version.files
            if version.made_ms > cutoff_ms:
                found |= version.changes
        return found

    def done_with(self, cutoff_ms: int) -> set[str]:
        """What versions made before `cutoff_ms` no longer had, or changed."""
        found: set[str] = set()
        before: frozenset[str] = frozenset()
        for version in self.versions:
            if version.made_ms < cutoff_ms:
                found |= (before - version.files) | version.changes
            before = version.files
        return found

    def check(self) -> None:
        """Every version that was the newest since the last promise, all of it, is there."""
        left = {info.path for info in self.table.store.list_recursive("")}
        assert self.needed(self.horizon_ms) <= left

    def new_name(self, where: int) -> str:
        self.count += 1
        return f"{DIRECTORIES[where % len(DIRECTORIES)]}f {self.count}%.parquet"

    def chosen(self, which: int) -> AddFile | None:
        files = list(self.live.values())
        return files[which % len(files)] if files else None

    def path(self, file: AddFile) -> str:
        return next(iter(self.needs(file)))

    def needs(self, file: AddFile) -> Iterator[str]:
        yield file.path.replace("%20", " ").replace("%25", "%").replace("%C3%BC", "ü")
        if (vector := path_in_table(file.deletion_vector)) is not None:
            yield vector


@settings(max_examples=60)
@given(steps=st.lists(STEP, min_size=4, max_size=24))
def test_what_a_retained_version_needs_stays_and_the_rest_goes(
    steps: list[tuple[str, int | None, int]],
) -> None:
    clock = FrozenClock()
    store = MemoryStore(now_ms=clock)
    model = Model(VacuumTable(store, clock, configuration=KEEPS))
    model.note()
    for path in HIDDEN:
        store.create(path, b"1")
    for step in (*steps, ("vacuum", None, 0), ("vacuum", 0, 1), ("vacuum", 0, 0)):
        model.step(*step)
        model.check()
