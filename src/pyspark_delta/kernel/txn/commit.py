"""The commit loop, and the contract that decides which commit becomes version N.

Nothing is listed before the first attempt: a writer on version N offers N+1.  After a lost race
every winner is read and checked, oldest first.

The committer for files decides by `LogStore.create`.  A store's response can get lost, so none but
success is trusted: the committer reads the file of the version, and only then reports the winner.
PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_delta import errors
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.history import commit_info_of
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.protocol.actions import Action
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.txn.conflicts import DOC_LINK, resolve_conflict
from pyspark_delta.kernel.txn.prepared import PreparedCommit, WinningCommit, encode_actions
from pyspark_delta.kernel.txn.vector_files import RebasedVectors

logger = logging.getLogger(__name__)

DEFAULT_ATTEMPTS = 10_000_000
"""delta-spark's `maxCommitAttempts`."""

_READ_TRIES = 3
DEFAULT_TRIES = 6
"""The most attempts at one version on a store that keeps failing."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# The part of a large file to read back: `commitInfo` is its first line.
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The commit is version `version`.

    `actions` are its lines, `commitInfo` first; empty for a commit that was streamed.
    `is_earlier` is true if an earlier attempt of the same transaction wrote it, perhaps with other
    bytes.  `interrupted` is the interrupt that hit the caller once it was written, if any.
    """

    version: int
    actions: tuple[Action, ...] = ()
    is_earlier: bool = False
    interrupted: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """Another commit is version `version`: its bytes, or their head, and its file."""

    version: int
    data: bytes
    info: FileInfo


class Committer(ABC):
    """Makes commits.  Transactions rely on four promises:

    1. One winner: of all commits offered as one version, by any writer, at most one becomes it.
    2. The truth: `Committed` means that the commit is in the log, `Beaten` that another one is,
    NothingWrittenError that none does.  When neither can be determined, it raises
    CommitStateUnknownError.
    3. Once: a commit that is in the log is not written again under another version.
    4. No gap: a version is only ever written after the one below it; callers offer no other.
    """

    @abstractmethod
    def commit(
        self, version: int, data: bytes | Iterable[bytes], txn_id: str
    ) -> Committed | Beaten:
        """Offer `data`, whose first line is a commitInfo with `txn_id`, as version `version`.

        Chunks are read once, so a commit given in chunks is tried once.
        """


class FileSystemCommitter(Committer):
    """Commits by creating the version's file.

    A StorageRefusedError is raised at once, without reading the file.  After a failure with an
    unknown outcome it reads the file: with its own bytes or transaction id it succeeded; with
    another's it lost; without a file it tries again, with the same bytes and name, so that an
    earlier request that arrives late does no harm.  An interrupt during the creation of the file is
    raised after one read.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        tries: int = DEFAULT_TRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._tries = max(tries, 1)
        self._sleep = sleep

    def commit(
        self, version: int, data: bytes | Iterable[bytes], txn_id: str
    ) -> Committed | Beaten:
        own = data if isinstance(data, bytes) else None
        failure = errors.StorageError()
        # Whether the outcome of a sent request is unknown: it may still take effect.
        is_open = False
        for attempt in range(1 if own is None else self._tries):
            self._pause(attempt)
            try:
                if isinstance(data, bytes):
                    self._store.create(commit_path(version), data)
                else:
                    self._store.create_from(commit_path(version), data)
                return Committed(version=version)
            except errors.StorageError as error:
                failure = error
            except BaseException as error:
                outcome = self._after_interrupt(version, own, txn_id, error)
                if outcome is None:
                    raise
                return outcome
            is_open = is_open or not isinstance(failure, errors.NothingWrittenError)
            if is_open:
                found = self._look(version, own, txn_id, failure, tries=self._tries)
                if found is not None:
                    return found
            if isinstance(failure, errors.StorageRefusedError):
                break
            logger.warning("version %d was not written: %s", version, failure)
        if not is_open:
            raise failure
        raise _unknown(version, txn_id, f"the store kept failing ({failure})") from failure

    def _pause(self, attempt: int) -> None:
        if attempt:
            self._sleep(min(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1), _LONGEST_PAUSE_SECONDS))

    def _look(
        self, version: int, own: bytes | None, txn_id: str, failure: BaseException, *, tries: int
    ) -> Committed | Beaten | None:
        """The commit that is version `version` now; None when there is none."""
        path = commit_path(version)
        reason = ""
        for attempt in range(tries):
            self._pause(attempt)
            try:
                info = self._store.stat(path)
                data = self._read(path, info, own)
            except errors.FileMissingError:
                return None
            except errors.StorageError as error:
                reason = f"the store failed ({failure}) and cannot be read ({error})"
                continue
            if data is None:
                reason = f"the store failed ({failure}) and shows only a part of the commit"
                continue
            if data == own:
                return Committed(version=version)
            writer = commit_info_of(path, data)
            if writer is not None and writer.txn_id == txn_id:
                return Committed(version=version, is_earlier=own is not None)
            return Beaten(version=version, data=data, info=info)
        raise _unknown(version, txn_id, reason) from failure

    def _read(self, path: str, info: FileInfo, own: bytes | None) -> bytes | None:
        """The file, or its head if it is large and only the writer matters; None if truncated."""
        if own is None and info.size > _HEAD_BYTES:
            data = self._store.read_range(path, 0, _HEAD_BYTES)
            return data if len(data) == _HEAD_BYTES else None
        return read_whole(self._store, info)

    def _after_interrupt(
        self, version: int, own: bytes | None, txn_id: str, error: BaseException
    ) -> Committed | None:
        """The commit if it is in the log; None when it is not, or when that is unknown."""
        try:
            found = self._look(version, own, txn_id, error, tries=1)
        except errors.CommitStateUnknownError as unknown:
            error.add_note(str(unknown))
            return None
        if isinstance(found, Committed):
            error.add_note(f"Version {version} had been committed when this happened.")
            return replace(found, interrupted=error)
        return None


def read_whole(store: LogStore, info: FileInfo) -> bytes | None:
    """The content of a file from a listing or `stat`; None when its size is different.

    Commits are read for conflict checks: a truncated one would hide conflicts.
    """
    data = store.read(info.path)
    return data if len(data) == info.size else None


def _unknown(version: int, txn_id: str, reason: str) -> errors.CommitStateUnknownError:
    return errors.CommitStateUnknownError(
        "DELTA_COMMIT_STATE_UNKNOWN", version=version, txnId=txn_id, reason=reason
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """What holds for a transaction, its commits, and what follows them.

    `checkpoint_part_size` is how many file actions a file of a checkpoint holds at most;
    `skips_by_stats` whether statistics may rule out files when a predicate selects some.
    """

    attempts: int = DEFAULT_ATTEMPTS
    checkpoint_part_size: int | None = None
    records_metrics: bool = True
    writes_checksum: bool = True
    skips_by_stats: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A successful commit, as it was written in the end.

    `data` is None when the bytes are not at hand: streamed, or written by an earlier try.
    `attempts` is how many versions were tried for it.
    """

    committed: Committed
    prepared: PreparedCommit
    data: bytes | None
    attempts: int = 1


def commit(
    prepared: PreparedCommit,
    committer: Committer,
    store: LogStore,
    *,
    attempts: int = DEFAULT_ATTEMPTS,
    now_ms: Callable[[], int],
    new_uuid: Callable[[], str],
) -> Written:
    """Commit `prepared` after every writer that got in first, unless one of them conflicts."""
    vectors = RebasedVectors(store, new_uuid, prepared)
    start = prepared.version
    prepared = replace(prepared, read_vector=VectorReader(Locations(store)).read)
    written = None
    try:
        for attempt in range(1, attempts + 1):
            prepared = vectors.written(prepared)
            outcome = _attempt(prepared, committer, store, attempt)
            if isinstance(outcome, Written):
                written = outcome
                break
            prepared = outcome
        if written is None:
            raise errors.TooManyAttemptsError(
                "DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
                numAttempts=attempts,
                startVersion=start,
                failVersion=prepared.version,
                numActions=len(prepared.actions) + 1,
                timeSpent=now_ms() - prepared.now_ms,
            )
    except errors.DeltaError as error:
        if is_certain_refusal(error):
            vectors.refused()
        raise
    vectors.committed(written.committed.actions)
    return written


def _attempt(
    prepared: PreparedCommit, committer: Committer, store: LogStore, attempt: int
) -> Written | PreparedCommit:
    """The successful commit, or the one to write after every winner."""
    data = encode_actions(prepared.all_actions)
    match committer.commit(prepared.version, data, prepared.txn_id):
        case Committed(is_earlier=False) as done:
            done = replace(done, actions=prepared.all_actions)
            return Written(committed=done, prepared=prepared, data=data, attempts=attempt)
        case Committed() as done:
            return _earlier(done, prepared, store, attempt)
        case Beaten() as beaten:
            for winner in _winners(store, beaten):
                # A commit whose outcome was unknown may be offered again by its caller.
                info = winner.commit_info
                if info is not None and info.txn_id == prepared.txn_id:
                    done = Committed(version=winner.version, is_earlier=True)
                    return _earlier(done, prepared, store, attempt)
                prepared = resolve_conflict(prepared, winner)
    return prepared


def is_certain_refusal(error: BaseException) -> bool:
    """Whether a commit that failed with `error` is not in the log, and never will be."""
    if isinstance(error, errors.StorageError):
        return isinstance(error, errors.NothingWrittenError)
    return isinstance(error, errors.DeltaError) and not isinstance(
        error, errors.CommitStateUnknownError
    )


def check_not_cleaned_up(store: LogStore, read_version: int) -> None:
    """Raise for a transaction so old that the versions after its own may be deleted already.

    The clean-up of an active log deletes commits that a checkpoint covers.  Their names would be
    free, and a commit under one of them would be lost.
    """
    listing = list_log(store, max(read_version, 0))
    present = {file.version for file in listing.commits}
    latest = listing.latest_version
    if latest is None:
        latest = -1
    if latest < read_version or not present.issuperset(range(read_version + 1, latest + 1)):
        raise errors.ConcurrentWriteException(
            "DELTA_CONCURRENT_WRITE",
            conflictingCommit=f"version {latest}; the log no longer holds all commits before it",
            docLink=DOC_LINK,
        )


def _winners(store: LogStore, first: Beaten) -> Iterator[WinningCommit]:
    yield WinningCommit.from_bytes(first.version, first.data, first.info, store.root_uri)
    version = first.version + 1
    if not store.probes_cheaply:
        listed = [file.version for file in list_log(store, version).commits]
        # A listing ends at its first gap: the attempt at a missing version will detect it.
        last = version + sum(v == version + i for i, v in enumerate(listed))
    else:
        last = None
    while last is None or version < last:
        found = _read_commit(store, version)
        if found is None:
            return
        yield found
        version += 1


def _read_commit(store: LogStore, version: int) -> WinningCommit | None:
    path = commit_path(version)
    for _ in range(_READ_TRIES):
        try:
            info = store.stat(path)
            data = read_whole(store, info)
        except errors.FileMissingError:
            return None
        if data is not None:
            return WinningCommit.from_bytes(version, data, info, store.root_uri)
    raise errors.StorageError(
        operation="read", path=store.address(path), reason="only a part of the file came back"
    )


def _earlier(done: Committed, prepared: PreparedCommit, store: LogStore, attempts: int) -> Written:
    """A commit that an earlier attempt wrote: its content is that in the log."""
    path = commit_path(done.version)
    with suppress(errors.StorageError):  # it succeeded, whether or not it can be read now
        done = replace(done, actions=tuple(actions_from_json(path, store.read(path))))
    return Written(committed=done, prepared=prepared, data=None, attempts=attempts)
