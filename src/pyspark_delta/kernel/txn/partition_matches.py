"""Files that a transaction would have read, had they been there: judged by partition values.

Statistics are left out on purpose: delta-spark does not use them here, and a writer may not have
collected any.  Values that cannot be read count as a match.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.scan.partitions import partition_mask
from pyspark_delta.kernel.scan.predicates import TRUE
from pyspark_delta.kernel.txn.reads import ReadSet

PartitionValues = Mapping[str, str | None]


def first_match(
    reads: ReadSet, metadata: Metadata | None, adds: pa.Table
) -> PartitionValues | None:
    """The partition values of the first of `adds` that `reads` would have seen; None without one.

    `metadata` is what the table was when it was read, None before it existed.  Files of a table
    without partitions are all alike.
    """
    if not adds.num_rows:
        return None
    is_partitioned = metadata is not None and bool(metadata.partition_columns)
    if reads.whole_table or not is_partitioned or TRUE in reads.predicates:
        return _values(adds, 0)
    assert metadata is not None
    for predicate in reads.predicates:
        try:
            mask = partition_mask(predicate, adds, metadata)
        except DeltaError:
            return _values(adds, 0)
        position = pc.index(mask, True).as_py()
        if position >= 0:
            return _values(adds, position)
    return None


def _values(adds: pa.Table, position: int) -> PartitionValues:
    return dict(adds.column("partitionValues")[position].as_py() or ())
