"""`TableLog`: the log of one table for readers: newest snapshot, older versions, history.

A refresh from version N looks only at later commits, so that its cost depends on what is new and
not on the length of the log.  Writing is in `txn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock

from pyspark_delta.errors import DeltaError, FileMissingError, StorageError, TableNotFoundError
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames.json_frames import frames_from_commits
from pyspark_delta.kernel.log.history import (
    commit_info_of,
    commits_for_history,
    read_history,
    times_around,
)
from pyspark_delta.kernel.log.segment import LogFile, LogListing, earliest_version, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.actions import Action, CommitInfo
from pyspark_delta.kernel.protocol.commit_times import parse_commit_time, version_at, version_from
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY, LogFileKind, LogName, commit_path
from pyspark_delta.kernel.storage.base import FileInfo, LogStore


class TableLog:
    """The log of one table.  Safe to share between threads."""

    snapshot_type: type[Snapshot] = Snapshot

    def __init__(
        self,
        store: LogStore,
        *,
        now_ms: Callable[[], int] = system_now_ms,
        verify_checksums: bool = True,
    ) -> None:
        self.store = store
        self.now_ms = now_ms
        self.verify_checksums = verify_checksums
        """Whether versions are validated against their checksum files; if not, none is read."""
        self._lock = RLock()
        self._snapshot: Snapshot | None = None

    @property
    def data_path(self) -> str:
        """The URI of the table's directory, which contains the data files."""
        return self.store.root_uri

    @property
    def table_exists(self) -> bool:
        """Whether there is a Delta table: at least one commit or checkpoint."""
        if self._snapshot is not None:
            return True
        try:
            # The caller opens the table next: the snapshot is kept, and the log listed once.
            return self.snapshot.version >= 0
        except TableNotFoundError:
            return False
        except StorageError:
            raise
        except DeltaError:
            return True  # a table that cannot be read is one

    @property
    def snapshot(self) -> Snapshot:
        """The newest version as of the last refresh; the first call loads it."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self._load()
            return self._snapshot

    def update(self) -> Snapshot:
        """The newest version now."""
        with self._lock:
            current = self._snapshot
            if current is None:
                return self.snapshot
            look = self._probe if self.store.probes_cheaply else self._listed
            newer = look(current)
            if newer is None:
                # The current version is missing or has another commit: it is a new table.
                self._snapshot = None
                return self.snapshot
            self._snapshot = newer
            return newer

    def advance(self, version: int, data: bytes) -> Snapshot:
        """The newest version, once this process itself wrote `version` with content `data`."""
        with self._lock:
            current = self._snapshot
            if current is None or current.version != version - 1:
                return self.update()
            info = self.store.stat(commit_path(version))
            self._snapshot = self._then(current, [(_commit_file(version, info), data)])
            return self._snapshot

    def snapshot_at(
        self,
        version: int | None = None,
        timestamp: int | str | None = None,
        *,
        zone: str = "UTC",
        listing: LogListing | None = None,
    ) -> Snapshot:
        """The table as it was at a version, or at a time (ms since the epoch, or text in `zone`).

        `listing` is a result of `list_log_for` that version, if the caller has one.
        """
        if (version is None) == (timestamp is None):
            raise ValueError("give either a version or a timestamp")
        if timestamp is not None:
            listing = list_log(self.store)
            version = self.version_at(timestamp, zone=zone, listing=listing)
        with self._lock:
            current = self._snapshot
        if current is not None and current.version == version:
            return current
        return self._load(version, listing)

    def get_changes(self, from_version: int) -> Iterator[tuple[int, list[Action]]]:
        """Every commit from `from_version` on with all of its actions, oldest first."""
        for file in list_log(self.store, max(from_version, 0)).commits:
            path = file.info.path
            yield file.version, list(actions_from_json(path, self.store.read(path)))

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """The provenance of each commit, newest first, with its version and time filled in."""
        snapshot = self.update()
        commits = commits_for_history(self.store, snapshot.version, limit)
        if not commits:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=self.store.root_uri)
        return read_history(self.store, commits, limit, snapshot.metadata.configuration)

    def version_at(
        self,
        timestamp: int | str,
        *,
        can_return_last: bool = False,
        zone: str = "UTC",
        listing: LogListing | None = None,
    ) -> int:
        """The version that was the newest at a time: ms since the epoch, or text in `zone`.

        Only versions that can still be reconstructed count.  `listing` is one of the whole log.
        """
        at = parse_commit_time(timestamp, zone) if isinstance(timestamp, str) else timestamp
        listing = list_log(self.store) if listing is None else listing
        properties, earliest = self._newest_properties(listing), max(earliest_version(listing), 0)
        times, latest = times_around(self.store, listing, properties, at, earliest=earliest)
        return version_at(times, at, can_return_last=can_return_last, latest=latest, zone=zone)

    def version_from(
        self, timestamp: int | str, *, can_exceed_latest: bool = False, zone: str = "UTC"
    ) -> int:
        """The first version that was made at a time or after it: ms or text, as in `version_at`.

        All commits in the log count, also those from before its first checkpoint: a reader of
        commits needs no version that can be reconstructed.
        """
        at = parse_commit_time(timestamp, zone) if isinstance(timestamp, str) else timestamp
        listing = list_log(self.store)
        times, latest = times_around(self.store, listing, self._newest_properties(listing), at)
        return version_from(
            times, at, can_exceed_latest=can_exceed_latest, latest=latest, zone=zone
        )

    def ensure_log_directory_exist(self) -> None:
        """Make the log directory, where the store has directories."""
        self.store.make_directory(LOG_DIRECTORY)

    def _newest_properties(self, listing: LogListing) -> dict[str, str | None]:
        """The properties of the newest version in `listing`, which covers the whole log."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self._load(listing=listing)
                return dict(self._snapshot.metadata.configuration)
        return dict(self.update().metadata.configuration)

    def _load(self, version: int | None = None, listing: LogListing | None = None) -> Snapshot:
        return self.snapshot_type.load(
            self.store, version, now_ms=self.now_ms, listing=listing, verify=self.verify_checksums
        )

    def _probe(self, current: Snapshot) -> Snapshot | None:
        """The newest version, by reading one commit after the other; None if `current` is gone."""
        last = current.last_commit
        try:
            if self.store.stat(last.info.path) != last.info:
                return None
        except FileMissingError:
            return None
        newer: list[tuple[LogFile, bytes]] = []
        version = current.version + 1
        while True:
            path = commit_path(version)
            try:
                data = self.store.read(path)
                info = self.store.stat(path)
            except FileMissingError:
                break
            if len(data) != info.size:
                # Half a commit must not pass for a whole one: a full load reads it again.
                return None
            newer.append((_commit_file(version, info), data))
            version += 1
        return self._then(current, newer, may_have_checksum=True) if newer else current

    def _listed(self, current: Snapshot) -> Snapshot | None:
        """The newest version, found by one listing from `current` on; None if `current` is gone."""
        listing = list_log(self.store, current.version)
        last = current.last_commit
        same = [file for file in listing.commits if file.version == current.version]
        if last.name.kind is LogFileKind.COMMIT and (not same or same[0].info != last.info):
            return None
        newer = [file for file in listing.commits if file.version > current.version]
        if not newer:
            beyond = listing.latest_version
            return current if beyond is None or beyond <= current.version else None
        expected = range(current.version + 1, current.version + 1 + len(newer))
        if [file.version for file in newer] != list(expected):
            return None  # only a full listing distinguishes a gap from a cleaned log
        contents = self.store.read_many([file.info.path for file in newer])
        has_checksum = any(file.version == newer[-1].version for file in listing.checksums)
        commits = list(zip(newer, contents, strict=True))
        return self._then(current, commits, may_have_checksum=has_checksum)

    def _then(
        self,
        current: Snapshot,
        commits: list[tuple[LogFile, bytes]],
        *,
        may_have_checksum: bool = False,
    ) -> Snapshot:
        newest, data = commits[-1]
        info = commit_info_of(newest.info.path, data)
        stamp = None if info is None else info.in_commit_timestamp
        contents = ((file.info.path, data) for file, data in commits)
        for frame in frames_from_commits(contents, self.store.root_uri):
            current = current.then(newest, frame, stamp, may_have_checksum=may_have_checksum)
        return current


def _commit_file(version: int, info: FileInfo) -> LogFile:
    return LogFile(name=LogName(kind=LogFileKind.COMMIT, version=version), info=info)
