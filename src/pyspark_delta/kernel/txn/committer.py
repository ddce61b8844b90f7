"""`Committer`: who decides which commit becomes version N.

One that writes files decides by `LogStore.create`.  A store's answer can get lost, so no answer
but success is believed: the committer looks at what stands under the version's name, and only then
says who won.  PROTOCOL.md, "Delta Log Entries".
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pyspark_delta.errors.storage import (
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
)
from pyspark_delta.errors.table import CommitStateUnknownError
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.protocol.actions import Action
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.base import FileInfo, LogStore

logger = logging.getLogger(__name__)

DEFAULT_TRIES = 6
"""How often one version is tried on a store that keeps failing."""

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# The head of a file that is too large to read back: `commitInfo` is its first line.
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The commit is version `version`.

    `actions` are its lines, `commitInfo` first; empty for a commit that was streamed.
    `is_earlier` says that it was written by an earlier try of the same transaction, whose bytes
    may be others.  `interrupted` is what stopped the caller once it was written, if anything.
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
    """Makes commits.  Four promises, which transactions rely on:

    1. One winner: of all commits offered as one version, by anyone, at most one becomes it.
    2. The truth: `Committed` means that the commit stands, `Beaten` that it does not and that
       another's does, NothingWrittenError that nobody's does.  When none of these can be known,
       CommitStateUnknownError says so.
    3. Once: a commit that stands is not written again under another version.
    4. No gap: a version is only ever written after the one below it; callers offer no other.
    """

    @abstractmethod
    def commit(
        self, version: int, data: bytes | Iterable[bytes], txn_id: str
    ) -> Committed | Beaten:
        """Offer `data`, whose first line is a commitInfo with `txn_id`, as version `version`.

        Chunks are read once, so that a commit given in chunks is offered once.
        """


class FileSystemCommitter(Committer):
    """Commits by creating the version's file.

    A refusal of the store is passed on at once, without a look.  After anything else but success
    it reads the file: own bytes or own transaction id, and the commit stands; another's, and it
    lost; nothing there, and it tries again, the same bytes under the same name, so that an earlier
    request which arrives late does no harm.  An interrupt that hits while the file is created is
    passed on after one look.
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
        """See Committer."""
        own = data if isinstance(data, bytes) else None
        failure = StorageError()
        # Whether a request was sent whose answer is not known: it may still arrive.
        is_open = False
        for attempt in range(1 if own is None else self._tries):
            self._pause(attempt)
            try:
                self._create(version, data)
                return Committed(version=version)
            except StorageError as error:
                failure = error
            except BaseException as error:
                outcome = self._after_interrupt(version, own, txn_id, error)
                if outcome is None:
                    raise
                return outcome
            is_open = is_open or not isinstance(failure, NothingWrittenError)
            if is_open:
                found = self._look(version, own, txn_id, failure, tries=self._tries)
                if found is not None:
                    return found
            if isinstance(failure, StorageRefusedError):
                break
            logger.warning("version %d was not written: %s", version, failure)
        if not is_open:
            raise failure
        raise _unknown(version, txn_id, f"the store kept failing ({failure})") from failure

    def _create(self, version: int, data: bytes | Iterable[bytes]) -> None:
        if isinstance(data, bytes):
            self._store.create(commit_path(version), data)
        else:
            self._store.create_from(commit_path(version), data)

    def _pause(self, attempt: int) -> None:
        if attempt:
            self._sleep(min(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1), _LONGEST_PAUSE_SECONDS))

    def _look(
        self,
        version: int,
        own: bytes | None,
        txn_id: str,
        failure: BaseException,
        *,
        tries: int,
    ) -> Committed | Beaten | None:
        """Who is version `version` now; None when nobody is."""
        path = commit_path(version)
        reason = ""
        for attempt in range(tries):
            self._pause(attempt)
            try:
                info = self._store.stat(path)
                data = self._read(path, info, own)
            except FileMissingError:
                return None
            except StorageError as error:
                reason = f"the store failed ({failure}) and cannot be asked ({error})"
                continue
            if data is None:
                reason = f"the store failed ({failure}) and shows only a part of the commit"
                continue
            if data == own:
                return Committed(version=version)
            if _transaction_of(path, data) == txn_id:
                return Committed(version=version, is_earlier=own is not None)
            return Beaten(version=version, data=data, info=info)
        raise _unknown(version, txn_id, reason) from failure

    def _read(self, path: str, info: FileInfo, own: bytes | None) -> bytes | None:
        """The file, its head when it is large and only its owner matters; None for a cut read."""
        if own is None and info.size > _HEAD_BYTES:
            data = self._store.read_range(path, 0, _HEAD_BYTES)
            return data if len(data) == _HEAD_BYTES else None
        return read_whole(self._store, info)

    def _after_interrupt(
        self, version: int, own: bytes | None, txn_id: str, error: BaseException
    ) -> Committed | None:
        """The commit if it stands; None when it does not, or when nobody knows."""
        try:
            found = self._look(version, own, txn_id, error, tries=1)
        except CommitStateUnknownError as unknown:
            error.add_note(str(unknown))
            return None
        if isinstance(found, Committed):
            error.add_note(f"Version {version} had been committed when this happened.")
            return replace(found, interrupted=error)
        return None


def read_whole(store: LogStore, info: FileInfo) -> bytes | None:
    """A file that a listing or `stat` described; None when other bytes came than it has.

    Commits are read to judge conflicts: one that ends early would hide some of them.
    """
    data = store.read(info.path)
    return data if len(data) == info.size else None


def _transaction_of(path: str, data: bytes) -> str | None:
    info = commit_info_of(path, data)
    return None if info is None else info.txn_id


def _unknown(version: int, txn_id: str, reason: str) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        "DELTA_COMMIT_STATE_UNKNOWN", version=version, txnId=txn_id, reason=reason
    )
