"""The operations of a table's history: names, keys of parameters, names of metrics.

One row per operation, as delta-spark names them; building one is in `operations`.

>>> OPERATIONS["RESTORE"].parameters
('version', 'timestamp')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WRITTEN: tuple[str, ...] = ("numFiles", "numOutputRows", "numOutputBytes")
"""Metrics of every write of rows."""

REMOVED = ("numRemovedFiles", "numRemovedBytes")
"""Metrics of a write that also takes files away."""

REPLACED = ("numAddedChangeFiles", "numDeletedRows", "numCopiedRows")
"""Metrics of a write that looks into the files it replaces."""

_VECTORS = (
    "numDeletionVectorsAdded",
    "numDeletionVectorsRemoved",
    "numDeletionVectorsUpdated",
)
_TIMES = ("executionTimeMs", "scanTimeMs", "rewriteTimeMs")
_REWRITTEN = ("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes")
_FILE_SIZES = ("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize")
_MERGED_ROWS = (
    "numSourceRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceDeleted",
    "numTargetRowsCopied",
    "numOutputRows",
)
_MERGED_FILES = (
    "numTargetBytesAdded",
    "numTargetBytesRemoved",
    "numTargetFilesAdded",
    "numTargetFilesRemoved",
    "numTargetChangeFilesAdded",
    "numTargetDeletionVectorsAdded",
    "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated",
    "materializeSourceTimeMs",
)
# Scala orders five keys by hash; this is the order that readers of delta-spark's logs know.
_TABLE_KEYS = ("partitionBy", "clusterBy", "description", "isManaged", "properties")
_WRITE_OPTIONS = (
    "predicate?",
    "isDynamicPartitionOverwrite?",
    "canOverwriteSchema?",
    "canMergeSchema?",
)
_REPLACE_KEYS = (*_TABLE_KEYS, *_WRITE_OPTIONS, "isV1SaveAsTableOverwrite?")


@dataclass(frozen=True, slots=True)
class OperationKind:
    """One row: an operation, the keys of its parameters (`?`: may be absent), its metrics."""

    name: str
    parameters: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    changes_data: bool = False


OPERATIONS: Mapping[str, OperationKind] = {
    kind.name: kind
    for kind in (
        OperationKind(
            "WRITE",
            ("mode", "partitionBy?", *_WRITE_OPTIONS, "replaceOnCond?", "replaceUsingCols?"),
            (*WRITTEN, *REMOVED, *REPLACED),
            changes_data=True,
        ),
        OperationKind(
            "STREAMING UPDATE",
            ("outputMode", "queryId", "epochId"),
            ("numAddedFiles", "numRemovedFiles", "numOutputRows", "numOutputBytes"),
            changes_data=True,
        ),
        OperationKind(
            "DELETE",
            ("predicate",),
            (*_REWRITTEN, *_VECTORS, *REPLACED, *_TIMES),
            changes_data=True,
        ),
        OperationKind(
            "UPDATE",
            ("predicate",),
            (
                *_REWRITTEN,
                *_VECTORS,
                "numAddedChangeFiles",
                "numUpdatedRows",
                "numCopiedRows",
                *_TIMES,
            ),
            changes_data=True,
        ),
        OperationKind(
            "MERGE",
            (
                "predicate",
                "matchedPredicates",
                "notMatchedPredicates",
                "notMatchedBySourcePredicates",
            ),
            (*_MERGED_ROWS, *_MERGED_FILES, *_TIMES),
            changes_data=True,
        ),
        OperationKind("TRUNCATE", (), ("numRemovedFiles", "executionTimeMs"), changes_data=True),
        OperationKind("CREATE TABLE", _TABLE_KEYS),
        OperationKind("CREATE TABLE AS SELECT", _TABLE_KEYS, WRITTEN, changes_data=True),
        OperationKind("REPLACE TABLE", _REPLACE_KEYS, changes_data=True),
        OperationKind(
            "REPLACE TABLE AS SELECT", _REPLACE_KEYS, (*WRITTEN, *REMOVED), changes_data=True
        ),
        OperationKind("CREATE OR REPLACE TABLE", _REPLACE_KEYS, changes_data=True),
        OperationKind(
            "CREATE OR REPLACE TABLE AS SELECT",
            _REPLACE_KEYS,
            (*WRITTEN, *REMOVED),
            changes_data=True,
        ),
        OperationKind(
            "OPTIMIZE",
            ("predicate", "zOrderBy", "clusterBy", "auto", "isFull?"),
            (*_REWRITTEN, *_FILE_SIZES, "numDeletionVectorsRemoved"),
        ),
        OperationKind(
            "REORG",
            ("predicate", "applyPurge"),
            (*_REWRITTEN, *_FILE_SIZES, "numDeletionVectorsRemoved"),
        ),
        OperationKind(
            "VACUUM START",
            ("retentionCheckEnabled", "defaultRetentionMillis", "specifiedRetentionMillis?"),
            ("numFilesToDelete", "sizeOfDataToDelete"),
        ),
        OperationKind("VACUUM END", ("status",), ("numDeletedFiles", "numVacuumedDirectories")),
        OperationKind(
            "CONVERT",
            ("numFiles", "partitionedBy", "collectStats", "catalogTable?", "sourceFormat?"),
            ("numConvertedFiles",),
            changes_data=True,
        ),
        OperationKind(
            "RESTORE",
            ("version", "timestamp"),
            (
                "tableSizeAfterRestore",
                "numOfFilesAfterRestore",
                "numRemovedFiles",
                "numRestoredFiles",
                "removedFilesSize",
                "restoredFilesSize",
            ),
            changes_data=True,
        ),
        OperationKind(
            "CLONE",
            ("source", "sourceVersion"),
            (
                "sourceTableSize",
                "sourceNumOfFiles",
                "numRemovedFiles",
                "numCopiedFiles",
                "removedFilesSize",
                "copiedFilesSize",
            ),
            changes_data=True,
        ),
        OperationKind("SET TBLPROPERTIES", ("properties",)),
        OperationKind("UNSET TBLPROPERTIES", ("properties", "ifExists")),
        OperationKind("ADD COLUMNS", ("columns",)),
        OperationKind("DROP COLUMNS", ("columns",)),
        OperationKind("RENAME COLUMN", ("oldColumnPath", "newColumnPath")),
        OperationKind("CHANGE COLUMN", ("column", "position?")),
        OperationKind("CHANGE COLUMNS", ("columns",)),
        OperationKind("REPLACE COLUMNS", ("columns",)),
        OperationKind("ADD CONSTRAINT", ("name", "expr")),
        OperationKind("DROP CONSTRAINT", ("name", "expr?", "existed")),
        OperationKind("CLUSTER BY", ("oldClusteringColumns", "newClusteringColumns")),
        OperationKind("UPGRADE PROTOCOL", ("newProtocol",)),
        # One with columns tells of what went before the feature itself.
        OperationKind("DROP FEATURE", ("featureName?", "truncateHistory?", "columns?")),
        OperationKind(
            "REMOVE COLUMN MAPPING",
            (),
            (
                "numRewrittenFiles",
                "numOutputBytes",
                "numRemovedBytes",
                "numCopiedRows",
                "numDeletionVectorsRemoved",
            ),
        ),
        OperationKind("ROW TRACKING BACKFILL", ("batchId",)),
        OperationKind("ROW TRACKING UNBACKFILL", ("batchId",)),
        OperationKind("COMPUTE STATS", ("predicate",)),
        OperationKind("UPDATE SCHEMA", ("oldSchema", "newSchema")),
        OperationKind("DOMAIN METADATA CLEANUP", ("domainMetadataRemovedCount",)),
        OperationKind("Deletion Vector Tombstones"),
        OperationKind("Empty Commit"),
        OperationKind("Manual Update"),
        OperationKind("REORG TABLE UPGRADE UNIFORM", ("properties",)),
        OperationKind("OPTIMIZE CHECKPOINT", ("incremental", "triggerName")),
        OperationKind("SYNC IDENTITY", ("columns",)),
    )
}
