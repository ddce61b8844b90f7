"""The table of `delta.*` table properties: purpose, default and legal values of each.

A property is text in `metaData.configuration`; `property_value` returns it typed.  Keys that a user
sets are matched ignoring case and stored in the spelling of this table; keys without the prefix
are the user's own.  The code that implements a property documents its effect.  PROTOCOL.md names
each property under the feature it belongs to.

>>> property_value({"delta.logRetentionDuration": "interval 1 day"}, LOG_RETENTION)
86400000
>>> property_value({}, CHECKPOINT_INTERVAL)
10
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.property_kinds import (
    COLUMNS,
    DURATION,
    FLAG,
    JSON_OBJECT,
    PARQUET_VERSION,
    SIZE,
    TEXT,
    Kind,
    choice,
    several,
    whole,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
PREFIX = "delta."
CONSTRAINT_PREFIX = "delta.constraints."
FEATURE_PREFIX = "delta.feature."
# Settings of other formats, named freely by their own clients.
_FOREIGN_PREFIX = "delta.universalformat.config."
# The key under which a catalog shows clustering columns.
_CLUSTERING_COLUMNS = "clusteringColumns"
_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Property(Generic[T_co]):
    """One row: the kind of value under `key`, its default, and its purpose.

    `default` is text, or None for a property without a default.  `aliases` are older keys that
    count when `key` is absent.  A property that is not `settable` is written by Delta alone.
    """

    key: str
    default: str | None
    kind: Kind[T_co]
    doc: str
    _: KW_ONLY
    settable: bool = True
    aliases: tuple[str, ...] = ()


_ROWS: list[Property[Any]] = []


def _listed(row: Property[T]) -> Property[T]:
    _ROWS.append(row)
    return row


def _row(key: str, default: str, kind: Kind[T], doc: str, *, settable: bool = True) -> Property[T]:
    return _listed(Property(PREFIX + key, default, kind, doc, settable=settable))


def _unset(key: str, kind: Kind[T], doc: str, *, settable: bool = True) -> Property[T | None]:
    return _listed(Property(PREFIX + key, None, kind, doc, settable=settable))


def _switch(key: str, doc: str, *aliases: str) -> Property[bool]:
    """A property that is off by default."""
    return _listed(Property(PREFIX + key, "false", FLAG, doc, aliases=aliases))


# Commits, retention and the log.
APPEND_ONLY = _switch("appendOnly", "refuse to change or remove rows")
ISOLATION_LEVEL = _row(
    "isolationLevel",
    "Serializable",
    choice("Serializable", "WriteSerializable", ignore_case=True),
    "how far a commit must be independent of those that overtook it",
)
CHECKPOINT_INTERVAL = _row("checkpointInterval", "10", whole(1), "commits between two checkpoints")
CHECKPOINT_POLICY = _row(
    "checkpointPolicy", "classic", choice("classic", "v2"), "the kind of checkpoint to write"
)
_row("checkpointRetentionDuration", "interval 2 days", DURATION, "how long checkpoints are kept")
CHECKPOINT_STATS_AS_JSON = _row(
    "checkpoint.writeStatsAsJson", "true", FLAG, "statistics in checkpoints as JSON text"
)
CHECKPOINT_STATS_AS_STRUCT = _row(
    "checkpoint.writeStatsAsStruct", "true", FLAG, "statistics in checkpoints as typed columns"
)
CHECKPOINT_PROTECTION_VERSION = _row(
    "requireCheckpointProtectionBeforeVersion",
    "0",
    whole(0, most=_LONG),
    "versions below this one go together with their checkpoints or not at all",
    settable=False,
)
LOG_RETENTION = _row(
    "logRetentionDuration", "interval 30 days", DURATION, "how long the log is kept"
)
DELETED_FILE_RETENTION = _row(
    "deletedFileRetentionDuration",
    "interval 1 week",
    DURATION,
    "how long removed files are kept; not longer than the log",
)
_row("sampleRetentionDuration", "interval 7 days", DURATION, "not used")
TRANSACTION_RETENTION = _unset(
    "setTransactionRetentionDuration", DURATION, "how long application ids are remembered"
)
ENABLE_EXPIRED_LOG_CLEANUP = _row(
    "enableExpiredLogCleanup", "true", FLAG, "delete expired log files after a checkpoint"
)
_row("enableFullRetentionRollback", "true", FLAG, "keep every version of the retention readable")
TRUNCATE_HISTORY_RETENTION = _row(
    "dropFeatureTruncateHistory.retentionDuration",
    "interval 24 hours",
    DURATION,
    "history that DROP FEATURE ... TRUNCATE HISTORY leaves",
)
ENABLE_IN_COMMIT_TIMESTAMPS = _switch(
    "enableInCommitTimestamps", "a commit's time is written inside of it"
)
IN_COMMIT_TIMESTAMP_VERSION = _unset(
    "inCommitTimestampEnablementVersion",
    whole(0, most=_LONG),
    "the first version with a time inside, when older ones have none",
)
IN_COMMIT_TIMESTAMP_TIME = _unset(
    "inCommitTimestampEnablementTimestamp",
    whole(0, most=_LONG),
    "the time of that version, in milliseconds",
)

# Schema and features.
COLUMN_MAPPING_MODE = _row(
    "columnMapping.mode",
    "none",
    choice("none", "name", "id", ignore_case=True),
    "how a column is found in a data file",
)
COLUMN_MAPPING_MAX_ID = _row(
    "columnMapping.maxColumnId",
    "0",
    whole(0, most=_LONG),
    "the largest column id given out so far",
    settable=False,
)
CHANGE_DATA_CAPTURE = _switch("enableChangeDataCapture", "the feed's former name")
ENABLE_CHANGE_DATA_FEED = _switch(
    "enableChangeDataFeed", "record changed rows", CHANGE_DATA_CAPTURE.key
)
ENABLE_DELETION_VECTORS = _switch("enableDeletionVectors", "new deletion vectors may be written")
ENABLE_ROW_TRACKING = _switch("enableRowTracking", "every row keeps an id and its last change")
ROW_TRACKING_SUSPENDED = _switch(
    "rowTrackingSuspended", "give new files no row ids, while the feature is dropped"
)
ROW_ID_COLUMN = _unset(
    "rowTracking.materializedRowIdColumnName", TEXT, "the hidden column of row ids", settable=False
)
ROW_COMMIT_VERSION_COLUMN = _unset(
    "rowTracking.materializedRowCommitVersionColumnName",
    TEXT,
    "the hidden column of the versions in which rows last changed",
    settable=False,
)
ENABLE_TYPE_WIDENING = _switch("enableTypeWidening", "columns may get wider types")
ENABLE_VARIANT_SHREDDING = _switch(
    "enableVariantShredding", "variants may be stored in typed columns"
)
ENABLE_ICEBERG_COMPAT_V1 = _unset("enableIcebergCompatV1", FLAG, "keep to Iceberg's rules, V1")
ENABLE_ICEBERG_COMPAT_V2 = _unset("enableIcebergCompatV2", FLAG, "keep to Iceberg's rules, V2")
ENABLE_ICEBERG_COMPAT_V3 = _unset("enableIcebergCompatV3", FLAG, "keep to Iceberg's rules, V3")
ENABLE_MATERIALIZE_PARTITION_COLUMNS = _unset(
    "enableMaterializePartitionColumnsFeature", FLAG, "require partition columns in data files"
)
UNIVERSAL_FORMATS = _row(
    "universalFormat.enabledFormats",
    "",
    several("iceberg", "hudi"),
    "formats whose metadata is kept beside Delta's",
)
_switch(
    "universalFormat.iceberg.atomicConversion.supported",
    "Iceberg metadata is committed together with Delta's",
)
_switch("castIcebergTimeType", "read Iceberg's time of day as a number")
_switch("ignoreIcebergBucketPartition", "convert bucketed Iceberg tables without buckets")

# Data files, layout and statistics.
AUTO_OPTIMIZE = _unset("autoOptimize", FLAG, "the former switch for the two that follow")
AUTO_COMPACT = _unset("autoOptimize.autoCompact", FLAG, "compact small files after a commit")
OPTIMIZE_WRITE = _unset("autoOptimize.optimizeWrite", FLAG, "shuffle before writing")
SYMLINK_MANIFEST = _switch(
    "compatibility.symlinkFormatManifest.enabled", "a manifest after every commit"
)
NUM_INDEXED_COLUMNS = _row(
    "dataSkippingNumIndexedCols", "32", whole(-1), "columns with statistics; -1 is all"
)
STATS_COLUMNS = _unset(
    "dataSkippingStatsColumns", COLUMNS, "columns with statistics, in place of a count"
)
STRING_PREFIX_LENGTH = _unset(
    "dataSkippingStringPrefixLength", whole(0), "characters of a string that bounds keep"
)
WRITE_PARTITION_COLUMNS = _unset(
    "writePartitionColumnsToParquet", FLAG, "partition columns in data files; unset counts as true"
)
PARQUET_FORMAT_VERSION = _row(
    "parquet.format.version", "1.0.0", PARQUET_VERSION, "the Parquet version to write"
)
TARGET_FILE_SIZE = _unset(
    "targetFileSize", SIZE, "about how large files get; not one of delta-spark's"
)
RANDOMIZE_FILE_PREFIXES = _switch(
    "randomizeFilePrefixes", "random directories in place of partition values"
)
RANDOM_PREFIX_LENGTH = _row(
    "randomPrefixLength", "2", whole(1), "characters of a random directory's name"
)

# Protocol: set as properties, stored in the protocol action.
MIN_READER_VERSION = _unset("minReaderVersion", whole(1, most=3), "the reader version to have")
MIN_WRITER_VERSION = _unset("minWriterVersion", whole(1, most=7), "the writer version to have")
IGNORE_PROTOCOL_DEFAULTS = _switch(
    "ignoreProtocolDefaults", "create without the session's protocol defaults"
)

# Commits through others, and tables that point elsewhere.
COMMIT_COORDINATOR = _unset(
    "coordinatedCommits.commitCoordinator-preview", TEXT, "who decides on commits"
)
_unset(
    "coordinatedCommits.commitCoordinatorConf-preview", JSON_OBJECT, "the coordinator's settings"
)
_unset("coordinatedCommits.tableConf-preview", JSON_OBJECT, "what the coordinator keeps per table")
REDIRECT_READER_WRITER = _unset(
    "redirectReaderWriter-preview", JSON_OBJECT, "where readers and writers are sent"
)
REDIRECT_WRITER_ONLY = _unset("redirectWriterOnly-preview", JSON_OBJECT, "where writers are sent")

PROPERTIES: Mapping[str, Property[Any]] = {row.key: row for row in _ROWS}
_BY_LOWER_KEY = {row.key.lower(): row for row in _ROWS}


def property_value(configuration: Mapping[str, str | None], row: Property[T]) -> T:
    """The value of a property in `configuration`, or its default; None when it has neither."""
    for key in (row.key, *row.aliases):
        text = configuration.get(key)
        if text is not None:
            return parsed_value(row, text)
    if row.default is None:
        return None  # type: ignore[return-value]  # `_unset` rows are Property[X | None]
    return row.kind.parse(row.default)


def parsed_value(row: Property[T], text: str) -> T:
    """The value of a property's text; PropertyError when it is not legal."""
    try:
        return row.kind.parse(text)
    except ValueError:  # PropertyError is one: an interval that cannot be read
        raise PropertyError(
            "DELTA_INVALID_TABLE_PROPERTY", key=row.key, value=text, reason=row.kind.needs
        ) from None


def validate_properties(
    changes: Mapping[str, str],
    *,
    existing: Mapping[str, str | None] | None = None,
    altering: bool = False,
    allow_arbitrary: bool = False,
) -> dict[str, str]:
    """A user's `changes`, checked, under the keys with which they are stored.

    `existing` is the configuration that they change; with `altering` the table exists, and its
    constraints, location and provider have separate statements.  `allow_arbitrary` permits
    unknown `delta.` keys.
    """
    checked: dict[str, str] = {}
    for key, value in changes.items():
        if altering:
            _check_alterable(key.lower())
        checked[_stored_key(key, value, allow_arbitrary)] = value
    check_universal_formats(checked)
    if LOG_RETENTION.key in checked or DELETED_FILE_RETENTION.key in checked:
        check_retention_periods({**(existing or {}), **checked})
    return checked


def canonical_key(key: str) -> str:
    """The spelling under which a property is stored, for keys to set, unset or show."""
    lowered = key.lower()
    if lowered.startswith((FEATURE_PREFIX, _FOREIGN_PREFIX)):
        return lowered
    row = _BY_LOWER_KEY.get(lowered)
    return key if row is None else row.key


def check_universal_formats(configuration: Mapping[str, str | None]) -> None:
    """Raise for a table that requires metadata of other formats, which is not supported."""
    formats = configuration.get(UNIVERSAL_FORMATS.key)
    if formats:
        raise PropertyError("DELTA_UNIVERSAL_FORMAT_NOT_SUPPORTED", formats=formats)


def check_retention_periods(configuration: Mapping[str, str | None]) -> None:
    """Raise if removed files are kept longer than the log that names them."""
    removed = property_value(configuration, DELETED_FILE_RETENTION)
    if removed > property_value(configuration, LOG_RETENTION):
        retention = configuration.get(DELETED_FILE_RETENTION.key) or DELETED_FILE_RETENTION.default
        raise PropertyError(
            "DELTA_INVALID_TABLE_PROPERTY",
            key=LOG_RETENTION.key,
            value=configuration.get(LOG_RETENTION.key) or LOG_RETENTION.default,
            reason=f"it must not be shorter than {DELETED_FILE_RETENTION.key} ({retention})",
        )


def _check_alterable(lowered: str) -> None:
    if lowered.startswith(CONSTRAINT_PREFIX):
        raise PropertyError("DELTA_ADD_CONSTRAINTS")
    if lowered == "location":
        raise PropertyError("DELTA_CANNOT_CHANGE_LOCATION")
    if lowered == "provider":
        raise PropertyError("DELTA_CANNOT_CHANGE_PROVIDER")
    if lowered == _CLUSTERING_COLUMNS.lower():
        raise PropertyError("DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=_CLUSTERING_COLUMNS)


def _stored_key(key: str, value: str, allow_arbitrary: bool) -> str:
    lowered = key.lower()
    if not lowered.startswith(PREFIX) or lowered.startswith(CONSTRAINT_PREFIX):
        return key
    if lowered.startswith((FEATURE_PREFIX, _FOREIGN_PREFIX)):
        return lowered
    row = _BY_LOWER_KEY.get(lowered)
    if row is None:
        if allow_arbitrary:
            return key
        near = get_close_matches(lowered[:200], _BY_LOWER_KEY, n=1)
        hint = f" Is it {_BY_LOWER_KEY[near[0]].key}?" if near else ""
        raise PropertyError("DELTA_UNKNOWN_CONFIGURATION", config=key, suggestion=hint)
    if not row.settable:
        raise PropertyError("DELTA_CANNOT_MODIFY_TABLE_PROPERTY", prop=row.key)
    parsed_value(row, value)
    return row.key
