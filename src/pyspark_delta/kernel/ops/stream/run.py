"""`StreamRun`: one run of a stream over a table, from its first offset to its end.

Offsets are passed as the JSON of a checkpoint; files are returned as runs of the log's entries.
Nothing but the log is read.  The files found for an offset are kept until their batch is
requested, so that no commit is read twice.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa

from pyspark_delta.errors import (
    DeltaError,
    StreamError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.commits import CommitReader, FileRun, StreamCommit
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition, VersionDefinition
from pyspark_delta.kernel.ops.changes.feed import check_recorded
from pyspark_delta.kernel.ops.stream.changes import (
    LATEST,
    StreamChanges,
    StreamSettings,
    StreamStep,
)
from pyspark_delta.kernel.ops.stream.offsets import (
    BASE_INDEX,
    METADATA_CHANGE_INDEX,
    POST_METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
    parse_offset,
)
from pyspark_delta.kernel.ops.stream.schema_log import SchemaLog, TrackedDefinition
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY
from pyspark_delta.kernel.protocol.schema_json import format_schema

_SCHEMA_CHANGED = frozenset(
    {"DELTA_SCHEMA_CHANGED_WITH_VERSION", "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"}
)


class StreamRun:
    """One run of a stream.  Spark calls it from one thread, one call after the other."""

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
        self.definition = definition
        self._schema_log = schema_log
        self._source_path = source_path
        self._table_id = definition.metadata.id
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
    def protocol(self) -> Protocol:
        """The protocol for reading the files of the newest batch."""
        return self._changes.protocol

    def end_now(self) -> None:
        """Let the run end at the newest version as of the first request for an offset."""
        self._ends_now = True

    def latest_offset(self, start: str | None, *, is_limited: bool = True) -> str | None:
        """The offset of the next batch; `start` itself when there is nothing new.

        None for a stream that has not begun and has no entry to begin with.
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
            if self._settings.is_tolerant and first.version > self._log.update().version + 1:
                return None  # it waits for its first version
        limits = self._settings.limits() if is_limited else None
        step = self._changes.step(first, limits=limits, bound=self._bound)
        self._check_not_replaced()
        if step.end is None:
            # A stream from "latest" has to record the version where it began.
            is_idle_start = begun is None and self._settings.starting_version == LATEST
            return first.to_json() if is_idle_start else start
        self._check_start(first.version)
        end = step.end.to_json()
        self._planned = (start, end, step)
        return end

    def batch(self, start: str | None, end: str) -> list[FileRun]:
        """The files between two offsets, without those that the user excludes."""
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
        """Finish all up to `end`: a change of definition there is recorded and stops the run."""
        offset = parse_offset(end, self._table_id)
        if self.definition.is_tracked and offset.is_barrier:
            self._adopt(self._commits.commit(offset.version))

    def close(self) -> None:
        self._planned = None
        self._held = None
        self._changes.forget_initial()

    def _changes_of(self, definition: StreamDefinition) -> StreamChanges:
        table = self._log.store.root_uri
        return StreamChanges(
            self._commits, definition, self._settings, table=table, snapshot_at=self._snapshot_at
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
        if settings.starting_timestamp is None:
            return None
        version = self._log.version_from(
            settings.starting_timestamp,
            can_exceed_latest=settings.is_tolerant,
            zone=settings.time_zone,
        )
        self._check_exists(version)
        return version

    def _check_exists(self, version: int) -> None:
        """Raise if a version is not in the log, or requires unsupported features of readers."""
        # The commit is enough: the whole version need not be reconstructible.
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

    def _first_of(self, start: str | None, last: DeltaSourceOffset) -> DeltaSourceOffset:
        """The start of the batch that ends at `last`, also of a stream's first batch."""
        if start is not None:
            return parse_offset(start, self._table_id)
        if self._settings.has_starting_options:
            first = self._starting_offset()
            return first if first.place <= last.place else last
        if last.is_initial:
            return self._offset(last.version, BASE_INDEX, is_initial=True)
        return self._offset(last.version - 1, BASE_INDEX, is_initial=True)

    # Changes of the table.

    def _check_current(self, snapshot: Snapshot) -> None:
        """Raise if the table changed between the query's analysis and its start."""
        if self._settings.reads_changes:
            check_recorded(snapshot.metadata, snapshot.version)
        if self.definition.is_tracked:
            return
        try:
            self.definition.check_followed(snapshot.metadata, snapshot.version)
        except StreamError as error:
            if error.condition not in _SCHEMA_CHANGED:
                raise
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART",
                querySchema=format_schema(self.definition.schema),
                tableSchema=format_schema(snapshot.metadata.schema),
            ) from None

    def _check_start(self, version: int) -> None:
        """Once a run, raise if earlier batches had a definition that this run's does not fit."""
        if self._is_checked:
            return
        self._is_checked = True
        definition, reads_changes = self.definition, self._settings.reads_changes
        try:
            snapshot: Snapshot | None = self._log.snapshot_at(version=version)
        except DeltaError:
            snapshot = None
        if snapshot is not None:
            # The table may have dropped deletion vectors between this version and the run.
            self._changes.keep_vectors(snapshot.protocol)
        if definition.is_tracked:
            if reads_changes:
                check_recorded(definition.metadata, definition.version)
            return
        if snapshot is None:
            if definition.metadata.configuration.get(MODE_KEY, "none") != "none":
                raise StreamError("DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT")
            return
        if reads_changes:
            check_recorded(snapshot.metadata, version)
        definition.check_followed(snapshot.metadata, snapshot.version)

    def _check_not_replaced(self) -> None:
        """Raise if another table was created at the same location."""
        if not self._commits.was_replaced:
            return
        self._commits.was_replaced = False
        table_id = self._log.update().metadata.id
        if table_id != self._table_id:
            raise StreamError(
                "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
                oldTableId=self._table_id,
                newTableId=table_id,
            )

    # The schema log.

    def _pending_change(self, begun: DeltaSourceOffset) -> DeltaSourceOffset | None:
        """The offset to stay at until a change of definition is adopted; None without a change."""
        # Spark commits an offset once it sees another one, hence the second position after a
        # change.
        if not self.definition.is_tracked or not begun.is_barrier:
            return None
        if begun.index == METADATA_CHANGE_INDEX:
            return replace(begun, index=POST_METADATA_CHANGE_INDEX)
        commit = self._commits.commit(begun.version)
        return begun if self.definition.is_barrier(commit) else None

    def _begin_tracking(self, first: int, last: int | None) -> None:
        """Write the first entry of an empty schema log, for versions `first` to `last`."""
        if self._schema_log is None or self._schema_log.current is not None:
            return
        # A stream from "latest" begins after the newest version.
        definition = VersionDefinition.of(
            self._load_snapshot(min(first, self._log.update().version))
        )
        if last is not None and last > first:
            for commit in self._commits.commits(first + 1, last):
                if commit.metadata is not None:
                    _check_one_schema(definition, commit.metadata, first, last)
                definition = definition.after(last, commit.metadata, commit.protocol)
            definition = replace(definition, version=last)
        self._write(definition)
        if self.definition.differs(definition):
            raise StreamError("DELTA_STREAMING_METADATA_EVOLUTION")
        self.definition = replace(self.definition, version=definition.version, is_tracked=True)
        self._changes = self._changes_of(self.definition)

    def _adopt(self, other: StreamCommit | Snapshot, *, replaces: bool = False) -> None:
        """Record another definition, and stop the run, if there is one."""
        if self.definition.differs(other):
            definition = self.definition.after(other.version, other.metadata, other.protocol)
            self._write(definition, replaces=replaces)
            raise StreamError("DELTA_STREAMING_METADATA_EVOLUTION")

    def _write(self, definition: VersionDefinition, *, replaces: bool = False) -> None:
        assert self._schema_log is not None
        entry = TrackedDefinition(
            table_id=self._table_id,
            version=definition.version,
            metadata=definition.metadata,
            protocol=definition.protocol,
            source_path=self._source_path,
        )
        self._schema_log.write(entry, replaces=replaces)

    # Files.

    def _snapshot_at(self, version: int) -> Snapshot:
        snapshot, self._held = self._held, None
        if snapshot is None or snapshot.version != version:
            snapshot = self._load_snapshot(version)
        if self.definition.is_tracked and version >= self.definition.version:
            self._adopt(snapshot, replaces=True)
        return snapshot

    def _load_snapshot(self, version: int) -> Snapshot:
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


def _check_one_schema(older: VersionDefinition, metadata: Metadata, first: int, last: int) -> None:
    newer = StreamDefinition(metadata=metadata, protocol=older.protocol, version=last)
    try:
        newer.check_followed(older.metadata, first)
    except StreamError:
        raise StreamError(
            "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA", a=first, b=last
        ) from None


def _without(run: FileRun, pattern: re.Pattern[str]) -> FileRun:
    if isinstance(run.rows, pa.Table):
        keeps = [pattern.search(path) is None for path in run.rows.column("path").to_pylist()]
        return replace(run, rows=run.rows.filter(pa.array(keeps, pa.bool_())))
    kept = [i for i, row in enumerate(run.rows) if pattern.search(row["path"]) is None]
    kinds = None if run.kinds is None else tuple(run.kinds[i] for i in kept)
    return replace(run, rows=[run.rows[i] for i in kept], kinds=kinds)
