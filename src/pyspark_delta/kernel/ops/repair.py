"""Repair: files that are gone from storage leave the table, so that the rest can be read again.

Their rows are lost either way; a version before the repair still says which files they were in.
"""

from __future__ import annotations

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.ops.missing_files import missing_files
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

# The name that delta-rs has for it; delta-spark has no such command.
_FSCK = Operation(name="FSCK", changes_data=True)


def run_repair(
    txn: OptimisticTransaction, locations: Locations, *, dry_run: bool = False
) -> list[str]:
    """Take the files that are missing out of the table; their paths as the log spells them.

    Nothing is committed when there are none, or with `dry_run`.
    """
    if txn.snapshot is None:
        return []
    missing = missing_files(txn.snapshot.files, locations)
    paths: list[str] = missing.column("path").to_pylist()
    if paths and not dry_run:
        now_ms = txn.log.now_ms()
        removes = [file.remove(now_ms) for file in add_files(missing)]
        txn.commit(removes, _FSCK, metrics={"numRemovedFiles": len(removes)})
    return paths
