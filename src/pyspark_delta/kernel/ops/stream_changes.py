"""Which files of a table belong to a batch of a stream: between two offsets, or from one on.

A stream begins with the table as it is, its files by modification time and path, and goes on with
the commits after it.  Entries have an order: before a version, at a change of its definition, each
of its files, behind it.  A batch is a part of that order, and its offset the last entry in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import StreamError
from pyspark_delta.kernel.log.frames import ADD_SCHEMA
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.stream_commits import CommitReader, FileRun, StreamCommit
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream_limits import AdmissionLimits
from pyspark_delta.kernel.ops.stream_offsets import (
    BASE_INDEX,
    END_INDEX,
    METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
)
from pyspark_delta.kernel.protocol.features import check_readable

# Statistics are most of a file's entry, and a stream that begins would hold those of all files.
_INITIAL_COLUMNS = [name for name in ADD_SCHEMA.names if name not in ("stats", "tags")]


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


class InitialFiles:
    """The files of the version that a stream begins with, in the order it gives them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version
        self.timestamp_ms = snapshot.timestamp
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
    ) -> None:
        """`rules` are None for a stream of changes, which takes every commit."""
        self._commits = commits
        self._definition = definition
        self._table = table
        self._rules = rules
        self._snapshot_at = snapshot_at
        self._initial: InitialFiles | None = None
        self.protocol = definition.protocol
        """What the newest commit that was read asks of its readers."""

    def step(
        self,
        start: DeltaSourceOffset,
        *,
        limits: AdmissionLimits | None = None,
        bound: DeltaSourceOffset | None = None,
    ) -> StreamStep:
        """The files behind `start`, up to `bound` or the newest, as far as `limits` admit them."""
        walk = _Walk(start, limits, bound)
        first = start.version
        if start.is_initial:
            initial = self._initial_files(start.version)
            if not walk.take(initial.run, [], must_stay_whole=False):
                return walk.step
            first += 1
        else:
            self._initial = None
        if bound is not None and bound.index == BASE_INDEX and bound.version >= first:
            # Before its first file the batch ends: the commit itself is not looked at.
            last: int | None = bound.version - 1
        else:
            last = None if bound is None else bound.version
        for commit in self._commits.commits(first, last):
            if self._rules is None and limits is not None and not limits.has_room:
                return walk.step  # delta-spark ends a batch of changes here
            self._check(commit)
            is_skipped = self._rules is not None and self._rules.skips(commit)
            files = commit.files.part(0, 0) if is_skipped else commit.files
            barriers = [METADATA_CHANGE_INDEX] if self._definition.is_barrier(commit) else []
            if not walk.take(files, barriers, must_stay_whole=commit.must_stay_whole):
                return walk.step
        if bound is not None and last is not None and last < bound.version:
            walk.pass_by(bound.version, BASE_INDEX)
        return walk.step

    def forget_initial(self) -> None:
        """Let go of what only the beginning of a stream needs."""
        self._initial = None

    def _initial_files(self, version: int) -> InitialFiles:
        if self._initial is None or self._initial.version != version:
            self._initial = InitialFiles(self._snapshot_of(version))
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
            if commit.version > self._definition.version:
                self.protocol = commit.protocol
        if commit.metadata is not None and not self._definition.is_tracked:
            self._definition.check_followed(commit.metadata, commit.version)
        if self._rules is not None:
            self._rules.check(commit, self._table)


class _Walk:
    """Goes over entries in order and takes those that belong to the batch."""

    def __init__(
        self,
        start: DeltaSourceOffset,
        limits: AdmissionLimits | None,
        bound: DeltaSourceOffset | None,
    ) -> None:
        self._start = start
        self._limits = limits
        self._bound = None if bound is None else bound.place
        self.step = StreamStep(None)

    def take(self, files: FileRun, barriers: list[int], *, must_stay_whole: bool) -> bool:
        """Take what belongs to the batch of one version; False when the batch ends in it."""
        version = files.version
        if not self.pass_by(version, BASE_INDEX):
            return False
        for barrier in barriers:
            if (version, barrier) > self._start.place:
                self.pass_by(version, barrier)
                return False
        first = self._start.index + 1 if version == self._start.version else 0
        first = max(first, 0)
        stop = self._stop(files, first)
        if must_stay_whole and self._limits is not None:
            admitted = self._limits.admit_commit(files.sizes(first, stop - first))
            stop = stop if admitted else first
        elif self._limits is not None:
            stop = first + self._admitted(files, first, stop)
        if stop > first:
            self.step.runs.append(files.part(first, stop))
            self.pass_by(version, stop - 1)
        return stop >= len(files) and self.pass_by(version, END_INDEX)

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

    def _stop(self, files: FileRun, first: int) -> int:
        if self._bound is None or files.version < self._bound[0]:
            return len(files)
        return max(min(len(files), self._bound[1] + 1), first)

    def _admitted(self, files: FileRun, first: int, stop: int) -> int:
        assert self._limits is not None
        most = min(self._limits.files_left + 1, stop - first)
        count = 0
        for size in files.sizes(first, most):
            if not self._limits.admit(size):
                break
            count += 1
        return count


def _operation(commit: StreamCommit) -> str | None:
    if commit.info is None or commit.info.operation is None:
        return None
    return f"{commit.info.operation} ({dict(commit.info.operation_parameters or {})})"
