"""Files that a transaction would have read, had they been there: judged by partition values.

Statistics are left out on purpose: delta-spark does not use them here, and a writer may not have
collected any.  Values that cannot be read count as a match.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY
from pyspark_delta.kernel.scan.partitions import partition_mask
from pyspark_delta.kernel.scan.predicates import TRUE, Predicate
from pyspark_delta.kernel.txn.prepared import WinningCommit
from pyspark_delta.kernel.txn.reads import READ_SCHEMA, ReadSet

# Up to here partitions are judged one by one, and remembered: writers come back to the same few.
_FEW = 64


def first_match(
    reads: ReadSet, metadata: Metadata | None, winner: WinningCommit
) -> StringMap | None:
    """The partition values of a file of `winner` that `reads` would have seen; None without one.

    `metadata` is what the table was when it was read, None before it existed.  Files of a table
    without partitions are all alike.
    """
    if not winner.num_adds:
        return None
    is_partitioned = metadata is not None and bool(metadata.partition_columns)
    if reads.whole_table or not is_partitioned or TRUE in reads.predicates:
        return winner.add_partitions(1)[0]
    assert metadata is not None
    if winner.num_adds > _FEW:
        return _first_of_many(reads, metadata, winner.adds)
    partitioning = _partitioning(metadata)
    for values in winner.add_partitions(_FEW):
        items = tuple(sorted(values.items()))
        if any(_is_selected(predicate, partitioning, items) for predicate in reads.predicates):
            return values
    return None


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
    predicate: Predicate, metadata: Metadata, values: tuple[tuple[str, str | None], ...]
) -> bool:
    file = pa.table({"path": ["a file"], "partitionValues": [values]}, schema=READ_SCHEMA)
    return bool(_mask(predicate, metadata, file)[0].as_py())


def _first_of_many(reads: ReadSet, metadata: Metadata, adds: pa.Table) -> StringMap | None:
    for predicate in reads.predicates:
        position = pc.index(_mask(predicate, metadata, adds), True).as_py()
        if position >= 0:
            return dict(adds.column("partitionValues")[position].as_py() or ())
    return None


def _mask(predicate: Predicate, metadata: Metadata, adds: pa.Table) -> pa.BooleanArray:
    try:
        return partition_mask(predicate, adds, metadata)
    except DeltaError:
        return pa.array([True] * adds.num_rows)
