"""Which files of a table belong to a batch of a stream: between two offsets, or from one on.

A stream begins with the table as it is, its files by modification time and path, and goes on with
the commits after it.  Entries have an order: before a version, at a change of its definition, each
of its files, behind it.  A batch is a part of that order, and its offset the last entry in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import ChangeFeedError, StreamError
from pyspark_delta.kernel.log.frames import ADD_SCHEMA
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.change_feed import is_recorded
from pyspark_delta.kernel.ops.stream_commits import CommitReader, FileRun, StreamCommit
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream_limits import AdmissionLimits
from pyspark_delta.kernel.ops.stream_offsets import (
    BASE_INDEX,
    END_INDEX,
    METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import keeping_vectors
from pyspark_delta.kernel.protocol.features import check_readable
from pyspark_delta.kernel.protocol.properties import ENABLE_CHANGE_DATA_FEED

# Statistics are most of a file's entry, and a stream that begins would hold those of all files.
_INITIAL_COLUMNS = [name for name in ADD_SCHEMA.names if name not in ("stats", "tags")]
# Sizes are looked at so many files at a time.
_SLICE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """What a stream does with commits that do not only add rows."""

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False

    def check(self, commit: StreamCommit, table: str) -> None:
        """Refuse a commit that removes or rewrites rows, unless the user said what to do."""
        if commit.removed is None or self.ignore_changes or self.skip_change_commits:
            return
        if commit.has_adds:
            raise StreamError(
                "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
                changeInfo=_operation(commit) or commit.removed,
                version=commit.version,
                dataPath=table,
            )
        if not self.ignore_deletes:
            raise StreamError(
                "DELTA_SOURCE_IGNORE_DELETE",
                removedFile=commit.removed,
                version=commit.version,
                dataPath=table,
            )

    def skips(self, commit: StreamCommit) -> bool:
        """Whether nothing of the commit is read."""
        return self.skip_change_commits and commit.removed is not None


@dataclass(slots=True)
class StreamStep:
    """The files of a batch, and the offset behind them; None when there was nothing at all."""

    end: DeltaSourceOffset | None
    runs: list[FileRun] = field(default_factory=list)


def check_feed(metadata: Metadata, version: int) -> None:
    """Refuse a stream of changes over a version of the table that does not record them."""
    if not is_recorded(metadata):
        raise ChangeFeedError(
            "DELTA_MISSING_CHANGE_DATA",
            startVersion=version,
            endVersion=version,
            version=version,
            key=ENABLE_CHANGE_DATA_FEED.key,
        )


class InitialFiles:
    """The files of the version that a stream begins with, in the order it gives them."""

    def __init__(self, snapshot: Snapshot, timestamp_ms: int) -> None:
        self.version = snapshot.version
        self.timestamp_ms = timestamp_ms
        files = snapshot.files_with(_INITIAL_COLUMNS)
        table = files.sort_by([("modificationTime", "ascending"), ("path", "ascending")])
        for position, name in enumerate(ADD_SCHEMA.names):
            if name not in _INITIAL_COLUMNS:
                missing = pa.nulls(table.num_rows, ADD_SCHEMA.field(name).type)
                table = table.add_column(position, ADD_SCHEMA.field(name), missing)
        self.run = FileRun(self.version, table, None, self.timestamp_ms)


class StreamChanges:
    """The entries of one table, for one run of a stream.  Not for several threads."""

    def __init__(
        self,
        commits: CommitReader,
        definition: StreamDefinition,
        *,
        table: str,
        rules: StreamRules | None,
        snapshot_at: Callable[[int], Snapshot],
        excluded: re.Pattern[str] | None = None,
    ) -> None:
        """`rules` are None for a stream of changes, which takes every commit.

        Files whose path `excluded` is found in take no room in a batch of changes.
        """
        self._commits = commits
        self._definition = definition
        self._table = table
        self._rules = rules
        self._snapshot_at = snapshot_at
        self._excluded = excluded
        self._is_feed = rules is None
        self._initial: InitialFiles | None = None
        # A place at which nothing of its version is left, so that it need not be read again.
        self._read_to_end: tuple[int, int] | None = None
        self.protocol = definition.protocol
        """What the newest commit that was read asks of its readers, and vectors if any asked."""

    def step(
        self,
        start: DeltaSourceOffset,
        *,
        limits: AdmissionLimits | None = None,
        bound: DeltaSourceOffset | None = None,
        is_fixed: bool = False,
    ) -> StreamStep:
        """The files behind `start`, up to `bound` or the newest, as far as `limits` admit them.

        It ends before a commit that can be told no more, and raises where it begins with one.  A
        batch that `is_fixed` has its end already: it cannot end before, and raises always.
        """
        walk = _Walk(start, limits, bound, self._excluded if self._is_feed else None)
        first = start.version
        self._commits.begin_batch(first)
        if start.is_initial:
            if not walk.take(self._initial_files(start.version).run):
                return walk.step
            first += 1
        else:
            self._initial = None
            first += start.place == self._read_to_end
        if self._is_full(limits):
            return walk.step
        if bound is not None and bound.index == BASE_INDEX and bound.version >= first:
            # Before its first file the batch ends: the commit itself is not looked at.
            last: int | None = bound.version - 1
        else:
            last = None if bound is None else bound.version
        for commit in self._commits.commits(first, last):
            if self._ends_feed(commit) and walk.step.end is not None and not is_fixed:
                break
            self._check(commit)
            if not self._take(walk, commit, limits) or self._is_full(limits):
                break
        return walk.step

    def _take(self, walk: _Walk, commit: StreamCommit, limits: AdmissionLimits | None) -> bool:
        """Take what belongs to the batch of a commit; False when the batch ends in it."""
        if self._rules is not None and self._rules.skips(commit):
            return walk.take(commit.files.part(0, 0), self._barriers(commit))
        barriers = self._barriers(commit)
        if limits is None or barriers or not (commit.tells_changes or commit.has_vectors):
            return walk.take(commit.files, barriers)
        # Both sides of an update belong into one batch.
        is_taken = walk.take_whole(commit.files, has_marks=not commit.tells_changes)
        if is_taken and commit.tells_changes and walk.step.end is not None:
            self._read_to_end = walk.step.end.place
        return is_taken

    def _barriers(self, commit: StreamCommit) -> list[int]:
        return [METADATA_CHANGE_INDEX] if self._definition.is_barrier(commit) else []

    def _is_full(self, limits: AdmissionLimits | None) -> bool:
        """Whether the batch ends before the next commit, whatever that holds.

        Only one of changes does: any other goes on over commits without files.
        """
        return self._is_feed and limits is not None and not limits.has_room

    def keep_vectors(self, protocol: Protocol) -> None:
        """Take note of what an older version asked, which the batch may hold entries of."""
        self.protocol = keeping_vectors(self.protocol, protocol)

    def forget_initial(self) -> None:
        """Let go of what only the beginning of a stream needs."""
        self._initial = None

    def _initial_files(self, version: int) -> InitialFiles:
        if self._initial is None or self._initial.version != version:
            snapshot = self._snapshot_of(version)
            self.keep_vectors(snapshot.protocol)
            time_ms = self._commits.time_of(snapshot) if self._is_feed else snapshot.timestamp
            self._initial = InitialFiles(snapshot, time_ms)
        return self._initial

    def _snapshot_of(self, version: int) -> Snapshot:
        try:
            return self._snapshot_at(version)
        except StreamError:
            raise
        except DeltaError as error:
            raise StreamError("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE") from error

    def _check(self, commit: StreamCommit) -> None:
        if commit.protocol is not None:
            check_readable(commit.protocol, self._table)
            is_newest = commit.version > self._definition.version
            known = self.protocol
            self.protocol = commit.protocol if is_newest else known
            # One batch may reach from before a DROP FEATURE to behind it.
            self.keep_vectors(known if is_newest else commit.protocol)
        if commit.metadata is not None and not self._definition.is_tracked:
            self._definition.check_followed(commit.metadata, commit.version)
        if self._rules is not None:
            self._rules.check(commit, self._table)
        elif commit.metadata is not None:
            check_feed(commit.metadata, commit.version)

    def _ends_feed(self, commit: StreamCommit) -> bool:
        """Whether changes are recorded no more from the commit on."""
        metadata = commit.metadata
        return self._is_feed and metadata is not None and not is_recorded(metadata)


class _Walk:
    """Goes over entries in order and takes those that belong to the batch.

    An `excluded` file has its number and no entry; only a stream of changes leaves files out here.
    """

    def __init__(
        self,
        start: DeltaSourceOffset,
        limits: AdmissionLimits | None,
        bound: DeltaSourceOffset | None,
        excluded: re.Pattern[str] | None,
    ) -> None:
        self._start = start
        self._limits = limits
        self._bound = None if bound is None else bound.place
        self._excluded = excluded
        self.step = StreamStep(None)

    def take(self, files: FileRun, barriers: Sequence[int] = ()) -> bool:
        """Take what belongs to the batch of one version; False when the batch ends in it."""
        version = files.version
        if not self.pass_by(version, BASE_INDEX):
            return False
        for barrier in barriers:
            if (version, barrier) > self._start.place:
                self.pass_by(version, barrier)
                return False
        if self._limits is not None:
            self._limits.pass_mark()
        first, stop = self._range(files)
        last, takes_all = first - 1, stop >= len(files)
        for number, size in self._entries(files, first, stop):
            if self._limits is not None and not self._limits.admit(size):
                takes_all = False
                break
            last = number
        self._keep(files, first, last)
        return takes_all and self.pass_by(version, END_INDEX)

    def take_whole(self, files: FileRun, *, has_marks: bool) -> bool:
        """Take all of a version or nothing; False when the batch ends before it.

        Without marks its files are its only entries: delta-spark's offset then stays at the last
        of them until there is another version.
        """
        assert self._limits is not None
        first, stop = self._range(files)
        entries = list(self._entries(files, first, stop))
        marks = (1 + (files.version > self._start.version)) if has_marks else 0
        if not self._limits.admit_commit([size for _, size in entries], marks=marks):
            return False
        if entries:
            self._keep(files, first, entries[-1][0])
        return not has_marks or self.pass_by(files.version, END_INDEX)

    def pass_by(self, version: int, index: int) -> bool:
        """Make an entry the last one if it is behind the start; False when the batch ends first."""
        if self._bound is not None and (version, index) > self._bound:
            return False
        if (version, index) <= self._start.place:
            return True
        if index == END_INDEX:
            version, index = version + 1, BASE_INDEX
        is_initial = self._start.is_initial and version == self._start.version
        self.step.end = DeltaSourceOffset(
            table_id=self._start.table_id, version=version, index=index, is_initial=is_initial
        )
        return True

    def _range(self, files: FileRun) -> tuple[int, int]:
        """Which files are behind the start and not behind the bound."""
        first = self._start.index + 1 if files.version == self._start.version else 0
        first = max(first, 0)
        if self._bound is None or files.version < self._bound[0]:
            return first, len(files)
        return first, max(min(len(files), self._bound[1] + 1), first)

    def _entries(self, files: FileRun, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Numbers and sizes of files, a slice at a time: a table may have very many."""
        for start in range(first, stop, _SLICE):
            most = min(_SLICE, stop - start)
            sizes = enumerate(files.sizes(start, most), start)
            if self._excluded is None:
                yield from sizes
                continue
            for path, entry in zip(files.paths(start, most), sizes, strict=True):
                if self._excluded.search(path) is None:
                    yield entry

    def _keep(self, files: FileRun, first: int, last: int) -> None:
        if last >= first:
            self.step.runs.append(files.part(first, last + 1))
            self.pass_by(files.version, last)


def _operation(commit: StreamCommit) -> str | None:
    if commit.info is None or commit.info.operation is None:
        return None
    return f"{commit.info.operation} ({dict(commit.info.operation_parameters or {})})"
