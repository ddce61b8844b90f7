"""`Snapshot`: one version of a table, immutable, loaded as far as somebody asks.

Protocol and metadata come from a version checksum where there is one; the file list is Arrow and
its columns are fetched when they are named.  A broken checkpoint is left aside for an older one
or for the commits themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import CorruptLogError
from pyspark_delta.kernel.log.action_frame import ActionFrame
from pyspark_delta.kernel.log.checkpoint_reader import (
    Checkpoint,
    checkpoint_parts,
    checkpoint_removes,
    open_checkpoint,
)
from pyspark_delta.kernel.log.checksum import VersionChecksum, is_same, read_checksum
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, REMOVE_SCHEMA, file_keys
from pyspark_delta.kernel.log.integrity import INTEGRITY, check_version
from pyspark_delta.kernel.log.json_frames import frames_from_commits
from pyspark_delta.kernel.log.replay import FileState, replay
from pyspark_delta.kernel.log.segment import (
    LogFile,
    LogListing,
    LogSegment,
    choose_segment,
    list_log_for,
    load_segment,
)
from pyspark_delta.kernel.log.table_state import TableState
from pyspark_delta.kernel.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.features import check_readable
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    TRANSACTION_RETENTION,
    property_value,
)
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.storage.base import LogStore

logger = logging.getLogger(__name__)

# So many frames may wait before they are folded into the file state unasked.
_MOST_PENDING_FRAMES = 64
_T = TypeVar("_T")


class Snapshot:
    """A table at one version.

    `files` is every live file as an Arrow table; `files_with` gives only the columns named, which
    spares reading statistics that nobody looks at; `adds` is what add actions are made of.
    """

    def __init__(
        self,
        store: LogStore,
        last: LogFile,
        version: int,
        *,
        now_ms: Callable[[], int],
        segment: LogSegment | None = None,
        checksum: VersionChecksum | None = None,
        in_commit_timestamp: int | None = None,
        verify: bool = True,
    ) -> None:
        self.store = store
        self.version = version
        self._last = last
        self._now_ms = now_ms
        self._segment_found = segment
        self._checksum = checksum
        self._in_commit_timestamp = in_commit_timestamp
        self._verifies = verify
        self._looks_for_checksum = False
        self._lock = RLock()
        self._broken: set[str] = set()
        self._state: TableState | None = None
        self._pending: tuple[FileState, tuple[ActionFrame, ...]] | None = None
        self._file_state: FileState | None = None
        self._frames: tuple[ActionFrame, ...] | None = None
        self._checkpoint: Checkpoint | None = None

    @classmethod
    def load(
        cls,
        store: LogStore,
        version: int | None = None,
        *,
        now_ms: Callable[[], int],
        listing: LogListing | None = None,
        verify: bool = True,
    ) -> Self:
        """The snapshot of `version`, or of the newest, from what the log directory holds.

        `listing` is one of `list_log_for`, for who has it already.  Without `verify` no checksum
        file is read, neither as a short cut nor to hold the log against it.
        """
        if listing is None:
            listing = list_log_for(store, version)
        segment = choose_segment(store, listing, version)
        checksum = None
        if verify and segment.checksum is not None and segment.checksum.version == segment.version:
            checksum = read_checksum(store, segment.version)
        snapshot = cls(
            store,
            segment.last,
            segment.version,
            now_ms=now_ms,
            segment=segment,
            checksum=checksum,
            verify=verify,
        )
        check_readable(snapshot.protocol, store.root_uri)
        return snapshot

    def then(
        self,
        commit: LogFile,
        frame: ActionFrame,
        in_commit_timestamp: int | None = None,
        *,
        may_have_checksum: bool = False,
    ) -> Self:
        """The snapshot of a newer version, given the frame of all commits in between.

        `may_have_checksum` for commits of others, which its files are held against when they are
        needed.
        """
        newer = type(self)(
            self.store,
            commit,
            commit.version,
            now_ms=self._now_ms,
            in_commit_timestamp=in_commit_timestamp,
            verify=self._verifies,
        )
        with self._lock:
            # What a checksum gave can stand in for replay only while it holds everything.
            if self._state is None and self._checksum is not None:
                self._state = _state_of_checksum(self._checksum)
            if self._state is not None:
                newer._state = self._state.apply(frame.others)
            base, frames = self._pending or (self._file_state, ())
            if base is not None:
                newer._pending = (base, (*frames, frame))
                # A commit that was not checked is still pending.
                is_unchecked = self._pending is not None and self._looks_for_checksum
                newer._looks_for_checksum = self._verifies and (may_have_checksum or is_unchecked)
                if len(frames) >= _MOST_PENDING_FRAMES:
                    newer._pending = (_folded(*newer._pending), ())
        if any(isinstance(action, Protocol) for action in frame.others):
            check_readable(newer.protocol, self.store.root_uri)
        return newer

    # What the table is.

    @property
    def protocol(self) -> Protocol:
        """What a client must understand to use the table."""
        return self._protocol_and_metadata()[0]

    @property
    def metadata(self) -> Metadata:
        """Schema, partitioning and properties."""
        return self._protocol_and_metadata()[1]

    @property
    def schema(self) -> StructType:
        """The table's schema, partition columns included."""
        return self.metadata.schema

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        """The last transaction of each application, but for those the table lets expire."""
        found = self._table_state().transactions
        retention = property_value(self.metadata.configuration, TRANSACTION_RETENTION)
        if retention is None:
            return found
        oldest = self._now_ms() - retention
        return {
            app_id: txn
            for app_id, txn in found.items()
            if txn.last_updated is None or txn.last_updated > oldest
        }

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The live domain metadata."""
        return self._table_state().live_domains

    @property
    def timestamp(self) -> int:
        """When the version was made, in ms: its in-commit timestamp, else its file's time."""
        if property_value(self.metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
            with self._lock:
                if self._in_commit_timestamp is None:
                    self._in_commit_timestamp = self._read_in_commit_timestamp()
                return self._in_commit_timestamp
        return self._last.info.modified_ms

    # Its files.

    @property
    def files(self) -> pa.Table:
        """Every live file, with all columns of an add action, as the log has them.

        A checkpoint may have statistics in types alone; `stats` is null then, for the text of
        millions of files takes longer to make, and more memory, than all else of them.
        """
        return self._without_broken_checkpoints(lambda: self.file_state.columns(ADD_SCHEMA.names))

    @property
    def adds(self) -> pa.Table:
        """As `files`, with all statistics as text: the whole of what add actions say."""
        return self.files_with(ADD_SCHEMA.names)

    def files_with(self, columns: Sequence[str]) -> pa.Table:
        """Every live file, with the add columns named, and all statistics as text."""
        return self._without_broken_checkpoints(lambda: self.file_state.complete(columns))

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return self.file_state.num_files

    @property
    def size_in_bytes(self) -> int:
        """The sum of the live files' sizes."""
        return self._without_broken_checkpoints(lambda: self.file_state.size_in_bytes)

    @property
    def file_state(self) -> FileState:
        """The live files as replay keeps them."""
        return self._without_broken_checkpoints(self._resolved_files)

    def tombstones(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The removed files that the log still knows, newest removal of each."""
        names = REMOVE_SCHEMA.names if columns is None else list(columns)
        return self._without_broken_checkpoints(self._read_tombstones).select(names)

    @property
    def segment(self) -> LogSegment:
        """The log files that make this version."""
        with self._lock:
            if self._segment_found is None:
                self._segment_found = load_segment(
                    self.store, self.version, broken=frozenset(self._broken)
                )
            return self._segment_found

    @property
    def last_commit(self) -> LogFile:
        """The file that made this version."""
        return self._last

    @property
    def is_loaded(self) -> bool:
        """Whether the file state is in memory, so that asking for it costs no I/O."""
        return self._file_state is not None or self._pending is not None

    def __repr__(self) -> str:
        return f"Snapshot({self.store.root_uri!r}, version={self.version})"

    def _repr_html_(self) -> str:
        rows = {
            "version": self.version,
            "files": self.num_files,
            "bytes": self.size_in_bytes,
            "partitioned by": ", ".join(self.metadata.partition_columns) or "nothing",
            "columns": ", ".join(self.schema.names),
        }
        cells = "".join(f"<tr><th>{key}</th><td>{_escaped(v)}</td></tr>" for key, v in rows.items())
        return f"<table><caption>{_escaped(self.store.root_uri)}</caption>{cells}</table>"

    # Loading.

    def _protocol_and_metadata(self) -> tuple[Protocol, Metadata]:
        with self._lock:
            if self._state is not None:
                return self._state.checked(self.version)
            checksum = self._checksum
            if checksum is not None and checksum.protocol and checksum.metadata:
                return checksum.protocol, checksum.metadata
            return self._table_state().checked(self.version)

    def _table_state(self) -> TableState:
        with self._lock:
            if self._state is None:
                known = None if self._checksum is None else _state_of_checksum(self._checksum)
                self._state = known or self._without_broken_checkpoints(self._replayed_state)
            return self._state

    def _replayed_state(self) -> TableState:
        state = TableState()
        checkpoint = self._opened_checkpoint()
        if checkpoint is not None:
            state = state.apply(checkpoint.state_actions)
        for frame in self._read_frames():
            state = state.apply(frame.others)
        return state

    def _resolved_files(self) -> FileState:
        with self._lock:
            if self._file_state is None:
                if self._pending is not None:
                    base = _folded(*self._pending)
                    if self._looks_for_checksum:
                        self._checksum = read_checksum(self.store, self.version)
                        self._verify(self._state, base)
                    self._file_state, self._pending = base, None
                else:
                    self._file_state = self._replayed_files()
                    self._frames = None
            return self._file_state

    def _replayed_files(self) -> FileState:
        checkpoint = self._opened_checkpoint()
        parts = [] if checkpoint is None else checkpoint_parts(self.store, checkpoint)
        files = replay(parts, self._read_frames())
        state = self._replayed_state()
        known = self.segment.checksum
        if self._verifies and self._checksum is None and known and known.version == self.version:
            self._checksum = read_checksum(self.store, self.version)
        self._verify(state, files)
        self._state = state
        return files

    def _read_frames(self) -> tuple[ActionFrame, ...]:
        if self._frames is None:
            paths = [file.info.path for file in self.segment.replay]
            commits = zip(paths, self.store.read_many(paths), strict=True)
            self._frames = tuple(frames_from_commits(commits, self.store.root_uri))
        return self._frames

    def _opened_checkpoint(self) -> Checkpoint | None:
        files = self.segment.checkpoint
        if files is not None and self._checkpoint is None:
            self._checkpoint = open_checkpoint(self.store, files)
        return self._checkpoint

    def _read_tombstones(self) -> pa.Table:
        """Tombstones of a fresh segment: they are not kept in memory, and few ask for them."""
        segment = load_segment(self.store, self.version, broken=frozenset(self._broken))
        root_uri = self.store.root_uri
        table = REMOVE_SCHEMA.empty_table()
        if segment.checkpoint is not None:
            table = checkpoint_removes(self.store, open_checkpoint(self.store, segment.checkpoint))
        paths = [file.info.path for file in segment.replay]
        contents = self.store.read_many(paths)
        if not table.num_rows and not any(b'"remove"' in data for data in contents):
            return table  # all that commits could do is take tombstones back
        commits = zip(paths, contents, strict=True)
        for frame in map(ActionFrame.reconciled, frames_from_commits(commits, root_uri)):
            known = pc.is_in(file_keys(table, root_uri), value_set=frame.keys)
            table = pa.concat_tables([table.filter(pc.invert(known)), frame.removes])
        return table

    def _read_in_commit_timestamp(self) -> int:
        if self._checksum is not None and self._checksum.in_commit_timestamp is not None:
            return self._checksum.in_commit_timestamp
        info = commit_info_of(self._last.info.path, self.store.read(self._last.info.path))
        if info is None or info.in_commit_timestamp is None:
            raise CorruptLogError(
                "DELTA_MISSING_COMMIT_TIMESTAMP"
                if info is not None
                else "DELTA_MISSING_COMMIT_INFO",
                featureName="inCommitTimestamp",
                version=self.version,
            )
        return info.in_commit_timestamp

    def _verify(self, state: TableState | None, files: FileState) -> None:
        """Hold the log against the checksum file; CorruptLogError names what is damaged."""
        try:
            if self._checksum is not None:
                check_version(
                    self.store, self.version, self._checksum, state, files, broken=self._broken
                )
            # What an older checksum file gave, and a refresh went on from, must hold as well.
            for name in ("protocol", "metadata"):
                said, found = getattr(self._state, name, None), getattr(state, name, None)
                if said is not None and not is_same(said, found):
                    raise CorruptLogError(
                        INTEGRITY,
                        version=self.version,
                        mismatchStringOpt=f"its {name} differs from that of a checksum file",
                    )
        except CorruptLogError:
            # Once the file is restored, the log is to be read anew.
            self._checkpoint = self._frames = self._pending = None
            raise

    def _without_broken_checkpoints(self, load: Callable[[], _T]) -> _T:
        """`load()`, again without each checkpoint that turns out to be broken."""
        with self._lock:
            while True:
                try:
                    return load()
                except CorruptLogError as error:
                    if error.condition != "DELTA_MALFORMED_CHECKPOINT":
                        raise
                    self._give_up_checkpoint(error)

    def _give_up_checkpoint(self, error: CorruptLogError) -> None:
        files = self.segment.checkpoint
        broken = {error.parameters["path"]}
        if files is not None:
            broken |= {file.info.path for file in files.files}
        if broken <= self._broken:
            raise error
        self._broken |= broken
        try:
            self._segment_found = load_segment(
                self.store, self.version, broken=frozenset(self._broken)
            )
        except DeltaError:
            raise error from None
        logger.warning("going on without a broken checkpoint: %s", error)
        self._checkpoint = self._frames = self._file_state = self._pending = self._state = None


def _state_of_checksum(checksum: VersionChecksum) -> TableState | None:
    """The whole table state, when the checksum file holds all of it."""
    if checksum.protocol is None or checksum.metadata is None:
        return None
    if checksum.set_transactions is None or checksum.domain_metadata is None:
        return None
    return TableState(
        checksum.protocol,
        checksum.metadata,
        {txn.app_id: txn for txn in checksum.set_transactions},
        {domain.domain: domain for domain in checksum.domain_metadata},
    )


def _folded(base: FileState, frames: tuple[ActionFrame, ...]) -> FileState:
    for frame in frames:
        base = base.apply(frame)
    return base


def _escaped(value: object) -> str:
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
