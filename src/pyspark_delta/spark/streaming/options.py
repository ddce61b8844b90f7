"""Options of a streaming read, checked before anything is opened."""

from __future__ import annotations

import re

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.ops.change_range import OUT_OF_RANGE
from pyspark_delta.kernel.ops.stream_changes import StreamRules
from pyspark_delta.kernel.ops.stream_run import LATEST, StreamSettings
from pyspark_delta.kernel.protocol.property_kinds import SIZE
from pyspark_delta.spark.options import DeltaOptions

_LENIENT = (
    "spark.databricks.delta.streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled"
)
_LARGEST_LIMIT = 2**31 - 1


def stream_settings(
    options: DeltaOptions, *, time_zone: str, settings: dict[str, str]
) -> StreamSettings:
    """What the options of `readStream` ask for; `settings` are the session's."""
    version, time = options.get("startingVersion"), options.get("startingTimestamp")
    if version is not None and time is not None:
        raise PropertyError(
            "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
            version="startingVersion",
            timestamp="startingTimestamp",
        )
    fails_on_loss = _flag(options, "failOnDataLoss", default=True)
    if not fails_on_loss and schema_location(options) is not None:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input="false",
            name="failOnDataLoss",
            explain="a lost commit may have changed the schema, and there is a schema location",
        )
    ignores_changes = _flag(options, "ignoreChanges") or _flag(options, "ignoreFileDeletion")
    return StreamSettings(
        max_files=_max_files(options),
        max_bytes=_max_bytes(options),
        starting_version=LATEST if (version or "").lower() == LATEST else _version(options),
        starting_timestamp=time,
        time_zone=time_zone,
        rules=StreamRules(
            ignore_deletes=_flag(options, "ignoreDeletes"),
            ignore_changes=ignores_changes,
            skip_change_commits=_flag(options, "skipChangeCommits"),
        ),
        fail_on_data_loss=fails_on_loss,
        excluded=_pattern(options),
        reads_changes=_flag(options, "readChangeFeed") or _flag(options, "readChangeData"),
        is_lenient=settings.get(_LENIENT, "false").lower() == "true",
        is_tolerant=settings.get(OUT_OF_RANGE, "false").lower() == "true",
        options={key: options[key] for key in options},
    )


def schema_location(options: DeltaOptions) -> str | None:
    """Where the schema log is to be; None without one."""
    return options.get("schemaTrackingLocation") or options.get("schemaLocation")


def _flag(options: DeltaOptions, key: str, *, default: bool = False) -> bool:
    value = options.flag(key)
    return default if value is None else value


def _version(options: DeltaOptions) -> int | None:
    text = options.get("startingVersion")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=text,
            name="startingVersion",
            explain="needs a version, which is at least 0, or 'latest'",
        )
    return int(text)


def _max_files(options: DeltaOptions) -> int | None:
    value = options.whole_number("maxFilesPerTrigger")
    if value is not None and not 0 < value <= _LARGEST_LIMIT:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=value,
            name="maxFilesPerTrigger",
            explain="needs a whole number of files, at least 1",
        )
    return value


def _max_bytes(options: DeltaOptions) -> int | None:
    text = options.get("maxBytesPerTrigger")
    if text is None:
        return None
    try:
        return SIZE.parse(text)
    except ValueError:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=text,
            name="maxBytesPerTrigger",
            explain="needs a size such as 10m or 1g",
        ) from None


def _pattern(options: DeltaOptions) -> re.Pattern[str] | None:
    text = options.get("excludeRegex")
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error:
        raise PropertyError("DELTA_REGEX_OPT_SYNTAX_ERROR", regExpOption="excludeRegex") from None
