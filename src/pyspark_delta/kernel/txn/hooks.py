"""Post-commit hooks: version checksum, checkpoint, log clean-up, log compaction, manifests.

Hooks cannot fail a commit, and no writer need wait for them: a hook that fails is logged, and the
next commit makes good.  A table has the hooks and their conditions; a `HookRunner` runs them, by
default in one thread of the process.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread, current_thread
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark_delta.errors import CorruptLogError, FileMissingError, PostCommitHookError
from pyspark_delta.kernel.log.checkpoints.writer import (
    CheckpointContent,
    V2Format,
    write_checkpoint,
)
from pyspark_delta.kernel.log.checksum import (
    MOST_FILES,
    VersionChecksum,
    advance_checksum,
    checksum_of,
    read_checksum,
    write_checksum,
)
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.integrity import INTEGRITY, check_version
from pyspark_delta.kernel.log.last_checkpoint import read_last_checkpoint, write_last_checkpoint
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.symlink_manifests import update_manifests
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.features import check_writable
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_INTERVAL,
    ENABLE_EXPIRED_LOG_CLEANUP,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    SYMLINK_MANIFEST,
    property_value,
)
from pyspark_delta.kernel.txn.commit import CommitSettings

logger = logging.getLogger(__name__)

EXIT_SECONDS = 30.0
"""How long a process waits for its hooks at exit."""

# The most versions to go back for a checksum to advance.
_MOST_STEPS_BACK = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitEvent:
    """A successful commit: its lines, and the table after it.

    `snapshot` is None when other commits have followed already; `actions` are empty for a commit
    that was too large to keep.
    """

    log: TableLog
    version: int
    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]
    snapshot: Snapshot | None
    settings: CommitSettings = field(default_factory=CommitSettings)


@dataclass(frozen=True, slots=True)
class Hook:
    """One row: a hook's name for logging, its condition, and its function."""

    name: str
    is_due: Callable[[CommitEvent], bool]
    run: Callable[[CommitEvent], None]
    # An older event may be skipped once a newer one of the same table is queued.
    newest_only: bool = False
    # The committing thread waits for it: its output is a part of the result.
    in_line: bool = False

    def attempt(self, event: CommitEvent) -> None:
        """Run it if it is due; a failure is logged."""
        try:
            if self.is_due(event):
                self.run(event)
        except Exception as error:
            failure = PostCommitHookError(
                "DELTA_POST_COMMIT_HOOK_FAILED",
                version=event.version,
                name=f"the {self.name}",
                message=error,
            )
            logger.warning("%s: %s", event.log.store.root_uri, failure)
            logger.debug("%s failed", self.name, exc_info=error)

    def is_certainly_due(self, event: CommitEvent) -> bool:
        """Whether it is due; no, if that cannot be decided."""
        try:
            return self.is_due(event)
        except Exception:
            return False


def checkpoint(
    log: TableLog, snapshot: Snapshot, *, part_size: int | None = None, v2_format: V2Format = "json"
) -> None:
    """Write the checkpoint of a version, and the hint that leads to it."""
    # An unknown feature may require content in checkpoints that would be left out here.
    check_writable(snapshot.protocol, log.store.root_uri)
    content = CheckpointContent(
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=tuple(snapshot.transactions.values()),
        domains=tuple(snapshot.domains.values()),
        adds=snapshot.adds,
        removes=snapshot.tombstones(),
    )
    known = read_checksum(log.store, snapshot.version)
    written = write_checkpoint(
        log.store,
        content,
        now_ms=log.now_ms(),
        new_uuid=uuid4,
        part_size=part_size,
        v2_format=v2_format,
        expected_num_files=None if known is None else known.num_files,
    )
    hint = read_last_checkpoint(log.store)
    if hint is None or hint.version <= snapshot.version:
        write_last_checkpoint(log.store, written)


def is_checkpoint_due(event: CommitEvent) -> bool:
    """Whether the table's interval ends with this version."""
    interval = property_value(event.metadata.configuration, CHECKPOINT_INTERVAL)
    return event.version != 0 and event.version % interval == 0


def _checksum_of(snapshot: Snapshot, actions: tuple[Action, ...]) -> VersionChecksum:
    has_own_time = property_value(snapshot.metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS)
    is_short = snapshot.num_files <= MOST_FILES
    return checksum_of(
        snapshot.adds if is_short else snapshot.files_with(["size", "deletionVector"]),
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions.values(),
        domains=snapshot.domains.values(),
        in_commit_timestamp=snapshot.timestamp if has_own_time else None,
        txn_id=_info(actions).txn_id,
    )


class _Maintenance:
    """Writes checksums, each computed from the one before it, and checkpoints, which verify them.

    The last checksum of each log is cached.  One that a checkpoint found wrong is not advanced:
    the next checkpoint computes a new one.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[TableLog, tuple[int, VersionChecksum]] = WeakKeyDictionary()
        self._wrong: WeakKeyDictionary[TableLog, int] = WeakKeyDictionary()

    def run_checkpoint(self, event: CommitEvent) -> None:
        log, store = event.log, event.log.store
        # Not the log's own snapshot: the next commit would wait while its files are loaded.
        if event.snapshot is not None and event.snapshot.is_loaded:
            snapshot = copy(event.snapshot)
        else:
            snapshot = log.snapshot_type.load(store, event.version, now_ms=log.now_ms)
        known = read_checksum(store, event.version)
        try:
            # A version that this process made has not been validated against its checksum before.
            if known is not None:
                check_version(store, event.version, known, None, snapshot.file_state)
            checkpoint(log, snapshot, part_size=event.settings.checkpoint_part_size)
        except CorruptLogError as error:
            if error.condition == INTEGRITY:
                self._wrong[log] = event.version
                self._known.pop(log, None)
            raise
        if known is None and event.settings.writes_checksum:
            write_checksum(store, event.version, _checksum_of(snapshot, event.actions))

    def run_checksum(self, event: CommitEvent) -> None:
        """Write the checksum of a version, if it can be computed from the one before."""
        log, version = event.log, event.version
        if not event.actions:
            return  # the first checkpoint counts its files
        previous = self._before(log, version)
        if previous is None and version > 0:
            return
        found = _advanced(log, previous, event.actions)
        if found is None:
            self._known.pop(log, None)
            return
        self._known[log] = (version, found)
        write_checksum(log.store, version, found)

    def _before(self, log: TableLog, version: int) -> VersionChecksum | None:
        """The checksum of the version before, computed from an older one where it is missing."""
        known = self._known.get(log)
        if known is not None and known[0] == version - 1:
            return known[1]
        oldest = max(version - _MOST_STEPS_BACK, self._wrong.get(log, -1) + 1)
        for start in range(version - 1, oldest - 1, -1):
            found = read_checksum(log.store, start)
            if found is not None:
                return _replayed(log, found, range(start + 1, version))
        return None


def _replayed(
    log: TableLog, checksum: VersionChecksum, versions: Iterable[int]
) -> VersionChecksum | None:
    current: VersionChecksum | None = checksum
    for path in map(commit_path, versions):
        try:
            actions = tuple(actions_from_json(path, log.store.read(path)))
        except FileMissingError:
            return None
        current = _advanced(log, current, actions)
        if current is None:
            return None
    return current


def _advanced(
    log: TableLog, previous: VersionChecksum | None, actions: tuple[Action, ...]
) -> VersionChecksum | None:
    info = _info(actions)
    return advance_checksum(
        previous,
        adds=[a for a in actions if isinstance(a, AddFile)],
        removes=[a for a in actions if isinstance(a, RemoveFile)],
        others=[a for a in actions if not isinstance(a, AddFile | RemoveFile)],
        root_uri=log.store.root_uri,
        operation=info.operation,
        txn_id=info.txn_id,
    )


def _info(actions: tuple[Action, ...]) -> CommitInfo:
    return next((a for a in actions if isinstance(a, CommitInfo)), CommitInfo())


def _is_cleanup_due(event: CommitEvent) -> bool:
    is_enabled = property_value(event.metadata.configuration, ENABLE_EXPIRED_LOG_CLEANUP)
    return is_enabled and is_checkpoint_due(event)


def _run_cleanup(event: CommitEvent) -> None:
    run_cleanup(event.log.store, event.protocol, event.metadata, now_ms=event.log.now_ms())


class _Manifests:
    """Keeps manifests up to date where a table's property enables them.

    Updates are serial and for the newest version, so that commits in several threads do not replace
    newer manifests by older ones.
    """

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[TableLog, Lock] = WeakKeyDictionary()
        self._lock = Lock()

    def is_due(self, event: CommitEvent) -> bool:
        return property_value(event.metadata.configuration, SYMLINK_MANIFEST)

    def run(self, event: CommitEvent) -> None:
        with self._lock:
            own = self._locks.setdefault(event.log, Lock())
        with own:
            touched = _touched_partitions(event.actions)
            update_manifests(event.log.update(), touched, event.version)


def _touched_partitions(actions: tuple[Action, ...]) -> list[StringMap] | None:
    """Partition values of the files in a commit; None when they are unknown."""
    if not actions or any(isinstance(action, Metadata) for action in actions):
        return None
    values = [a.partition_values for a in actions if isinstance(a, AddFile | RemoveFile)]
    known = [each for each in values if each is not None]
    return known if len(known) == len(values) else None


def compaction_hook(every: int) -> Hook:
    """Compact each `every` versions into one file; for tables with many small commits."""

    def run(event: CommitEvent) -> None:
        write_compaction(event.log.store, event.version - every + 1, event.version)

    return Hook("log compaction", lambda event: (event.version + 1) % every == 0, run)


def default_hooks() -> tuple[Hook, ...]:
    """The hooks of every table, in the order in which they run."""
    maintenance = _Maintenance()
    manifests = _Manifests()
    return (
        Hook("symlink manifests", manifests.is_due, manifests.run, in_line=True),
        Hook(
            "version checksum",
            lambda event: event.settings.writes_checksum,
            maintenance.run_checksum,
        ),
        Hook("checkpoint", is_checkpoint_due, maintenance.run_checkpoint, newest_only=True),
        Hook("log clean-up", _is_cleanup_due, _run_cleanup, newest_only=True),
    )


class HookRunner:
    """Runs hooks in one thread, which starts with the first commit.

    Two promises: `submit` does not raise, and waits only for hooks that are `in_line`; the other
    hooks of one table run in the order of its versions.
    """

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        self._hooks = default_hooks() if hooks is None else hooks
        self._reset()
        # A forked child has the queue but not the thread; the parent runs the queued hooks.
        os.register_at_fork(after_in_child=self._reset)

    def add(self, hook: Hook) -> None:
        """Run one more hook after every commit from now on; once, however often it is added."""
        if hook not in self._hooks:
            self._hooks = (*self._hooks, hook)

    def _reset(self) -> None:
        self._changed = Condition()
        self._waiting: deque[CommitEvent] = deque()
        self._running: CommitEvent | None = None
        self._thread: Thread | None = None

    def submit(self, event: CommitEvent) -> None:
        """Run the hooks of a commit, now or later."""
        for hook in self._hooks:
            if hook.in_line:
                hook.attempt(event)
        with self._changed:
            self._waiting.append(event)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="delta-hooks", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait for all submitted events; returns whether all are done."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and self._running is None, timeout_seconds
            )

    def wait_for(self, event: CommitEvent, timeout_seconds: float) -> bool:
        """Wait for the hooks of one commit; returns whether they are done.

        A hook that commits does not wait for itself.
        """
        with self._changed:
            if self._thread is current_thread():
                return False
            return self._changed.wait_for(
                lambda: self._running is not event and event not in self._waiting, timeout_seconds
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting))
                event = self._waiting.popleft()
                self._running = event
            self._run(event)
            del event  # an idle worker must not keep a table alive

    def _run(self, event: CommitEvent) -> None:
        # Decided once: when a checkpoint is written the next may be due already, and the clean-up
        # after it would wait for a pause that a busy table never has.
        is_overtaken: bool | None = None
        for hook in self._hooks:
            if hook.in_line:
                continue
            if hook.newest_only and hook.is_certainly_due(event):
                if is_overtaken is None:
                    is_overtaken = self._has_newer(hook, event)
                if is_overtaken:
                    continue
            hook.attempt(event)

    def _has_newer(self, hook: Hook, event: CommitEvent) -> bool:
        with self._changed:
            later = [other for other in self._waiting if other.log is event.log]
        return any(hook.is_certainly_due(other) for other in later)


_shared: HookRunner | None = None
_shared_lock = Lock()


def shared_runner() -> HookRunner:
    """The process's runner; the process's exit waits for its queue, for a limited time."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = HookRunner()
            atexit.register(_finish, _shared)
        return _shared


def _finish(runner: HookRunner) -> None:
    if not runner.flush(EXIT_SECONDS):
        logger.warning("post-commit work was left undone after %.0f s", EXIT_SECONDS)
