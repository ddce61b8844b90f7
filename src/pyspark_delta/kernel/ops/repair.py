"""Repair: files that are gone from storage leave the table, so that the rest can be read again.

The rows of a data file that is gone are lost either way.  Where only the file of a deletion vector
is gone, the rows are still there, and nobody knows which of them are deleted: removing that file
loses live rows, which takes a request of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.ops.missing_files import find_missing
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

MissingPart = Literal["data file missing", "deletion vector missing"]

# The name that delta-rs has for it; delta-spark has no such command.
_FSCK = Operation(name="FSCK", changes_data=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file of the table that cannot be read; `path` is spelled as in the log.

    `num_rows` are its live rows, None where the log has no statistics of them.  `is_removed` says
    that this repair took it out of the table.
    """

    path: str
    reason: MissingPart
    num_rows: int | None
    is_removed: bool = False


def run_repair(
    txn: OptimisticTransaction,
    locations: Locations,
    *,
    dry_run: bool = False,
    drop_rows_with_missing_vectors: bool | None = None,
) -> list[UnreadableFile]:
    """Take the files that are missing out of the table, and tell which they are.

    Files of which only the deletion vector is missing are removed for
    `drop_rows_with_missing_vectors`, left alone for False, and an error for None.  Nothing is
    committed when there is nothing to remove, or with `dry_run`.
    """
    if txn.snapshot is None:
        return []
    missing = find_missing(txn.snapshot.adds, locations)
    lost, unreadable = list(add_files(missing.data)), list(add_files(missing.vectors))
    removed = [*lost, *unreadable] if drop_rows_with_missing_vectors else lost
    if not dry_run:
        if unreadable and drop_rows_with_missing_vectors is None:
            raise _would_drop_rows(unreadable)
        if removed:
            now_ms = txn.log.now_ms()
            removes = [file.remove(now_ms) for file in removed]
            txn.commit(removes, _FSCK, metrics={"numRemovedFiles": len(removes)})
    return [
        *_report(lost, "data file missing", is_removed=not dry_run),
        *_report(
            unreadable,
            "deletion vector missing",
            is_removed=not dry_run and drop_rows_with_missing_vectors is True,
        ),
    ]


def _report(
    files: Sequence[AddFile], reason: MissingPart, *, is_removed: bool
) -> list[UnreadableFile]:
    return [
        UnreadableFile(
            path=file.path, reason=reason, num_rows=_num_live_rows(file), is_removed=is_removed
        )
        for file in files
    ]


def _num_live_rows(file: AddFile) -> int | None:
    """The rows that the deletion vector, of which the log tells the size, leaves of a file."""
    if file.num_records is None or file.deletion_vector is None:
        return file.num_records
    return file.num_records - file.deletion_vector.cardinality


def _would_drop_rows(files: Sequence[AddFile]) -> OperationNotAllowedError:
    counts = [_num_live_rows(file) for file in files]
    known = sum(count for count in counts if count is not None)
    return OperationNotAllowedError(
        "DELTA_REPAIR_WOULD_DROP_ROWS",
        numFiles=len(files),
        numRows=f"at least {known}" if None in counts else known,
        path=files[0].path,
    )
