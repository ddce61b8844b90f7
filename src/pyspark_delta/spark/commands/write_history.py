"""What a write says it did: the operation, its parameters and its metrics, as delta-spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile, Metadata
from pyspark_delta.kernel.protocol.operations import Operation, create_table, replace_table, write
from pyspark_delta.spark.commands.replaced_rows import Replaced, num_live_rows
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest

_MODES: Mapping[str, str] = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "ignore": "Ignore",
}


def write_operation(
    request: WriteRequest, asked: WriteOptions, metadata: Metadata, predicate: str | None
) -> Operation:
    """The operation; `metadata` is the table's, once it is done."""
    is_dynamic = asked.is_dynamic or None
    can_overwrite = asked.overwrites_schema or None
    can_merge = asked.merges_schema or None
    table = request.as_table
    if table is None:
        return write(
            _MODES[request.mode],
            partition_by=request.partition_by,
            predicate=predicate,
            is_dynamic_partition_overwrite=is_dynamic,
            can_overwrite_schema=can_overwrite,
            can_merge_schema=can_merge,
            replace_on=asked.replace_on,
            replace_using=asked.replace_using,
            user_metadata=asked.user_metadata,
        )
    if table.operation == "CREATE TABLE AS SELECT":
        return create_table(
            metadata, is_managed=table.is_managed, as_select=True, cluster_by=request.cluster_by
        )
    return replace_table(
        metadata,
        is_managed=table.is_managed,
        or_create=table.operation == "CREATE OR REPLACE TABLE AS SELECT",
        as_select=True,
        cluster_by=request.cluster_by,
        user_metadata=asked.user_metadata,
        predicate=predicate,
        isDynamicPartitionOverwrite=is_dynamic,
        canOverwriteSchema=can_overwrite,
        canMergeSchema=can_merge,
        isV1SaveAsTableOverwrite=table.is_v1_overwrite or None,
    )


def write_metrics(
    written: Sequence[AddFile],
    copied: Sequence[AddFile],
    changes: Sequence[AddCDCFile],
    replaced: Replaced,
) -> dict[str, object]:
    """Every metric that a write may have; its operation knows which of them it records.

    As delta-spark counts, a file that only got a vector was written, and its other rows copied.
    """
    marked = replaced.marked
    files = [*written, *copied, *marked]
    num_written = sum(file.num_records or 0 for file in written)
    num_copied = sum(file.num_records or 0 for file in copied) + (num_live_rows(marked) or 0)
    return {
        "numFiles": len(files),
        "numOutputBytes": sum(file.size for file in files),
        "numOutputRows": num_written + num_copied,
        "numRemovedFiles": len(replaced.files),
        "numRemovedBytes": sum(file.size for file in replaced.files),
        "numAddedChangeFiles": len(changes),
        "numDeletedRows": replaced.num_rows,
        "numCopiedRows": num_copied,
    }
