"""Data files that are written and that no commit names yet; taken back when none ever will.

Only what is certain counts: after a commit was offered, its files go when it was refused or lost a
race, and stay when its outcome is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.properties import check_universal_formats
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.commit import is_certain_refusal
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

logger = logging.getLogger(__name__)


class StagedFiles:
    """The files of one transaction: inside of the block they are written and committed.

    A block that fails takes the files back, as far as no commit can name them.
    """

    def __init__(self, txn: OptimisticTransaction) -> None:
        self._txn = txn
        self._paths: list[str] = []
        self._is_offered = False

    def add(self, files: Iterable[AddFile | AddCDCFile]) -> None:
        """Note files that were written."""
        self._paths += [decode_path(file.path) for file in files]

    def add_paths(self, paths: Iterable[str]) -> None:
        """Note files of another kind, by their decoded paths."""
        self._paths += paths

    def move(self, txn: OptimisticTransaction) -> None:
        """Let another transaction commit the files, after the first was certainly refused."""
        self._txn = txn

    def offer(self) -> None:
        """From here on a commit is tried that names the files."""
        self._is_offered = True

    def __enter__(self) -> StagedFiles:
        # The commit would be refused for it, after the job.
        check_universal_formats(self._txn.metadata.configuration)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._is_certain(error):
            discard(self._txn.log.store, self._paths)

    def _is_certain(self, error: BaseException) -> bool:
        """Whether no commit of the transaction stands, or will."""
        if self._txn.committed_version is not None:
            return False
        if not self._is_offered:
            return True
        # Of a store that failed without a refusal, or an interrupt, the commit may stand.
        return is_certain_refusal(error)


def discard(store: LogStore, paths: Sequence[str]) -> None:
    """Delete files that nothing refers to; what cannot be deleted is left to VACUUM."""
    if not paths:
        return
    try:
        store.delete_many(paths)
    except StorageError as error:
        logger.warning("%d files of a write that failed are left behind: %s", len(paths), error)
