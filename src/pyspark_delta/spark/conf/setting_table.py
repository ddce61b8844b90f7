"""The table of settings, one row per key: docs/settings.md is made of it.

Rows at its end are settings of delta-spark that have no effect here, each with the reason.

>>> AUTO_MERGE.key, AUTO_MERGE.default
('spark.databricks.delta.schema.autoMerge.enabled', False)
"""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark_delta.kernel.ops.changes.feed import OUT_OF_RANGE, SCHEMA_MODE, SchemaMode
from pyspark_delta.kernel.ops.features.row_tracking import FILES_PER_COMMIT
from pyspark_delta.kernel.ops.layout.bins import CubeSizes, Sizes
from pyspark_delta.kernel.ops.stream.schema_log import CONF_PREFIX
from pyspark_delta.kernel.protocol.constraints import ASSUME_DROP_IF_EXISTS
from pyspark_delta.kernel.protocol.property_kinds import FLAG, SIZE, TEXT, Kind, choice, whole
from pyspark_delta.kernel.protocol.schema_checks import ALLOW_UNENFORCED_NOT_NULL
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.txn.commit import DEFAULT_ATTEMPTS
from pyspark_delta.spark.conf.settings import (
    BIN_SIZE,
    DELTA_PREFIX,
    LOCATIONS,
    OWN_PREFIX,
    SHARE,
    SIZE_OR_ZERO,
    Setting,
    SettingFamily,
    UnusedSetting,
    full_key,
    one_of,
)

T = TypeVar("T")
_SKIPPING = "spark.databricks.io.skipping."
_NO_ICEBERG = "Iceberg tables are neither converted nor written"
_NO_HUDI = "Hudi metadata is not written"
_NO_SHUFFLE = "Spark's adaptive execution chooses them by optimizeWrite.binSize"
_VERSION = whole(0, most=2**63 - 1)
_ROWS: list[Setting[Any] | SettingFamily] = []


def _row(name: str, kind: Kind[T], default: str, effect: str) -> Setting[T]:
    value = kind.parse(default)
    row = Setting(key=full_key(name), kind=kind, default=value, default_text=default, effect=effect)
    _ROWS.append(row)
    return row


def _on(name: str, effect: str) -> Setting[bool]:
    return _row(name, FLAG, "true", effect)


def _off(name: str, effect: str) -> Setting[bool]:
    return _row(name, FLAG, "false", effect)


def _unset(name: str, kind: Kind[T], effect: str, otherwise: str = "not set") -> Setting[T | None]:
    """A row without a default; `otherwise` describes the behavior when the key is not set."""
    row: Setting[T | None] = Setting(
        key=full_key(name), kind=kind, default=None, default_text=otherwise, effect=effect
    )
    _ROWS.append(row)
    return row


def _family(prefix: str, effect: str) -> SettingFamily:
    row = SettingFamily(prefix=prefix, effect=effect)
    _ROWS.append(row)
    return row


def _unused(name: str, effect: str, reason: str) -> UnusedSetting:
    return UnusedSetting(key=full_key(name), effect=effect, reason=reason)


# Commits and the log.
CHECKPOINT_PART_SIZE = _unset(
    "checkpoint.partSize", whole(1), "Largest number of file actions in a checkpoint's file."
)
CHECKSUM_MISMATCH_IS_FATAL = _on(
    "checksum.mismatch.fatal", "Refuse a version that its checksum file contradicts."
)
WRITE_CHECKSUM = _on("writeChecksumFile.enabled", "Write a version checksum after a commit.")
MAX_COMMIT_ATTEMPTS = _row(
    "maxCommitAttempts",
    whole(0),
    str(DEFAULT_ATTEMPTS),
    "How many versions a commit tries before it gives up.",
)
HISTORY_METRICS = _on("history.metricsEnabled", "Record the metrics of operations in the history.")
USER_METADATA = _unset(
    "commitInfo.userMetadata", TEXT, "Text for the history of commits without their own."
)
LAST_COMMIT_VERSION = _unset(
    "lastCommitVersionInSession", _VERSION, "Set by commits: the version of the last one."
)
SKIP_EMPTY_COMMITS = _on("skipRecordingEmptyCommits", "Make no commit for a write without changes.")
TXN_APP_ID = _unset("write.txnAppId", TEXT, "The application of an idempotent write.")
TXN_VERSION = _unset("write.txnVersion", _VERSION, "The version of an idempotent write.")
TXN_VERSION_AUTO_RESET = _off(
    "write.txnVersion.autoReset.enabled", "Unset txnVersion after each write."
)

# Properties, features, and statements that define a table.
PROPERTY_DEFAULTS = _family(
    f"{DELTA_PREFIX}properties.defaults.",
    "A property of new tables; ignoreProtocolDefaults leaves out those of the protocol.",
)
ALLOW_ARBITRARY_PROPERTIES = _off(
    "allowArbitraryProperties.enabled",
    "Accept table properties that begin with delta. and are not known.",
)
UPDATE_CATALOG = _off("catalog.update.enabled", "Keep the metastore's copy of schemas up to date.")
BYPASS_LOCATION_CHECK = _off(
    "alterLocation.bypassSchemaCheck", "Let SET LOCATION lead to a table with another schema."
)
CHECK_EXPRESSIONS = _on(
    "alterTable.changeColumn.checkExpressions",
    "Refuse a change of a column that constraints or generated columns use.",
)
DROP_CONSTRAINT_IF_EXISTS = _off(
    ASSUME_DROP_IF_EXISTS, "Let DROP CONSTRAINT of a name that is not there do nothing."
)
LOWER_HIGH_WATER_MARK = _off(
    "identityColumn.allowSyncIdentityToLowerHighWaterMark.enabled",
    "Let SYNC IDENTITY lower the high water mark.",
)
ALLOW_REMOVING_MAPPING = _on("columnMapping.allowRemoval", "Allow column mapping to be removed.")
ROW_TRACKING_BACKFILL = _on("rowTracking.backfill.enabled", "Give ids to rows of existing tables.")
BACKFILL_FILES = _unset(
    "backfill.maxNumFiles",
    whole(1),
    "Files in a commit of a row tracking backfill.",
    f"`{FILES_PER_COMMIT}`",
)
OLD_BACKFILL_FILES = _unset(
    "rowTracking.backfill.maxNumFiles", whole(1), "An older name of backfill.maxNumFiles."
)
FAST_DROP_FEATURE = _on("tableFeatures.fastDropFeature.enabled", "Drop features without a wait.")
FAST_DROP_TOMBSTONES = _on(
    "tableFeatures.fastDropFeature.generateDVTombstones.enabled",
    "Write tombstones of deletion vectors when their feature is dropped.",
)
PROTOCOL_DOWNGRADE = _off(
    "restore.protocolDowngradeAllowed", "Let RESTORE and CLONE lower the table's protocol."
)

# Reads.
STATS_SKIPPING = _on("stats.skipping", "Skip files by their statistics.")
METADATA_QUERY = _on("optimizeMetadataQuery.enabled", "Answer counts and bounds from the log.")
ENFORCE_TIME_TRAVEL_RETENTION = _on(
    "vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration",
    "Refuse versions whose files VACUUM may have deleted.",
)
CHANGE_FEED_SCHEMA_MODE = _unset(
    SCHEMA_MODE,
    one_of(legacy=SchemaMode.LEGACY, latest=SchemaMode.LATEST, endVersion=SchemaMode.END_VERSION),
    "Which version's schema a change data feed has.",
    "endVersion for a table with column mapping, else legacy",
)
CHANGE_FEED_OUT_OF_RANGE = _off(
    OUT_OF_RANGE, "Accept a range of changes, or a start of a stream, after the newest version."
)
CHANGE_FEED_INCOMPATIBLE = _off(
    "changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
    "Read changes over a change of the schema that does not fit.",
)

# Writes.
AUTO_MERGE = _off("schema.autoMerge.enabled", "Evolve schemas in writes and MERGE.")
WIDENING_MODE = _row(
    "typeWidening.allowAutomaticWidening",
    one_of(
        always=TypeWideningMode.ALWAYS,
        same_family_type=TypeWideningMode.SAME_FAMILY,
        never=TypeWideningMode.NEVER,
    ),
    "always",
    "Which columns schema evolution widens.",
)
DYNAMIC_PARTITION_OVERWRITE = _on(
    "dynamicPartitionOverwrite.enabled", "Allow dynamic partition overwrite."
)
REPLACE_WHERE_CHECK = _on(
    "replaceWhere.constraintCheck.enabled",
    "Refuse rows that do not fit the condition of replaceWhere.",
)
REPLACE_WHERE_DATA_COLUMNS = _on(
    "replaceWhere.dataColumns.enabled",
    "Allow replaceWhere on columns that are not partition columns.",
)
STATS_COLLECT = _on("stats.collect", "Record statistics of new files.")
STRING_PREFIX = _row(
    f"{_SKIPPING}stringPrefixLength",
    whole(0),
    str(DEFAULT_PREFIX_LENGTH),
    "Length of text in statistics, where the table has no property for it.",
)
OPTIMIZE_WRITES = _unset(
    "optimizeWrite.enabled",
    FLAG,
    "Shuffle rows before writes into fewer, larger files.",
    "the table's property",
)
OPTIMIZE_WRITE_BIN_SIZE = _unset(
    "optimizeWrite.binSize",
    BIN_SIZE,
    "Size of a task's rows in an optimized write.",
    "the table's delta.targetFileSize, or `512MiB`",
)

# DELETE, UPDATE and MERGE.
DELETE_EXISTS = _off("delete.allowExistsSubquery", "Allow EXISTS in the condition of DELETE.")
DELETE_VECTORS = _on(
    "delete.deletionVectors.persistent",
    "Let DELETE write deletion vectors where the table has them.",
)
MERGE_VECTORS = _on(
    "merge.deletionVectors.persistent", "Let MERGE write deletion vectors where the table has them."
)
UPDATE_VECTORS = _on(
    "update.deletionVectors.persistent",
    "Let UPDATE write deletion vectors where the table has them.",
)
DML_METRICS_BY_LOG = _on("dmlMetricsFromMetadata.enabled", "Count rows of whole files by the log.")
CASTS_FOLLOW_ANSI = _off(
    "updateAndMergeCastingFollowsAnsiEnabledFlag",
    "Cast in UPDATE and MERGE as spark.sql.ansi.enabled says.",
)
MERGE_SOURCE = _row(
    "merge.materializeSource",
    choice("none", "auto", "all", ignore_case=True),
    "auto",
    "Keep the rows of MERGE's source: all of them, or where they are few or may change.",
)
MERGE_ATTEMPTS = _row(
    "merge.materializeSource.maxAttempts",
    whole(0),
    "4",
    "How often a MERGE runs whose kept source was lost.",
)
MERGE_INSERT_ONLY = _on(
    "merge.optimizeInsertOnlyMerge.enabled", "Run a MERGE that inserts as append."
)
MERGE_NULL_STRUCTS = _on("merge.preserveNullSourceStructs", "Keep null structs of the source null.")
MERGE_NULL_STRUCTS_IN_STAR = _on(
    "merge.preserveNullSourceStructs.updateStar", "The same for UPDATE SET *."
)
MERGE_STRUCTS_BY_NAME = _on(
    "resolveMergeUpdateStructsByName.enabled", "Resolve fields of structs in MERGE by name."
)
MERGE_REPARTITION = _on(
    "merge.repartitionBeforeWrite.enabled",
    "Shuffle the rows of a partitioned MERGE by partition before they are written.",
)

# OPTIMIZE and automatic compaction.
AUTO_COMPACT_WRITES = _unset(
    "autoCompact.enabled",
    FLAG,
    "Compact small files after writes of this session.",
    "the table's property",
)
AUTO_COMPACT_MAX_FILE_SIZE = _unset(
    "autoCompact.maxFileSize",
    SIZE,
    "Size of a compacted file.",
    "the table's delta.targetFileSize, or `134217728`",
)
AUTO_COMPACT_MIN_FILE_SIZE = _unset(
    "autoCompact.minFileSize",
    SIZE,
    "Files below this size count as small.",
    "half of autoCompact.maxFileSize",
)
AUTO_COMPACT_MIN_FILES = _row(
    "autoCompact.minNumFiles", whole(1), "50", "Small files that start a compaction."
)
AUTO_COMPACT_MAX_PARTITIONS = _row(
    "autoCompact.maxNumModifiedPartitions",
    whole(1),
    "128",
    "Most partitions that one compaction goes into.",
)
OPTIMIZE_BATCH_SIZE = _unset(
    "optimize.batchSize", SIZE, "Bytes that one commit of OPTIMIZE writes anew."
)
OPTIMIZE_MAX_FILE_SIZE = _unset(
    "optimize.maxFileSize",
    SIZE,
    "Size of a file that OPTIMIZE writes.",
    f"the table's delta.targetFileSize, or `{Sizes().largest}`",
)
OPTIMIZE_MIN_FILE_SIZE = _unset(
    "optimize.minFileSize",
    SIZE_OR_ZERO,
    "Files below this size are compacted.",
    f"the table's delta.targetFileSize, or `{Sizes().largest}`",
)
OPTIMIZE_MAX_DELETED = _row(
    "optimize.maxDeletedRowsRatio",
    SHARE,
    str(Sizes().deleted),
    "Share of deleted rows that rewrites a file.",
)
OPTIMIZE_MAX_THREADS = _row(
    "optimize.maxThreads", whole(1), "15", "Bins that OPTIMIZE writes at once."
)
OPTIMIZE_REPARTITION = _off("optimize.repartition.enabled", "Compact with a shuffle of all rows.")
CUBE_TARGET_SIZE = _unset(
    "optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize",
    SIZE,
    "Bytes of a Z-cube, at most.",
    f"`{CubeSizes().target}`, or the threshold where that is larger",
)
CUBE_SEALED_SIZE = _row(
    "optimize.clustering.mergeStrategy.minCubeSize.threshold",
    SIZE_OR_ZERO,
    str(CubeSizes().sealed),
    "Bytes from which a Z-cube is left alone.",
)
ZORDER_CHECK_STATS = _on(
    "optimize.zorder.checkStatsCollection.enabled", "Refuse ZORDER BY columns without statistics."
)
ZORDER_NOISE = _on(f"{_SKIPPING}mdc.addNoise", "Spread equal keys of ZORDER BY over files.")
ZORDER_RANGES = _row(
    f"{_SKIPPING}mdc.rangeId.max", whole(2), "1000", "Ranges of a column in ZORDER BY."
)

# VACUUM.
CHECK_RETENTION = _on("retentionDurationCheck.enabled", "Refuse a VACUUM of recent files.")
VACUUM_IGNORE_HOURS = _on(
    "vacuum.retentionWindowIgnore.enabled",
    "Use the table's retention in place of the hours of VACUUM.",
)
VACUUM_LITE = _off("vacuum.lite.enabled", "Run VACUUM by the log alone.")
VACUUM_LOGGING = _unset(
    "vacuum.logging.enabled", FLAG, "Record VACUUM in the history.", "true, but not on S3"
)
VACUUM_PARALLEL_DELETE = _on("vacuum.parallelDelete.enabled", "Delete files in parallel.")
VACUUM_PARALLELISM = _unset(
    "vacuum.parallelDelete.parallelism", whole(1), "Files that are deleted at a time.", "`16`"
)

# CONVERT TO DELTA.
CONVERT_METADATA_CHECK = _on(
    "convert.metadataCheck.enabled",
    "Refuse to convert a table whose properties differ in catalog and log.",
)
CONVERT_IGNORE_CAST_FAILURE = _off(
    "convert.partitionValues.ignoreCastFailure",
    "Read a partition value that does not fit its type as null.",
)
CONVERT_CATALOG_PARTITIONS = _on(
    "convert.useCatalogPartitions", "Convert the partitions of the catalog."
)
CONVERT_CATALOG_SCHEMA = _on("convert.useCatalogSchema", "Convert with the schema of the catalog.")
CONVERT_SINK_LOG = _on(
    "convert.useMetadataLog", "Convert the files that a stream's _spark_metadata lists."
)
CONVERT_ICEBERG = _on("convert.iceberg.enabled", "Name Iceberg in the refusal of its tables.")
CONVERT_SCHEMA_BATCH = _row(
    "import.batchSize.schemaInference", whole(1), "1000000", "Footers per job of CONVERT."
)
CONVERT_STATS_BATCH = _row(
    "import.batchSize.statsCollection", whole(1), "50000", "Files per job of CONVERT."
)

# Streams.
ALLOW_SOURCE_COLUMN = _family(
    f"{CONF_PREFIX}allowSourceColumn",
    "Let a stream go on over renamed, dropped or widened columns.",
)
ALLOW_ANY_SCHEMA_LOCATION = _off(
    "streaming.allowSchemaLocationOutsideCheckpointLocation",
    "Accept a schema location outside of the checkpoint.",
)
STREAM_INCOMPATIBLE = _off(
    "streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
    "Read a stream over a change of the schema that does not fit.",
)
SINK_CASTS = _on("streaming.sink.allowImplicitCasts", "Cast a batch's values to the table's.")

# This project's own.
ENABLED = _off(f"{OWN_PREFIX}enabled", "Set by `enable` and unset by `disable`: the session is on.")
ALLOWED_LOCATIONS = _row(
    f"{OWN_PREFIX}allowedLocations",
    LOCATIONS,
    "",
    "Locations outside of tables that tables may have files in.",
)

HONOURED: tuple[Setting[Any] | SettingFamily, ...] = tuple(_ROWS)
"""All rows with an effect, in the order of this file."""


NOT_HONOURED = (
    _unused(
        "checkLatestSchemaOnRead",
        "Refuse a held DataFrame whose table has another schema.",
        "the check cannot be turned off, for its rows would be wrong",
    ),
    _unused(
        "clusteredTable.enableClusteringTablePreview",
        "Allow clustered tables.",
        "clustered tables are always allowed",
    ),
    _unused(
        "commitMetrics.enabled",
        "Send metrics of commits to Unity Catalog.",
        "nothing is sent to a catalog",
    ),
    _unused(
        ALLOW_UNENFORCED_NOT_NULL,
        "Accept NOT NULL below arrays and maps, where it is not checked.",
        "a constraint that is not checked is always refused",
    ),
    _unused("convert.iceberg.*", "Conversion of Iceberg tables.", _NO_ICEBERG),
    _unused(
        "deltaLog.minorCompaction.useForReads",
        "Read log compactions.",
        "log compactions are always read",
    ),
    _unused("hudi.*", "Hudi metadata.", _NO_HUDI),
    _unused("iceberg.*", "Iceberg metadata.", _NO_ICEBERG),
    _unused(
        "optimizeWrite.maxShufflePartitions",
        "Partitions of the shuffle before a write.",
        _NO_SHUFFLE,
    ),
    _unused("optimizeWrite.numShuffleBlocks", "Blocks of the shuffle before a write.", _NO_SHUFFLE),
    _unused(
        "stalenessLimit",
        "How old a version a query may read.",
        "a query always reads the newest version, which costs one listing",
    ),
    _unused(
        "tableFeatures.fastDropFeature.dvTombstoneCountThreshold",
        "Tombstones of deletion vectors that are held in memory.",
        "tombstones are held as Arrow columns, whatever their number",
    ),
    _unused("uniform.*", "Iceberg metadata of commits.", _NO_ICEBERG),
    _unused(
        "v2.enableMode",
        "Which of delta-spark's two connectors is used.",
        "there is one way to read and write",
    ),
    _unused(
        "withEventTimeOrder.enabled",
        "Read the first version of a stream in the order of event times.",
        "the rows of the first version come in the order of the files",
    ),
)
