"""Plan what happens to each file with changed rows: deletion vector, removal, or rewrite.

A touched file stays and gets a larger deletion vector, or it is removed: as a whole when no row of
it is left, else its other rows are written to a new file.  The choice for each file depends on its
cost.  The input is positions of rows; conditions and clauses are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import pyarrow.parquet as pq

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, check_rows_exist
from pyspark_delta.kernel.protocol.stats import with_num_records
from pyspark_delta.kernel.scan.locations import Locations, VectorReader

FileMode = Literal["vector", "remove", "rewrite"]
"""The change of a touched file: a larger vector, removal, or a rewrite of its other rows."""

# Above this share of deleted rows the others are copied: with a vector scans read all rows.
_REWRITTEN_ABOVE = 0.95
# In a file of fewer rows, scanning the deleted ones has no noticeable cost.
_SMALL_FILE_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that loses rows.  `rows` are deleted now; `gone` are these and those deleted before.

    `file` is the log's add action, always with its number of records.
    """

    file: AddFile
    rows: DeletionVector = field(hash=False)
    gone: DeletionVector = field(hash=False)
    mode: FileMode

    @property
    def num_left(self) -> int:
        return (self.file.num_records or 0) - self.gone.cardinality


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFile:
    """A removed file, with the numbers of its touched live rows and of its other live rows.

    The positions of the touched rows are not known; the command's condition finds them again.
    """

    file: AddFile
    num_rows: int
    num_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """Every file that a command touches, with its planned change.

    `counted` are removed files whose touched rows a condition finds again.
    """

    files: tuple[ChangedFile, ...] = ()
    counted: tuple[CountedFile, ...] = ()

    def of(self, *modes: FileMode) -> tuple[ChangedFile, ...]:
        return tuple(each for each in self.files if each.mode in modes)

    @property
    def num_rows(self) -> int:
        noted = sum(each.rows.cardinality for each in self.files)
        return noted + sum(each.num_rows for each in self.counted)

    @property
    def removed(self) -> list[AddFile]:
        """The removed files: their other rows, if any, are written to new files."""
        noted = [each.file for each in self.of("remove", "rewrite")]
        return noted + [each.file for each in self.counted]

    @property
    def num_copied(self) -> int:
        """The number of remaining rows that are copied to new files."""
        noted = sum(each.num_left for each in self.of("rewrite"))
        return noted + sum(each.num_left for each in self.counted)

    def metrics(
        self, written: Sequence[AddFile], changes: Sequence[AddCDCFile]
    ) -> dict[str, object]:
        """The metrics of file changes, under the names that DELETE and UPDATE record.

        A file that only gets a vector counts as neither added nor removed.  As in delta-spark, a
        vector that replaces another counts as added, removed and updated.
        """
        removed, vectored = self.removed, self.of("vector")
        updated = sum(each.file.deletion_vector is not None for each in vectored)
        gone = sum(file.deletion_vector is not None for file in removed)
        return {
            "numAddedFiles": len(written),
            "numRemovedFiles": len(removed),
            "numAddedBytes": sum(file.size for file in written),
            "numRemovedBytes": sum(file.size for file in removed),
            "numAddedChangeFiles": len(changes),
            "numCopiedRows": self.num_copied,
            "numDeletionVectorsAdded": len(vectored),
            "numDeletionVectorsRemoved": gone + updated,
            "numDeletionVectorsUpdated": updated,
        }


class RewritePlanner:
    """Decides how each touched file changes.

    It reads a file's vector, and its number of rows where the log lacks that.  `places` returns the
    locations that may be read; it is called for the first file.
    """

    def __init__(self, places: Callable[[], Locations]) -> None:
        self._places = places

    def by_rows(
        self,
        touched: Iterable[tuple[AddFile, DeletionVector]],
        *,
        with_vectors: bool,
        can_rewrite: bool = True,
    ) -> FileChanges:
        """The changes of a command that takes rows out of files, by their positions.

        Without `with_vectors` no file gets one; without `can_rewrite` a file gets one even where
        rewriting it would be cheaper.
        """
        return FileChanges(
            files=tuple(self._changed(*each, with_vectors, can_rewrite) for each in touched)
        )

    def by_counts(self, counts: Iterable[tuple[AddFile, int]]) -> FileChanges:
        """The changes of a command that writes no vectors, by the numbers of rows it touches."""
        return FileChanges(counted=tuple(self._counted(*each) for each in counts))

    def all_rows(self, files: Iterable[AddFile]) -> FileChanges:
        """The changes of a command that touches every row of files, without finding the rows."""
        return FileChanges(counted=tuple(self._counted(file, None) for file in files))

    def _changed(
        self, touched: AddFile, rows: DeletionVector, with_vectors: bool, can_rewrite: bool
    ) -> ChangedFile:
        file = self._with_num_records(touched)
        gone = rows
        if file.deletion_vector is not None:
            gone = gone.union(self._vectors.read(file.deletion_vector))
        num_records = file.num_records or 0
        check_rows_exist(gone, num_records)
        share = gone.cardinality / max(num_records, 1)
        is_costly = num_records >= _SMALL_FILE_ROWS and share > _REWRITTEN_ABOVE
        mode: FileMode = "vector"
        if share >= 1:
            mode = "remove"
        elif not with_vectors or (can_rewrite and is_costly):
            mode = "rewrite"
        return ChangedFile(file=file, rows=rows, gone=gone, mode=mode)

    def _counted(self, file: AddFile, num_rows: int | None) -> CountedFile:
        """`num_rows` is None for all rows."""
        known = self._with_num_records(file)
        num_live = num_live_rows([known]) or 0
        touched = num_live if num_rows is None else num_rows
        return CountedFile(file=known, num_rows=touched, num_left=num_live - touched)

    @cached_property
    def _locations(self) -> Locations:
        return self._places()

    @cached_property
    def _vectors(self) -> VectorReader:
        return VectorReader(self._locations)

    def _with_num_records(self, file: AddFile) -> AddFile:
        """The file with its number of records, from its footer where the log lacks it."""
        if file.num_records is not None:
            return file
        store, path = self._locations.open(file.path)
        with store.arrow_file(path) as opened:
            num_records = pq.read_metadata(opened).num_rows
        return replace(file, stats=with_num_records(file.stats, num_records))


def removed_metrics(files: Sequence[AddFile]) -> dict[str, object]:
    """The metrics of a command that only removes whole files."""
    whole = tuple(CountedFile(file=file, num_rows=0, num_left=0) for file in files)
    return FileChanges(counted=whole).metrics([], [])


def num_live_rows(files: Sequence[AddFile]) -> int | None:
    """The number of live rows of files; None when the statistics of one lack it."""
    total = 0
    for file in files:
        if file.num_records is None:
            return None
        total += file.num_records
        total -= 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return total
