"""`OptimisticTransaction`: reads of one version of a table, and a commit that depends on them.

A transaction reads one version and writes the next.  Reads are recorded as they happen; at the
commit, winners are checked against them.  Features are functions over a transaction, not methods
of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import ConcurrentWriteException, InvalidActionsError
from pyspark_delta.kernel.log.cleanup import YOUNGEST_MS
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, canonical_paths, file_key
from pyspark_delta.kernel.log.history import commit_info_of
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import Action, Metadata, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.operations import Operation, engine_info
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.plan import chosen_adds, select_files
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Predicate
from pyspark_delta.kernel.txn.commit import (
    Beaten,
    CommitSettings,
    Committed,
    Committer,
    FileSystemCommitter,
    Written,
    check_not_cleaned_up,
    commit,
)
from pyspark_delta.kernel.txn.commit_stats import Tally, log_commit
from pyspark_delta.kernel.txn.commit_stats import logger as stats_logger
from pyspark_delta.kernel.txn.conflicts import DOC_LINK
from pyspark_delta.kernel.txn.definition import Definition, defined
from pyspark_delta.kernel.txn.hooks import CommitEvent, HookRunner
from pyspark_delta.kernel.txn.isolation import IsolationLevel, as_operation
from pyspark_delta.kernel.txn.prepare import (
    Draft,
    as_large,
    definition_of,
    large_commit_chunks,
    prepare,
    written_aside,
)
from pyspark_delta.kernel.txn.prepared import PreparedCommit
from pyspark_delta.kernel.txn.reads import READ_SCHEMA, Read, ReadSet, RowsOfFile

logger = logging.getLogger(__name__)

# A transaction older than this lists the log before its first attempt: the clean-up of a busy
# table may have deleted the commit with the name it would create.  No clean-up deletes commits
# that are younger, even with skewed clocks.
_OLD_MS = YOUNGEST_MS // 2


class OptimisticTransaction:
    """One read of a table and at most one commit to it.

    `snapshot` is None for a table that does not exist yet: the commit then creates it.  After a
    CommitStateUnknownError the same commit may be tried again: one in the log is recognised.
    """

    def __init__(
        self,
        log: TableLog,
        snapshot: Snapshot | None,
        *,
        committer: Committer | None = None,
        hooks: HookRunner | None = None,
        new_uuid: Callable[[], str] = random_uuid,
        engine: str | None = None,
        settings: CommitSettings | None = None,
        hook_seconds: float = 0.0,
        time_zone: str = "UTC",
    ) -> None:
        self.log = log
        self.snapshot = snapshot
        self.txn_id = new_uuid()
        self._committer = committer or FileSystemCommitter(log.store)
        self._hooks = hooks
        self._new_uuid = new_uuid
        self._engine = engine or engine_info()
        self._settings = settings or CommitSettings()
        self._hook_seconds = hook_seconds
        self._started_ms = log.now_ms()
        self._old: Definition | None = definition_of(snapshot)
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self.reads = ReadSet(root_uri=log.store.root_uri, time_zone=time_zone)
        self._is_removal_valid: Callable[[int], bool] | None = None
        self.committed_version: int | None = None

    @property
    def read_version(self) -> int:
        """The version that this transaction reads; -1 for a new table."""
        return -1 if self.snapshot is None else self.snapshot.version

    @property
    def delta_log(self) -> TableLog:
        """The log of the table, by delta-spark's name."""
        return self.log

    @property
    def time_zone(self) -> str:
        """The zone of timestamps without one among partition values."""
        return self.reads.time_zone

    @property
    def skips_by_stats(self) -> bool:
        """Whether statistics may rule out files when a predicate selects some."""
        return self._settings.skips_by_stats

    @property
    def metadata(self) -> Metadata:
        """The table's metadata as the commit will leave it."""
        return self._metadata or self._present.metadata

    @property
    def protocol(self) -> Protocol:
        """The table's protocol as the commit will leave it."""
        return self._protocol or self._present.protocol

    @property
    def _present(self) -> Definition:
        if self._old is None:
            raise InvalidActionsError("DELTA_METADATA_ABSENT")
        return self._old

    @property
    def schema(self) -> StructType:
        """The table's schema as the commit will leave it."""
        return self.metadata.schema

    # Reading.

    def filter_files(
        self,
        predicate: Predicate | BoundPredicate | None = None,
        *,
        by_row: bool = False,
        narrow: Callable[[], Predicate] | None = None,
    ) -> pa.Table:
        """The live files that may hold rows for which `predicate` is true; all without one.

        From here on the commit depends on these files, and on no row being added for which the
        predicate is true.  With `by_row` it depends only on those rows of the files that
        `touch_rows` records: that is for commands that decide about each row by itself, and
        ignore rows for which the predicate is not true.  `narrow` returns a further predicate,
        and the command ignores rows for which that is not true; it is called only when a
        conflict depends on it.
        """
        files = ADD_SCHEMA.empty_table()
        if self.snapshot is not None:
            files = select_files(
                self.snapshot,
                TRUE if predicate is None else predicate,
                time_zone=self.time_zone,
                by_stats=self.skips_by_stats,
            )
        self.record_read(predicate, files, by_row=by_row, narrow=narrow)
        return files

    def record_read(
        self,
        predicate: Predicate | BoundPredicate | None,
        files: pa.Table,
        *,
        by_row: bool = False,
        narrow: Callable[[], Predicate] | None = None,
    ) -> None:
        """Record a read of this snapshot by other code: a predicate and the selected files."""
        if isinstance(predicate, BoundPredicate):
            predicate = predicate.predicate
        condition = TRUE if predicate is None else predicate
        self._record(Read(predicate=condition, files=files, by_row=by_row, narrow=narrow))

    def touch_rows(
        self,
        changed: Mapping[str, DeletionVector],
        *,
        needed: Mapping[str, DeletionVector] | None = None,
    ) -> None:
        """Record the rows that the commit deletes from files by vectors, by the paths of the log.

        Another commit that deletes other rows of such a file is then no conflict, as far as the
        file was read `by_row`: this commit's vector is merged with the other one.  `needed`
        are unchanged rows that affected the command's result: in a MERGE that inserts, rows that
        matched a row of the source but no clause.
        """
        self._check_open()
        touched = dict(self.reads.touched)

        def add(path: str, rows: RowsOfFile) -> None:
            key = file_key(path, None, self.reads.root_uri)
            touched[key] = touched.get(key, RowsOfFile()).union(rows)

        for path, rows in changed.items():
            add(path, RowsOfFile(changed=rows))
        for path, rows in (needed or {}).items():
            add(path, RowsOfFile(needed=rows))
        self.reads = replace(self.reads, touched=touched)

    def read_files(self, paths: Iterable[str]) -> pa.Table:
        """The live files of these paths, as in the log; the commit depends on them from here on."""
        if self.snapshot is None:
            return ADD_SCHEMA.empty_table()
        root_uri = self.log.store.root_uri
        wanted = canonical_paths(pa.array(paths, pa.string()), root_uri)

        def is_named(files: pa.Table) -> pa.BooleanArray:
            names = canonical_paths(files.column("path").combine_chunks(), root_uri)
            return pc.is_in(names, value_set=wanted)

        found = chosen_adds(self.snapshot, ["path"], is_named)
        self._record(Read(predicate=None, files=found))
        return found

    def read_whole_table(self) -> None:
        """Depend on every file: no other commit may add or remove one."""
        self._record(Read(predicate=TRUE, files=READ_SCHEMA.empty_table()))
        self.reads = replace(self.reads, whole_table=True)

    def txn_version(self, app_id: str) -> int:
        """The last version that an application committed, -1 for none; recorded as a read."""
        self.reads = replace(self.reads, app_ids=self.reads.app_ids | {app_id})
        found = None if self.snapshot is None else self.snapshot.transactions.get(app_id)
        return -1 if found is None else found.version

    def _record(self, read: Read) -> None:
        read = replace(read, files=read.files.select(READ_SCHEMA.names))
        self.reads = replace(self.reads, reads=(*self.reads.reads, read))

    # Changing the definition.

    def update_metadata(
        self, metadata: Metadata, *, replaces_table: bool = False, removes_mapping: bool = False
    ) -> None:
        """Commit other metadata, once in a transaction and before files are written for it.

        The metadata is completed (column ids, hidden columns) and the protocol raised as far as
        it needs; `metadata` and `protocol` show the result.
        """
        self._check_open()
        if self._metadata is not None:
            raise InvalidActionsError(
                "DELTA_INVALID_COMMIT_ACTIONS", reason="Metadata can change once in a commit"
            )
        new = defined(
            self._old,
            metadata,
            protocol=self._protocol,
            table=self.log.store.root_uri,
            new_uuid=self._new_uuid,
            replaces_table=replaces_table,
            removes_mapping=removes_mapping,
            drops_features=True,  # the commit checks whether the operation may
        )
        self._metadata, self._protocol = new.metadata, new.protocol

    def move_identity_marks(self, metadata: Metadata) -> None:
        """Commit the present metadata with marks of identity columns advanced to those of files."""
        self._check_open()
        self._metadata, self._protocol = metadata, self.protocol

    def update_protocol(
        self, protocol: Protocol, *, is_removal_valid: Callable[[int], bool] | None = None
    ) -> None:
        """Commit another protocol; only the operation DROP FEATURE may lower it.

        `is_removal_valid` checks at a later version that a dropped feature is not in use there.
        """
        self._check_open()
        self._protocol = protocol
        self._is_removal_valid = is_removal_valid

    # Committing.

    def commit(
        self,
        actions: Iterable[Action],
        operation: Operation | str,
        tags: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        *,
        metrics: Mapping[str, object] | None = None,
    ) -> Committed:
        """Make `actions` the next version that is free, if no commit before it conflicts."""
        return self._commit(self._prepared(actions, operation, tags, user_metadata, metrics))

    def commit_if_needed(
        self,
        actions: Iterable[Action],
        operation: Operation | str,
        tags: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        *,
        metrics: Mapping[str, object] | None = None,
    ) -> Committed | None:
        """As `commit`; None, and nothing written, when nothing must be recorded."""
        prepared = self._prepared(actions, operation, tags, user_metadata, metrics)
        # Under WriteSerializable an empty commit, too, marks the place of a read in the order.
        if not prepared.actions and prepared.isolation is not IsolationLevel.WRITE_SERIALIZABLE:
            return None
        return self._commit(prepared)

    def commit_large(
        self,
        actions: Iterator[Action],
        operation: Operation | str,
        tags: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        *,
        metrics: Mapping[str, object] | None = None,
        protocol: Protocol | None = None,
    ) -> Committed:
        """Commit more actions than memory holds, as CONVERT, CLONE and RESTORE do.

        Actions are checked one by one and streamed into the next version; `update_metadata` comes
        first, and a given `protocol` is recorded even if the table has it already.
        The table is not touched before the last action is made.
        There is no conflict check: any other commit meanwhile raises ConcurrentWriteException.
        """
        given = () if protocol is None else (protocol,)
        prepared = as_large(self._prepared(given, operation, tags, user_metadata, metrics))
        tally = Tally()
        with written_aside(large_commit_chunks(prepared, actions, tally)) as chunks:
            if self.read_version >= 0:
                self._check_age()
            outcome = self._committer.commit(prepared.version, chunks, self.txn_id)
        match outcome:
            case Committed() as done:
                return self._finish(Written(committed=done, prepared=prepared, data=None), tally)
            case Beaten() as beaten:
                info = commit_info_of(beaten.info.path, beaten.data)
                raise ConcurrentWriteException(
                    "DELTA_CONCURRENT_WRITE",
                    conflictingCommit="unknown" if info is None else info.json,
                    docLink=DOC_LINK,
                )

    def _prepared(
        self,
        actions: Iterable[Action],
        operation: Operation | str,
        tags: Mapping[str, str] | None,
        user_metadata: str | None,
        metrics: Mapping[str, object] | None,
    ) -> PreparedCommit:
        actions = tuple(actions)
        self._check_open()
        draft = Draft(
            txn_id=self.txn_id,
            snapshot=self.snapshot,
            reads=self.reads,
            metadata=self._metadata,
            protocol=self._protocol,
            actions=actions,
            operation=as_operation(operation),
            metrics=(metrics or {}) if self._settings.records_metrics else {},
            tags=tags or {},
            user_metadata=user_metadata,
            engine_info=self._engine,
            now_ms=self.log.now_ms(),
            new_uuid=self._new_uuid,
            is_removal_valid=self._is_removal_valid,
        )
        return prepare(draft)

    def _commit(self, prepared: PreparedCommit) -> Committed:
        self._check_age()
        written = commit(
            prepared,
            self._committer,
            self.log.store,
            attempts=self._settings.attempts,
            now_ms=self.log.now_ms,
            new_uuid=self._new_uuid,
        )
        return self._finish(written)

    def _check_age(self) -> None:
        if self.log.now_ms() - self._started_ms >= _OLD_MS:
            check_not_cleaned_up(self.log.store, self.read_version)

    def _finish(self, written: Written, tally: Tally | None = None) -> Committed:
        done = written.committed
        self.committed_version = done.version
        self._log_stats(written, tally)
        snapshot = self._advance(done.version, written.data)
        if done.interrupted is not None:
            raise done.interrupted
        self._submit_hooks(written, snapshot)
        return done

    def _log_stats(self, written: Written, tally: Tally | None) -> None:
        if not stats_logger.isEnabledFor(logging.INFO):
            return
        # The commit is done, whatever a logging handler or filter raises.
        with suppress(Exception):
            log_commit(
                written.prepared,
                tally or Tally(written.committed.actions, written.data),
                version=written.committed.version,
                start_version=self.read_version,
                attempts=written.attempts,
                started_ms=self._started_ms,
                now_ms=self.log.now_ms(),
            )

    def _submit_hooks(self, written: Written, snapshot: Snapshot | None) -> None:
        if self._hooks is None:
            return
        event = CommitEvent(
            log=self.log,
            version=written.committed.version,
            protocol=written.prepared.protocol,
            metadata=written.prepared.metadata,
            actions=written.committed.actions,
            snapshot=snapshot,
            settings=self._settings,
        )
        try:
            self._hooks.submit(event)
            if self._hook_seconds > 0:
                self._hooks.wait_for(event, self._hook_seconds)
        except Exception as error:  # a process that is exiting cannot start a thread
            logger.warning("nothing runs after version %d: %s", event.version, error)

    def _advance(self, version: int, data: bytes | None) -> Snapshot | None:
        """The snapshot of `version`; None if the log is further, or if reading it fails."""
        try:
            latest = self.log.update() if data is None else self.log.advance(version, data)
        except Exception as error:
            logger.warning("version %d is committed, but cannot be read yet: %s", version, error)
            return None
        return latest if latest.version == version else None

    def _check_open(self) -> None:
        if self.committed_version is not None:
            raise InvalidActionsError(
                "DELTA_TRANSACTION_ALREADY_COMMITTED", version=self.committed_version
            )

    def __repr__(self) -> str:
        uri, version = self.log.store.root_uri, self.read_version
        return f"OptimisticTransaction({uri!r}, read_version={version})"
