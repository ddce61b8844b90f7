"""`OptimisticTransaction`: what was read, what will be written, and the commit that ties them.

A transaction reads one version and writes the next.  Reads are recorded as they happen; at the
commit, whoever got in first is checked against them.  Features are functions over a transaction,
not methods of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.conflicts import ConcurrentWriteException
from pyspark_delta.errors.table import InvalidActionsError
from pyspark_delta.kernel.log.cleanup import YOUNGEST_MS
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, canonical_paths, file_key
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.protocol.actions import Action, Metadata, Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.operations import Operation, engine_info
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.binding import BoundPredicate
from pyspark_delta.kernel.scan.plan import chosen_adds, select_files
from pyspark_delta.kernel.scan.predicates import TRUE, Predicate
from pyspark_delta.kernel.txn.commit import (
    CommitSettings,
    Written,
    check_not_cleaned_up,
    commit,
)
from pyspark_delta.kernel.txn.commit_stats import Tally, is_wanted, log_commit, tally_of
from pyspark_delta.kernel.txn.committer import (
    Beaten,
    Committed,
    Committer,
    FileSystemCommitter,
)
from pyspark_delta.kernel.txn.conflicts import DOC_LINK
from pyspark_delta.kernel.txn.definition import Definition, defined
from pyspark_delta.kernel.txn.hooks import CommitEvent, HookRunner
from pyspark_delta.kernel.txn.isolation import can_skip_empty
from pyspark_delta.kernel.txn.large_commit import as_large, large_commit_chunks, written_aside
from pyspark_delta.kernel.txn.prepare import Draft, definition_of, prepare
from pyspark_delta.kernel.txn.prepared import PreparedCommit
from pyspark_delta.kernel.txn.reads import READ_SCHEMA, Read, ReadSet, TouchedRows
from pyspark_delta.kernel.txn.traits import as_operation

logger = logging.getLogger(__name__)

# A transaction older than this looks at the log before its first attempt: the clean-up of a busy
# table may have freed the very name it would take.  No clean-up comes sooner, whatever the clocks.
_OLD_MS = YOUNGEST_MS // 2


def _columns_read(files: pa.Table) -> pa.Table:
    return files.select(READ_SCHEMA.names)


class OptimisticTransaction:
    """One read of a table and at most one commit to it.

    `snapshot` is None for a table that does not exist yet: the commit then creates it.  After a
    CommitStateUnknownError the same commit may be tried again: one that stands is recognised.
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
        self._reads = ReadSet(root_uri=log.store.root_uri, time_zone=time_zone)
        self._is_removal_valid: Callable[[int], bool] | None = None
        self.committed_version: int | None = None

    @property
    def read_version(self) -> int:
        """The version that this transaction reads; -1 when there is none yet."""
        return -1 if self.snapshot is None else self.snapshot.version

    @property
    def delta_log(self) -> TableLog:
        """The log of the table."""
        return self.log

    @property
    def time_zone(self) -> str:
        """The zone of timestamps among partition values that do not say theirs."""
        return self._reads.time_zone

    @property
    def metadata(self) -> Metadata:
        """The table's metadata as the commit will leave it."""
        if self._metadata is not None:
            return self._metadata
        if self._old is None:
            raise InvalidActionsError("DELTA_METADATA_ABSENT")
        return self._old.metadata

    @property
    def protocol(self) -> Protocol:
        """The table's protocol as the commit will leave it."""
        if self._protocol is not None:
            return self._protocol
        if self._old is None:
            raise InvalidActionsError("DELTA_METADATA_ABSENT")
        return self._old.protocol

    @property
    def schema(self) -> StructType:
        """The table's schema as the commit will leave it."""
        return self.metadata.schema

    @property
    def reads(self) -> ReadSet:
        """What was read so far."""
        return self._reads

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
        predicate is true.  With `by_row` it depends, of the files, on the rows in `touch_rows`
        and no others: that is for commands which judge each row by itself, and to which a row for
        which the predicate is not true means nothing.  `narrow` gives another predicate, without
        which a row means nothing either; it is asked when a conflict hangs on it.
        """
        files = ADD_SCHEMA.empty_table()
        if self.snapshot is not None:
            asked = TRUE if predicate is None else predicate
            files = select_files(self.snapshot, asked, time_zone=self.time_zone)
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
        """Note a read that somebody else made of this snapshot: a predicate and what it gave."""
        if isinstance(predicate, BoundPredicate):
            predicate = predicate.predicate
        condition = TRUE if predicate is None else predicate
        found = _columns_read(files)
        self._record(Read(predicate=condition, files=found, by_row=by_row, narrow=narrow))

    def touch_rows(
        self,
        changed: Mapping[str, DeletionVector],
        *,
        needed: Mapping[str, DeletionVector] | None = None,
    ) -> None:
        """Tell which rows the commit takes out of files by vectors, by the paths of the log.

        Another commit that takes other rows out of such a file is then no conflict, as far as the
        file was read `by_row`: this commit's vector is put together with the other one.  `needed`
        are rows that are left as they are, but decided what the command did: in a MERGE that
        inserts, rows that matched a row of the source and that no clause was for.
        """
        self._check_open()
        known = dict(self._reads.touched)
        for path, rows in changed.items():
            key = file_key(path, None, self._reads.root_uri)
            before = known.get(key, TouchedRows())
            known[key] = replace(before, changed=before.changed.union(rows))
        for path, rows in (needed or {}).items():
            key = file_key(path, None, self._reads.root_uri)
            before = known.get(key, TouchedRows())
            known[key] = replace(before, needed=before.needed.union(rows))
        self._reads = replace(self._reads, touched=known)

    def read_files(self, paths: Iterable[str]) -> pa.Table:
        """The live files of these paths, as the log spells them, which are read from here on."""
        if self.snapshot is None:
            return ADD_SCHEMA.empty_table()
        root_uri = self.log.store.root_uri
        wanted = canonical_paths(pa.array(paths, pa.string()), root_uri)

        def is_wanted(files: pa.Table) -> pa.BooleanArray:
            names = canonical_paths(files.column("path").combine_chunks(), root_uri)
            return pc.is_in(names, value_set=wanted)

        found = chosen_adds(self.snapshot, ["path"], is_wanted)
        self._record(Read(predicate=None, files=_columns_read(found)))
        return found

    def read_whole_table(self) -> None:
        """Depend on every file: no other commit may add or remove one."""
        self._record(Read(predicate=TRUE, files=READ_SCHEMA.empty_table()))
        self._reads = replace(self._reads, whole_table=True)

    def txn_version(self, app_id: str) -> int:
        """The last version that an application committed, -1 for none; it is read from here on."""
        self._reads = replace(self._reads, app_ids=self._reads.app_ids | {app_id})
        found = None if self.snapshot is None else self.snapshot.transactions.get(app_id)
        return -1 if found is None else found.version

    def _record(self, read: Read) -> None:
        self._reads = replace(self._reads, reads=(*self._reads.reads, read))

    # Changing what the table is.

    def update_metadata(
        self,
        metadata: Metadata,
        *,
        replaces_table: bool = False,
        removes_mapping: bool = False,
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
            drops_features=True,  # whether the operation may is known at the commit
        )
        self._metadata, self._protocol = new.metadata, new.protocol

    def move_identity_marks(self, metadata: Metadata) -> None:
        """Commit the metadata as it is, but for marks of identity columns that files reached."""
        self._check_open()
        protocol = self.protocol
        self._metadata, self._protocol = metadata, protocol

    def update_protocol(
        self, protocol: Protocol, *, is_removal_valid: Callable[[int], bool] | None = None
    ) -> None:
        """Commit another protocol; lowering it is for the operation DROP FEATURE alone.

        `is_removal_valid` looks at a later version whether a dropped feature is out of use there.
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
        draft = self._draft(tuple(actions), operation, tags, user_metadata, metrics)
        return self._commit(prepare(draft))

    def commit_if_needed(
        self,
        actions: Iterable[Action],
        operation: Operation | str,
        tags: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        *,
        metrics: Mapping[str, object] | None = None,
    ) -> Committed | None:
        """As `commit`; None, and nothing written, when there is nothing that must be recorded."""
        draft = self._draft(tuple(actions), operation, tags, user_metadata, metrics)
        prepared = prepare(draft)
        if not prepared.actions and can_skip_empty(prepared.isolation):
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
        first, and a `protocol` that is given is recorded even if the table has it already.
        The table is not touched before the last of them is made.
        There is no conflict check: a version that somebody else makes meanwhile raises
        ConcurrentWriteException.
        """
        given = () if protocol is None else (protocol,)
        draft = self._draft(given, operation, tags, user_metadata, metrics)
        prepared = as_large(prepare(draft))
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

    def _draft(
        self,
        actions: tuple[Action, ...],
        operation: Operation | str,
        tags: Mapping[str, str] | None,
        user_metadata: str | None,
        metrics: Mapping[str, object] | None,
    ) -> Draft:
        self._check_open()
        return Draft(
            txn_id=self.txn_id,
            snapshot=self.snapshot,
            reads=self._reads,
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
        """Note the commit, tell of it, move the log on and leave the rest to the hooks."""
        done = written.committed
        self.committed_version = done.version
        self._log_stats(written, tally)
        snapshot = self._advance(done.version, written.data)
        if done.interrupted is not None:
            raise done.interrupted
        self._submit_hooks(written, snapshot)
        return done

    def _log_stats(self, written: Written, tally: Tally | None) -> None:
        if not is_wanted():
            return
        # The commit stands, whatever a handler or a filter of the program's raises.
        with suppress(Exception):
            log_commit(
                written.prepared,
                tally or tally_of(written.committed.actions, written.data),
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
        except Exception as error:  # a process that ends can start no thread
            logger.warning("nothing runs after version %d: %s", event.version, error)

    def _advance(self, version: int, data: bytes | None) -> Snapshot | None:
        """The table at `version`; None when it is further, or cannot be had: the commit stands."""
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
        return (
            f"OptimisticTransaction({self.log.store.root_uri!r}, read_version={self.read_version})"
        )
