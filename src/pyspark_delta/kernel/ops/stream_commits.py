"""The commits of a table as a stream sees them, one after the other.

A commit is read when the stream gets to it and forgotten behind it, so a backlog of any length
needs the memory of its largest commit.  What may be missing, and what that means, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import StreamError
from pyspark_delta.kernel.log.commit_info import commit_info_in, commit_info_of
from pyspark_delta.kernel.log.commit_lines import action_at, json_object, lines, state_actions
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, table_from_values
from pyspark_delta.kernel.log.json_frames import LARGE_COMMIT_BYTES, frame_from_json
from pyspark_delta.kernel.log.segment import LogListing, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.stream_times import CommitTimes
from pyspark_delta.kernel.protocol.actions import (
    AddCDCFile,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.properties import ENABLE_IN_COMMIT_TIMESTAMPS, property_value
from pyspark_delta.kernel.storage.base import FileInfo, LogStore

ChangeKind = Literal["add", "remove", "cdc"]

_KINDS = {"add": AddFile, "remove": RemoveFile, "cdc": AddCDCFile}
_NO_OP_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class FileRun:
    """Files that follow each other in one version: JSON values of actions, or a table of adds.

    `kinds` says of each value which action it is; without it all are adds.
    """

    version: int
    rows: list[dict[str, Any]] | pa.Table
    kinds: tuple[ChangeKind, ...] | None = None
    timestamp_ms: int = 0

    def __len__(self) -> int:
        return self.rows.num_rows if isinstance(self.rows, pa.Table) else len(self.rows)

    def sizes(self, start: int, most: int) -> list[int]:
        """Sizes of at most so many files from `start` on; 0 where the log does not tell."""
        if isinstance(self.rows, pa.Table):
            found = self.rows.column("size").slice(start, most).to_pylist()
        else:
            found = [row.get("size") for row in self.rows[start : start + most]]
        return [size or 0 for size in found]

    def paths(self, start: int, most: int) -> list[str]:
        """Paths of at most so many files from `start` on."""
        if isinstance(self.rows, pa.Table):
            found: list[str] = self.rows.column("path").slice(start, most).to_pylist()
            return found
        return [row["path"] for row in self.rows[start : start + most]]

    def part(self, start: int, stop: int) -> FileRun:
        """The files from `start` to before `stop`."""
        if isinstance(self.rows, pa.Table):
            return replace(self, rows=self.rows.slice(start, stop - start))
        kinds = None if self.kinds is None else self.kinds[start:stop]
        return replace(self, rows=self.rows[start:stop], kinds=kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommit:
    """What a stream wants to know of a commit.

    `files` are those that change data, in the order of the log.  `removed` is the first file that
    was removed with its data.  `has_vectors` is told of commits that are read for their changes.
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
    def tells_changes(self) -> bool:
        """Whether its files are change files."""
        return self.files.kinds is not None and "cdc" in self.files.kinds


def adds_table(runs: Sequence[FileRun]) -> pa.Table:
    """The adds of several runs as one table of `ADD_SCHEMA`."""
    tables: list[pa.Table] = []
    pending: list[dict[str, Any]] = []
    for run in runs:
        if not isinstance(run.rows, pa.Table):
            pending += run.rows
            continue
        if pending:
            tables.append(table_from_values(pending, ADD_SCHEMA))
            pending = []
        tables.append(run.rows)
    if pending or not tables:
        tables.append(table_from_values(pending, ADD_SCHEMA))
    return pa.concat_tables(tables)


def parse_commit(path: str, version: int, data: bytes, *, root_uri: str) -> StreamCommit:
    """A commit whose added files are what a stream gives."""
    if len(data) >= LARGE_COMMIT_BYTES:
        return _large_commit(path, version, data, root_uri)
    adds: list[dict[str, Any]] = []
    removed: str | None = None
    others: list[Metadata | Protocol] = []
    for number, offset, line in lines(data):
        value, place = json_object(path, number, offset, line), (path, number, offset)
        if value.get("add") is not None:
            add = action_at(AddFile, value["add"], place)
            assert isinstance(add, AddFile)
            if add.data_change:
                adds.append(add.to_json_value())
        elif value.get("remove") is not None:
            remove = action_at(RemoveFile, value["remove"], place)
            assert isinstance(remove, RemoveFile)
            if removed is None and remove.data_change:
                removed = remove.path
        else:
            others += _definitions(value, place)
    return StreamCommit(
        version=version,
        files=FileRun(version, adds),
        has_adds=bool(adds),
        removed=removed,
        metadata=_last(others, Metadata),
        protocol=_last(others, Protocol),
        info=commit_info_of(path, data) if removed is not None else None,
    )


def parse_changes(
    path: str, version: int, data: bytes, *, time_ms: int, with_feed: bool = True
) -> StreamCommit:
    """A commit whose changed rows are what a stream gives: change files, or else adds and removes.

    `time_ms` is the commit's by its file; an in-commit timestamp goes before it.  Not `with_feed`,
    change files are passed over.
    """
    found: dict[ChangeKind, list[tuple[int, dict[str, Any]]]] = {"add": [], "remove": [], "cdc": []}
    others: list[Metadata | Protocol] = []
    info: CommitInfo | None = None
    for number, offset, line in lines(data):
        value, place = json_object(path, number, offset, line), (path, number, offset)
        info = info or commit_info_in(value)
        kind: ChangeKind
        for kind in found:
            if value.get(kind) is not None:
                action = action_at(_KINDS[kind], value[kind], place)
                if kind == "cdc" or getattr(action, "data_change", False):
                    found[kind].append((number, action.to_json_value()))
                break
        else:
            others += _definitions(value, place)
    chosen: list[tuple[int, ChangeKind, dict[str, Any]]] = [
        (number, "cdc", value) for number, value in found["cdc"] if with_feed
    ]
    has_vectors = False
    if not chosen:
        both: tuple[ChangeKind, ChangeKind] = ("add", "remove")
        chosen = [(number, kind, value) for kind in both for number, value in found[kind]]
        chosen.sort(key=lambda each: each[0])
        has_vectors = any(value.get("deletionVector") is not None for _, _, value in chosen)
        if changes_nothing(info):
            chosen = []
    if info is not None and info.in_commit_timestamp is not None:
        time_ms = info.in_commit_timestamp
    return StreamCommit(
        version=version,
        files=FileRun(
            version,
            [value for _, _, value in chosen],
            tuple(kind for _, kind, _ in chosen),
            time_ms,
        ),
        has_adds=bool(found["add"]),
        removed=found["remove"][0][1]["path"] if found["remove"] else None,
        metadata=_last(others, Metadata),
        protocol=_last(others, Protocol),
        info=info,
        has_vectors=has_vectors,
    )


class CommitReader:
    """The commits of one table, read in turn.  Not for several threads.

    A commit that is gone is an error unless `fail_on_data_loss` is off; then the stream goes on
    behind the gap.
    """

    def __init__(
        self, store: LogStore, *, fail_on_data_loss: bool = True, reads_changes: bool = False
    ) -> None:
        self._store = store
        self._fails = fail_on_data_loss
        self._reads_changes = reads_changes
        self._times = CommitTimes(store)
        self._end: tuple[int, FileInfo] | None = None
        self._tried_again = -1
        self.was_replaced = False
        """Whether the last commit is another file than it was at the last look."""

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
        return parse_changes(path, version, data, time_ms=self._times.time_of(version))

    def begin_batch(self, version: int) -> None:
        """What is read next belongs to a batch that begins with that version."""
        self._times.begin_batch(version)

    def time_of(self, snapshot: Snapshot) -> int:
        """When a version was made, told as the changes of its commit are."""
        if property_value(snapshot.metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
            return snapshot.timestamp
        try:
            return self._times.time_of(snapshot.version)
        except FileMissingError:  # a checkpoint is all that is left of it
            return snapshot.timestamp

    def _behind_gap(self, version: int) -> int | None:
        """Where to go on when a commit is not there; None when the log ends before it."""
        if self._store.probes_cheaply and self._is_end(version):
            return None
        listing = list_log(self._store, max(version - 1, 0))
        if listing.latest_version == version - 1:
            return None
        is_there = any(file.version == version for file in listing.commits)
        if is_there and self._tried_again != version:
            self._tried_again = version  # it was written while we looked
            return version
        return self._gap(version, list_log(self._store))

    def _is_end(self, version: int) -> bool:
        """Whether the version before is there and the one behind is not."""
        before = max(version - 1, 0)
        try:
            info = self._store.stat(commit_path(before))
        except FileMissingError:
            return False
        if self._end is not None and self._end[0] == before and self._end[1] != info:
            self.was_replaced = True
        self._end = (before, info)
        return not self._store.exists(commit_path(version + 1))

    def _gap(self, version: int, listing: LogListing) -> int | None:
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


def _large_commit(path: str, version: int, data: bytes, root_uri: str) -> StreamCommit:
    frame = frame_from_json(path, data, root_uri)
    adds = frame.adds.filter(pc.fill_null(frame.adds.column("dataChange"), False))
    removes = frame.removes.filter(pc.fill_null(frame.removes.column("dataChange"), False))
    others = [each for each in frame.others if isinstance(each, Metadata | Protocol)]
    return StreamCommit(
        version=version,
        files=FileRun(version, adds),
        has_adds=bool(adds.num_rows),
        removed=removes.column("path")[0].as_py() if removes.num_rows else None,
        metadata=_last(others, Metadata),
        protocol=_last(others, Protocol),
        info=commit_info_of(path, data) if removes.num_rows else None,
    )


def _definitions(value: dict[str, Any], place: tuple[str, int, int]) -> list[Metadata | Protocol]:
    if "metaData" not in value and "protocol" not in value:
        return []
    return [each for each in state_actions(value, place) if isinstance(each, Metadata | Protocol)]


def _last(actions: Sequence[Any], kind: type[Any]) -> Any:
    return next((each for each in reversed(actions) if isinstance(each, kind)), None)


def changes_nothing(info: CommitInfo | None) -> bool:
    """Whether the commit is a MERGE that rewrote files and changed no row."""
    if info is None or info.operation != "MERGE":
        return False
    metrics = info.operation_metrics or {}
    return all(str(metrics.get(name)) == "0" for name in _NO_OP_METRICS)
