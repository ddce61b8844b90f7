"""The operations of a table's history: names, keys of parameters, names of metrics.

One row per operation, as delta-spark names them; building one is in `operations`.

>>> OPERATIONS["RESTORE"].parameters
('version', 'timestamp')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WRITTEN = "numFiles numOutputRows numOutputBytes"
"""Metrics of every write of rows."""

REMOVED = "numRemovedFiles numRemovedBytes"
"""Metrics of a write that also removes files."""

REPLACED = "numAddedChangeFiles numDeletedRows numCopiedRows"
"""Metrics of a write that reads the files it replaces."""

_VECTORS = "numDeletionVectorsAdded numDeletionVectorsRemoved numDeletionVectorsUpdated"
_TIMES = "executionTimeMs scanTimeMs rewriteTimeMs"
_REWRITTEN = "numAddedFiles numRemovedFiles numAddedBytes numRemovedBytes"
_FILE_SIZES = "minFileSize p25FileSize p50FileSize p75FileSize maxFileSize"
# Scala orders five keys by hash; this is the order that readers of delta-spark's logs know.
_TABLE_KEYS = "partitionBy clusterBy description isManaged properties"
_WRITE_OPTIONS = "predicate? isDynamicPartitionOverwrite? canOverwriteSchema? canMergeSchema?"
_REPLACE_KEYS = f"{_TABLE_KEYS} {_WRITE_OPTIONS} isV1SaveAsTableOverwrite?"


@dataclass(frozen=True, slots=True)
class OperationKind:
    """One row: an operation, the keys of its parameters (`?`: may be absent), its metrics."""

    name: str
    parameters: tuple[str, ...]
    metrics: tuple[str, ...]
    changes_data: bool


def _kind(
    name: str, parameters: str = "", metrics: str = "", *, changes_data: bool = False
) -> OperationKind:
    return OperationKind(name, tuple(parameters.split()), tuple(metrics.split()), changes_data)


OPERATIONS: Mapping[str, OperationKind] = {
    kind.name: kind
    for kind in (
        _kind(
            "WRITE",
            f"mode partitionBy? {_WRITE_OPTIONS} replaceOnCond? replaceUsingCols?",
            f"{WRITTEN} {REMOVED} {REPLACED}",
            changes_data=True,
        ),
        _kind(
            "STREAMING UPDATE",
            "outputMode queryId epochId",
            "numAddedFiles numRemovedFiles numOutputRows numOutputBytes",
            changes_data=True,
        ),
        _kind(
            "DELETE", "predicate", f"{_REWRITTEN} {_VECTORS} {REPLACED} {_TIMES}", changes_data=True
        ),
        _kind(
            "UPDATE",
            "predicate",
            f"{_REWRITTEN} {_VECTORS} numAddedChangeFiles numUpdatedRows numCopiedRows {_TIMES}",
            changes_data=True,
        ),
        _kind(
            "MERGE",
            "predicate matchedPredicates notMatchedPredicates notMatchedBySourcePredicates",
            "numSourceRows numTargetRowsInserted numTargetRowsUpdated numTargetRowsMatchedUpdated"
            " numTargetRowsNotMatchedBySourceUpdated numTargetRowsDeleted"
            " numTargetRowsMatchedDeleted numTargetRowsNotMatchedBySourceDeleted"
            " numTargetRowsCopied numOutputRows numTargetBytesAdded numTargetBytesRemoved"
            " numTargetFilesAdded numTargetFilesRemoved numTargetChangeFilesAdded"
            " numTargetDeletionVectorsAdded numTargetDeletionVectorsRemoved"
            f" numTargetDeletionVectorsUpdated materializeSourceTimeMs {_TIMES}",
            changes_data=True,
        ),
        _kind("TRUNCATE", "", "numRemovedFiles executionTimeMs", changes_data=True),
        _kind("CREATE TABLE", _TABLE_KEYS),
        _kind("CREATE TABLE AS SELECT", _TABLE_KEYS, WRITTEN, changes_data=True),
        _kind("REPLACE TABLE", _REPLACE_KEYS, changes_data=True),
        _kind("REPLACE TABLE AS SELECT", _REPLACE_KEYS, f"{WRITTEN} {REMOVED}", changes_data=True),
        _kind("CREATE OR REPLACE TABLE", _REPLACE_KEYS, changes_data=True),
        _kind(
            "CREATE OR REPLACE TABLE AS SELECT",
            _REPLACE_KEYS,
            f"{WRITTEN} {REMOVED}",
            changes_data=True,
        ),
        _kind(
            "OPTIMIZE",
            "predicate zOrderBy clusterBy auto isFull?",
            f"{_REWRITTEN} {_FILE_SIZES} numDeletionVectorsRemoved",
        ),
        _kind(
            "REORG", "predicate applyPurge", f"{_REWRITTEN} {_FILE_SIZES} numDeletionVectorsRemoved"
        ),
        _kind(
            "VACUUM START",
            "retentionCheckEnabled defaultRetentionMillis specifiedRetentionMillis?",
            "numFilesToDelete sizeOfDataToDelete",
        ),
        _kind("VACUUM END", "status", "numDeletedFiles numVacuumedDirectories"),
        _kind(
            "CONVERT",
            "numFiles partitionedBy collectStats catalogTable? sourceFormat?",
            "numConvertedFiles",
            changes_data=True,
        ),
        _kind(
            "RESTORE",
            "version timestamp",
            "tableSizeAfterRestore numOfFilesAfterRestore numRemovedFiles numRestoredFiles"
            " removedFilesSize restoredFilesSize",
            changes_data=True,
        ),
        _kind(
            "CLONE",
            "source sourceVersion",
            "sourceTableSize sourceNumOfFiles numRemovedFiles numCopiedFiles removedFilesSize"
            " copiedFilesSize",
            changes_data=True,
        ),
        _kind("SET TBLPROPERTIES", "properties"),
        _kind("UNSET TBLPROPERTIES", "properties ifExists"),
        _kind("ADD COLUMNS", "columns"),
        _kind("DROP COLUMNS", "columns"),
        _kind("RENAME COLUMN", "oldColumnPath newColumnPath"),
        _kind("CHANGE COLUMN", "column position?"),
        _kind("CHANGE COLUMNS", "columns"),
        _kind("REPLACE COLUMNS", "columns"),
        _kind("ADD CONSTRAINT", "name expr"),
        _kind("DROP CONSTRAINT", "name expr? existed"),
        _kind("CLUSTER BY", "oldClusteringColumns newClusteringColumns"),
        _kind("UPGRADE PROTOCOL", "newProtocol"),
        # A commit with `columns` records a step before the feature itself was dropped.
        _kind("DROP FEATURE", "featureName? truncateHistory? columns?"),
        _kind(
            "REMOVE COLUMN MAPPING",
            "",
            "numRewrittenFiles numOutputBytes numRemovedBytes numCopiedRows"
            " numDeletionVectorsRemoved",
        ),
        _kind("ROW TRACKING BACKFILL", "batchId"),
        _kind("ROW TRACKING UNBACKFILL", "batchId"),
        _kind("COMPUTE STATS", "predicate"),
        _kind("UPDATE SCHEMA", "oldSchema newSchema"),
        _kind("DOMAIN METADATA CLEANUP", "domainMetadataRemovedCount"),
        _kind("Deletion Vector Tombstones"),
        _kind("Empty Commit"),
        _kind("Manual Update"),
        _kind("REORG TABLE UPGRADE UNIFORM", "properties"),
        _kind("OPTIMIZE CHECKPOINT", "incremental triggerName"),
        _kind("SYNC IDENTITY", "columns"),
    )
}
"""The operations of a table's history, as delta-spark names them."""
