"""The histograms of a version checksum: sizes of files, and deleted rows per file.

Histograms are immutable: adding or removing a file gives a new one.  PROTOCOL.md, "File Size
Histogram Schema"; the bins are those of delta-spark.

>>> EMPTY_FILE_SIZES.change(added=[10_000], removed=[]).file_counts[:3]
(0, 1, 0)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.codec import MalformedRecordError, Record, form

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30
# (first, last, step): finest around the 128 MB that writers aim for.
_MEGABYTE_RUNS = (
    (8, 40, 4),
    (48, 120, 8),
    (124, 144, 4),
    (160, 576, 16),
    (640, 1408, 64),
    (1536, 2048, 128),
    (2304, 4096, 256),
)
FILE_SIZE_BINS: tuple[int, ...] = (
    0,
    *(_KB << power for power in range(3, 13)),  # 8 KB to 4 MB
    *(mb * _MB for first, last, step in _MEGABYTE_RUNS for mb in range(first, last + 1, step)),
    *(_GB << power for power in range(3, 9)),  # 8 GB to 256 GB
)
# The first count of each bin; the last begins where a 32-bit count ends.
DELETED_RECORD_BINS: tuple[int, ...] = (0, *(10**power for power in range(8)), 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSizeHistogram(Record):
    """The number of files, and their bytes, from each boundary (included) to the next."""

    boundaries: tuple[int, ...] = field(metadata=form("sortedBinBoundaries"))
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]

    def __post_init__(self) -> None:
        bins = len(self.boundaries)
        if not bins or len(self.file_counts) != bins or len(self.total_bytes) != bins:
            raise MalformedRecordError("the histogram's lists differ in length")
        if self.boundaries[0] != 0 or list(self.boundaries) != sorted(set(self.boundaries)):
            raise MalformedRecordError("the histogram's boundaries do not rise from 0")

    def change(self, *, added: Iterable[int], removed: Iterable[int]) -> FileSizeHistogram:
        """The histogram after a change of files, given by sizes; a count below 0 shows misuse."""
        counts, total = list(self.file_counts), list(self.total_bytes)
        for sign, sizes in ((1, added), (-1, removed)):
            for size in sizes:
                index = bisect_right(self.boundaries, size) - 1
                if index >= 0:  # a size below zero has no bin
                    counts[index] += sign
                    total[index] += sign * size
        return replace(self, file_counts=tuple(counts), total_bytes=tuple(total))

    @property
    def is_possible(self) -> bool:
        return min(self.file_counts) >= 0 and min(self.total_bytes) >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRecordCountsHistogram(Record):
    """The number of files by their deleted rows, in ten bins that grow by powers of ten."""

    counts: tuple[int, ...] = field(metadata=form("deletedRecordCounts"))

    def __post_init__(self) -> None:
        if len(self.counts) != len(DELETED_RECORD_BINS):
            raise MalformedRecordError("the histogram of deleted records has not ten bins")

    def change(
        self, *, added: Iterable[int], removed: Iterable[int]
    ) -> DeletedRecordCountsHistogram:
        """The histogram after adding and removing files with these numbers of deleted rows."""
        counts = list(self.counts)
        for sign, numbers in ((1, added), (-1, removed)):
            for number in numbers:
                index = bisect_right(DELETED_RECORD_BINS, number) - 1
                if index >= 0:
                    counts[index] += sign
        return DeletedRecordCountsHistogram(counts=tuple(counts))

    @property
    def is_possible(self) -> bool:
        return min(self.counts) >= 0


EMPTY_FILE_SIZES = FileSizeHistogram(
    boundaries=FILE_SIZE_BINS,
    file_counts=(0,) * len(FILE_SIZE_BINS),
    total_bytes=(0,) * len(FILE_SIZE_BINS),
)
EMPTY_DELETED_RECORDS = DeletedRecordCountsHistogram(counts=(0,) * len(DELETED_RECORD_BINS))


def file_size_histogram(sizes: pa.ChunkedArray) -> FileSizeHistogram:
    """The histogram of a whole column of sizes."""
    counts, total = _binned(sizes, FILE_SIZE_BINS)
    return replace(EMPTY_FILE_SIZES, file_counts=tuple(counts), total_bytes=tuple(total))


def deleted_records_histogram(cardinalities: pa.ChunkedArray) -> DeletedRecordCountsHistogram:
    """The histogram of a whole column of deleted rows, 0 where a file has no vector."""
    counts, _ = _binned(cardinalities, DELETED_RECORD_BINS)
    return DeletedRecordCountsHistogram(counts=tuple(counts))


def _binned(values: pa.ChunkedArray, boundaries: Sequence[int]) -> tuple[list[int], list[int]]:
    """How many values each bin has, and their sum."""
    counts, sums = [0] * len(boundaries), [0] * len(boundaries)
    # From the top down: each pass counts only values that the passes before left over.
    rest = values
    for index in reversed(range(len(boundaries))):
        inside = pc.greater_equal(rest, boundaries[index])
        if count := pc.sum(inside).as_py():
            counts[index] = count
            sums[index] = pc.sum(rest.filter(inside)).as_py()
            rest = rest.filter(pc.invert(inside))
    return counts, sums
