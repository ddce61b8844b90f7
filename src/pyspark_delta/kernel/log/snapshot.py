"""`Snapshot`: one version of a table, immutable and loaded lazily.

Protocol and metadata come from a version checksum where there is one; the file list is Arrow and
its columns are fetched when they are requested.  Instead of a broken checkpoint, an older one or
the commits themselves are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from html import escape
from itertools import chain
from threading import RLock
from typing import Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import CorruptLogError, DeltaError
from pyspark_delta.kernel.log.checkpoints.reader import (
    Checkpoint,
    checkpoint_parts,
    checkpoint_removes,
    open_checkpoint,
)
from pyspark_delta.kernel.log.checksum import VersionChecksum, is_same, read_checksum
from pyspark_delta.kernel.log.frames.action_frame import ActionFrame
from pyspark_delta.kernel.log.frames.file_actions import REMOVE_SCHEMA, file_keys
from pyspark_delta.kernel.log.frames.json_frames import frames_from_commits
from pyspark_delta.kernel.log.history import in_commit_timestamp
from pyspark_delta.kernel.log.integrity import INTEGRITY, check_version
from pyspark_delta.kernel.log.replay import FileState, TableState, replay
from pyspark_delta.kernel.log.segment import (
    LogFile,
    LogListing,
    LogSegment,
    choose_segment,
    list_log_for,
    load_segment,
)
from pyspark_delta.kernel.log.table_files import TableFiles
from pyspark_delta.kernel.protocol.actions import DomainMetadata, Metadata, Protocol, SetTransaction
from pyspark_delta.kernel.protocol.features import check_readable
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    TRANSACTION_RETENTION,
    property_value,
)
from pyspark_delta.kernel.storage.base import LogStore

logger = logging.getLogger(__name__)

# So many frames may be pending before they are applied to the file state.
_MOST_PENDING_FRAMES = 64
_T = TypeVar("_T")


class Snapshot(TableFiles):
    """A table at one version."""

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
        super().__init__(store, version)
        self.last_commit = last
        """The file that made this version."""
        self._now_ms = now_ms
        self._segment = segment
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

        `listing` is a result of `list_log_for`, if the caller has one.  Without `verify` no
        checksum file is read, neither as a short cut nor to validate the log.
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

        `may_have_checksum` is for commits of other writers: the files are validated against the
        checksum when they are needed.
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
            # A checksum can replace replay only if it holds the whole state.
            if self._state is None and self._checksum is not None:
                self._state = self._checksum.whole_state
            if self._state is not None:
                newer._state = self._state.apply(frame.others)
            base, frames = self._pending or (self._file_state, ())
            if base is not None:
                newer._pending = (base, (*frames, frame))
                # A commit that was not validated is still pending.
                is_unchecked = self._pending is not None and self._looks_for_checksum
                newer._looks_for_checksum = self._verifies and (may_have_checksum or is_unchecked)
                if len(frames) >= _MOST_PENDING_FRAMES:
                    newer._pending = (reduce(FileState.apply, (*frames, frame), base), ())
        if any(isinstance(action, Protocol) for action in frame.others):
            check_readable(newer.protocol, self.store.root_uri)
        return newer

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        """The last transaction of each application, but for those the table lets expire."""
        transactions = self._table_state().transactions
        retention = property_value(self.metadata.configuration, TRANSACTION_RETENTION)
        if retention is None:
            return transactions
        oldest = self._now_ms() - retention
        return {
            app_id: txn
            for app_id, txn in transactions.items()
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
                if self._in_commit_timestamp is None and self._checksum is not None:
                    self._in_commit_timestamp = self._checksum.in_commit_timestamp
                if self._in_commit_timestamp is None:
                    data = self.store.read(self.last_commit.info.path)
                    self._in_commit_timestamp = in_commit_timestamp(self.last_commit, data)
                return self._in_commit_timestamp
        return self.last_commit.info.modified_ms

    def tombstones(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The removed files that the log still knows, newest removal of each."""
        names = REMOVE_SCHEMA.names if columns is None else list(columns)
        return self._loaded(self._read_tombstones).select(names)

    @property
    def segment(self) -> LogSegment:
        """The log files that make this version."""
        with self._lock:
            if self._segment is None:
                self._segment = load_segment(self.store, self.version, broken=self._broken)
            return self._segment

    @property
    def is_loaded(self) -> bool:
        """Whether the file state is in memory, so that it costs no I/O."""
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
        return html_table(self.store.root_uri, rows.items())

    def _protocol_and_metadata(self) -> tuple[Protocol, Metadata]:
        with self._lock:
            if self._state is None and self._checksum is not None:
                protocol, metadata = self._checksum.protocol, self._checksum.metadata
                if protocol is not None and metadata is not None:
                    return protocol, metadata
            return self._table_state().checked(self.version)

    def _table_state(self) -> TableState:
        with self._lock:
            if self._state is None:
                known = None if self._checksum is None else self._checksum.whole_state
                self._state = known or self._loaded(self._replayed_state)
            return self._state

    def _replayed_state(self) -> TableState:
        checkpoint = self._opened_checkpoint()
        oldest = () if checkpoint is None else checkpoint.state_actions
        newer = (frame.others for frame in self._read_frames())
        return TableState().apply(chain(oldest, *newer))

    def _resolved_files(self) -> FileState:
        with self._lock:
            if self._file_state is None:
                if self._pending is not None:
                    base, frames = self._pending
                    base = reduce(FileState.apply, frames, base)
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
        """Tombstones, read again from the segment: being rarely needed, they are not cached."""
        segment = load_segment(self.store, self.version, broken=self._broken)
        root_uri = self.store.root_uri
        table = REMOVE_SCHEMA.empty_table()
        if segment.checkpoint is not None:
            table = checkpoint_removes(self.store, open_checkpoint(self.store, segment.checkpoint))
        paths = [file.info.path for file in segment.replay]
        contents = self.store.read_many(paths)
        if not table.num_rows and not any(b'"remove"' in data for data in contents):
            return table  # without removes, the commits could only take tombstones back
        commits = zip(paths, contents, strict=True)
        for frame in map(ActionFrame.reconciled, frames_from_commits(commits, root_uri)):
            known = pc.is_in(file_keys(table, root_uri), value_set=frame.keys)
            table = pa.concat_tables([table.filter(pc.invert(known)), frame.removes])
        return table

    def _verify(self, state: TableState | None, files: FileState) -> None:
        """Validate the log against the checksum file; CorruptLogError names the damaged file."""
        try:
            if self._checksum is not None:
                check_version(
                    self.store, self.version, self._checksum, state, files, broken=self._broken
                )
            # Values that a refresh took over from an older checksum file must agree as well.
            for name in ("protocol", "metadata"):
                recorded, actual = getattr(self._state, name, None), getattr(state, name, None)
                if recorded is not None and not is_same(recorded, actual):
                    raise CorruptLogError(
                        INTEGRITY,
                        version=self.version,
                        mismatchStringOpt=f"its {name} differs from that of a checksum file",
                    )
        except CorruptLogError:
            # Once the damaged file is restored, the log must be read again.
            self._checkpoint = self._frames = self._pending = None
            raise

    def _loaded(self, load: Callable[[], _T]) -> _T:
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
            self._segment = load_segment(self.store, self.version, broken=self._broken)
        except DeltaError:
            raise error from None
        logger.warning("going on without a broken checkpoint: %s", error)
        self._checkpoint = self._frames = self._file_state = self._pending = self._state = None


def html_table(caption: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values, as notebooks display an object."""
    cells = "".join(f"<tr><th>{key}</th><td>{escape(str(v))}</td></tr>" for key, v in rows)
    return f"<table><caption>{escape(caption)}</caption>{cells}</table>"
