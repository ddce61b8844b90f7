"""Column mapping taken off a table: its rows written anew under the names that users know.

Names that need a mapping must be changed first.  The rows, their ids and what is deleted stay as
they are; files with vectors lose them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import has_mapping, without_mapping
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.schema_checks import invalid_names
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.prepare import REMOVE_COLUMN_MAPPING
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.commands.replaced_rows import hidden_columns, tracked
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_jobs
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.writer import stage

ALLOWED_CONF = "spark.databricks.delta.columnMapping.allowRemoval"
"""The setting that forbids it."""


def may_remove_mapping(spark: SparkSession) -> bool:
    """Whether the session lets column mapping be removed."""
    return (spark.conf.get(ALLOWED_CONF, None) or "true").lower() != "false"


def is_mapped(metadata: Metadata) -> bool:
    """Whether anything of a mapping is left in a table's metadata."""
    mode = property_value(metadata.configuration, COLUMN_MAPPING_MODE)
    return mode != "none" or has_mapping(metadata.schema)


@typed_jobs
def run_remove_column_mapping(spark: SparkSession, log: DeltaLog, *, keeps_property: bool) -> int:
    """Write every file anew without a mapping; the version that did.

    `keeps_property` says that the table's property is to say none, not to be gone.
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
    rows = tracked(
        txn, chosen_rows(jvm, log.store, files, protocol=txn.protocol, metadata=metadata)
    )
    gone = (COLUMN_MAPPING_MODE.key, COLUMN_MAPPING_MAX_ID.key)
    configuration = {k: v for k, v in metadata.configuration.items() if k not in gone}
    if keeps_property:
        configuration[COLUMN_MAPPING_MODE.key] = "none"
    txn.update_metadata(
        replace(metadata, schema_string=format_schema(schema), configuration=configuration),
        removes_mapping=True,
    )
    hidden = hidden_columns(txn)
    removed = tuple(add_files(files))
    with StagedFiles(txn) as staged:
        added: list[AddFile] = []
        if removed:
            added = stage(
                jvm,
                log,
                rows,
                txn.metadata,
                txn.protocol,
                hidden=hidden,
                data_change=False,
            )
        staged.add(added)
        now_ms = log.now_ms()
        actions: list[Action] = [file.remove(now_ms, data_change=False) for file in removed]
        staged.offer()
        committed = txn.commit(
            [*actions, *added],
            operation(REMOVE_COLUMN_MAPPING),
            tags={PRESERVED_TAG: "true"} if hidden.fields else None,
            metrics=_metrics(added, removed),
        )
    return committed.version


def _metrics(added: Sequence[AddFile], removed: Sequence[AddFile]) -> dict[str, object]:
    return {
        "numRewrittenFiles": len(removed),
        "numOutputBytes": sum(file.size for file in added),
        "numRemovedBytes": sum(file.size for file in removed),
        "numCopiedRows": sum(file.num_records or 0 for file in added),
        "numDeletionVectorsRemoved": sum(file.deletion_vector is not None for file in removed),
    }
