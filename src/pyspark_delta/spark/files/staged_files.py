"""Written data files: deleted if they will never be committed, passed to hooks once they are.

Files are deleted only when that is certain: after a commit is offered, they are deleted if it was
refused or lost a race, and kept if its outcome is unknown.

A hook runs after a commit of rows, in the session that committed.  Every command that writes rows
runs the hooks, and knows none by name: rooms above register theirs.  Hooks that need no Spark are
the kernel's (`kernel.txn.hooks`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType

from pyspark.sql import SparkSession

from pyspark_delta.errors import StorageError
from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata
from pyspark_delta.kernel.protocol.properties import check_universal_formats
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.commit import is_certain_refusal
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import Conf

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteHook:
    """A hook, with two promises.

    1. `is_due` decides by the table and the settings alone, before any job: an invalid setting
      raises while nothing is written.
    2. `run` gets the files that the commit added, at least one, and raises nothing, because the
      commit is done.
    """

    name: str
    is_due: Callable[[Metadata, Conf], bool]
    run: Callable[[SparkSession, DeltaLog, Sequence[AddFile], Conf], object]


_HOOKS: dict[str, WriteHook] = {}
_LOCK = Lock()


class StagedFiles:
    """The files of one transaction, written and committed inside the `with` block.

    If the block fails, the files are deleted, except those that a commit may refer to.
    """

    def __init__(self, txn: OptimisticTransaction) -> None:
        self._txn = txn
        self._paths: list[str] = []
        self._is_offered = False

    def add(self, files: Iterable[AddFile | AddCDCFile]) -> None:
        """Track files that were written."""
        self._paths += [decode_path(file.path) for file in files]

    def add_paths(self, paths: Iterable[str]) -> None:
        """Track other files, by their decoded paths."""
        self._paths += paths

    def move(self, txn: OptimisticTransaction) -> None:
        """Let another transaction commit the files, after the first one was refused for certain."""
        self._txn = txn

    def offer(self) -> None:
        """Mark that a commit with these files begins."""
        self._is_offered = True

    def __enter__(self) -> StagedFiles:
        # The commit would raise for it, but only after the job.
        check_universal_formats(self._txn.metadata.configuration)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or self._txn.committed_version is not None:
            return
        # After a store failure that is no refusal, or an interrupt, an offered commit may exist.
        if not self._is_offered or is_certain_refusal(error):
            discard(self._txn.log.store, self._paths)


def discard(store: LogStore, paths: Sequence[str]) -> None:
    """Delete files that nothing refers to; VACUUM deletes those for which this fails."""
    if not paths:
        return
    try:
        store.delete_many(paths)
    except StorageError as error:
        logger.warning("%d files of a write that failed are left behind: %s", len(paths), error)


def add_write_hook(hook: WriteHook) -> None:
    """Register a hook for the writes of this process; it replaces one of the same name."""
    with _LOCK:
        _HOOKS[hook.name] = hook


def due_hooks(metadata: Metadata, conf: Conf) -> tuple[WriteHook, ...]:
    """The hooks for a table, in the order of registration."""
    return tuple(hook for hook in list(_HOOKS.values()) if hook.is_due(metadata, conf))


def run_hooks(
    hooks: Sequence[WriteHook],
    spark: SparkSession,
    log: DeltaLog,
    added: Sequence[AddFile],
    conf: Conf,
) -> None:
    """Run due hooks, if the commit added files."""
    if added:
        for hook in hooks:
            hook.run(spark, log, added, conf)
