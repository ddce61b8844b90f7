"""`DeltaSource`: a Delta table as a stream, `spark.readStream.format("delta").load(path)`.

Python finds offsets in the log; a batch is a native scan of the files between two of them, or of
their changes, and its rows stay in the JVM.  Each run of a query has state of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import PropertyError, SchemaError, StreamError, TableNotFoundError
from pyspark_delta.kernel.log.table_files import ChosenFiles
from pyspark_delta.kernel.ops.changes.commits import CommitReader, FileRun, adds_table
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition
from pyspark_delta.kernel.ops.changes.files import ChangedFiles
from pyspark_delta.kernel.ops.stream.changes import LATEST, StreamRules, StreamSettings
from pyspark_delta.kernel.ops.stream.offsets import guard_numbers, is_last_batch_done
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.ops.stream.schema_log import SchemaLog
from pyspark_delta.kernel.protocol.property_kinds import SIZE
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.scan.locations import Locations, VectorReader
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.changes.rows import ChangesOf, change_frame
from pyspark_delta.spark.conf.options import DeltaOptions, illegal_option
from pyspark_delta.spark.conf.setting_table import (
    ALLOW_ANY_SCHEMA_LOCATION,
    ALLOW_SOURCE_COLUMN,
    CHANGE_FEED_OUT_OF_RANGE,
    STREAM_INCOMPATIBLE,
)
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.gateway import JvmSession, all_settings, from_spark
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.streaming import QueryRun, StreamReader, StreamSource, stream_frame
from pyspark_delta.spark.scan.frame import source_plan
from pyspark_delta.spark.scan.load import names_version
from pyspark_delta.spark.scan.source import ChosenSource, ScanSettings
from pyspark_delta.spark.tables.locations import (
    allowed_stores,
    ancestors,
    hadoop_location,
    is_same_location,
    open_log,
)

_LARGEST_LIMIT = 2**31 - 1
_GONE_CONDITIONS = frozenset(
    {"DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "DELTA_MISSING_FILES_UNEXPECTED_VERSION"}
)


def change_batch(
    jvm: JvmSession, store: LogStore, runs: Sequence[FileRun], definition: StreamDefinition
) -> DataFrame:
    """The changed rows of the files, as a batch of a stream."""
    vectors = VectorReader(Locations(store, allowed_stores(jvm.spark)))
    is_partitioned = bool(definition.metadata.partition_columns)
    # A batch is read once and whole, so no file is skipped and statistics are not needed.
    changed = ChangedFiles(read=vectors.read, is_partitioned=is_partitioned, has_stats=False)
    for run in runs:
        changed.take(run)
    table = ChangesOf(store=store, metadata=definition.metadata, protocol=definition.protocol)
    return change_frame(jvm, table, changed, is_stream=True)


def stream_table(
    spark: SparkSession,
    path: str,
    options: DeltaOptions,
    given_schema: SparkStructType | None = None,
) -> DataFrame:
    """The table at `path` as a streaming DataFrame, with its current columns.

    With a schema log the columns are those that the stream has reached.
    """
    settings = _stream_settings(
        options, time_zone=session_zone(spark), settings=all_settings(JvmSession(spark))
    )
    log = open_log(spark, path, options)
    if names_version(path, options) and not ("@" in path and log.table_exists):
        raise StreamError("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS")
    source = DeltaSource(spark, log, settings, options)
    if given_schema is not None and len(given_schema):
        given, own = from_spark(given_schema), source.definition.schema
        if as_nullable(given).simple_string != as_nullable(own).simple_string:
            raise SchemaError("DELTA_READ_SOURCE_SCHEMA_CONFLICT")
    jvm = JvmSession(spark)
    return stream_frame(jvm, source, source.frame([], source.definition))


class DeltaSource(StreamSource):
    """The table behind one streaming DataFrame, for all queries over it."""

    def __init__(
        self, spark: SparkSession, log: DeltaLog, settings: StreamSettings, options: DeltaOptions
    ) -> None:
        self._spark = spark
        self._log = log
        self._settings = settings
        self._options = options
        self._location = _schema_location(options)
        self.definition = self._definition()
        schema_log = self._schema_log(self.definition)
        if schema_log is not None:
            schema_log.merge_changes(CommitReader(log.store))
            self.definition = self._tracked(self.definition, schema_log)
        if not len(self.definition.schema):
            raise SchemaError("DELTA_SCHEMA_NOT_SET")

    @property
    def name(self) -> str:
        return f"DeltaSource[{hadoop_location(self._log.store.root_uri)}]"

    def reader(self, run: QueryRun) -> StreamReader:
        """The reader of a run: it keeps the columns of the DataFrame, whatever changed since."""
        definition = self.definition
        place = run.checkpoint
        checkpoint = None if place is None else open_log(self._spark, place).store
        ours = run.are_ours
        if checkpoint is not None and not all(ours):
            guard_numbers(checkpoint, ours)
        if self._location is None:
            snapshot = self._log.update()
            if snapshot.metadata.id != definition.metadata.id:
                raise StreamError(
                    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
                    oldTableId=definition.metadata.id,
                    newTableId=snapshot.metadata.id,
                )
            definition = replace(definition, protocol=snapshot.protocol)
            return _Reader(self, StreamRun(self._log, self._settings, definition), checkpoint)
        source_path = f"{place or ''}/sources/{run.source_number}"
        self._check_location(place)
        base = self._definition()
        schema_log = self._schema_log(base)
        assert schema_log is not None
        schema_log.check_source(source_path)
        settings = ALLOW_SOURCE_COLUMN.members(all_settings(JvmSession(self._spark)))
        schema_log.check_allowed(source_path, self._settings.options, settings)
        stream_run = StreamRun(
            self._log,
            self._settings,
            self._tracked(definition, schema_log),
            schema_log=schema_log,
            source_path=source_path,
        )
        return _Reader(self, stream_run, checkpoint)

    def frame(self, runs: Sequence[FileRun], definition: StreamDefinition) -> DataFrame:
        """The rows of files, or their changes, as a batch of a stream."""
        jvm = JvmSession(self._spark)
        if self._settings.reads_changes:
            return change_batch(jvm, self._log.store, runs, definition)
        chosen = ChosenFiles(
            self._log.store,
            adds_table(runs),
            protocol=definition.protocol,
            metadata=definition.metadata,
        )
        source = ChosenSource(chosen, ScanSettings.of(self._spark))
        return plan_frame(jvm, source_plan(jvm, source, is_stream=True))

    def _definition(self) -> StreamDefinition:
        try:
            snapshot = self._log.update()
        except TableNotFoundError:
            raise SchemaError("DELTA_SCHEMA_NOT_SET") from None
        return StreamDefinition(
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            version=snapshot.version,
            is_lenient=self._settings.is_lenient,
            has_starting_options=self._settings.has_starting_options,
        )

    def _schema_log(self, base: StreamDefinition) -> SchemaLog | None:
        if self._location is None:
            return None
        store = open_log(self._spark, self._location, self._options).store
        return SchemaLog(store, base, self._options.get("streamingSourceTrackingId"))

    def _tracked(self, base: StreamDefinition, schema_log: SchemaLog) -> StreamDefinition:
        if schema_log.current is None:
            return base
        return schema_log.current.definition(
            is_lenient=self._settings.is_lenient,
            has_starting_options=self._settings.has_starting_options,
        )

    def _check_location(self, checkpoint: str | None) -> None:
        assert self._location is not None
        if checkpoint is None or ALLOW_ANY_SCHEMA_LOCATION.of(self._spark):
            return
        above = [self._location, *ancestors(self._location)]
        if not any(is_same_location(each, checkpoint) for each in above):
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT",
                schemaTrackingLocation=self._location,
                checkpointLocation=checkpoint,
            )


class _Reader(StreamReader):
    def __init__(self, source: DeltaSource, run: StreamRun, checkpoint: LogStore | None) -> None:
        self._source = source
        self._run = run
        self._checkpoint = checkpoint
        self._begins = True

    def end_now(self) -> None:
        self._run.end_now()

    def latest_offset(self, start: str | None, *, is_limited: bool) -> str | None:
        self._begins = False
        return self._run.latest_offset(start, is_limited=is_limited)

    def batch(self, start: str | None, end: str) -> DataFrame:
        try:
            runs = self._run.batch(start, end)
        except StreamError as error:
            # A query that begins requests its last batch again, done or not.  It reads no row of a
            # batch that is done, so the log may no longer have it.
            is_gone = self._begins and error.condition in _GONE_CONDITIONS
            if not is_gone or self._checkpoint is None or not is_last_batch_done(self._checkpoint):
                raise
            runs = []
        self._begins = False
        definition = replace(self._run.definition, protocol=self._run.protocol)
        return self._source.frame(runs, definition)

    def commit(self, end: str) -> None:
        self._run.commit(end)

    def close(self) -> None:
        self._run.close()


def _stream_settings(
    options: DeltaOptions, *, time_zone: str, settings: dict[str, str]
) -> StreamSettings:
    """Parse the options of `readStream`, before any I/O; `settings` are the session's."""
    version, time = options.get("startingVersion"), options.get("startingTimestamp")
    if version is not None and time is not None:
        raise PropertyError(
            "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
            version="startingVersion",
            timestamp="startingTimestamp",
        )
    fails_on_loss = _flag(options, "failOnDataLoss", default=True)
    if not fails_on_loss and _schema_location(options) is not None:
        explain = "a lost commit may have changed the schema, and there is a schema location"
        raise illegal_option("failOnDataLoss", "false", explain)
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
        is_lenient=STREAM_INCOMPATIBLE.by(settings.get),
        is_tolerant=CHANGE_FEED_OUT_OF_RANGE.by(settings.get),
        options={key: options[key] for key in options},
    )


def _schema_location(options: DeltaOptions) -> str | None:
    """The location of the schema log; None without one."""
    return options.get("schemaTrackingLocation") or options.get("schemaLocation")


def _flag(options: DeltaOptions, key: str, *, default: bool = False) -> bool:
    value = options.flag(key)
    return default if value is None else value


def _version(options: DeltaOptions) -> int | None:
    text = options.get("startingVersion")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise illegal_option(
            "startingVersion", text, "needs a version, which is at least 0, or 'latest'"
        )
    return int(text)


def _max_files(options: DeltaOptions) -> int | None:
    value = options.whole_number("maxFilesPerTrigger")
    if value is not None and not 0 < value <= _LARGEST_LIMIT:
        raise illegal_option(
            "maxFilesPerTrigger", value, "needs a whole number of files, at least 1"
        )
    return value


def _max_bytes(options: DeltaOptions) -> int | None:
    text = options.get("maxBytesPerTrigger")
    try:
        return None if text is None else SIZE.parse(text)
    except ValueError:
        raise illegal_option("maxBytesPerTrigger", text, "needs a size such as 10m or 1g") from None


def _pattern(options: DeltaOptions) -> re.Pattern[str] | None:
    text = options.get("excludeRegex")
    try:
        return None if text is None else re.compile(text)
    except re.error:
        raise PropertyError("DELTA_REGEX_OPT_SYNTAX_ERROR", regExpOption="excludeRegex") from None
