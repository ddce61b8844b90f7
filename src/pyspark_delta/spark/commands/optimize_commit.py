"""The commit of files that were written anew, which outlives what others did meanwhile.

Writing may have taken hours.  A commit that lost a race for a reason that is none here is tried
again on the newest version: as long as every file that was read is still there, with the same
rows deleted, the new files are right, whatever became of the rest of the table.  A change of the
definition that leaves files as they are takes files of before it, so it takes these.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.conflicts import DeltaConcurrentModificationException
from pyspark_delta.kernel.log.frames import add_table, file_keys
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.row_tracking import is_enabled as has_row_tracking
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.compact import Compacted
from pyspark_delta.spark.commands.replaced_rows import hidden_columns
from pyspark_delta.spark.staged_files import StagedFiles

logger = logging.getLogger(__name__)


def commit_rewrite(
    log: DeltaLog,
    txn: OptimisticTransaction,
    staged: StagedFiles,
    done: Compacted,
    operation: Operation,
    user_metadata: str | None = None,
) -> int:
    """The version that puts the new files in the place of the old ones."""
    staged.offer()
    actions = done.actions(log.now_ms())
    while True:
        try:
            committed = txn.commit(
                actions,
                operation,
                tags={PRESERVED_TAG: "true"} if hidden_columns(txn).fields else None,
                user_metadata=user_metadata,
                metrics=done.metrics,
            )
            return committed.version
        except DeltaConcurrentModificationException as error:
            newer = _retried(log, txn, done.removed)
            if newer is None:
                raise
            logger.info("files are as they were, so the commit is tried again: %s", error)
            txn = newer
            staged.move(txn)


def _retried(
    log: DeltaLog, txn: OptimisticTransaction, removed: Sequence[AddFile]
) -> OptimisticTransaction | None:
    """A transaction on the newest version that may commit the same; None when none may."""
    before, now = txn.snapshot, log.update()
    assert before is not None
    if now.version == before.version or not _fits(before, now) or not _has_all(now, removed):
        return None
    newer = log.transaction_on(now)
    newer.read_files(file.path for file in removed)
    return newer


def _fits(before: Snapshot, now: Snapshot) -> bool:
    """Whether files written for one version of the table are files of the other as well."""
    old, new = before.metadata, now.metadata
    tracked = has_row_tracking(before.protocol, old)
    return (
        old.id == new.id
        and old.partition_columns == new.partition_columns
        and enabled_version(old) == enabled_version(new)
        and tracked == has_row_tracking(now.protocol, new)
        and (not tracked or _id_columns(before) == _id_columns(now))
    )


def _id_columns(snapshot: Snapshot) -> tuple[str | None, ...]:
    configuration = snapshot.metadata.configuration
    return tuple(configuration.get(row.key) for row in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN))


def _has_all(now: Snapshot, removed: Sequence[AddFile]) -> bool:
    """Whether each file is live, with the very vector that it was read with."""
    root_uri = now.store.root_uri
    live = file_keys(now.files_with(["path", "deletionVector"]), root_uri)
    wanted = file_keys(add_table(removed), root_uri)
    found: bool = pc.all(pc.is_in(wanted, value_set=pa.array(live))).as_py()
    return found
