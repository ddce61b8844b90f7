"""`StreamRun`: one run of a stream over a table, from its first offset to its end.

Offsets go in and out as the JSON of a checkpoint; files come out as runs of the log's entries.
Nothing but the log is read.  What a batch held is kept until it is asked for, so that no commit is
read twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import (
    StreamError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.stream_changes import (
    StreamChanges,
    StreamRules,
    StreamStep,
    check_feed,
)
from pyspark_delta.kernel.ops.stream_commits import CommitReader, FileRun
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream_limits import AdmissionLimits
from pyspark_delta.kernel.ops.stream_offsets import (
    BASE_INDEX,
    METADATA_CHANGE_INDEX,
    POST_METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
    parse_offset,
)
from pyspark_delta.kernel.ops.stream_schema_log import SchemaLog, TrackedDefinition
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY
from pyspark_delta.kernel.protocol.schema_json import format_schema

LATEST: Literal["latest"] = "latest"

_SCHEMA_CHANGED = frozenset(
    {"DELTA_SCHEMA_CHANGED_WITH_VERSION", "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a user asks of a stream; `time_zone` is for a starting time that does not tell its.

    `is_tolerant` lets a stream begin behind the newest version, and wait for its first one.
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
        """Whether the stream begins with commits, and not with the table as it is."""
        return self.starting_version is not None or self.starting_timestamp is not None

    def limits(self) -> AdmissionLimits:
        """The limits of one batch."""
        return AdmissionLimits(max_files=self.max_files, max_bytes=self.max_bytes)


class StreamRun:
    """One run.  Spark calls from one thread, and in turn."""

    def __init__(
        self,
        log: TableLog,
        settings: StreamSettings,
        definition: StreamDefinition,
        *,
        schema_log: SchemaLog | None = None,
        source_path: str = "",
    ) -> None:
        self._log = log
        self._settings = settings
        self._definition = definition
        self._schema_log = schema_log
        self._source_path = source_path
        self._table_id = definition.metadata.id
        self._table = log.store.root_uri
        self._commits = CommitReader(
            log.store,
            fail_on_data_loss=settings.fail_on_data_loss,
            reads_changes=settings.reads_changes,
        )
        self._changes = self._changes_of(definition)
        self._held: Snapshot | None = None
        self._ends_now = False
        self._bound: DeltaSourceOffset | None = None
        self._starting: DeltaSourceOffset | None = None
        self._is_checked = False
        self._planned: tuple[str | None, str, StreamStep] | None = None

    @property
    def definition(self) -> StreamDefinition:
        """What the rows are read as."""
        return self._definition

    @property
    def protocol(self) -> Protocol:
        """What the files of the newest batch ask of their readers."""
        return self._changes.protocol

    def end_now(self) -> None:
        """Let the run end at what the table holds when it is first asked."""
        self._ends_now = True

    def latest_offset(self, start: str | None, *, is_limited: bool = True) -> str | None:
        """The offset of the next batch; `start` itself when there is nothing new.

        None for a stream that has not begun and finds nothing to begin with.
        """
        begun = None if start is None else parse_offset(start, self._table_id)
        if self._ends_now and self._bound is None:
            self._bound = self._offset(self._log.update().version + 1, BASE_INDEX)
        if begun is not None:
            waiting = self._pending_change(begun)
            if waiting is not None:
                return start if waiting == begun else waiting.to_json()
        first = self._starting_offset() if begun is None else begun
        if begun is None:
            self._begin_tracking(first.version, None)
            if self._waits_for(first.version):
                return None
        limits = self._settings.limits() if is_limited else None
        step = self._changes.step(first, limits=limits, bound=self._bound)
        self._check_not_replaced()
        if step.end is None:
            # A stream of what is to come has to remember where that began.
            is_idle_start = begun is None and self._settings.starting_version == LATEST
            return first.to_json() if is_idle_start else start
        self._check_start(first.version)
        end = step.end.to_json()
        self._planned = (start, end, step)
        return end

    def batch(self, start: str | None, end: str) -> list[FileRun]:
        """The files between two offsets, but for those that the user excludes."""
        planned, self._planned = self._planned, None
        if planned is not None and planned[:2] == (start, end):
            return self._wanted(planned[2].runs)
        last = parse_offset(end, self._table_id)
        first = self._first_of(start, last)
        if first == last:
            return []
        self._begin_tracking(
            first.version, last.version - 1 if last.index == BASE_INDEX else last.version
        )
        self._check_start(first.version)
        return self._wanted(self._changes.step(first, bound=last, is_fixed=True).runs)

    def commit(self, end: str) -> None:
        """All up to `end` is done: a change of definition there stops the run, once it is noted."""
        offset = parse_offset(end, self._table_id)
        if self._definition.is_tracked and offset.is_barrier:
            commit = self._commits.commit(offset.version)
            self._note(commit.metadata, commit.protocol, offset.version)

    def close(self) -> None:
        """Let go of what the run held."""
        self._planned = None
        self._held = None
        self._changes.forget_initial()

    def _changes_of(self, definition: StreamDefinition) -> StreamChanges:
        settings = self._settings
        return StreamChanges(
            self._commits,
            definition,
            table=self._table,
            rules=None if settings.reads_changes else settings.rules,
            snapshot_at=self._snapshot_at,
            excluded=settings.excluded,
        )

    # Where a stream begins.

    def _starting_offset(self) -> DeltaSourceOffset:
        if self._starting is None:
            version = self._starting_version()
            if version is not None:
                self._starting = self._offset(version, BASE_INDEX)
            else:
                self._held = self._log.update()
                self._check_current(self._held)
                self._is_checked = True
                self._starting = self._offset(self._held.version, BASE_INDEX, is_initial=True)
        return self._starting

    def _starting_version(self) -> int | None:
        settings = self._settings
        if settings.starting_version == LATEST:
            return self._log.update().version + 1
        if settings.starting_version is not None:
            self._check_exists(settings.starting_version)
            return settings.starting_version
        if settings.starting_timestamp is not None:
            return self._version_from(settings.starting_timestamp)
        return None

    def _check_exists(self, version: int) -> None:
        """Refuse a version that is not in the log, or needs of its readers what we cannot do.

        The commit is enough: the version as a whole need not be there any more, or yet.
        """
        try:
            self._log.snapshot_at(version=version)
        except UnsupportedProtocolError:
            raise
        except DeltaError:
            versions = [file.version for file in list_log(self._log.store).commits]
            if self._settings.is_tolerant and versions and version > versions[-1]:
                return
            if version not in versions:
                raise VersionNotFoundError(
                    "DELTA_VERSION_NOT_FOUND",
                    userVersion=version,
                    earliest=versions[0] if versions else -1,
                    latest=versions[-1] if versions else -1,
                ) from None

    def _version_from(self, text: str) -> int:
        """The first version that was made at that time or later."""
        settings = self._settings
        version = self._log.version_from(
            text, can_exceed_latest=settings.is_tolerant, zone=settings.time_zone
        )
        self._check_exists(version)
        return version

    def _waits_for(self, version: int) -> bool:
        """Whether others have to come before the version that the stream is to begin with."""
        return self._settings.is_tolerant and version > self._log.update().version + 1

    def _first_of(self, start: str | None, last: DeltaSourceOffset) -> DeltaSourceOffset:
        """Where a batch that ends at `last` begins, also when it is the first of all."""
        if start is not None:
            return parse_offset(start, self._table_id)
        if self._settings.has_starting_options:
            first = self._starting_offset()
            return first if first.place <= last.place else last
        if last.is_initial:
            return self._offset(last.version, BASE_INDEX, is_initial=True)
        return self._offset(last.version - 1, BASE_INDEX, is_initial=True)

    # What the table may have become.

    def _check_current(self, snapshot: Snapshot) -> None:
        """Refuse to begin with a table that changed since the query was made."""
        if self._settings.reads_changes:
            check_feed(snapshot.metadata, snapshot.version)
        if self._definition.is_tracked:
            return
        try:
            self._definition.check_followed(snapshot.metadata, snapshot.version)
        except StreamError as error:
            if error.condition not in _SCHEMA_CHANGED:
                raise
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART",
                querySchema=format_schema(self._definition.schema),
                tableSchema=format_schema(snapshot.metadata.schema),
            ) from None

    def _check_start(self, version: int) -> None:
        """Once a run: what was read before must fit what the run reads with."""
        if self._is_checked:
            return
        self._is_checked = True
        definition, reads_changes = self._definition, self._settings.reads_changes
        try:
            snapshot: Snapshot | None = self._log.snapshot_at(version=version)
        except DeltaError:
            snapshot = None
        if snapshot is not None:
            # Vectors may have been dropped from the table between this version and the run.
            self._changes.keep_vectors(snapshot.protocol)
        if definition.is_tracked:
            if reads_changes:
                check_feed(definition.metadata, definition.version)
            return
        if snapshot is None:
            if definition.metadata.configuration.get(MODE_KEY, "none") != "none":
                raise StreamError("DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT")
            return
        if reads_changes:
            check_feed(snapshot.metadata, version)
        definition.check_followed(snapshot.metadata, snapshot.version)

    def _check_not_replaced(self) -> None:
        """Refuse to go on with another table that was made at the same place."""
        if not self._commits.was_replaced:
            return
        self._commits.was_replaced = False
        found = self._log.update().metadata.id
        if found != self._table_id:
            raise StreamError(
                "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
                oldTableId=self._table_id,
                newTableId=found,
            )

    # The schema log.

    def _pending_change(self, begun: DeltaSourceOffset) -> DeltaSourceOffset | None:
        """The offset to stay at until a change of definition is taken up; None without one.

        Spark commits an offset once it sees another one, hence the second place behind a change.
        """
        if not self._definition.is_tracked or not begun.is_barrier:
            return None
        if begun.index == METADATA_CHANGE_INDEX:
            return replace(begun, index=POST_METADATA_CHANGE_INDEX)
        commit = self._commits.commit(begun.version)
        return begun if self._definition.is_barrier(commit) else None

    def _begin_tracking(self, first: int, last: int | None) -> None:
        """Write the first entry of an empty schema log: what versions `first` to `last` are of."""
        if self._schema_log is None or self._schema_log.current is not None:
            return
        # A stream of what is to come begins behind the newest version.
        snapshot = self._snapshot_or_refuse(min(first, self._log.update().version))
        metadata, protocol, version = snapshot.metadata, snapshot.protocol, snapshot.version
        if last is not None and last > first:
            for commit in self._commits.commits(first + 1, last):
                if commit.metadata is not None:
                    older = StreamDefinition(metadata=metadata, protocol=protocol, version=version)
                    self._check_one_schema(older, commit.metadata, first, last)
                    metadata = commit.metadata
                protocol = commit.protocol or protocol
            version = last
        self._write(metadata, protocol, version)
        if self._definition.differs(metadata, protocol, version):
            raise StreamError("DELTA_STREAMING_METADATA_EVOLUTION")
        self._definition = replace(self._definition, version=version, is_tracked=True)
        self._changes = self._changes_of(self._definition)

    def _check_one_schema(
        self, older: StreamDefinition, metadata: Metadata, first: int, last: int
    ) -> None:
        newer = StreamDefinition(metadata=metadata, protocol=older.protocol, version=last)
        try:
            newer.check_followed(older.metadata, first)
        except StreamError:
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA", a=first, b=last
            ) from None

    def _note(
        self,
        metadata: Metadata | None,
        protocol: Protocol | None,
        version: int,
        *,
        replaces: bool = False,
    ) -> None:
        if not self._definition.differs(metadata, protocol, version):
            return
        self._write(
            metadata or self._definition.metadata,
            protocol or self._definition.protocol,
            version,
            replaces=replaces,
        )
        raise StreamError("DELTA_STREAMING_METADATA_EVOLUTION")

    def _write(
        self, metadata: Metadata, protocol: Protocol, version: int, *, replaces: bool = False
    ) -> None:
        assert self._schema_log is not None
        entry = TrackedDefinition(
            table_id=self._table_id,
            version=version,
            metadata=metadata,
            protocol=protocol,
            source_path=self._source_path,
        )
        self._schema_log.write(entry, replaces=replaces)

    # Files.

    def _snapshot_at(self, version: int) -> Snapshot:
        held, self._held = self._held, None
        snapshot = held if held is not None and held.version == version else None
        if snapshot is None:
            snapshot = self._log.snapshot_at(version=version)
        if self._definition.is_tracked and version >= self._definition.version:
            self._note(snapshot.metadata, snapshot.protocol, version, replaces=True)
        return snapshot

    def _snapshot_or_refuse(self, version: int) -> Snapshot:
        try:
            return self._log.snapshot_at(version=version)
        except DeltaError as error:
            raise StreamError("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE") from error

    def _wanted(self, runs: list[FileRun]) -> list[FileRun]:
        pattern = self._settings.excluded
        return runs if pattern is None else [_without(run, pattern) for run in runs]

    def _offset(self, version: int, index: int, *, is_initial: bool = False) -> DeltaSourceOffset:
        return DeltaSourceOffset(
            table_id=self._table_id, version=version, index=index, is_initial=is_initial
        )


def _without(run: FileRun, pattern: re.Pattern[str]) -> FileRun:
    if isinstance(run.rows, pa.Table):
        keeps = [pattern.search(path) is None for path in run.rows.column("path").to_pylist()]
        return replace(run, rows=run.rows.filter(pa.array(keeps, pa.bool_())))
    kept = [i for i, row in enumerate(run.rows) if pattern.search(row["path"]) is None]
    kinds = None if run.kinds is None else tuple(run.kinds[i] for i in kept)
    return replace(run, rows=[run.rows[i] for i in kept], kinds=kinds)
