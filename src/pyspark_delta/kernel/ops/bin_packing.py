"""Which files to write together: small ones of a partition, in bins of about one file each.

A plan, made of the log alone; who writes the files and commits is elsewhere.  OPTIMIZE and the
compaction after a commit plan alike.

>>> list(_runs([(0, 3), (0, 4), (0, 6), (1, 1)], 8))  # (partition, bytes) -> (first, how many)
[(0, 2), (2, 1), (3, 1)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.scan.partitions import partition_columns_table

_UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """When a file is written anew, and how large the new one may get.

    Files below `small` bytes are, and files of which more than the share `deleted` of the rows is
    deleted; `largest` is what the files of a bin add up to at most.
    """

    small: int = 1 << 30
    largest: int = 1 << 30
    deleted: float = 0.05


def plan_compaction(files: pa.Table, metadata: Metadata, sizes: Sizes) -> list[pa.Table]:
    """Bins of at least two files, each of one partition: every bin is to become one file.

    `files` are add actions; those that stay as they are in no bin.
    """
    chosen = files.filter(_is_due(files, sizes))
    numbers = partition_numbers(partition_columns_table(chosen, metadata))
    return _bins(chosen, numbers, sizes.largest)


def plan_rewrite(files: pa.Table, metadata: Metadata, largest: int) -> list[pa.Table]:
    """Bins of one partition each, and of every file: a bin may be one file alone."""
    numbers = partition_numbers(partition_columns_table(files, metadata))
    return _bins(files, numbers, largest, least=1)


def plan_partitions(files: pa.Table, metadata: Metadata) -> list[pa.Table]:
    """A bin for each partition, with all of its files."""
    return plan_rewrite(files, metadata, _UNBOUNDED)


def plan_in_order(files: pa.Table, largest: int) -> list[pa.Table]:
    """Bins of files in the order that they have; a bin may be one file alone."""
    sizes = ((0, size) for size in files.column("size").to_pylist())
    return [files.slice(start, count) for start, count in _runs(sizes, largest)]


def batches(bins: Sequence[pa.Table], largest: int | None) -> list[list[pa.Table]]:
    """Bins that are committed together, of at most `largest` bytes; all of them without one.

    A bin that is larger than that is a batch alone.
    """
    if largest is None:
        return [list(bins)]
    sized = sorted(((num_bytes(each), place) for place, each in enumerate(bins)))
    runs = _runs(((0, size) for size, _ in sized), largest)
    return [[bins[place] for _, place in sized[start : start + count]] for start, count in runs]


def num_bytes(files: pa.Table) -> int:
    """How large files are together."""
    total: int = pc.sum(files.column("size"), min_count=0).as_py()
    return total


def plan_auto_compaction(
    files: pa.Table,
    metadata: Metadata,
    sizes: Sizes,
    *,
    added: Sequence[str],
    least_files: int,
    most_partitions: int,
) -> list[pa.Table]:
    """Bins of the partitions that a commit added files to, where small files have become many.

    `added` are the paths that the commit added.  A partition counts once it has `least_files`
    files that are due; of more than `most_partitions` those with most of them are taken.
    """
    due = files.filter(_is_due(files, sizes))
    numbers = partition_numbers(partition_columns_table(due, metadata))
    is_new = pc.is_in(due.column("path"), value_set=pa.array(added, pa.string()))
    touched = pc.is_in(numbers, value_set=pc.unique(numbers.filter(is_new.combine_chunks())))
    counts = pc.value_counts(numbers.filter(touched))
    many = sorted(
        (
            (count["counts"], -count["values"])
            for count in counts.to_pylist()
            if count["counts"] >= max(least_files, 2)
        ),
        reverse=True,
    )
    wanted = pa.array([-number for _, number in many[:most_partitions]], pa.int64())
    mask = pc.is_in(numbers, value_set=wanted)
    return _bins(due.filter(mask), numbers.filter(mask), sizes.largest)


def partition_numbers(rows: pa.Table) -> pa.Array:
    """A number for each row, the same for rows with the same values; nulls are equal here."""
    numbers = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
    for name in rows.schema.names:
        column = rows.column(name).combine_chunks()
        encoded = column.dictionary_encode(null_encoding="encode")
        size = max(len(encoded.dictionary), 1)
        numbers = pc.add(pc.multiply(numbers, size), encoded.indices.cast(pa.int64()))
        # Numbered anew each time, so that they stay small however many columns there are.
        numbers = numbers.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _is_due(files: pa.Table, sizes: Sizes) -> pa.Array:
    is_small = pc.less(files.column("size"), sizes.small).combine_chunks()
    vectors = files.column("deletionVector").combine_chunks()
    if vectors.null_count == len(vectors):
        return is_small
    has_vector = pc.is_valid(vectors)
    places = pc.indices_nonzero(has_vector)
    worn = [
        place
        for place, file in zip(places.to_pylist(), add_files(files.filter(has_vector)), strict=True)
        if file.deletion_vector is not None
        and (
            # Who does not say how many rows it has will, once it is written anew.
            file.num_records is None
            or file.deletion_vector.cardinality > sizes.deleted * file.num_records
        )
    ]
    every = pa.array(range(files.num_rows), pa.int64())
    return pc.or_(is_small, pc.is_in(every, value_set=pa.array(worn, pa.int64())))


def _bins(files: pa.Table, numbers: pa.Array, largest: int, *, least: int = 2) -> list[pa.Table]:
    keys = pa.table(
        {"partition": numbers, "size": files.column("size"), "path": files.column("path")}
    )
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names])
    ordered = files.take(order)
    places = zip(numbers.take(order).to_pylist(), ordered.column("size").to_pylist(), strict=True)
    runs = _runs(places, largest)
    return [ordered.slice(start, count) for start, count in runs if count >= least]


def _runs(files: Iterable[tuple[int, int]], largest: int) -> Iterator[tuple[int, int]]:
    """Where each bin starts and how many files it has: a file that does not fit starts another."""
    start = count = total = 0
    current: int | None = None
    for number, size in files:
        if count and (number != current or total + size > largest):
            yield start, count
            start, count, total = start + count, 0, 0
        current, count, total = number, count + 1, total + size
    if count:
        yield start, count
