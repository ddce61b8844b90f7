"""The change feed of a table between two versions: which files, and what their rows are read as.

Every commit of the range is read once, in order.  What the commits say decides whether the feed can
be told at all: it must have been on throughout, and one schema must fit all files.
PROTOCOL.md, "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise, repeat

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import ChangeFeedError, VersionNotFoundError
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.log.frames import add_files, remove_files
from pyspark_delta.kernel.log.history import COMMITS_BEFORE, file_times
from pyspark_delta.kernel.log.json_frames import LARGE_COMMIT_BYTES, frame_from_json
from pyspark_delta.kernel.log.segment import LogFile, LogListing, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changed_files import (
    DELETE,
    INSERT,
    ChangedFiles,
    ChangeMark,
    ReadVector,
)
from pyspark_delta.kernel.ops.stream_commits import (
    ChangeKind,
    FileRun,
    changes_nothing,
    parse_changes,
)
from pyspark_delta.kernel.ops.stream_definitions import loses_columns
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.deletion_vectors import read_deletion_vector
from pyspark_delta.kernel.protocol.feature_upgrade import keeping_vectors
from pyspark_delta.kernel.protocol.features import check_readable, supported_features
from pyspark_delta.kernel.protocol.properties import ENABLE_CHANGE_DATA_FEED, property_value
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.scan.plan import mapping_mode

SCHEMA_MODE = "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"
"""The setting that says which version's columns the changes of a table with mapping have."""

_BATCH = 256
_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
_ADD: ChangeKind = "add"
_REMOVE: ChangeKind = "remove"


class SchemaMode(StrEnum):
    """Whose columns changes have: those of the version that is read, or of the range's end."""

    LEGACY = "legacy"
    LATEST = "latest"
    END_VERSION = "endversion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What the table was at a version."""

    version: int
    metadata: Metadata
    protocol: Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """Changes from version `start` to `end`, both included, and the definition to read them by."""

    start: int
    end: int
    read_as: Definition
    files: ChangedFiles = field(hash=False)


@dataclass(slots=True)
class _Commit:
    version: int
    runs: list[FileRun] = field(default_factory=list)
    tables: list[tuple[pa.Table, ChangeMark]] = field(default_factory=list)
    metadata: Metadata | None = None
    protocol: Protocol | None = None


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
) -> ChangeFeed:
    """The changes from the version of `start` to `end`.

    Their columns are those of `newest`, or of the range's end: there columns that are mapped are
    looked up without a `mode`, and others if `mode` says so and the newest ones do not fit.
    `is_unsafe` reads also what no one schema fits, at the user's risk.  `listing` is for who has
    listed the log since `newest` was found.
    """
    first = Definition(version=start.version, metadata=start.metadata, protocol=start.protocol)
    found = [first]
    _check_recorded(first.metadata, first.version, first.version, end)
    commits = []
    for commit in _commits(log, first.version, end, listing):
        commits.append(commit)
        if commit.protocol is not None:
            check_readable(commit.protocol, log.store.root_uri)
        if commit.version > first.version and (commit.metadata or commit.protocol):
            found.append(
                Definition(
                    version=commit.version,
                    metadata=commit.metadata or found[-1].metadata,
                    protocol=commit.protocol or found[-1].protocol,
                )
            )
    read_as = _read_as(found, newest, mode, end)
    _check_range(found, read_as, end, is_unsafe=is_unsafe)
    is_partitioned = bool(read_as.metadata.partition_columns)
    files = ChangedFiles(read, is_partitioned=is_partitioned)
    for commit in commits:
        for run in commit.runs:
            files.take(run)
        for table, mark in commit.tables:
            files.take_table(table, mark)
    return ChangeFeed(start=first.version, end=end, read_as=read_as, files=files)


def no_changes(snapshot: Snapshot) -> ChangeFeed:
    """A feed of nothing, with the columns of that version."""
    read_as = Definition(
        version=snapshot.version, metadata=snapshot.metadata, protocol=snapshot.protocol
    )
    files = ChangedFiles(read_deletion_vector, is_partitioned=False)
    return ChangeFeed(
        start=snapshot.version + 1, end=snapshot.version, read_as=read_as, files=files
    )


def has_mapping(definitions: Sequence[Metadata]) -> bool:
    """Whether columns are mapped in one of them."""
    return any(mapping_mode(each) is not ColumnMappingMode.NONE for each in definitions)


def _read_as(
    found: Sequence[Definition], newest: Snapshot, mode: SchemaMode | None, end: int
) -> Definition:
    latest = Definition(version=newest.version, metadata=newest.metadata, protocol=newest.protocol)
    at_end = replace(found[-1], version=end)
    if has_mapping([found[0].metadata, at_end.metadata, latest.metadata]):
        is_at_end = mode in (None, SchemaMode.END_VERSION)
    else:
        all_fit = all(fits(each, latest) for each in found)
        is_at_end = mode is SchemaMode.END_VERSION and not all_fit
    chosen = at_end if is_at_end else latest
    asked = (each.protocol for each in found)
    return replace(chosen, protocol=keeping_vectors(chosen.protocol, *asked))


def _check_recorded(metadata: Metadata, version: int, start: int, end: int) -> None:
    if not is_recorded(metadata):
        raise ChangeFeedError(
            "DELTA_MISSING_CHANGE_DATA",
            startVersion=start,
            endVersion=end,
            version=version,
            key=ENABLE_CHANGE_DATA_FEED.key,
        )


def _check_range(
    found: Sequence[Definition], read_as: Definition, end: int, *, is_unsafe: bool
) -> None:
    """Refuse a range with a version that was not recorded, or does not fit the columns."""
    first = found[0]
    for before, each in pairwise(found):
        if each.metadata is before.metadata:
            continue
        _check_recorded(each.metadata, each.version, first.version, end)
        if not is_unsafe and not fits(each, read_as):
            raise ChangeFeedError(
                "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
                start=first.version,
                end=end,
                readVersion=read_as.version,
                incompatibleVersion=each.version,
            )
    if not is_unsafe and not fits(first, read_as):
        raise ChangeFeedError(
            "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
            start=first.version,
            end=end,
            readVersion=read_as.version,
            incompatibleVersion=first.version,
            config=SCHEMA_MODE,
        )


def fits(definition: Definition, read_as: Definition) -> bool:
    """Whether files of the definition can be read with the other's columns."""
    is_older = definition.version <= read_as.version
    old, new = (definition, read_as) if is_older else (read_as, definition)
    if _has_lost(old.metadata, new.metadata):
        return False
    if old.metadata.partition_columns != new.metadata.partition_columns:
        return False  # whether a value is in the log or in the file is told by the partitioning
    can_widen = bool(_WIDENING & supported_features(new.protocol))
    return is_read_compatible(
        old.metadata.schema,
        new.metadata.schema,
        forbid_tighter_nullability=is_older,
        widening=TypeWideningMode.ALWAYS if can_widen and is_older else TypeWideningMode.NEVER,
    )


def _has_lost(old: Metadata, new: Metadata) -> bool:
    """Whether a column was renamed or dropped, or its name in files is known no longer."""
    was_mapped, is_mapped = has_mapping([old]), has_mapping([new])
    return (was_mapped and not is_mapped) or loses_columns(old, new)


# Commits.


def _commits(log: TableLog, start: int, end: int, listing: LogListing | None) -> Iterator[_Commit]:
    for file, data, time_ms in commit_files(log, start, end, listing):
        yield _commit(file, data, time_ms, log.store.root_uri)


def commit_files(
    log: TableLog, start: int, end: int, listing: LogListing | None = None
) -> Iterator[tuple[LogFile, bytes, int]]:
    """The commits of a range, each with its bytes and its file's time; none may be missing.

    `listing` spares one of its own, where it begins early enough.
    """
    store = log.store
    needed = max(start - COMMITS_BEFORE, 0)
    if listing is None or listing.start > needed:
        listing = list_log(store, needed)
    listed = listing.commits
    times = file_times(listed)
    wanted = [file for file in listed if start <= file.version <= end]
    _check_all_there(wanted, start, end)
    for at in range(0, len(wanted), _BATCH):
        batch = wanted[at : at + _BATCH]
        contents = store.read_many([file.info.path for file in batch])
        for file, data in zip(batch, contents, strict=True):
            yield file, data, times[file.version]


def _commit(file: LogFile, data: bytes, time_ms: int, root_uri: str) -> _Commit:
    path = file.info.path
    if len(data) >= LARGE_COMMIT_BYTES and b'"cdc"' not in data:
        return _large_commit(path, file.version, data, time_ms, root_uri)
    commit = parse_changes(path, file.version, data, time_ms=time_ms)
    return _Commit(
        file.version, runs=[commit.files], metadata=commit.metadata, protocol=commit.protocol
    )


def _large_commit(path: str, version: int, data: bytes, time_ms: int, root_uri: str) -> _Commit:
    """As `parse_changes`, without an object for each file."""
    frame = frame_from_json(path, data, root_uri)
    found = _Commit(version)
    for action in frame.others:
        if isinstance(action, Metadata):
            found.metadata = action
        elif isinstance(action, Protocol):
            found.protocol = action
    info = commit_info_of(path, data)
    if changes_nothing(info):
        return found
    if info is not None and info.in_commit_timestamp is not None:
        time_ms = info.in_commit_timestamp
    adds, removes = (
        table.filter(pc.fill_null(table.column("dataChange"), False))
        for table in (frame.adds, frame.removes)
    )
    both = pc.is_in(adds.column("path"), value_set=removes.column("path"))
    if pc.any(both).as_py():
        again = adds.filter(both)
        gone = pc.is_in(removes.column("path"), value_set=again.column("path"))
        old = [each.to_json_value() for each in remove_files(removes.filter(gone))]
        new = [each.to_json_value() for each in add_files(again)]
        kinds: tuple[ChangeKind, ...] = (*repeat(_REMOVE, len(old)), *repeat(_ADD, len(new)))
        found.runs.append(FileRun(version, [*old, *new], kinds, time_ms))
        adds, removes = adds.filter(pc.invert(both)), removes.filter(pc.invert(gone))
    found.tables = [
        (adds, ChangeMark(version, time_ms, INSERT)),
        (removes, ChangeMark(version, time_ms, DELETE)),
    ]
    return found


def _check_all_there(wanted: Sequence[LogFile], start: int, end: int) -> None:
    versions = [file.version for file in wanted]
    if versions != list(range(start, end + 1)):
        missing = next(v for v in range(start, end + 1) if v not in set(versions))
        raise VersionNotFoundError(
            "DELTA_VERSIONS_NOT_CONTIGUOUS",
            versionList=f"{start} to {end}",
            startVersion=missing - 1,
            endVersion=missing + 1,
            versionToLoad=missing,
        )
