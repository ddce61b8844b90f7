"""`DeltaSource`: a Delta table as a stream, `spark.readStream.format("delta").load(path)`.

Offsets are found in the log, in Python; a batch is a native scan of the files between two of them,
and its rows stay in the JVM.  What a run of a query holds belongs to that run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import SchemaError, StreamError, TableNotFoundError
from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.ops.stream_checkpoints import guard_numbers, is_last_batch_done
from pyspark_delta.kernel.ops.stream_commits import CommitReader, FileRun, adds_table
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream_run import StreamRun, StreamSettings
from pyspark_delta.kernel.ops.stream_schema_log import SchemaLog
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.chosen_rows import ChosenSource
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.settings import all_settings
from pyspark_delta.spark.jvm.stream_source import (
    QueryRun,
    StreamReader,
    StreamSource,
    stream_frame,
)
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import session_zone, source_plan
from pyspark_delta.spark.streaming.change_rows import change_rows
from pyspark_delta.spark.streaming.options import schema_location, stream_settings
from pyspark_delta.spark.table_access import ancestors, hadoop_location, is_same_location, open_log
from pyspark_delta.spark.time_travel import names_version
from pyspark_delta.spark.types import from_spark

_ALLOWS_ANY_LOCATION = (
    "spark.databricks.delta.streaming.allowSchemaLocationOutsideCheckpointLocation"
)

_GONE = frozenset(
    {"DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "DELTA_MISSING_FILES_UNEXPECTED_VERSION"}
)


def stream_table(
    spark: SparkSession,
    path: str,
    options: DeltaOptions,
    given_schema: SparkStructType | None = None,
) -> DataFrame:
    """The table at `path` as a streaming DataFrame, with the columns it has now.

    With a schema log the columns are those the stream is at.
    """
    settings = stream_settings(
        options,
        time_zone=session_zone(spark),
        settings=all_settings(JvmSession(spark)),
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
    """A table as queries over one streaming DataFrame read it."""

    def __init__(
        self, spark: SparkSession, log: DeltaLog, settings: StreamSettings, options: DeltaOptions
    ) -> None:
        self._spark = spark
        self._log = log
        self._settings = settings
        self._options = options
        self._location = schema_location(options)
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
        """The reader of a run: it keeps the columns of the DataFrame, whatever came since."""
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
        settings = all_settings(JvmSession(self._spark))
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
        zone = session_zone(self._spark)
        if self._settings.reads_changes:
            return change_rows(jvm, self._log.store, runs, definition)
        chosen = ChosenFiles(
            self._log.store,
            adds_table(runs),
            protocol=definition.protocol,
            metadata=definition.metadata,
        )
        source = ChosenSource(chosen, zone, allowed=lambda: allowed_stores(self._spark))
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
        if checkpoint is None or self._spark.conf.get(_ALLOWS_ANY_LOCATION, "false") == "true":
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
            # A query that begins asks for its last batch again, done or not; of one that is done
            # it looks at no row, so the log need not have it any more.
            is_gone = self._begins and error.condition in _GONE
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
