"""Choose the files of a stream's batch: those between two offsets, or from one offset on.

A stream begins with the table's current files, by modification time and path, and continues with
the commits after them.  Entries are ordered: before a version, at a change of its definition, each
of its files, after it.  A batch is a range of that order, and its offset is its last entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from pyspark_delta.errors import StreamError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.changes.commits import CommitReader, FileRun, StreamCommit
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition
from pyspark_delta.kernel.ops.changes.feed import check_recorded, is_recorded
from pyspark_delta.kernel.ops.stream.offsets import (
    BASE_INDEX,
    END_INDEX,
    METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
)
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import keeping_vectors
from pyspark_delta.kernel.protocol.features import check_readable

LATEST: Literal["latest"] = "latest"

_DEFAULT_MAX_FILES = 1000
_NO_LIMIT = 2**63 - 1
# Statistics are most of a file's entry, and a new stream would hold those of all files.
_INITIAL_COLUMNS = [name for name in ADD_SCHEMA.names if name not in ("stats", "tags")]
# The number of files whose sizes are read at a time.
_SLICE = 1000


class AdmissionLimits:
    """The remaining limits of a batch; without any given limit, a thousand files.

    A file is admitted while there is room before it, so the first one always is.

    >>> limits = AdmissionLimits(max_files=None, max_bytes=10)
    >>> limits.admit(100), limits.admit(1)
    (True, False)
    """

    def __init__(self, *, max_files: int | None, max_bytes: int | None) -> None:
        if max_files is None:
            max_files = _DEFAULT_MAX_FILES if max_bytes is None else _NO_LIMIT
        self._files_left = max_files
        self._bytes_left = _NO_LIMIT if max_bytes is None else max_bytes
        self._has_commit = False

    @property
    def has_room(self) -> bool:
        return self._files_left > 0 and self._bytes_left > 0

    def admit(self, size: int) -> bool:
        has_room = self.has_room
        self._take(1, size)
        return has_room

    def admit_commit(self, sizes: Sequence[int], *, marks: int = 0) -> bool:
        """Whether files that must stay together are all part of the batch.

        The first commit of a batch always is, or else a stream could stop.  `marks` is a number of
        entries without a file; delta-spark counts them here, and only here.
        """
        count, size = len(sizes) + marks, sum(sizes)
        if not count:
            return True
        fits = self._files_left >= count and self._bytes_left >= size
        is_admitted = fits or not self._has_commit
        self._take(count, size)
        return is_admitted

    def pass_mark(self) -> None:
        """Count an entry without a file: it needs no room, but the batch has begun."""
        self._has_commit = True

    def _take(self, files: int, size: int) -> None:
        self._files_left -= files
        self._bytes_left -= size
        self._has_commit = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """How a stream treats commits that do more than add rows."""

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False

    def check(self, commit: StreamCommit, table: str) -> None:
        """Raise for a commit that removes or rewrites rows, unless an option allows it."""
        if commit.removed is None or self.ignore_changes or self.skip_change_commits:
            return
        if commit.has_adds:
            operation = None if commit.info is None else commit.info.operation
            if commit.info is not None and operation is not None:
                operation += f" ({dict(commit.info.operation_parameters or {})})"
            raise StreamError(
                "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
                changeInfo=operation or commit.removed,
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
        return self.skip_change_commits and commit.removed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """A user's options of a stream; `time_zone` is for a starting time without a zone.

    With `is_tolerant` a stream may begin after the newest version, and waits for its first one.
    """

    max_files: int | None = None
    max_bytes: int | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    time_zone: str = "UTC"
    rules: StreamRules = field(default_factory=StreamRules)
    fail_on_data_loss: bool = True
    excluded: re.Pattern[str] | None = None
    reads_changes: bool = False
    is_lenient: bool = False
    is_tolerant: bool = False
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def has_starting_options(self) -> bool:
        """Whether the stream begins with commits, and not with the table's current files."""
        return self.starting_version is not None or self.starting_timestamp is not None

    def limits(self) -> AdmissionLimits:
        return AdmissionLimits(max_files=self.max_files, max_bytes=self.max_bytes)


@dataclass(slots=True, kw_only=True)
class StreamStep:
    """The files of a batch, and the offset after them; None when there was no entry."""

    end: DeltaSourceOffset | None
    runs: list[FileRun] = field(default_factory=list)


class StreamChanges:
    """The entries of one table, for one run of a stream.  Not for several threads."""

    def __init__(
        self,
        commits: CommitReader,
        definition: StreamDefinition,
        settings: StreamSettings,
        *,
        table: str,
        snapshot_at: Callable[[int], Snapshot],
    ) -> None:
        self._commits = commits
        self._definition = definition
        self._rules = settings.rules
        self._is_feed = settings.reads_changes
        # Excluded files take no room in a batch of changes.
        self._excluded = settings.excluded if self._is_feed else None
        self._table = table
        self._snapshot_at = snapshot_at
        self._initial: FileRun | None = None
        # The last entry of a version, so that the version need not be read again.
        self._read_to_end: tuple[int, int] | None = None
        self.protocol = definition.protocol
        """The protocol of the newest commit read, with deletion vectors if any commit has them."""

    def step(
        self,
        start: DeltaSourceOffset,
        *,
        limits: AdmissionLimits | None = None,
        bound: DeltaSourceOffset | None = None,
        is_fixed: bool = False,
    ) -> StreamStep:
        """The files after `start`, up to `bound` or the newest, as far as `limits` admit them.

        A batch ends before a commit that the stream cannot read, and raises if it begins with one.
        A batch with `is_fixed` has a given end: it cannot end earlier, and raises in both cases.
        """
        place = None if bound is None else bound.place
        walk = _Walk(start=start, limits=limits, bound=place, excluded=self._excluded)
        first = start.version
        self._commits.times.begin_batch(first)
        if start.is_initial:
            if not walk.take(self._initial_files(start.version)):
                return walk.step
            first += 1
        else:
            self._initial = None
            first += start.place == self._read_to_end
        if self._is_full(limits):
            return walk.step
        last = None if bound is None else bound.version
        if bound is not None and bound.index == BASE_INDEX and bound.version >= first:
            # The batch ends before the version's first file: the commit itself is not read.
            last = bound.version - 1
        for commit in self._commits.commits(first, last):
            if self._ends_feed(commit) and walk.step.end is not None and not is_fixed:
                break
            self._check(commit)
            if not self._take(walk, commit, limits) or self._is_full(limits):
                break
        return walk.step

    def _take(self, walk: _Walk, commit: StreamCommit, limits: AdmissionLimits | None) -> bool:
        has_barrier = self._definition.is_barrier(commit)
        if not self._is_feed and self._rules.skips(commit):
            return walk.take(commit.files.part(0, 0), has_barrier=has_barrier)
        has_change_files = commit.has_change_files
        if limits is None or has_barrier or not (has_change_files or commit.has_vectors):
            return walk.take(commit.files, has_barrier=has_barrier)
        # Both sides of an update belong into one batch.
        is_taken = walk.take_whole(commit.files, has_marks=not has_change_files)
        if is_taken and has_change_files and walk.step.end is not None:
            self._read_to_end = walk.step.end.place
        return is_taken

    def _is_full(self, limits: AdmissionLimits | None) -> bool:
        """Whether the batch ends before the next commit, whatever that holds."""
        # Only a batch of changes does: others continue over commits without files.
        return self._is_feed and limits is not None and not limits.has_room

    def keep_vectors(self, protocol: Protocol) -> None:
        """Record the protocol of an older version, of which the batch may hold entries."""
        self.protocol = keeping_vectors(self.protocol, protocol)

    def forget_initial(self) -> None:
        self._initial = None

    def _initial_files(self, version: int) -> FileRun:
        """The files of the version that a stream begins with, in the stream's order."""
        if self._initial is None or self._initial.version != version:
            snapshot = self._snapshot_at(version)
            self.keep_vectors(snapshot.protocol)
            time_ms = self._commits.time_of(snapshot) if self._is_feed else snapshot.timestamp
            files = snapshot.files_with(_INITIAL_COLUMNS)
            files = files.sort_by([("modificationTime", "ascending"), ("path", "ascending")])
            for position, f in enumerate(ADD_SCHEMA):
                if f.name not in _INITIAL_COLUMNS:
                    files = files.add_column(position, f, pa.nulls(files.num_rows, f.type))
            self._initial = FileRun(version=version, rows=files, timestamp_ms=time_ms)
        return self._initial

    def _check(self, commit: StreamCommit) -> None:
        if commit.protocol is not None:
            check_readable(commit.protocol, self._table)
            is_newest = commit.version > self._definition.version
            known = self.protocol
            self.protocol = commit.protocol if is_newest else known
            # One batch may have versions from before and after a DROP FEATURE.
            self.keep_vectors(known if is_newest else commit.protocol)
        if commit.metadata is not None and not self._definition.is_tracked:
            self._definition.check_followed(commit.metadata, commit.version)
        if not self._is_feed:
            self._rules.check(commit, self._table)
        elif commit.metadata is not None:
            check_recorded(commit.metadata, commit.version)

    def _ends_feed(self, commit: StreamCommit) -> bool:
        metadata = commit.metadata
        return self._is_feed and metadata is not None and not is_recorded(metadata)


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Visits entries in order and collects those of the batch.

    `bound` is the place of the last one.  An `excluded` file has an index and no entry; only a
    stream of changes excludes files here.
    """

    start: DeltaSourceOffset
    limits: AdmissionLimits | None
    bound: tuple[int, int] | None
    excluded: re.Pattern[str] | None
    step: StreamStep = field(default_factory=lambda: StreamStep(end=None))

    def take(self, files: FileRun, *, has_barrier: bool = False) -> bool:
        """Take the batch's entries of one version; False when the batch ends in it."""
        version = files.version
        if not self.pass_by(version, BASE_INDEX):
            return False
        if has_barrier and (version, METADATA_CHANGE_INDEX) > self.start.place:
            self.pass_by(version, METADATA_CHANGE_INDEX)
            return False
        if self.limits is not None:
            self.limits.pass_mark()
        first, stop = self._range(files)
        last, takes_all = first - 1, stop >= len(files)
        for number, size in self._entries(files, first, stop):
            if self.limits is not None and not self.limits.admit(size):
                takes_all = False
                break
            last = number
        self._keep(files, first, last)
        return takes_all and self.pass_by(version, END_INDEX)

    def take_whole(self, files: FileRun, *, has_marks: bool) -> bool:
        """Take all entries of a version or none; False when the batch ends before it.

        Without marks its files are its only entries: delta-spark's offset then stays at the last
        of them until there is another version.
        """
        assert self.limits is not None
        first, stop = self._range(files)
        entries = list(self._entries(files, first, stop))
        marks = (1 + (files.version > self.start.version)) if has_marks else 0
        if not self.limits.admit_commit([size for _, size in entries], marks=marks):
            return False
        if entries:
            self._keep(files, first, entries[-1][0])
        return not has_marks or self.pass_by(files.version, END_INDEX)

    def pass_by(self, version: int, index: int) -> bool:
        """Make an entry the last one if it is after the start; False when the batch ends first."""
        if self.bound is not None and (version, index) > self.bound:
            return False
        if (version, index) <= self.start.place:
            return True
        if index == END_INDEX:
            version, index = version + 1, BASE_INDEX
        is_initial = self.start.is_initial and version == self.start.version
        self.step.end = DeltaSourceOffset(
            table_id=self.start.table_id, version=version, index=index, is_initial=is_initial
        )
        return True

    def _range(self, files: FileRun) -> tuple[int, int]:
        first = self.start.index + 1 if files.version == self.start.version else 0
        first = max(first, 0)
        if self.bound is None or files.version < self.bound[0]:
            return first, len(files)
        return first, max(min(len(files), self.bound[1] + 1), first)

    def _entries(self, files: FileRun, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Indexes and sizes of files, read in slices: a table may have very many."""
        for start in range(first, stop, _SLICE):
            end = min(start + _SLICE, stop)
            numbers: Iterable[int] = range(start, end)
            if self.excluded is not None:
                paths = zip(numbers, files.values("path", start, end), strict=True)
                numbers = [at for at, path in paths if self.excluded.search(path) is None]
            sizes = files.values("size", start, end)
            yield from ((number, sizes[number - start] or 0) for number in numbers)

    def _keep(self, files: FileRun, first: int, last: int) -> None:
        if last >= first:
            self.step.runs.append(files.part(first, last + 1))
            self.pass_by(files.version, last)
