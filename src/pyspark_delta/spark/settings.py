"""The settings of a session that concern Delta tables, of which docs/settings.md is made.

A row is honoured, or has the reason why it is not.  Readers of a setting may spell its key where
they are; a test compares both.  `python -m pyspark_delta.spark.settings` prints the page.

>>> STATS_SKIPPING.key, STATS_SKIPPING.default
('spark.databricks.delta.stats.skipping', 'true')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.protocol.property_kinds import FLAG, SIZE, TEXT, Kind, whole
from pyspark_delta.kernel.txn.commit import DEFAULT_ATTEMPTS

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_DELTA = "spark.databricks.delta."
_SKIPPING = "spark.databricks.io.skipping."
_NUMBER = whole(1)
_FROM_ZERO = whole(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T_co]):
    """A row: the key, what its values are, the default as text, and what it does.

    `not_honoured` is the reason why setting it has no effect.  A key that ends in `*` stands for
    all keys that begin so.
    """

    key: str
    kind: Kind[T_co] = field(hash=False)
    default: str
    effect: str
    not_honoured: str | None = None

    def value(self, spark: SparkSession) -> T_co | None:
        """What the session says; None when it is not set there."""
        return self.parsed(spark.conf.get(self.key, None))

    def parsed(self, text: str | None) -> T_co | None:
        """The value of a text; PropertyError for one that is none."""
        if text is None:
            return None
        try:
            return self.kind.parse(text)
        except ValueError:
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION", name=self.key, input=text, explain=self.kind.needs
            ) from None


def _row(key: str, kind: Kind[T], default: str, effect: str) -> Setting[T]:
    key = key if key.startswith("spark.") else _DELTA + key
    return Setting(key=key, kind=kind, default=default, effect=effect)


def _unused(key: str, kind: Kind[T], default: str, effect: str, why: str) -> Setting[T]:
    key = key if key.startswith("spark.") else _DELTA + key
    return Setting(key=key, kind=kind, default=default, effect=effect, not_honoured=why)


CHECKPOINT_PART_SIZE = _row(
    "checkpoint.partSize", _NUMBER, "", "Largest number of file actions in a checkpoint's file."
)
CHECKSUM_MISMATCH_IS_FATAL = _row(
    "checksum.mismatch.fatal", FLAG, "true", "Refuse a version that its checksum file contradicts."
)
MAX_COMMIT_ATTEMPTS = _row(
    "maxCommitAttempts",
    _FROM_ZERO,
    str(DEFAULT_ATTEMPTS),
    "How many versions a commit tries before it gives up.",
)
HISTORY_METRICS = _row(
    "history.metricsEnabled", FLAG, "true", "Record the metrics of operations in the history."
)
WRITE_CHECKSUM = _row(
    "writeChecksumFile.enabled", FLAG, "true", "Write a version checksum after a commit."
)
STATS_SKIPPING = _row("stats.skipping", FLAG, "true", "Skip files by their statistics.")
STRING_PREFIX = _row(
    f"{_SKIPPING}stringPrefixLength",
    _FROM_ZERO,
    "32",
    "Length of text in statistics, where the table has no property for it.",
)

_NO_ICEBERG = "Iceberg tables are neither converted nor written"
_NO_HUDI = "Hudi metadata is not written"

HONOURED: tuple[Setting[object], ...] = (
    _row(
        "allowArbitraryProperties.enabled",
        FLAG,
        "false",
        "Accept table properties that begin with delta. and are not known.",
    ),
    _row(
        "alterLocation.bypassSchemaCheck",
        FLAG,
        "false",
        "Let SET LOCATION lead to a table with another schema.",
    ),
    _row(
        "alterTable.changeColumn.checkExpressions",
        FLAG,
        "true",
        "Refuse a change of a column that constraints or generated columns use.",
    ),
    _row("autoCompact.enabled", FLAG, "", "Compact small files after writes of this session."),
    _row("autoCompact.maxFileSize", SIZE, "134217728", "Size of a compacted file."),
    _row("autoCompact.minFileSize", SIZE, "", "Files below this size count as small."),
    _row("autoCompact.minNumFiles", _NUMBER, "50", "Small files that start a compaction."),
    _row(
        "autoCompact.maxNumModifiedPartitions",
        _NUMBER,
        "128",
        "Most partitions that one compaction goes into.",
    ),
    _row("backfill.maxNumFiles", _NUMBER, "", "Files in a commit of a row tracking backfill."),
    _row(
        "catalog.update.enabled", FLAG, "false", "Keep the metastore's copy of schemas up to date."
    ),
    _row(
        "changeDataFeed.defaultSchemaModeForColumnMappingTable",
        TEXT,
        "legacy",
        "Which version's schema a change data feed has: legacy, latest or endVersion.",
    ),
    _row(
        "changeDataFeed.timestampOutOfRange.enabled",
        FLAG,
        "false",
        "Accept a range of changes that ends after the newest version.",
    ),
    _row(
        "changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled",
        FLAG,
        "false",
        "Read changes over a change of the schema that does not fit.",
    ),
    CHECKPOINT_PART_SIZE,
    CHECKSUM_MISMATCH_IS_FATAL,
    _row("columnMapping.allowRemoval", FLAG, "false", "Allow column mapping to be removed."),
    _row("commitInfo.userMetadata", TEXT, "", "Text for the history of commits without their own."),
    _row(
        "constraints.allowUnenforcedNotNull.enabled",
        FLAG,
        "false",
        "Accept NOT NULL below arrays and maps, where it is not checked.",
    ),
    _row(
        "constraints.assumesDropIfExists.enabled",
        FLAG,
        "false",
        "Let DROP CONSTRAINT of a name that is not there do nothing.",
    ),
    _row(
        "convert.metadataCheck.enabled",
        FLAG,
        "true",
        "Refuse to convert a table whose properties differ in catalog and log.",
    ),
    _row(
        "convert.partitionValues.ignoreCastFailure",
        FLAG,
        "false",
        "Read a partition value that does not fit its type as null.",
    ),
    _row("convert.useCatalogPartitions", FLAG, "true", "Convert the partitions of the catalog."),
    _row("convert.useCatalogSchema", FLAG, "true", "Convert with the schema of the catalog."),
    _row(
        "convert.useMetadataLog",
        FLAG,
        "true",
        "Convert the files that a stream's _spark_metadata lists.",
    ),
    _row("convert.iceberg.enabled", FLAG, "true", "Name Iceberg in the refusal of its tables."),
    _row("delete.allowExistsSubquery", FLAG, "false", "Allow EXISTS in the condition of DELETE."),
    *(
        _row(
            f"{command}.deletionVectors.persistent",
            FLAG,
            "true",
            f"Let {command.upper()} write deletion vectors where the table has them.",
        )
        for command in ("delete", "merge", "update")
    ),
    _row("dmlMetricsFromMetadata.enabled", FLAG, "true", "Count rows of whole files by the log."),
    _row("dynamicPartitionOverwrite.enabled", FLAG, "true", "Allow dynamic partition overwrite."),
    HISTORY_METRICS,
    _row(
        "identityColumn.allowSyncIdentityToLowerHighWaterMark.enabled",
        FLAG,
        "false",
        "Let SYNC IDENTITY lower the high water mark.",
    ),
    _row("import.batchSize.schemaInference", _NUMBER, "1000000", "Footers per job of CONVERT."),
    _row("import.batchSize.statsCollection", _NUMBER, "50000", "Files per job of CONVERT."),
    _row(
        "lastCommitVersionInSession", _FROM_ZERO, "", "Set by commits: the version of the last one."
    ),
    MAX_COMMIT_ATTEMPTS,
    _row("merge.materializeSource", TEXT, "auto", "Keep the rows of MERGE's source: auto or all."),
    _row(
        "merge.materializeSource.maxAttempts",
        _NUMBER,
        "4",
        "How often a MERGE runs whose kept source was lost.",
    ),
    _row(
        "merge.optimizeInsertOnlyMerge.enabled", FLAG, "true", "Run a MERGE that inserts as append."
    ),
    _row("merge.preserveNullSourceStructs", FLAG, "true", "Keep null structs of the source null."),
    _row(
        "merge.preserveNullSourceStructs.updateStar",
        FLAG,
        "true",
        "The same for UPDATE SET *.",
    ),
    _row(
        "merge.repartitionBeforeWrite.enabled",
        FLAG,
        "true",
        "Shuffle the rows of a partitioned MERGE by partition before they are written.",
    ),
    _row("optimize.batchSize", SIZE, "", "Bytes that one commit of OPTIMIZE writes anew."),
    _row(
        "optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize",
        _NUMBER,
        "161061273600",
        "Bytes of a Z-cube, at most.",
    ),
    _row(
        "optimize.clustering.mergeStrategy.minCubeSize.threshold",
        _NUMBER,
        "107374182400",
        "Bytes from which a Z-cube is left alone.",
    ),
    _row(
        "optimize.maxDeletedRowsRatio", TEXT, "0.05", "Share of deleted rows that rewrites a file."
    ),
    _row("optimize.maxFileSize", SIZE, "1073741824", "Size of a file that OPTIMIZE writes."),
    _row("optimize.maxThreads", _NUMBER, "15", "Bins that OPTIMIZE writes at once."),
    _row("optimize.minFileSize", SIZE, "1073741824", "Files below this size are compacted."),
    _row("optimize.repartition.enabled", FLAG, "false", "Compact with a shuffle of all rows."),
    _row(
        "optimize.zorder.checkStatsCollection.enabled",
        FLAG,
        "true",
        "Refuse ZORDER BY columns without statistics.",
    ),
    _row("optimizeMetadataQuery.enabled", FLAG, "true", "Answer counts and bounds from the log."),
    _row("optimizeWrite.binSize", SIZE, "512MiB", "Size of a task's rows in an optimized write."),
    _row("optimizeWrite.enabled", FLAG, "", "Shuffle rows before writes into fewer, larger files."),
    _row(
        "properties.defaults.*",
        TEXT,
        "",
        "A property of new tables; ignoreProtocolDefaults leaves out those of the protocol.",
    ),
    _row(
        "replaceWhere.constraintCheck.enabled",
        FLAG,
        "true",
        "Refuse rows that do not fit the condition of replaceWhere.",
    ),
    _row(
        "replaceWhere.dataColumns.enabled",
        FLAG,
        "true",
        "Allow replaceWhere on columns that are not partition columns.",
    ),
    _row(
        "resolveMergeUpdateStructsByName.enabled",
        FLAG,
        "true",
        "Resolve fields of structs in MERGE by name.",
    ),
    _row(
        "restore.protocolDowngradeAllowed", FLAG, "false", "Let RESTORE lower the table's protocol."
    ),
    _row("retentionDurationCheck.enabled", FLAG, "true", "Refuse a VACUUM of recent files."),
    _row("rowTracking.backfill.enabled", FLAG, "true", "Give ids to rows of existing tables."),
    _row("rowTracking.backfill.maxNumFiles", _NUMBER, "", "An older name of backfill.maxNumFiles."),
    _row("schema.autoMerge.enabled", FLAG, "false", "Evolve schemas in writes and MERGE."),
    _row("skipRecordingEmptyCommits", FLAG, "true", "Make no commit for a write without changes."),
    _row("stats.collect", FLAG, "true", "Record statistics of new files."),
    STATS_SKIPPING,
    _row(
        "streaming.allowSchemaLocationOutsideCheckpointLocation",
        FLAG,
        "false",
        "Accept a schema location outside of the checkpoint.",
    ),
    _row(
        "streaming.allowSourceColumn*",
        TEXT,
        "",
        "Let a stream go on over renamed, dropped or widened columns.",
    ),
    _row(
        "streaming.sink.allowImplicitCasts", FLAG, "true", "Cast a batch's values to the table's."
    ),
    _row(
        "streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
        FLAG,
        "false",
        "Read a stream over a change of the schema that does not fit.",
    ),
    _row("tableFeatures.fastDropFeature.enabled", FLAG, "true", "Drop features without a wait."),
    _row(
        "tableFeatures.fastDropFeature.generateDVTombstones.enabled",
        FLAG,
        "true",
        "Write tombstones of deletion vectors when their feature is dropped.",
    ),
    _row(
        "typeWidening.allowAutomaticWidening",
        TEXT,
        "always",
        "Which columns schema evolution widens: always, same_family_type or never.",
    ),
    _row(
        "updateAndMergeCastingFollowsAnsiEnabledFlag",
        FLAG,
        "false",
        "Cast in UPDATE and MERGE as spark.sql.ansi.enabled says.",
    ),
    _row(
        "vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration",
        FLAG,
        "false",
        "Refuse versions whose files VACUUM may have deleted.",
    ),
    _row("vacuum.lite.enabled", FLAG, "false", "Run VACUUM by the log alone."),
    _row("vacuum.logging.enabled", FLAG, "", "Record VACUUM in the history."),
    _row("vacuum.parallelDelete.enabled", FLAG, "true", "Delete files in parallel."),
    _row("vacuum.parallelDelete.parallelism", _NUMBER, "", "Tasks that delete in parallel."),
    _row(
        "vacuum.retentionWindowIgnore.enabled",
        FLAG,
        "true",
        "Use the table's retention in place of the hours of VACUUM.",
    ),
    _row("write.txnAppId", TEXT, "", "The application of an idempotent write."),
    _row("write.txnVersion", _FROM_ZERO, "", "The version of an idempotent write."),
    _row("write.txnVersion.autoReset.enabled", FLAG, "false", "Unset txnVersion after each write."),
    WRITE_CHECKSUM,
    _row(f"{_SKIPPING}mdc.addNoise", FLAG, "true", "Spread equal keys of ZORDER BY over files."),
    _row(f"{_SKIPPING}mdc.rangeId.max", _NUMBER, "1000", "Ranges of a column in ZORDER BY."),
    STRING_PREFIX,
)
"""What has an effect."""

NOT_HONOURED: tuple[Setting[object], ...] = (
    _unused(
        "checkLatestSchemaOnRead",
        FLAG,
        "true",
        "Refuse a held DataFrame whose table has another schema.",
        "the check cannot be turned off, for its rows would be wrong",
    ),
    _unused(
        "clusteredTable.enableClusteringTablePreview",
        FLAG,
        "false",
        "Allow clustered tables.",
        "clustered tables are always allowed",
    ),
    _unused(
        "commitMetrics.enabled",
        FLAG,
        "true",
        "Send metrics of commits to Unity Catalog.",
        "nothing is sent to a catalog",
    ),
    _unused("convert.iceberg.*", TEXT, "", "Conversion of Iceberg tables.", _NO_ICEBERG),
    _unused(
        "deltaLog.minorCompaction.useForReads",
        FLAG,
        "true",
        "Read log compactions.",
        "log compactions are always read",
    ),
    _unused("hudi.*", TEXT, "", "Hudi metadata.", _NO_HUDI),
    _unused("iceberg.*", TEXT, "", "Iceberg metadata.", _NO_ICEBERG),
    _unused(
        "optimizeWrite.maxShufflePartitions",
        _NUMBER,
        "2000",
        "Partitions of the shuffle before a write.",
        "Spark's adaptive execution chooses them by optimizeWrite.binSize",
    ),
    _unused(
        "optimizeWrite.numShuffleBlocks",
        _NUMBER,
        "50000000",
        "Blocks of the shuffle before a write.",
        "Spark's adaptive execution chooses them by optimizeWrite.binSize",
    ),
    _unused(
        "stalenessLimit",
        TEXT,
        "0",
        "How old a version a query may read.",
        "a query always reads the newest version, which costs one listing",
    ),
    _unused(
        "tableFeatures.fastDropFeature.dvTombstoneCountThreshold",
        _NUMBER,
        "10000",
        "Tombstones of deletion vectors that are held in memory.",
        "tombstones are held as Arrow columns, whatever their number",
    ),
    _unused("uniform.*", TEXT, "", "Iceberg metadata of commits.", _NO_ICEBERG),
    _unused(
        "v2.enableMode",
        TEXT,
        "AUTO",
        "Which of delta-spark's two connectors is used.",
        "there is one way to read and write",
    ),
    _unused(
        "withEventTimeOrder.enabled",
        FLAG,
        "false",
        "Read the first version of a stream in the order of event times.",
        "the rows of the first version come in the order of the files",
    ),
)
"""What has none, and why."""


def settings_page() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Settings of a Spark session (`spark.conf.set`) of delta-spark, and what they do here.",
        "A key of `spark.databricks.delta.` that has no effect is named in a warning of the logger",
        "`pyspark_delta.spark.session_settings`, once for each session.",
        "",
        "## Honoured",
        "",
        "| key | values | default | effect |",
        "|---|---|---|---|",
        *(f"| `{r.key}` | {_values(r)} | {_shown(r.default)} | {r.effect} |" for r in HONOURED),
        "",
        "## Not applicable",
        "",
        "| key | in delta-spark | why it has no effect |",
        "|---|---|---|",
        *(f"| `{r.key}` | {r.effect} | {r.not_honoured} |" for r in NOT_HONOURED),
    ]
    return "\n".join(lines) + "\n"


def row_of(key: str, rows: Iterable[Setting[object]]) -> Setting[object] | None:
    """The row for a key, if there is one."""
    for row in rows:
        if row.key == key or (row.key.endswith("*") and key.startswith(row.key[:-1])):
            return row
    return None


def _values(row: Setting[object]) -> str:
    return row.kind.needs.removeprefix("it needs to be ")


def _shown(default: str) -> str:
    return f"`{default}`" if default else "not set"


if __name__ == "__main__":
    print(settings_page(), end="")
