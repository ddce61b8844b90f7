"""After a commit: version checksum, checkpoint, log clean-up, log compaction, manifests.

The commit stands whatever happens here, and nobody need wait for it: a hook that fails is logged,
and the next commit makes good.  Which hook runs when is a table; who runs them is a `HookRunner`,
by default one thread of the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread, current_thread
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark_delta.errors.storage import FileMissingError
from pyspark_delta.errors.table import CorruptLogError, PostCommitHookError
from pyspark_delta.kernel.log.checkpoint_writer import CheckpointContent, V2Format, write_checkpoint
from pyspark_delta.kernel.log.checksum import (
    MOST_FILES,
    VersionChecksum,
    advance_checksum,
    checksum_of,
    read_checksum,
    write_checksum,
)
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.commit_lines import actions_from_json
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.integrity import INTEGRITY, check_version
from pyspark_delta.kernel.log.last_checkpoint import (
    read_last_checkpoint,
    write_last_checkpoint,
)
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
"""How long a process that ends waits for its hooks."""

# How far back a checksum to go on from is looked for.
_MOST_STEPS_BACK = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitEvent:
    """A commit that was made: its lines, and what the table is after it.

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
    """One row: a name for the log, when it runs, and what it does."""

    name: str
    is_due: Callable[[CommitEvent], bool]
    run: Callable[[CommitEvent], None]
    # An older event need not be served once a newer one of the same table waits.
    newest_only: bool = False
    # Whoever commits waits for it: what it writes is a part of the result.
    in_line: bool = False


def checkpoint(
    log: TableLog,
    snapshot: Snapshot,
    *,
    part_size: int | None = None,
    v2_format: V2Format = "json",
) -> None:
    """Write the checkpoint of a version, and the hint that leads to it."""
    # A feature that we do not know may put into checkpoints what we would leave out.
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
    configuration = event.metadata.configuration
    interval = property_value(configuration, CHECKPOINT_INTERVAL)
    return event.version != 0 and event.version % interval == 0


def _checksum_of(snapshot: Snapshot, actions: tuple[Action, ...]) -> VersionChecksum:
    configuration = snapshot.metadata.configuration
    has_own_time = property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS)
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
    """Checksums, each from the one before it, and the checkpoints that prove them.

    The last checksum of each log is kept.  One that a checkpoint found wrong is not gone on from:
    the next checkpoint starts afresh.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[TableLog, tuple[int, VersionChecksum]]
        self._known = WeakKeyDictionary()
        self._wrong: WeakKeyDictionary[TableLog, int] = WeakKeyDictionary()

    def run_checkpoint(self, event: CommitEvent) -> None:
        """Write a checkpoint, and the checksum if that is missing."""
        log, store = event.log, event.log.store
        # Not the log's own object: whoever commits next would wait while its files are loaded.
        if event.snapshot is not None and event.snapshot.is_loaded:
            snapshot = copy(event.snapshot)
        else:
            snapshot = log.snapshot_type.load(store, event.version, now_ms=log.now_ms)
        known = read_checksum(store, event.version)
        try:
            # A version that this process itself made was not held against its checksum before.
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
        """Write the checksum of a version, where it can be told from the one before."""
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
        """The checksum of the version before, made from an older one where it is missing."""
        known = self._known.get(log)
        if known is not None and known[0] == version - 1:
            return known[1]
        oldest = max(version - _MOST_STEPS_BACK, self._wrong.get(log, -1) + 1)
        for start in range(version - 1, oldest - 1, -1):
            found = read_checksum(log.store, start)
            if found is not None:
                return self._replayed(log, found, start + 1, version)
        return None

    def _replayed(
        self, log: TableLog, checksum: VersionChecksum, start: int, stop: int
    ) -> VersionChecksum | None:
        current: VersionChecksum | None = checksum
        for version in range(start, stop):
            path = commit_path(version)
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
        adds=[action for action in actions if isinstance(action, AddFile)],
        removes=[action for action in actions if isinstance(action, RemoveFile)],
        others=[action for action in actions if not isinstance(action, AddFile | RemoveFile)],
        root_uri=log.store.root_uri,
        operation=info.operation,
        txn_id=info.txn_id,
    )


def _info(actions: tuple[Action, ...]) -> CommitInfo:
    found = (action for action in actions if isinstance(action, CommitInfo))
    return next(found, CommitInfo())


def _is_cleanup_due(event: CommitEvent) -> bool:
    configuration = event.metadata.configuration
    return is_checkpoint_due(event) and property_value(configuration, ENABLE_EXPIRED_LOG_CLEANUP)


def _run_cleanup(event: CommitEvent) -> None:
    run_cleanup(event.log.store, event.protocol, event.metadata, now_ms=event.log.now_ms())


class _Manifests:
    """Keeps manifests up to date where a table asks for them.

    They follow the newest version, one update after the other, so that commits in several threads
    leave none that is older than another's.
    """

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[TableLog, Lock] = WeakKeyDictionary()
        self._lock = Lock()

    def is_due(self, event: CommitEvent) -> bool:
        """Whether the table has manifests."""
        return property_value(event.metadata.configuration, SYMLINK_MANIFEST)

    def run(self, event: CommitEvent) -> None:
        """Write the manifests of the partitions that the commit touched."""
        with self._lock:
            own = self._locks.setdefault(event.log, Lock())
        with own:
            touched = _touched_partitions(event.actions)
            update_manifests(event.log.update(), touched, event.version)


def _touched_partitions(actions: tuple[Action, ...]) -> list[StringMap] | None:
    """Partition values of the files in a commit; None when they may be any."""
    if not actions or any(isinstance(action, Metadata) for action in actions):
        return None
    touched: list[StringMap] = []
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            if action.partition_values is None:
                return None
            touched.append(action.partition_values)
    return touched


def compaction_hook(every: int) -> Hook:
    """Compact each `every` versions into one file; for tables with many small commits."""

    def run(event: CommitEvent) -> None:
        write_compaction(event.log.store, event.version - every + 1, event.version)

    return Hook("log compaction", lambda event: (event.version + 1) % every == 0, run)


def _writes_checksum(event: CommitEvent) -> bool:
    return event.settings.writes_checksum


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


class HookRunner(ABC):
    """Runs hooks.  Two promises: `submit` does not raise, and in the default runner waits for no
    hook that is not `in_line`; the other hooks of one table run in the order of its versions.
    """

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        self._hooks = default_hooks() if hooks is None else hooks

    def add(self, hook: Hook) -> None:
        """Run one more hook after every commit from now on; once, however often it is added."""
        if hook not in self._hooks:
            self._hooks = (*self._hooks, hook)

    @abstractmethod
    def submit(self, event: CommitEvent) -> None:
        """See to it that the hooks of a commit run."""

    @abstractmethod
    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait for what was submitted; whether all of it is done."""

    @abstractmethod
    def wait_for(self, event: CommitEvent, timeout_seconds: float) -> bool:
        """Wait for the hooks of one commit; whether they are done."""


class InlineRunner(HookRunner):
    """Runs hooks at once, in the caller's thread: for tests, and for scripts that end soon."""

    def submit(self, event: CommitEvent) -> None:
        """See HookRunner."""
        for hook in self._hooks:
            _run_guarded(hook, event)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See HookRunner; nothing is ever left over."""
        return True

    def wait_for(self, event: CommitEvent, timeout_seconds: float) -> bool:
        """See HookRunner; done before anybody can ask."""
        return True


class BackgroundRunner(HookRunner):
    """Runs hooks in one thread, which starts with the first commit and waits for more."""

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        super().__init__(hooks)
        self._reset()
        # A forked child has the queue but not the thread; what is queued is the parent's to do.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = Condition()
        self._waiting: deque[CommitEvent] = deque()
        self._running: CommitEvent | None = None
        self._thread: Thread | None = None

    def submit(self, event: CommitEvent) -> None:
        """See HookRunner."""
        for hook in self._hooks:
            if hook.in_line:
                _run_guarded(hook, event)
        with self._changed:
            self._waiting.append(event)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="delta-hooks", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """See HookRunner."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and self._running is None, timeout_seconds
            )

    def wait_for(self, event: CommitEvent, timeout_seconds: float) -> bool:
        """See HookRunner; a hook that commits does not wait for itself."""
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
            del event  # an idle worker keeps no table alive

    def _run(self, event: CommitEvent) -> None:
        # Decided once: when a checkpoint is written the next may be due already, and the clean-up
        # behind it would wait for a pause that a busy table never makes.
        is_overtaken: bool | None = None
        for hook in self._hooks:
            if hook.in_line:
                continue
            if hook.newest_only and _is_due(hook, event):
                if is_overtaken is None:
                    is_overtaken = self._has_newer(hook, event)
                if is_overtaken:
                    continue
            _run_guarded(hook, event)

    def _has_newer(self, hook: Hook, event: CommitEvent) -> bool:
        with self._changed:
            later = [other for other in self._waiting if other.log is event.log]
        return any(_is_due(hook, other) for other in later)


def _is_due(hook: Hook, event: CommitEvent) -> bool:
    try:
        return hook.is_due(event)
    except Exception:
        return False


def _run_guarded(hook: Hook, event: CommitEvent) -> None:
    try:
        if hook.is_due(event):
            hook.run(event)
    except Exception as error:
        failure = PostCommitHookError(
            "DELTA_POST_COMMIT_HOOK_FAILED",
            version=event.version,
            name=f"the {hook.name}",
            message=error,
        )
        logger.warning("%s: %s", event.log.store.root_uri, failure)
        logger.debug("%s failed", hook.name, exc_info=error)


_shared: BackgroundRunner | None = None
_shared_lock = Lock()


def shared_runner() -> HookRunner:
    """The process's own runner; what it has left to do at the end is waited for, not for ever."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = BackgroundRunner()
            atexit.register(_finish, _shared)
        return _shared


def flush_hooks(timeout_seconds: float | None = None) -> bool:
    """Wait for all hooks of this process; whether they are done."""
    return _shared is None or _shared.flush(timeout_seconds)


def _finish(runner: BackgroundRunner) -> None:
    started = time.monotonic()
    if not runner.flush(EXIT_SECONDS):
        logger.warning("post-commit work was left undone after %.0f s", time.monotonic() - started)
