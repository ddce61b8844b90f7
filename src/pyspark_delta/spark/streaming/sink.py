"""`DeltaSink`: a table that takes the batches of a streaming query, each exactly once.

A batch is one commit.  It carries the query's id and the batch's as a transaction of an
application, so a batch that comes again after a crash is known, and left out.  Rows never enter
Python.  PROTOCOL.md, "Transaction Identifiers".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from pyspark.sql import DataFrame, SparkSession, SQLContext

from pyspark_delta.errors.table import AppendOnlyError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Action, AddFile, SetTransaction
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import check_explicit_insert
from pyspark_delta.kernel.protocol.operations import streaming_update
from pyspark_delta.kernel.protocol.properties import APPEND_ONLY, property_value
from pyspark_delta.kernel.protocol.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.replaced_rows import Replaced, whole_table
from pyspark_delta.spark.commands.write_definition import data_schema, define_table
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest
from pyspark_delta.spark.jvm.failures import GATEWAY_FAILURES
from pyspark_delta.spark.jvm.file_index import sources_in
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_job_failures
from pyspark_delta.spark.jvm.sql_metrics import MetricKind, PlanMetrics
from pyspark_delta.spark.jvm.stream_writer import BatchSink, running_query_id
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.recorded_stats import with_recorded_stats
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.streaming.batch_rows import BatchRows
from pyspark_delta.spark.table_access import hadoop_location, open_log
from pyspark_delta.spark.table_places import new_table_properties

logger = logging.getLogger(__name__)

APPEND, COMPLETE = "Append", "Complete"
_IGNORED_OPTIONS = ("txnappid", "txnversion", "datachange")
_IGNORED_SETTINGS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
)
_METRICS: Mapping[str, tuple[str, MetricKind]] = {
    "numAddedFiles": ("number of files added", "sum"),
    "numRemovedFiles": ("number of files removed", "sum"),
    "numOutputRows": ("number of output rows", "sum"),
    "numOutputBytes": ("written output", "size"),
}


class DeltaSink(BatchSink):
    """The table at `path` as the sink of one streaming query.

    `output_mode` is append, which adds rows, or complete, which replaces all of them.  Options are
    those of a batch write that make sense in a stream; `delta.*`, txnAppId and txnVersion have no
    effect.  `changed` is told when a batch gave the table other columns.
    """

    def __init__(
        self,
        sql_context: SQLContext | SparkSession,
        path: str,
        partition_columns: Sequence[str],
        output_mode: str,
        options: Mapping[str, object],
        *,
        cluster_by: Sequence[str] = (),
        changed: Callable[[], None] | None = None,
    ) -> None:
        if isinstance(sql_context, SparkSession):
            self._spark: SparkSession = sql_context
        else:
            self._spark = sql_context.sparkSession
        self._path = path
        self._mode = output_mode.capitalize()
        if self._mode not in (APPEND, COMPLETE):
            raise OperationNotAllowedError(
                "DELTA_UNSUPPORTED_OUTPUT_MODE", dataSource="delta", mode=self._mode
            )
        given = _counting(DeltaOptions(options))
        self.delta_log: DeltaLog = open_log(self._spark, path, given)
        """The log of the table, which need not exist yet."""
        self._asked = self._parsed(given)
        self._request = WriteRequest(
            mode="overwrite" if self._mode == COMPLETE else "append",
            partition_by=tuple(partition_columns),
            cluster_by=tuple(cluster_by),
            options=given,
        )
        self._changed = changed
        self._metrics: PlanMetrics | None = None

    @property
    def can_merge_schema(self) -> bool:
        """Whether a batch may bring columns that the table does not have yet."""
        return self._asked.merges_schema

    @property
    def can_overwrite_schema(self) -> bool:
        """Whether a batch may give the table another schema: only where it replaces all rows."""
        return self._asked.overwrites_schema is True

    def __str__(self) -> str:
        return f"DeltaSink[{self._path}]"

    def add_batch(self, batch_id: int, data: DataFrame) -> None:
        """Commit one batch, unless the table has it already."""
        with typed_job_failures(data.sparkSession):
            self._add_batch(batch_id, data)

    def _add_batch(self, batch_id: int, data: DataFrame) -> None:
        txn = self.delta_log.start_transaction()
        jvm = JvmSession(data.sparkSession)
        query_id = running_query_id(jvm)
        if query_id is None:
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED", operation="A batch outside of a streaming query"
            )
        brought = data_schema(data.schema)
        _check_columns(txn, brought)
        if _reads_table(self.delta_log, data):
            txn.read_whole_table()
        rows = BatchRows(jvm=jvm, txn=txn, data=data, brought=brought, asked=self._asked)
        definition = define_table(
            txn,
            rows.schema(),
            self._request,
            self._asked,
            replaces_some=False,
            new_properties=partial(new_table_properties, data.sparkSession),
        )
        if txn.txn_version(query_id) >= batch_id:
            logger.info("skipping batch %d of query %s: it is committed", batch_id, query_id)
            return
        replaced = self._replaced(txn)
        with one_version_each(jvm, txn.snapshot), StagedFiles(txn) as staged:
            files = rows.stage()
            staged.add(files)
            metrics = _metrics(files, replaced)
            now_ms = txn.log.now_ms()
            actions: list[Action] = [
                *definition,
                SetTransaction(app_id=query_id, version=batch_id, last_updated=now_ms),
                *with_recorded_stats(files, txn, self._asked.conf),
                *replaced.actions(now_ms, data_change=True),
            ]
            operation = streaming_update(
                self._mode, query_id, batch_id, user_metadata=self._asked.user_metadata
            )
            former = None if txn.snapshot is None else txn.snapshot.metadata.schema_string
            staged.offer()
            done = txn.commit(
                actions, operation, user_metadata=self._asked.user_metadata, metrics=metrics
            )
        logger.info("batch %d of query %s is version %d", batch_id, query_id, done.version)
        self._show(jvm, data, metrics)
        if self._changed is not None and txn.metadata.schema_string != former:
            self._changed()

    def _parsed(self, given: DeltaOptions) -> WriteOptions:
        @cache  # settings are those of the start, as everywhere in a query
        def setting(key: str) -> str | None:
            return None if key in _IGNORED_SETTINGS else self._spark.conf.get(key, None)

        asked = WriteOptions.parse(given, setting)
        if self._mode == COMPLETE:
            return asked
        return replace(asked, overwrites_schema=None)

    def _replaced(self, txn: OptimisticTransaction) -> Replaced:
        """What goes when the batch comes: in complete mode all there is."""
        if self._mode != COMPLETE:
            return Replaced()
        old = txn.snapshot
        if old is not None and property_value(old.metadata.configuration, APPEND_ONLY):
            raise AppendOnlyError(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY",
                table_name=txn.log.store.root_uri,
                config=APPEND_ONLY.key,
            )
        # Of a new table too: whoever replaces all rows appends none blindly.
        return whole_table(txn)

    def _show(self, jvm: JvmSession, data: DataFrame, metrics: Mapping[str, int]) -> None:
        """Let Spark's UI show the numbers.  The commit stands, whatever comes of it."""
        try:
            if self._metrics is None:
                self._metrics = PlanMetrics(jvm, "DeltaSink", str(self), _METRICS)
            self._metrics.show(data, metrics)
        except GATEWAY_FAILURES as error:
            logger.warning("%s: no metrics in the UI: %s", self, error)


def _counting(options: DeltaOptions) -> DeltaOptions:
    """The options that count for a stream."""
    return DeltaOptions(
        {
            key: value
            for key, value in options.items()
            if key.lower() not in _IGNORED_OPTIONS and not key.lower().startswith("delta.")
        }
    )


def _check_columns(txn: OptimisticTransaction, brought: StructType) -> None:
    """Refuse columns that no stream may write: without a type, or numbered by the table."""
    table = StructType() if txn.snapshot is None else txn.snapshot.metadata.schema
    if _has_void(brought) or any(_has_void(f.data_type) for f in generated_columns(table)):
        raise SchemaError("DELTA_NULL_SCHEMA_IN_STREAMING_WRITE")
    check_explicit_insert(table, brought.names)


def _has_void(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields=fields):
            return any(_has_void(f.data_type) for f in fields)
        case ArrayType(element_type=element):
            return _has_void(element)
        case MapType(key_type=key, value_type=value):
            return _has_void(key) or _has_void(value)
        case _:
            return data_type == VOID


def _reads_table(log: DeltaLog, data: DataFrame) -> bool:
    root = hadoop_location(log.store.root_uri)
    return any(source.root == root for source in sources_in(data))


def _metrics(files: Sequence[AddFile], replaced: Replaced) -> dict[str, int]:
    return {
        "numAddedFiles": len(files),
        "numRemovedFiles": len(replaced.files),
        "numOutputRows": sum(file.num_records or 0 for file in files),
        "numOutputBytes": sum(file.size for file in files),
    }
