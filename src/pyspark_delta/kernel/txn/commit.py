"""The loop: try the next version, be beaten, make sure that no winner is in the way, try again.

Nothing is listed before the first attempt: whoever holds version N offers N+1.  After a lost race
every winner is read and checked, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.conflicts import ConcurrentWriteException
from pyspark_delta.errors.storage import FileMissingError, NothingWrittenError, StorageError
from pyspark_delta.errors.table import CommitStateUnknownError, TooManyAttemptsError
from pyspark_delta.kernel.log.commit_lines import actions_from_json
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.committer import Beaten, Committed, Committer, read_whole
from pyspark_delta.kernel.txn.conflicts import DOC_LINK, resolve
from pyspark_delta.kernel.txn.prepared import PreparedCommit, WinningCommit, encode_actions
from pyspark_delta.kernel.txn.vector_files import RebasedVectors

DEFAULT_ATTEMPTS = 10_000_000
"""delta-spark's `maxCommitAttempts`."""

_READ_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """What holds for the commits of a transaction, and for what follows them.

    `checkpoint_part_size` is how many file actions a file of a checkpoint holds at most.
    """

    attempts: int = DEFAULT_ATTEMPTS
    checkpoint_part_size: int | None = None
    records_metrics: bool = True
    writes_checksum: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A commit that stands, as it was written in the end.

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
    try:
        written = _commit(
            replace(prepared, read_vector=VectorReader(Locations(store)).read),
            committer,
            store,
            vectors,
            attempts=attempts,
            now_ms=now_ms,
        )
    except DeltaError as error:
        if is_certain_refusal(error):
            vectors.refused()
        raise
    vectors.committed(written.committed.actions)
    return written


def _commit(
    prepared: PreparedCommit,
    committer: Committer,
    store: LogStore,
    vectors: RebasedVectors,
    *,
    attempts: int,
    now_ms: Callable[[], int],
) -> Written:
    start = prepared.version
    for attempt in range(1, attempts + 1):
        prepared = vectors.written(prepared)
        data = encode_actions(prepared.all_actions)
        match committer.commit(prepared.version, data, prepared.txn_id):
            case Committed(is_earlier=False) as done:
                done = replace(done, actions=prepared.all_actions)
                return Written(committed=done, prepared=prepared, data=data, attempts=attempt)
            case Committed() as done:
                return _earlier(done, prepared, store, attempt)
            case Beaten() as beaten:
                for winner in _winners(store, beaten):
                    if _is_own(winner, prepared):
                        done = Committed(version=winner.version, is_earlier=True)
                        return _earlier(done, prepared, store, attempt)
                    prepared = resolve(prepared, winner)
    raise TooManyAttemptsError(
        "DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
        numAttempts=attempts,
        startVersion=start,
        failVersion=prepared.version,
        numActions=len(prepared.actions) + 1,
        timeSpent=now_ms() - prepared.now_ms,
    )


def is_certain_refusal(error: BaseException) -> bool:
    """Whether a commit that failed with `error` does not stand, and never will."""
    if isinstance(error, StorageError):
        return isinstance(error, NothingWrittenError)
    return isinstance(error, DeltaError) and not isinstance(error, CommitStateUnknownError)


def check_not_cleaned_up(store: LogStore, read_version: int) -> None:
    """Refuse a transaction so old that the versions after its own may be gone again.

    The clean-up of an active log deletes commits that a checkpoint covers.  Their names would be
    free, and a commit under one of them would be lost.
    """
    listing = list_log(store, max(read_version, 0))
    present = {file.version for file in listing.commits}
    latest = listing.latest_version
    if latest is None:
        latest = -1
    if latest < read_version or not present.issuperset(range(read_version + 1, latest + 1)):
        raise ConcurrentWriteException(
            "DELTA_CONCURRENT_WRITE",
            conflictingCommit=f"version {latest}; the log no longer holds all commits before it",
            docLink=DOC_LINK,
        )


def _winners(store: LogStore, first: Beaten) -> Iterator[WinningCommit]:
    """The commits from `first` on, as far as there are any."""
    yield WinningCommit.from_bytes(first.version, first.data, first.info, store.root_uri)
    version = first.version + 1
    if not store.probes_cheaply:
        listed = [file.version for file in list_log(store, version).commits]
        # A listing with a hole ends there: what is missing shows when its version is tried.
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
        except FileMissingError:
            return None
        if data is not None:
            return WinningCommit.from_bytes(version, data, info, store.root_uri)
    raise StorageError(
        operation="read", path=store.address(path), reason="only a part of the file came back"
    )


def _earlier(done: Committed, prepared: PreparedCommit, store: LogStore, attempts: int) -> Written:
    """A commit that an earlier try wrote: what it holds is what stands in the log."""
    path = commit_path(done.version)
    with suppress(StorageError):  # it stands, whether or not it can be read now
        done = replace(done, actions=tuple(actions_from_json(path, store.read(path))))
    return Written(committed=done, prepared=prepared, data=None, attempts=attempts)


def _is_own(winner: WinningCommit, prepared: PreparedCommit) -> bool:
    # A commit whose outcome was unknown may be offered again by its caller.
    info = winner.commit_info
    return info is not None and info.txn_id == prepared.txn_id
