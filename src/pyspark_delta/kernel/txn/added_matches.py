"""Files that a transaction would have read, had they been there.

A file is judged as a scan would judge it: by partition values and by statistics, against the whole
condition of each read.  It counts as a match unless it is certain that no row of it is wanted, and
so does one whose values or statistics are missing or cannot be read.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY
from pyspark_delta.kernel.scan.binding import bind
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.kernel.scan.partitions import partition_columns_table, partition_mask
from pyspark_delta.kernel.scan.predicates import TRUE, Predicate, split_partition_part
from pyspark_delta.kernel.scan.skipping import skipping_mask
from pyspark_delta.kernel.scan.stats_columns import parse_stats, stats_leaves
from pyspark_delta.kernel.txn.prepared import WinningCommit
from pyspark_delta.kernel.txn.reads import READ_SCHEMA, ReadSet

# Up to here partitions are judged one by one, and remembered: writers come back to the same few.
_FEW = 64


def first_match(
    reads: ReadSet,
    metadata: Metadata | None,
    winner: WinningCommit,
    settled: frozenset[str] = frozenset(),
) -> StringMap | None:
    """The partition values of a file of `winner` that `reads` would have seen; None without one.

    `metadata` is what the table was when it was read, None before it existed.  Files at the
    canonical paths `settled` do not count.
    """
    if not winner.num_adds:
        return None
    predicates = reads.predicates
    # Whoever changes a table without partitions, and says of no read what it was for, read it all.
    tells = metadata is not None and bool(metadata.partition_columns or predicates)
    if reads.whole_table or not tells or TRUE in predicates:
        if not settled:
            return winner.add_partitions(1)[0]
        predicates = (TRUE,)
    counted = _counted(winner, settled)
    for predicate in dict.fromkeys(predicates):
        found = _first_of(predicate, metadata, winner, counted, reads.time_zone)
        if found is not None:
            return _values_at(winner, found)
    return None


def _counted(winner: WinningCommit, settled: frozenset[str]) -> list[int]:
    """The positions of the files that count."""
    if not settled:
        return list(range(winner.num_adds))
    names = winner.add_paths.to_pylist()
    return [position for position, name in enumerate(names) if name not in settled]


def _values_at(winner: WinningCommit, position: int) -> StringMap:
    return dict(winner.adds.column("partitionValues")[position].as_py() or ())


def _first_of(
    predicate: Predicate,
    metadata: Metadata | None,
    winner: WinningCommit,
    counted: list[int],
    time_zone: str,
) -> int | None:
    """The first of the counted files that `predicate` may select a row of."""
    if predicate == TRUE or metadata is None:
        return counted[0] if counted else None
    partition_part, data_part = _parts(predicate, metadata.partition_columns)
    left = _of_partitions(partition_part, metadata, winner, counted, time_zone)
    if not left or data_part == TRUE:
        return left[0] if left else None
    files = winner.adds.take(pa.array(left, pa.int64()))
    mask = _stats_mask(data_part, metadata, files, time_zone)
    position = pc.index(mask, True).as_py()
    return left[position] if position >= 0 else None


@lru_cache(maxsize=4096)
def _parts(predicate: Predicate, columns: tuple[str, ...]) -> tuple[Predicate, Predicate]:
    return split_partition_part(predicate, columns)


def _of_partitions(
    predicate: Predicate,
    metadata: Metadata,
    winner: WinningCommit,
    counted: list[int],
    time_zone: str,
) -> list[int]:
    if predicate == TRUE:
        return counted
    if winner.num_adds > _FEW:
        mask = _partition_mask(predicate, metadata, winner.adds, time_zone).to_pylist()
        return [position for position in counted if mask[position]]
    partitioning = _partitioning(metadata)
    values = winner.add_partitions(_FEW)
    return [
        position
        for position in counted
        if _is_selected(predicate, partitioning, tuple(sorted(values[position].items())), time_zone)
    ]


def _partitioning(metadata: Metadata) -> Metadata:
    """As much of the metadata as decides what a partition value means."""
    mode = metadata.configuration.get(MODE_KEY)
    return Metadata(
        id="",
        schema_string=metadata.schema_string,
        partition_columns=metadata.partition_columns,
        configuration={} if mode is None else {MODE_KEY: mode},
    )


@lru_cache(maxsize=4096)
def _is_selected(
    predicate: Predicate,
    metadata: Metadata,
    values: tuple[tuple[str, str | None], ...],
    time_zone: str,
) -> bool:
    file = pa.table({"path": ["a file"], "partitionValues": [values]}, schema=READ_SCHEMA)
    return bool(_partition_mask(predicate, metadata, file, time_zone)[0].as_py())


def _partition_mask(
    predicate: Predicate, metadata: Metadata, adds: pa.Table, time_zone: str
) -> pa.BooleanArray:
    try:
        return partition_mask(predicate, adds, metadata, time_zone=time_zone)
    except DeltaError:
        return _all_of(adds)


def _stats_mask(
    predicate: Predicate, metadata: Metadata, adds: pa.Table, time_zone: str
) -> pa.BooleanArray:
    try:
        bound = bind(predicate, metadata.schema, time_zone=time_zone, lenient=True)
        leaves = stats_leaves(bound, metadata)
        stats = parse_stats(adds.column("stats"), leaves) if leaves else adds.select(["path"])
        partitions = None
        if metadata.partition_columns:
            partitions = partition_columns_table(adds, metadata, zone=zone_named(time_zone))
        return skipping_mask(bound, stats, partitions=partitions)
    except DeltaError:
        return _all_of(adds)


def _all_of(adds: pa.Table) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(True), adds.num_rows)
