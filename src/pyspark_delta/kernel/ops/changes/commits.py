"""Read the commits of a table for a stream, one after the other.

A commit is read when the stream reaches it and dropped afterwards, so a backlog of any length needs
the memory of its largest commit.  This module decides which commits may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import FileMissingError, StreamError
from pyspark_delta.kernel.log.frames.action_frame import ActionFrame
from pyspark_delta.kernel.log.frames.commit_lines import (
    action_at,
    json_object,
    lines,
    state_actions,
)
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, table_from_values
from pyspark_delta.kernel.log.frames.json_frames import LARGE_COMMIT_BYTES, frame_from_json
from pyspark_delta.kernel.log.history import COMMITS_BEFORE, commit_info_in, commit_info_of
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import ACTIONS, Action, CommitInfo, Metadata, Protocol
from pyspark_delta.kernel.protocol.commit_times import Commit, monotonic
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS, property_value
from pyspark_delta.kernel.storage.base import FileInfo, LogStore

# A batch seldom begins further behind the last commit read than this.
_REMEMBERED = 2 * COMMITS_BEFORE
ChangeKind = Literal["add", "remove", "cdc"]
_NO_OP_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


class CommitTimes:
    """The times of commits by their files, in the order of versions.  For one thread.

    Times of files may repeat or go back.  As in a batch read, they are raised where they do not
    increase, beginning `COMMITS_BEFORE` commits before a batch.  In-commit timestamps take
    precedence and are not considered here.
    The log is listed once, and again where commits were skipped.  Following the log costs one
    request for each new commit, and memory for the last few.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        # Times of the files from version `_first` to before `_next`, oldest first, but for gaps.
        self._files: dict[int, int] = {}
        self._first = self._next = 0
        self._oldest = 0
        self._last: Commit | None = None

    def begin_batch(self, version: int) -> None:
        """Begin a batch with that version.

        Its times depend on its first version and not on what was read before: repeated by another
        run, the batch has the same times.
        """
        self._oldest = max(version - COMMITS_BEFORE, 0)
        self._last = None

    def time_of(self, version: int) -> int:
        """The time of a commit of the batch; FileMissingError when the commit is not there."""
        if self._last is None or self._last[0] != version - 1:
            if self._oldest < self._first or self._next < version:
                self._list_before(version)
            before = [each for each in self._files.items() if self._oldest <= each[0] < version]
            self._last = monotonic(before)[-1] if before else None
        time = self._file_time(version)
        if self._last is not None:
            time = max(time, self._last[1] + 1)
        self._last = (version, time)
        return time

    def _list_before(self, version: int) -> None:
        listed = list_log(self._store, self._oldest).commits
        self._files = {
            file.version: file.info.modified_ms for file in listed if file.version < version
        }
        self._first, self._next = self._oldest, version

    def _file_time(self, version: int) -> int:
        if version not in self._files:
            self._files[version] = self._store.stat(commit_path(version)).modified_ms
            self._next = version + 1
            while len(self._files) > _REMEMBERED:
                oldest = next(iter(self._files))
                del self._files[oldest]
                self._first = oldest + 1
        return self._files[version]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRun:
    """Consecutive files of one version: JSON values of actions, or a table of them.

    `kinds` has the kind of action of each value; without it all are of `kind`.
    """

    version: int
    rows: list[dict[str, Any]] | pa.Table
    kinds: tuple[ChangeKind, ...] | None = None
    kind: ChangeKind = "add"
    timestamp_ms: int = 0

    def __len__(self) -> int:
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else len(self.rows)

    def values(self, name: str, start: int, stop: int) -> list[Any]:
        """A value of each file from `start` to before `stop`; None where the log has none."""
        if isinstance(self.rows, pa.Table):
            return list(self.rows.column(name)[start:stop].to_pylist())
        return [row.get(name) for row in self.rows[start:stop]]

    def part(self, start: int, stop: int) -> FileRun:
        if isinstance(self.rows, pa.Table):
            return replace(self, rows=self.rows.slice(start, stop - start))
        kinds = None if self.kinds is None else self.kinds[start:stop]
        return replace(self, rows=self.rows[start:stop], kinds=kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommit:
    """The facts about a commit that a stream needs.

    `files` are those that change data, in the order of the log.  `removed` is the first file that
    was removed with its data.  `has_vectors` is set for commits that are read for their changes.
    """

    version: int
    files: FileRun
    has_adds: bool
    removed: str | None
    metadata: Metadata | None
    protocol: Protocol | None
    info: CommitInfo | None
    has_vectors: bool = False

    @property
    def has_change_files(self) -> bool:
        return self.files.kinds is not None and "cdc" in self.files.kinds


def adds_table(runs: Sequence[FileRun]) -> pa.Table:
    """The adds of several runs as one table of `ADD_SCHEMA`."""
    tables: list[pa.Table] = []
    for is_table, some in groupby(runs, lambda run: isinstance(run.rows, pa.Table)):
        if is_table:
            tables += [run.rows for run in some]
        else:
            values = [row for run in some for row in run.rows]
            tables.append(table_from_values(values, ADD_SCHEMA))
    return pa.concat_tables(tables) if tables else table_from_values([], ADD_SCHEMA)


def parse_commit(path: str, version: int, data: bytes, *, root_uri: str) -> StreamCommit:
    """Parse a commit for a stream of its added files."""
    if len(data) >= LARGE_COMMIT_BYTES:
        return _large_commit(path, version, data, root_uri)
    actions, definitions, info = _parse_lines(path, data, ("add", "remove"))
    files = FileRun(version=version, rows=[value for kind, value in actions if kind == "add"])
    return _stream_commit(files, actions, definitions, info)


def parse_changes(
    path: str, version: int, data: bytes, *, time_ms: int, with_feed: bool = True
) -> StreamCommit:
    """Parse a commit for a stream of its changed rows: change files, or else adds and removes.

    `time_ms` is the time of its file; an in-commit timestamp takes precedence.  Without
    `with_feed` change files are ignored.
    """
    actions, definitions, info = _parse_lines(path, data, ("add", "remove", "cdc"))
    changes = [each for each in actions if each[0] == "cdc" and with_feed]
    has_vectors = False
    if not changes:
        changes = [each for each in actions if each[0] != "cdc"]
        has_vectors = any(value.get("deletionVector") is not None for _, value in changes)
        if changes_nothing(info):
            changes = []
    if info is not None and info.in_commit_timestamp is not None:
        time_ms = info.in_commit_timestamp
    files = FileRun(
        version=version,
        rows=[value for _, value in changes],
        kinds=tuple(kind for kind, _ in changes),
        timestamp_ms=time_ms,
    )
    return _stream_commit(files, actions, definitions, info, has_vectors=has_vectors)


class CommitReader:
    """Reads the commits of one table in order.  Not for several threads.

    A missing commit is an error unless `fail_on_data_loss` is off; then the stream continues
    after the gap.
    """

    def __init__(
        self, store: LogStore, *, fail_on_data_loss: bool = True, reads_changes: bool = False
    ) -> None:
        self._store = store
        self._fails = fail_on_data_loss
        self._reads_changes = reads_changes
        self.times = CommitTimes(store)
        self._end: tuple[int, FileInfo] | None = None
        self._tried_again = -1
        self.was_replaced = False
        """Whether another file has replaced the last commit since it was last checked."""

    def commits(self, first: int, last: int | None = None) -> Iterator[StreamCommit]:
        """Every commit from `first` on, up to `last` or to the newest."""
        version: int | None = first
        while version is not None and (last is None or version <= last):
            try:
                yield self.commit(version)
            except FileMissingError:
                version = self._behind_gap(version)
                continue
            version += 1

    def commit(self, version: int) -> StreamCommit:
        """One commit; FileMissingError when it is not there."""
        path = commit_path(version)
        data = self._store.read(path)
        if not self._reads_changes:
            return parse_commit(path, version, data, root_uri=self._store.root_uri)
        return parse_changes(path, version, data, time_ms=self.times.time_of(version))

    def time_of(self, snapshot: Snapshot) -> int:
        """The time of a version, determined as for the changes of its commit."""
        if property_value(snapshot.metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
            return snapshot.timestamp
        try:
            return self.times.time_of(snapshot.version)
        except FileMissingError:  # only its checkpoint is left
            return snapshot.timestamp

    def _behind_gap(self, version: int) -> int | None:
        """The version to continue at when a commit is missing; None when the log ends before it."""
        if self._store.probes_cheaply and self._is_end(version):
            return None
        listing = list_log(self._store, max(version - 1, 0))
        if listing.latest_version == version - 1:
            return None
        is_there = any(file.version == version for file in listing.commits)
        if is_there and self._tried_again != version:
            self._tried_again = version  # it was written meanwhile
            return version
        listing = list_log(self._store)
        latest = listing.latest_version
        if latest is None:
            raise StreamError("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE")
        later = next((file.version for file in listing.commits if file.version > version), None)
        if not self._fails:
            return later
        if latest < version:
            raise StreamError(
                "DELTA_STREAMING_TRAILING_COMMIT_MISSING",
                expectedVersion=version - 1,
                seenVersion=latest,
            )
        raise StreamError(
            "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
            startVersion=version,
            earliestVersion=latest if later is None else later,
            option="failOnDataLoss",
        )

    def _is_end(self, version: int) -> bool:
        """Whether the version before exists and the one after does not."""
        before = max(version - 1, 0)
        try:
            info = self._store.stat(commit_path(before))
        except FileMissingError:
            return False
        if self._end is not None and self._end[0] == before and self._end[1] != info:
            self.was_replaced = True
        self._end = (before, info)
        return not self._store.exists(commit_path(version + 1))


def changes_nothing(info: CommitInfo | None) -> bool:
    """Whether the commit is a MERGE that rewrote files and changed no row."""
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    return all(str(metrics.get(name)) == "0" for name in _NO_OP_METRICS)


def changed_files(frame: ActionFrame) -> tuple[pa.Table, pa.Table]:
    """The adds and the removes of a commit that change data."""
    adds, removes = (
        table.filter(pc.fill_null(table.column("dataChange"), False))
        for table in (frame.adds, frame.removes)
    )
    return adds, removes


def last_action(actions: Sequence[Any], kind: type[Any]) -> Any:
    """The last action of a kind, which is the one that counts; None for none."""
    return next((each for each in reversed(actions) if isinstance(each, kind)), None)


def _large_commit(path: str, version: int, data: bytes, root_uri: str) -> StreamCommit:
    frame = frame_from_json(path, data, root_uri)
    adds, removes = changed_files(frame)
    return StreamCommit(
        version=version,
        files=FileRun(version=version, rows=adds),
        has_adds=bool(adds.num_rows),
        removed=removes.column("path")[0].as_py() if removes.num_rows else None,
        metadata=last_action(frame.others, Metadata),
        protocol=last_action(frame.others, Protocol),
        info=commit_info_of(path, data) if removes.num_rows else None,
    )


_FileActions = list[tuple[ChangeKind, dict[str, Any]]]
"""File actions that change data, in the order of the log, each with its kind and JSON value."""


def _parse_lines(
    path: str, data: bytes, kinds: Sequence[ChangeKind]
) -> tuple[_FileActions, list[Action], CommitInfo | None]:
    actions: _FileActions = []
    definitions: list[Action] = []
    info: CommitInfo | None = None
    for number, offset, line in lines(data):
        value, place = json_object(path, number, offset, line), (path, number, offset)
        info = info or commit_info_in(value)
        kind = next((each for each in kinds if value.get(each) is not None), None)
        if kind is not None:
            action = action_at(ACTIONS[kind], value[kind], place)
            if kind == "cdc" or getattr(action, "data_change", False):
                actions.append((kind, action.to_json_value()))
        elif "metaData" in value or "protocol" in value:
            definitions += state_actions(value, place)
    return actions, definitions, info


def _stream_commit(
    files: FileRun,
    actions: _FileActions,
    definitions: Sequence[Action],
    info: CommitInfo | None,
    *,
    has_vectors: bool = False,
) -> StreamCommit:
    return StreamCommit(
        version=files.version,
        files=files,
        has_adds=any(kind == "add" for kind, _ in actions),
        removed=next((value["path"] for kind, value in actions if kind == "remove"), None),
        metadata=last_action(definitions, Metadata),
        protocol=last_action(definitions, Protocol),
        info=info,
        has_vectors=has_vectors,
    )
