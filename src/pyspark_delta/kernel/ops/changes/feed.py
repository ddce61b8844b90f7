"""The changes of a table between two versions: its change feed, or a changelog by row tracking.

Every commit of the range is read once, in order.  A change feed must have been enabled throughout.
A changelog needs row tracking throughout: rewritten files hold rows that did not change, which it
gives as a delete and an insert with the same id and version, and the reader drops the pairs.  One
schema must fit all files, or else the range cannot be read.
PROTOCOL.md, "Change Data Files" and "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise, repeat

import pyarrow.compute as pc

from pyspark_delta.errors import ChangeFeedError, VersionNotFoundError
from pyspark_delta.kernel.log.frames.file_actions import add_files, remove_files
from pyspark_delta.kernel.log.frames.json_frames import LARGE_COMMIT_BYTES, frame_from_json
from pyspark_delta.kernel.log.history import (
    COMMITS_BEFORE,
    commit_info_of,
    file_times,
    with_contents,
)
from pyspark_delta.kernel.log.segment import LogFile, LogListing, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.commits import (
    ChangeKind,
    FileRun,
    changed_files,
    changes_nothing,
    last_action,
    parse_changes,
)
from pyspark_delta.kernel.ops.changes.definitions import VersionDefinition, loses_columns
from pyspark_delta.kernel.ops.changes.files import ChangedFiles, ReadVector
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.commit_times import parse_commit_time
from pyspark_delta.kernel.protocol.deletion_vectors import read_deletion_vector
from pyspark_delta.kernel.protocol.feature_upgrade import keeping_vectors
from pyspark_delta.kernel.protocol.features import check_readable
from pyspark_delta.kernel.protocol.properties import ENABLE_CHANGE_DATA_FEED, property_value
from pyspark_delta.kernel.protocol.row_tracking import is_row_tracking_enabled
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible
from pyspark_delta.kernel.scan.plan import mapping_mode

SCHEMA_MODE = "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"
"""The setting for the version whose columns the changes of a table with column mapping have."""

OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
"""The setting that lets a range, and any stream, begin after the newest version."""

_ADD: ChangeKind = "add"
_REMOVE: ChangeKind = "remove"


class SchemaMode(StrEnum):
    """The columns of the changes: those of the version that is read, or of the range's end."""

    LEGACY = "legacy"
    LATEST = "latest"
    END_VERSION = "endversion"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBounds:
    """The two ends from a user, each a version or a time; a version takes precedence over a time.

    Times are texts in `time_zone` or milliseconds since 1970.  Without an end the range ends with
    the newest version.  With `is_tolerant` a start after the newest version gives no changes, and
    an end after it is taken for the newest version.
    """

    start_version: int | None = None
    start_time: str | int | None = None
    end_version: int | None = None
    end_time: str | int | None = None
    time_zone: str = "UTC"
    is_tolerant: bool = False

    def versions(self, log: TableLog, newest: int) -> tuple[int, int] | None:
        """The first and the last version; None when no commit lies between the two times.

        `newest` is the newest version that a start may be at.
        """
        start, start_ms = self._start(log)
        end, end_ms = self._end(log)
        if start > newest:
            if self.is_tolerant:
                return None
            raise ChangeFeedError(
                "DELTA_CDC_START_VERSION_AFTER_LATEST", start=start, latest=newest
            )
        if end is None:
            return start, log.update().version
        if start_ms is not None and end_ms is not None:
            if start_ms > end_ms:
                raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=start, end=end)
            if end == start - 1:
                return None
        if end < start:
            raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=start, end=end)
        return start, min(end, log.update().version)

    def _start(self, log: TableLog) -> tuple[int, int | None]:
        if self.start_version is not None:
            return self.start_version, None
        if self.start_time is None:
            raise ChangeFeedError("DELTA_NO_START_FOR_CDC_READ")
        time_ms = self._milliseconds(self.start_time)
        version = log.version_from(time_ms, can_exceed_latest=self.is_tolerant, zone=self.time_zone)
        return version, time_ms

    def _end(self, log: TableLog) -> tuple[int | None, int | None]:
        if self.end_version is not None:
            return self.end_version, None
        if self.end_time is None:
            return None, None
        time_ms = self._milliseconds(self.end_time)
        version = log.version_at(time_ms, can_return_last=self.is_tolerant, zone=self.time_zone)
        return version, time_ms

    def _milliseconds(self, time: str | int) -> int:
        return parse_commit_time(time, self.time_zone) if isinstance(time, str) else time


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChanges:
    """Changes from version `start` to `end`, both included, and the definition to read them by.

    `has_pairs` is true if one commit of a changelog may delete and insert the same row.
    """

    start: int
    end: int
    read_as: VersionDefinition
    files: ChangedFiles = field(hash=False)
    has_pairs: bool = False


def is_recorded(metadata: Metadata) -> bool:
    """Whether a table of that definition has a change feed."""
    return bool(property_value(metadata.configuration, ENABLE_CHANGE_DATA_FEED))


def read_feed(
    log: TableLog,
    start: Snapshot,
    end: int,
    newest: Snapshot,
    read: ReadVector,
    *,
    mode: SchemaMode | None = None,
    is_unsafe: bool = False,
    listing: LogListing | None = None,
) -> RangeChanges:
    """The changes from the version of `start` to `end`.

    Their columns are those of `newest`, or those of the range's end: for mapped columns without
    a `mode`, and otherwise if `mode` selects it and the newest columns do not fit.
    `is_unsafe` reads also ranges that no single schema fits, at the user's risk.  `listing` is a
    listing of the log that the caller made after `newest` was found.
    """
    check_recorded(start.metadata, start.version, start.version, end)
    definitions, runs = [VersionDefinition.of(start)], list[FileRun]()
    for file, data, time_ms in commit_files(log, start.version, end, listing):
        files_of_commit, metadata, protocol = _commit(file, data, time_ms, log.store.root_uri)
        runs += files_of_commit
        if protocol is not None:
            check_readable(protocol, log.store.root_uri)
        if file.version > start.version and (metadata or protocol):
            definitions.append(definitions[-1].after(file.version, metadata, protocol))
    read_as = _read_as(definitions, VersionDefinition.of(newest), mode, end)
    _check_range(definitions, read_as, end, is_unsafe=is_unsafe)
    files = ChangedFiles(read=read, is_partitioned=bool(read_as.metadata.partition_columns))
    for run in runs:
        files.take(run)
    return RangeChanges(start=start.version, end=end, read_as=read_as, files=files)


def no_changes(snapshot: Snapshot) -> RangeChanges:
    """An empty feed with the columns of that version."""
    return RangeChanges(
        start=snapshot.version + 1,
        end=snapshot.version,
        read_as=VersionDefinition.of(snapshot),
        files=ChangedFiles(read=read_deletion_vector, is_partitioned=False),
    )


def tracks_rows(snapshot: Snapshot) -> bool:
    """Whether the version's row tracking suffices to derive its changes."""
    return is_row_tracking_enabled(snapshot.protocol, snapshot.metadata)


def read_changelog(
    log: TableLog,
    start: Snapshot,
    end: Snapshot,
    read: ReadVector,
    *,
    name: str,
    has_copies: bool = False,
) -> RangeChanges:
    """The changes from the version of `start` to that of `end`.

    `has_copies` keeps all rows of files that only got a new vector; `name` is for messages.
    """
    if not tracks_rows(start):
        raise ChangeFeedError("DELTA_CHANGELOG_REQUIRES_ROW_TRACKING", tableName=name)
    first, read_as = VersionDefinition.of(start), VersionDefinition.of(end)
    _check_tracked(first, read_as)
    _check_tracked(read_as, read_as)
    files = ChangedFiles(
        read=read,
        is_partitioned=bool(end.metadata.partition_columns),
        has_ids=True,
        pairs_vectors=not has_copies,
    )
    has_pairs, definitions = False, [first]
    for file, data, time_ms in commit_files(log, start.version, end.version):
        commit = parse_changes(file.info.path, file.version, data, time_ms=time_ms, with_feed=False)
        if commit.protocol is not None:
            check_readable(commit.protocol, log.store.root_uri)
        if commit.metadata is not None or commit.protocol is not None:
            definitions.append(
                definitions[-1].after(commit.version, commit.metadata, commit.protocol)
            )
            _check_tracked(definitions[-1], read_as)
        files.take(commit.files)
        has_pairs = has_pairs or len(set(commit.files.kinds or ())) > 1
    protocol = keeping_vectors(read_as.protocol, *(each.protocol for each in definitions))
    return RangeChanges(
        start=start.version,
        end=end.version,
        read_as=replace(read_as, protocol=protocol),
        files=files,
        has_pairs=has_pairs,
    )


def check_recorded(
    metadata: Metadata, version: int, start: int | None = None, end: int | None = None
) -> None:
    """Raise if the change feed is not enabled at a version of the range from `start` to `end`."""
    if not is_recorded(metadata):
        raise ChangeFeedError(
            "DELTA_MISSING_CHANGE_DATA",
            startVersion=version if start is None else start,
            endVersion=version if end is None else end,
            version=version,
            key=ENABLE_CHANGE_DATA_FEED.key,
        )


def _is_mapped(metadata: Metadata) -> bool:
    return mapping_mode(metadata) is not ColumnMappingMode.NONE


def _read_as(
    definitions: Sequence[VersionDefinition],
    latest: VersionDefinition,
    mode: SchemaMode | None,
    end: int,
) -> VersionDefinition:
    at_end = replace(definitions[-1], version=end)
    if any(_is_mapped(each.metadata) for each in (definitions[0], at_end, latest)):
        is_at_end = mode in (None, SchemaMode.END_VERSION)
    else:
        all_fit = all(_fits(each, latest) for each in definitions)
        is_at_end = mode is SchemaMode.END_VERSION and not all_fit
    chosen = at_end if is_at_end else latest
    return replace(
        chosen, protocol=keeping_vectors(chosen.protocol, *(each.protocol for each in definitions))
    )


def _check_range(
    definitions: Sequence[VersionDefinition],
    read_as: VersionDefinition,
    end: int,
    *,
    is_unsafe: bool,
) -> None:
    """Raise if a version of the range was not recorded, or does not fit the columns."""
    first = definitions[0]
    for before, each in pairwise(definitions):
        if each.metadata is before.metadata:
            continue
        check_recorded(each.metadata, each.version, first.version, end)
        if not is_unsafe and not _fits(each, read_as):
            raise ChangeFeedError(
                "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
                start=first.version,
                end=end,
                readVersion=read_as.version,
                incompatibleVersion=each.version,
            )
    if not is_unsafe and not _fits(first, read_as):
        raise ChangeFeedError(
            "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
            start=first.version,
            end=end,
            readVersion=read_as.version,
            incompatibleVersion=first.version,
            config=SCHEMA_MODE,
        )


def _check_tracked(definition: VersionDefinition, read_as: VersionDefinition) -> None:
    if not is_row_tracking_enabled(definition.protocol, definition.metadata):
        raise ChangeFeedError(
            "DELTA_CHANGELOG_ROW_TRACKING_DISABLED_IN_RANGE", version=definition.version
        )
    if not _fits(definition, read_as):
        raise ChangeFeedError("DELTA_CHANGELOG_SCHEMA_CHANGE_IN_RANGE", version=definition.version)


def _fits(definition: VersionDefinition, read_as: VersionDefinition) -> bool:
    is_older = definition.version <= read_as.version
    pair = (definition, read_as) if is_older else (read_as, definition)
    old, new = (each.metadata for each in pair)
    if (_is_mapped(old) and not _is_mapped(new)) or loses_columns(old, new):
        return False
    if old.partition_columns != new.partition_columns:
        return False  # the partitioning determines whether a value is in the log or in the file
    return is_read_compatible(
        old.schema,
        new.schema,
        forbid_tighter_nullability=is_older,
        widening=read_as.widening_since(definition.version),
    )


def commit_files(
    log: TableLog, start: int, end: int, listing: LogListing | None = None
) -> Iterator[tuple[LogFile, bytes, int]]:
    """The commits of a range, each with its bytes and its file's time; none may be missing.

    `listing` is used in place of a new one, if it begins early enough.
    """
    store = log.store
    needed = max(start - COMMITS_BEFORE, 0)
    if listing is None or listing.start > needed:
        listing = list_log(store, needed)
    listed = listing.commits
    times = file_times(listed)
    wanted = [file for file in listed if start <= file.version <= end]
    missing = next((v for v in range(start, end + 1) if v not in times), None)
    if missing is not None:
        raise VersionNotFoundError(
            "DELTA_VERSIONS_NOT_CONTIGUOUS",
            versionList=f"{start} to {end}",
            startVersion=missing - 1,
            endVersion=missing + 1,
            versionToLoad=missing,
        )
    for file, data in with_contents(store, wanted):
        yield file, data, times[file.version]


_Commit = tuple[list[FileRun], Metadata | None, Protocol | None]


def _commit(file: LogFile, data: bytes, time_ms: int, root_uri: str) -> _Commit:
    if len(data) >= LARGE_COMMIT_BYTES and b'"cdc"' not in data:
        return _large_commit(file, data, time_ms, root_uri)
    commit = parse_changes(file.info.path, file.version, data, time_ms=time_ms)
    return [commit.files], commit.metadata, commit.protocol


def _large_commit(file: LogFile, data: bytes, time_ms: int, root_uri: str) -> _Commit:
    """As `parse_changes`, without an object for each file."""
    path, version = file.info.path, file.version
    frame = frame_from_json(path, data, root_uri)
    metadata, protocol = (last_action(frame.others, kind) for kind in (Metadata, Protocol))
    info = commit_info_of(path, data)
    if changes_nothing(info):
        return [], metadata, protocol
    if info is not None and info.in_commit_timestamp is not None:
        time_ms = info.in_commit_timestamp
    adds, removes = changed_files(frame)
    runs = []
    both = pc.is_in(adds.column("path"), value_set=removes.column("path"))
    if pc.any(both).as_py():
        again = adds.filter(both)
        gone = pc.is_in(removes.column("path"), value_set=again.column("path"))
        old = [each.to_json_value() for each in remove_files(removes.filter(gone))]
        new = [each.to_json_value() for each in add_files(again)]
        kinds: tuple[ChangeKind, ...] = (*repeat(_REMOVE, len(old)), *repeat(_ADD, len(new)))
        runs.append(FileRun(version=version, rows=[*old, *new], kinds=kinds, timestamp_ms=time_ms))
        adds, removes = adds.filter(pc.invert(both)), removes.filter(pc.invert(gone))
    for kind, rows in ((_ADD, adds), (_REMOVE, removes)):
        runs.append(FileRun(version=version, rows=rows, kind=kind, timestamp_ms=time_ms))
    return runs, metadata, protocol
