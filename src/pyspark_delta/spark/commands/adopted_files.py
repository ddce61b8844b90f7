"""Parquet files that appeared in a converted table after its conversion: which, and may they enter.

A file counts as new when the log knows nothing of it, neither that it lives nor that it was
removed.  Files of a Delta writer that died, or has not committed yet, look the same: this is for
directories that plain Parquet writers still write to.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.log.frames import canonical_paths
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.constraints import table_constraints
from pyspark_delta.kernel.protocol.features import check_writable
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import check_write_compatible, evolve_schema
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.convert_target import (
    ConvertTargetTable,
    check_partition_schema,
    is_on,
)
from pyspark_delta.spark.convert.manifest import Keep
from pyspark_delta.spark.table_access import hadoop_location

_AUTO_MERGE_CONF = "spark.databricks.delta.schema.autoMerge.enabled"
# Deletion vectors lie among the data files.
_NO_DATA = r"(^|/)deletion_vector_[^/]*\.bin$"


def unknown_files(snapshot: Snapshot) -> Keep:
    """Which files of a listing the log has never heard of."""
    live = snapshot.files_with(["path"]).column("path")
    removed = snapshot.tombstones(["path"]).column("path")
    root_uri = snapshot.store.root_uri
    paths = pa.chunked_array([*live.chunks, *removed.chunks], pa.string()).combine_chunks()
    known = canonical_paths(paths, root_uri)
    outside = [hadoop_location(uri) for uri in known.to_pylist() if "://" in uri]
    known = pa.concat_arrays([known, pa.array(outside, pa.string())])

    def is_unknown(files: pa.RecordBatch) -> pa.Array:
        path = files.column("path")
        is_known = pc.is_in(path, value_set=known)
        return pc.invert(pc.or_(is_known, pc.match_substring_regex(path, _NO_DATA)))

    return is_unknown


def adopting_table(
    txn: OptimisticTransaction, table: ConvertTargetTable, given: StructType | None
) -> ConvertTargetTable:
    """The table as its log describes it; `given` are the partition columns that a user named."""
    metadata = txn.metadata
    known = StructType(tuple(metadata.schema[name] for name in metadata.partition_columns))
    check_partition_schema(known, given)
    return replace(
        table,
        partition_schema=known,
        catalog_schema=None,
        partitions=None,
        properties={k: v for k, v in metadata.configuration.items() if v is not None},
    )


def check_adoption(spark: SparkSession, txn: OptimisticTransaction, data: StructType) -> None:
    """Refuse files that do not fit the table, or that nobody can check against its rules.

    New columns are taken over where the session merges schemas by itself.
    """
    old = txn.metadata
    check_writable(txn.protocol, txn.log.store.root_uri)
    _check_rules(old)
    partitions = {name.lower() for name in old.partition_columns}
    own = StructType(tuple(f for f in data if f.name.lower() not in partitions))
    merged = evolve_schema(old.schema, own)
    only_adds = merged.fields[: len(old.schema)] == old.schema.fields
    if only_adds and is_on(spark, _AUTO_MERGE_CONF, default=False):
        if merged != old.schema:
            txn.update_metadata(replace(old, schema_string=format_schema(merged)))
        return
    check_write_compatible(old.schema, own, table_id=old.id)


def _check_rules(metadata: Metadata) -> None:
    rules = (
        ("constraints", table_constraints(metadata)),
        ("generated columns", generated_columns(metadata.schema)),
        ("identity columns", identity_columns(metadata.schema)),
    )
    for what, found in rules:
        if found:
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED",
                operation=f"Adopting files, whose rows nobody checked, where there are {what},",
            )
