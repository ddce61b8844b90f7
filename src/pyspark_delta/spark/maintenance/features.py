"""DROP FEATURE, row tracking on existing tables, and removal of column mapping, with Spark jobs.

Settings of the session and Spark jobs that rewrite files are here.  `kernel.ops.features.drop` and
`kernel.ops.features.row_tracking` have the order of the steps, and make the commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.features.drop import DropRequest, run_drop_feature
from pyspark_delta.kernel.ops.features.outdated_files import widened_files
from pyspark_delta.kernel.ops.features.removal import FeatureCleanup, FileRewrites
from pyspark_delta.kernel.ops.features.row_tracking import (
    FILES_PER_COMMIT,
    enables_row_tracking,
    prepare_row_tracking,
)
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import has_mapping, without_mapping
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_checks import invalid_names
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.prepare import REMOVE_COLUMN_MAPPING
from pyspark_delta.spark.conf.setting_table import (
    BACKFILL_FILES,
    FAST_DROP_FEATURE,
    FAST_DROP_TOMBSTONES,
    OLD_BACKFILL_FILES,
    ROW_TRACKING_BACKFILL,
)
from pyspark_delta.spark.files.stage import (
    StagedFiles,
    StageRequest,
    hidden_columns,
    stage,
    with_row_ids,
)
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.maintenance.compaction import Compacted, preserved_tags
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.maintenance.restore import run_purge
from pyspark_delta.spark.scan.frame import chosen_rows
from pyspark_delta.spark.tables.locations import allowed_stores


def is_mapped(metadata: Metadata) -> bool:
    """Whether a table's metadata has any part of a column mapping."""
    mode = property_value(metadata.configuration, COLUMN_MAPPING_MODE)
    return mode != "none" or has_mapping(metadata.schema)


@typed_jobs
def run_remove_column_mapping(spark: SparkSession, log: DeltaLog, *, keeps_property: bool) -> int:
    """Rewrite every file under the logical names of columns, without a mapping; the new version.

    Names that need a mapping must be changed first.  Live rows keep their values and ids; deleted
    rows are left out, so no file has a vector.  With `keeps_property` the table's property becomes
    `none`, otherwise it is removed.
    """
    txn = log.start_transaction()
    metadata = txn.metadata
    schema = without_mapping(metadata.schema)
    invalid = invalid_names(schema)
    if invalid:
        raise SchemaError(
            "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            invalidColumnNames=", ".join(invalid),
        )
    jvm = JvmSession(spark)
    files = txn.filter_files()
    rows = with_row_ids(txn, chosen_rows(jvm, txn, files))
    gone = (COLUMN_MAPPING_MODE.key, COLUMN_MAPPING_MAX_ID.key)
    configuration = {k: v for k, v in metadata.configuration.items() if k not in gone}
    if keeps_property:
        configuration[COLUMN_MAPPING_MODE.key] = "none"
    txn.update_metadata(
        replace(metadata, schema_string=format_schema(schema), configuration=configuration),
        removes_mapping=True,
    )
    removed = tuple(add_files(files))
    with StagedFiles(txn) as staged:
        added: list[AddFile] = []
        if removed:
            request = StageRequest(
                log=log,
                data=rows,
                metadata=txn.metadata,
                protocol=txn.protocol,
                extra=hidden_columns(txn),
                data_change=False,
            )
            added = stage(jvm, request)
        staged.add(added)
        actions = Compacted(added=tuple(added), removed=removed).actions(log.now_ms())
        staged.offer()
        metrics = {
            "numRewrittenFiles": len(removed),
            "numOutputBytes": sum(file.size for file in added),
            "numRemovedBytes": sum(file.size for file in removed),
            "numCopiedRows": sum(file.num_records or 0 for file in added),
            "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in removed),
        }
        committed = txn.commit(
            actions, operation(REMOVE_COLUMN_MAPPING), tags=preserved_tags(txn), metrics=metrics
        )
    return committed.version


def enable_row_tracking(spark: SparkSession, log: DeltaLog, changes: Mapping[str, str]) -> None:
    """Assign ids to the rows of an existing table, when `changes` turn row tracking on.

    Every file gets its row ids before readers rely on them, so SET TBLPROPERTIES calls this before
    its own transaction starts.  Nothing happens for other properties.
    """
    if not enables_row_tracking(changes):
        prepare_row_tracking(log, changes)
        return
    if not ROW_TRACKING_BACKFILL.of(spark):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED",
            operation="Row tracking on a table that exists while "
            f"{ROW_TRACKING_BACKFILL.key} is false",
        )
    prepare_row_tracking(
        log,
        changes,
        most_files=files_per_commit(spark),
        locations=Locations(log.store, allowed_stores(spark)),
    )


def files_per_commit(spark: SparkSession) -> int:
    """How many files a commit that adds or removes row ids may hold."""
    return BACKFILL_FILES.of(spark) or OLD_BACKFILL_FILES.of(spark) or FILES_PER_COMMIT


def run_drop(
    spark: SparkSession, log: DeltaLog, feature: str, *, truncate_history: bool = False
) -> int:
    """Drop a feature of a table; the new version."""
    cleaning = FeatureCleanup(
        log=log,
        rewrites=_SparkRewrites(spark),
        most_files=files_per_commit(spark),
        buries_vectors=FAST_DROP_TOMBSTONES.of(spark),
    )
    request = DropRequest(
        feature=feature, truncate_history=truncate_history, is_fast=FAST_DROP_FEATURE.of(spark)
    )
    return run_drop_feature(cleaning, request)


class _SparkRewrites(FileRewrites):
    """Files rewritten by Spark's jobs, as REORG does."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def purge_vectors(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        run_purge(self._spark, log)

    def rewrite_widened(self, log: DeltaLog) -> int:
        """See FileRewrites."""

        def choose(files: pa.Table) -> pa.Table:
            locations = Locations(log.store, allowed_stores(self._spark))
            return widened_files(files, log.snapshot.metadata, locations)

        return len(run_optimize(self._spark, log, OptimizeRequest(choose=choose)).removed)

    def remove_mapping(self, log: DeltaLog) -> None:
        """See FileRewrites."""
        run_remove_column_mapping(self._spark, log, keeps_property=False)
