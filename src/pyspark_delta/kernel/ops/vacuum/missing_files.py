"""Find files that the log names and storage lacks, and repair: remove them from the table.

A file is missing when its data is, or the file of its deletion vector: it cannot be read in either
case.  The rows of a missing data file are lost anyway.  Where only the vector is missing, the rows
still exist, but which of them are deleted is unknown: removing that data file loses live rows,
which requires an explicit option.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.rewrite_plan import num_live_rows
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import INLINE, locate
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations, descriptor_of
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

# delta-rs's name of the operation; delta-spark has no such command.
_FSCK = Operation(name="FSCK", changes_data=True)
_THREADS = 16
# A directory with at least so many files to check is listed; for fewer, each file costs a request.
_LISTED_FROM = 32

MissingPart = Literal["data file missing", "deletion vector missing"]
_Place = tuple[LogStore, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A file of the table that cannot be read; `path` is spelled as in the log.

    `num_rows` are its live rows, None where the log has no statistics of them.  `is_removed` is
    true if this repair removed it from the table.
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
    """Remove missing files from the table, and return the unreadable files.

    Files of which only the deletion vector is missing are removed for
    `drop_rows_with_missing_vectors`, left alone for False, and an error for None.  Nothing is
    committed when there is nothing to remove, or with `dry_run`.
    """
    if txn.snapshot is None:
        return []
    lost, unreadable = (
        list(add_files(table)) for table in _find_missing(txn.snapshot.adds, locations)
    )
    removed = [*lost, *unreadable] if drop_rows_with_missing_vectors else lost
    if not dry_run:
        if unreadable and drop_rows_with_missing_vectors is None:
            raise _would_drop_rows(unreadable)
        if removed:
            now_ms = txn.log.now_ms()
            removes = [file.remove(now_ms) for file in removed]
            txn.commit(removes, _FSCK, metrics={"numRemovedFiles": len(removes)})
    drops = not dry_run and drop_rows_with_missing_vectors is True
    return [
        *_report(lost, "data file missing", is_removed=not dry_run),
        *_report(unreadable, "deletion vector missing", is_removed=drops),
    ]


def missing_files(files: pa.Table, locations: Locations) -> pa.Table:
    """The rows of `files`, a table of add actions, that are unreadable for want of a file."""
    return pa.concat_tables(_find_missing(files, locations))


def _find_missing(files: pa.Table, locations: Locations) -> tuple[pa.Table, pa.Table]:
    """The unreadable files: those without their data, and those only without their vector."""
    none = files.slice(0, 0)
    if not files.num_rows:
        return none, none
    resolved = locations.resolve(files.column("path"))
    columns = (resolved.column(name).to_pylist() for name in (LOCATION, IS_ABSOLUTE))
    data = [locations.located(*place) for place in zip(*columns, strict=True)]
    vectors = _vector_places(files, locations)
    absent = _absent({*data, *vectors.values()})
    if not absent:
        return none, none
    no_data = [place in absent for place in data]
    no_vector = [vectors.get(row) in absent and not lost for row, lost in enumerate(no_data)]
    return (
        files.filter(pa.array(no_data, pa.bool_())),
        files.filter(pa.array(no_vector, pa.bool_())),
    )


def _vector_places(files: pa.Table, locations: Locations) -> dict[int, _Place]:
    column = files.column("deletionVector").combine_chunks()
    rows = pc.indices_nonzero(pc.is_valid(column))
    places: dict[int, _Place] = {}
    for row, value in zip(rows.to_pylist(), column.take(rows).to_pylist(), strict=True):
        descriptor = descriptor_of(value)
        if descriptor is None or descriptor.storage_type == INLINE:
            continue
        where = locate(descriptor)
        if where.uri is not None:
            places[row] = locations.open(where.uri)
        else:
            places[row] = locations.located(where.path or "", False)
    return places


def _absent(places: set[_Place]) -> set[_Place]:
    """The places without a file; no file is opened."""
    directories: dict[_Place, list[str]] = {}
    for store, path in places:
        directories.setdefault((store, path.rpartition("/")[0]), []).append(path)
    with ThreadPoolExecutor(min(_THREADS, len(directories))) as pool:
        absent = pool.map(_absent_in, directories, directories.values())
        return {place for each in absent for place in each}


def _absent_in(directory: _Place, paths: Sequence[str]) -> list[_Place]:
    store, name = directory
    if len(paths) < _LISTED_FROM:
        return [(store, path) for path in paths if not store.exists(path)]
    existing = {info.path for info in store.list_from(f"{name}/".lstrip("/"))}
    return [(store, path) for path in paths if path not in existing]


def _report(
    files: Sequence[AddFile], reason: MissingPart, *, is_removed: bool
) -> list[UnreadableFile]:
    return [
        UnreadableFile(
            path=file.path, reason=reason, num_rows=num_live_rows([file]), is_removed=is_removed
        )
        for file in files
    ]


def _would_drop_rows(files: Sequence[AddFile]) -> OperationNotAllowedError:
    counts = [num_live_rows([file]) for file in files]
    known = sum(count for count in counts if count is not None)
    return OperationNotAllowedError(
        "DELTA_REPAIR_WOULD_DROP_ROWS",
        numFiles=len(files),
        numRows=f"at least {known}" if None in counts else known,
        path=files[0].path,
    )
