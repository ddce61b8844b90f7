"""Plan which files OPTIMIZE and auto compaction rewrite together: bins, and cubes of clusterings.

A bin of small files of a partition becomes about one new file.  A ZCube is a set of files that one
OPTIMIZE of a clustered table ordered together: tags of a file have the id of its cube, and the
columns of its order.  A cube grows with every OPTIMIZE until it is large enough to be left alone,
so that the work is proportional to the new rows.

Plans need the log alone; other modules order and write the rows.  PROTOCOL.md, "Clustered Table".

>>> list(_runs([(0, 3), (0, 4), (0, 6), (1, 1)], 8))  # (partition, bytes) -> (first, how many)
[(0, 2), (2, 1), (3, 1)]
>>> ZCube(id="1", columns=("a", "b")).tags
{'ZCUBE_ID': '1', 'ZCUBE_ZORDER_BY': '["a","b"]'}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.codec import dumps
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table

PROVIDER = "liquid"
"""The clustering provider in a file's add action."""

_UNBOUNDED = 2**63 - 1
_ID, _ORDERED_BY = "ZCUBE_ID", "ZCUBE_ZORDER_BY"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Which files are rewritten, and how large the new ones may get.

    A file is rewritten if it is below `small` bytes, or if more than the share `deleted` of its
    rows is deleted; `largest` is the largest sum of sizes in a bin.
    """

    small: int = 1 << 30
    largest: int = 1 << 30
    deleted: float = 0.05


def plan_compaction(files: pa.Table, metadata: Metadata, sizes: Sizes) -> list[pa.Table]:
    """Bins of at least two files, each of one partition: every bin is to become one file.

    `files` are add actions; files that are not rewritten are in no bin.
    """
    chosen = files.filter(_is_due(files, sizes))
    return _bins(chosen, _partition_of_each(chosen, metadata), sizes.largest)


def plan_rewrite(files: pa.Table, metadata: Metadata, largest: int = _UNBOUNDED) -> list[pa.Table]:
    """Bins of one partition each, with every file: a bin may hold a single file."""
    return _bins(files, _partition_of_each(files, metadata), largest, least=1)


def plan_in_order(files: pa.Table, largest: int) -> list[pa.Table]:
    """Bins of files in their given order; a bin may hold a single file."""
    sizes = ((0, size) for size in files.column("size").to_pylist())
    return [files.slice(start, count) for start, count in _runs(sizes, largest)]


def batches(bins: Sequence[pa.Table], largest: int | None) -> list[list[pa.Table]]:
    """Batches of bins to commit together, of at most `largest` bytes; one batch without a limit.

    A bin that is larger than the limit is a batch by itself.
    """
    if largest is None:
        return [list(bins)]
    sized = sorted(((num_bytes(each), place) for place, each in enumerate(bins)))
    runs = _runs(((0, size) for size, _ in sized), largest)
    return [[bins[place] for _, place in sized[start : start + count]] for start, count in runs]


def num_bytes(files: pa.Table) -> int:
    """The total size of files."""
    return int(pc.sum(files.column("size"), min_count=0).as_py())


def plan_auto_compaction(
    files: pa.Table,
    metadata: Metadata,
    sizes: Sizes,
    *,
    added: Sequence[str],
    least_files: int,
    most_partitions: int,
) -> list[pa.Table]:
    """Bins of the partitions that a commit added files to and that have many small files.

    `added` are the paths that the commit added.  A partition qualifies with `least_files`
    small files; of more than `most_partitions` those with the most are chosen.
    """
    due = files.filter(_is_due(files, sizes))
    numbers = _partition_of_each(due, metadata)
    is_new = pc.is_in(due.column("path"), value_set=pa.array(added, pa.string()))
    touched = pc.is_in(numbers, value_set=pc.unique(numbers.filter(is_new.combine_chunks())))
    counts = pc.value_counts(numbers.filter(touched))
    many = [each for each in counts.to_pylist() if each["counts"] >= max(least_files, 2)]
    many.sort(key=lambda each: (-each["counts"], each["values"]))
    wanted = pa.array([each["values"] for each in many[:most_partitions]], pa.int64())
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
        # Numbered again for each column, so that numbers stay small with any number of columns.
        numbers = numbers.dictionary_encode().indices.cast(pa.int64())
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCube:
    """A set of files that are ordered together, by columns under their logical names."""

    id: str
    columns: tuple[str, ...]

    @property
    def tags(self) -> dict[str, str]:
        return {_ID: self.id, _ORDERED_BY: dumps(list(self.columns))}


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeSizes:
    """A cube of `sealed` bytes is left alone; new ones get about `target` bytes."""

    sealed: int = 100 * _GIB
    target: int = 150 * _GIB

    @property
    def largest(self) -> int:
        return max(self.sealed, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """The number of files and their total size."""

    num_files: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """Bins of files, each to become a cube, and counts for the metrics.

    `in_cubes` are files in cubes by the same columns, or in any cube when all are ordered again;
    `others` are the rest.
    """

    bins: tuple[pa.Table, ...] = field(hash=False)
    in_cubes: FileCount
    others: FileCount
    num_cubes: int
    merged: FileCount


def plan_clustering(
    files: pa.Table, columns: Sequence[str], sizes: CubeSizes, *, is_full: bool = False
) -> ClusteringPlan:
    """Plan which files of a clustered table to order together.

    The plan has files in no cube, and cubes by `columns` that are not large enough yet, unless
    there is just one such cube and nothing to merge it with.  With `is_full` it has cubes by other
    columns as well.
    """
    ids = _tag(files, _ID)
    by = _tag(files, _ORDERED_BY)
    ids = pc.if_else(pc.is_valid(by), ids, pa.scalar(None, pa.string()))
    order = pc.sort_indices(pc.fill_null(ids, ""))  # files in no cube first
    files, ids, by = files.take(order), ids.take(order), by.take(order)
    is_free = pc.is_null(ids)
    is_same = pc.and_(pc.invert(is_free), _is_by(by, columns))
    provider = files.column("clusteringProvider").combine_chunks()
    is_ours = pc.fill_null(pc.equal(provider, PROVIDER), True)
    is_candidate = pc.and_(is_ours, pc.or_(is_free, is_same))
    is_small = pc.and_(is_candidate, pc.invert(_is_in_large(files, ids, is_candidate, sizes)))
    is_other = pc.invert(is_candidate)
    if is_full and pc.any(is_other).as_py():
        # The small ones first: cubes stay together.
        places = pa.concat_arrays([pc.indices_nonzero(is_small), pc.indices_nonzero(is_other)])
        chosen = files.take(places)
    elif _num_cubes(ids.filter(is_small)) < 2 and not pc.any(pc.and_(is_free, is_small)).as_py():
        chosen = files.slice(0, 0)
    else:
        chosen = files.filter(is_small)
    counted = pc.invert(is_free) if is_full else is_same
    return ClusteringPlan(
        bins=tuple(plan_in_order(chosen, sizes.largest)),
        in_cubes=_count(files.filter(counted)),
        others=_count(files.filter(pc.invert(counted))),
        num_cubes=_num_cubes(ids.filter(counted)),
        merged=_count(chosen),
    )


def _partition_of_each(files: pa.Table, metadata: Metadata) -> pa.Array:
    return partition_numbers(partition_columns_table(files, metadata))


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
            # A file without a row count gets one when it is rewritten.
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
    """The start of each bin and its number of files: a file that does not fit starts a new bin."""
    start = count = total = 0
    current: int | None = None
    for number, size in files:
        if count and (number != current or total + size > largest):
            yield start, count
            start, count, total = start + count, 0, 0
        current, count, total = number, count + 1, total + size
    if count:
        yield start, count


def _tag(files: pa.Table, key: str) -> pa.Array:
    tags = pc.map_lookup(files.column("tags"), pa.scalar(key), "first")
    return tags.combine_chunks().cast(pa.string())


def _is_by(ordered_by: pa.Array, columns: Sequence[str]) -> pa.Array:
    """Whether each text is a list of these columns; many files share few texts."""
    same = [text for text in pc.unique(ordered_by).to_pylist() if _columns(text) == list(columns)]
    return pc.is_in(ordered_by, value_set=pa.array(same, pa.string()))


def _columns(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None  # a malformed tag: its writer ordered by unknown columns


def _is_in_large(
    files: pa.Table, ids: pa.Array, is_candidate: pa.Array, sizes: CubeSizes
) -> pa.Array:
    """Whether each file is in a cube that has reached its full size."""
    known = pc.and_(is_candidate, pc.is_valid(ids))
    cubes = pa.table({"id": ids.filter(known), "size": files.column("size").filter(known)})
    totals = cubes.group_by("id").aggregate([("size", "sum")])
    large = totals.filter(pc.greater_equal(totals.column("size_sum"), sizes.sealed)).column("id")
    return pc.and_(known, pc.is_in(ids, value_set=large.combine_chunks()))


def _num_cubes(ids: pa.Array) -> int:
    return len(pc.unique(ids.drop_null()))


def _count(files: pa.Table) -> FileCount:
    return FileCount(num_files=files.num_rows, num_bytes=num_bytes(files))
