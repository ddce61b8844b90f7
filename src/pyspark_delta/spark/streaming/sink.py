"""`DeltaSink`: writes the batches of a streaming query to a table, each exactly once.

Spark makes one for a query when it starts.

A batch is one commit.  It records the query's id and the batch's as a transaction of an
application, so a batch that is repeated after a crash is recognized and skipped.  Rows never enter
Python.  PROTOCOL.md, "Transaction Identifiers".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from pyspark.sql import DataFrame, SparkSession, SQLContext

from pyspark_delta.errors import (
    AppendOnlyError,
    OperationNotAllowedError,
    PropertyError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, SetTransaction
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.constraints import table_checks
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import check_explicit_insert
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import APPEND_ONLY, property_value
from pyspark_delta.kernel.protocol.schema_merge import STRICT, as_nullable
from pyspark_delta.kernel.protocol.types import VOID, DataType, StructType, walk_fields, walk_types
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.setting_table import SINK_CASTS, TXN_APP_ID, TXN_VERSION
from pyspark_delta.spark.files.stage import StagedFiles, StageRequest, optimized_rows, stage
from pyspark_delta.spark.files.stats import moved_identity, with_recorded_stats
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.failures import GATEWAY_FAILURES, typed_job_failures
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.jvm.streaming import (
    BatchSink,
    executed_frame,
    running_query_id,
    running_table,
)
from pyspark_delta.spark.jvm.write.file_writer import MetricKind, PlanMetrics
from pyspark_delta.spark.rules.alignment import bare_type, store_assigned
from pyspark_delta.spark.rules.rows import table_rows, typed_violations
from pyspark_delta.spark.scan.versions import one_version_each
from pyspark_delta.spark.tables.locations import hadoop_location, open_log
from pyspark_delta.spark.tables.names import look_up, update_entry
from pyspark_delta.spark.tables.registration import new_table_properties
from pyspark_delta.spark.write.jobs import Replaced
from pyspark_delta.spark.write.overwrite import whole_table
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.schema import data_schema, define_table, merge_rules

logger = logging.getLogger(__name__)

APPEND, COMPLETE = "Append", "Complete"
# Metadata of fields that does not concern their values.
_DESCRIPTIVE = frozenset({"comment"})
_IGNORED_OPTIONS = ("txnappid", "txnversion", "datachange")
_IGNORED_SETTINGS = (TXN_APP_ID.key, TXN_VERSION.key)
_METRICS: Mapping[str, tuple[str, MetricKind]] = {
    "numAddedFiles": ("number of files added", "sum"),
    "numRemovedFiles": ("number of files removed", "sum"),
    "numOutputRows": ("number of output rows", "sum"),
    "numOutputBytes": ("written output", "size"),
}


class DeltaSink(BatchSink):
    """The table at `path` as the sink of one streaming query.

    `output_mode` is append, which adds rows, or complete, which replaces all of them.  Options are
    those of a batch write that apply to streams; `delta.*`, txnAppId and txnVersion have no effect.
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
        """The log of the table, which may not exist yet."""
        self._options = self._parsed(given)
        self._request = WriteRequest(
            mode="overwrite" if self._mode == COMPLETE else "append",
            partition_by=tuple(partition_columns),
            cluster_by=tuple(cluster_by),
            options=given,
        )
        self._metrics: PlanMetrics | None = None

    @property
    def can_merge_schema(self) -> bool:
        """Whether a batch may add columns to the table."""
        return self._options.merges_schema

    @property
    def can_overwrite_schema(self) -> bool:
        """Whether a batch may change the table's schema: only if it replaces all rows."""
        return self._options.overwrites_schema is True

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
        columns = data_schema(data.schema)
        _check_columns(txn, columns)
        if _reads_table(self.delta_log, data):
            txn.read_whole_table()
        rows = BatchRows(jvm=jvm, txn=txn, data=data, columns=columns, options=self._options)
        definition = define_table(
            txn,
            rows.schema(),
            self._request,
            self._options,
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
                *with_recorded_stats(files, txn, self._options.conf),
                *replaced.actions(now_ms, data_change=True),
            ]
            recorded = operation(
                "STREAMING UPDATE", outputMode=self._mode, queryId=query_id, epochId=str(batch_id)
            )
            former = None if txn.snapshot is None else txn.snapshot.metadata.schema_string
            staged.offer()
            done = txn.commit(
                actions, recorded, user_metadata=self._options.user_metadata, metrics=metrics
            )
        logger.info("batch %d of query %s is version %d", batch_id, query_id, done.version)
        self._show(jvm, data, metrics)
        if txn.metadata.schema_string != former:
            self._show_columns()

    def _parsed(self, given: DeltaOptions) -> WriteOptions:
        @cache  # settings are those at the start, as everywhere in a query
        def setting(key: str) -> str | None:
            return None if key in _IGNORED_SETTINGS else self._spark.conf.get(key, None)

        options = WriteOptions.parse(given, setting)
        if self._mode == COMPLETE:
            return options
        return replace(options, overwrites_schema=None)

    def _replaced(self, txn: OptimisticTransaction) -> Replaced:
        """The rows that the batch replaces: in complete mode all of them."""
        if self._mode != COMPLETE:
            return Replaced()
        old = txn.snapshot
        if old is not None and property_value(old.metadata.configuration, APPEND_ONLY):
            raise AppendOnlyError(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY",
                table_name=txn.log.store.root_uri,
                config=APPEND_ONLY.key,
            )
        # For a new table too: a write that replaces all rows is no blind append.
        return whole_table(txn)

    def _show_columns(self) -> None:
        """Write new columns into the catalog, if the query writes to a table by its name."""
        name = running_table(JvmSession(self._spark))
        table = None if name is None else look_up(self._spark, name)
        if table is not None:
            update_entry(self._spark, table)

    def _show(self, jvm: JvmSession, data: DataFrame, metrics: Mapping[str, int]) -> None:
        """Show the metrics in Spark's UI.  A failure does not affect the commit."""
        try:
            if self._metrics is None:
                self._metrics = PlanMetrics(jvm, "DeltaSink", str(self), _METRICS)
            self._metrics.show(data, metrics)
        except GATEWAY_FAILURES as error:
            logger.warning("%s: no metrics in the UI: %s", self, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """A batch with these columns, and the transaction that will commit it.

    A batch with the table's columns is written as Spark planned it.  A plan is added only where the
    table needs more: casts, rules, partitions, computed columns.
    """

    jvm: JvmSession
    txn: OptimisticTransaction
    data: DataFrame
    columns: StructType
    options: WriteOptions

    def schema(self) -> StructType:
        """The columns of the batch after casts; nothing is executed."""
        if not self._must_cast():
            return self.columns
        return data_schema(self._cast(self.data).schema)

    def stage(self) -> list[AddFile]:
        """Write the rows into files, by the table's metadata in the transaction."""
        txn, options = self.txn, self.options
        metadata = txn.metadata
        optimizes = options.optimizes_files(metadata.configuration)
        rows: DataFrame = self.data
        planning: Mapping[str, str] | None = None
        if optimizes or not self._is_ready(metadata):
            rows = executed_frame(self.jvm, self.data)
            if self._must_cast():
                rows = self._cast(rows)
            rows = table_rows(self.jvm, rows, metadata, txn.protocol)
        if optimizes:
            rows, planning = optimized_rows(self.jvm, rows, metadata, options)
        with typed_violations():
            files = stage(
                self.jvm,
                StageRequest(
                    log=txn.log,
                    data=rows,
                    metadata=metadata,
                    protocol=txn.protocol,
                    options=options.files,
                    planning=planning,
                    in_query=True,
                ),
            )
        moved = moved_identity(metadata, files, given=self.columns.names)
        if moved is not None:
            txn.move_identity_marks(moved)
        return files

    def _must_cast(self) -> bool:
        """Whether a column has another type than the table's, which the write does not change."""
        snapshot = self.txn.snapshot
        if snapshot is None or self.options.overwrites_schema:
            return False
        wanted = snapshot.metadata.schema
        fits = all(
            (found := wanted.get(f.name)) is None
            or bare_type(f.data_type) == bare_type(found.data_type)
            for f in self.columns
        )
        return not fits and SINK_CASTS.by(self.options.conf)

    def _cast(self, data: DataFrame) -> DataFrame:
        """Cast by name, ignoring case, with the session's store assignment policy."""
        snapshot = self.txn.snapshot
        assert snapshot is not None
        metadata, options = snapshot.metadata, self.options
        widens = merge_rules(metadata, options) != STRICT
        return store_assigned(self.jvm, data, metadata, by_position=False, widens=widens)

    def _is_ready(self, metadata: Metadata) -> bool:
        """Whether the rows can be written without a further plan."""
        table = metadata.schema
        return (
            mapping_mode(metadata) is ColumnMappingMode.NONE
            and not metadata.partition_columns
            and not table_checks(metadata.configuration)
            and bare_type(self.columns) == bare_type(table)
            and as_nullable(table) == table
            and not any(f.metadata for _, f in walk_fields(from_spark(self.data.schema)))
            and not any(
                f.data_type == VOID or not _DESCRIPTIVE.issuperset(f.metadata)
                for _, f in walk_fields(table)
            )
        )


def _counting(options: DeltaOptions) -> DeltaOptions:
    """The options that apply to a stream; PropertyError for a checkpoint without a place."""
    checkpoint = options.get("checkpointLocation")
    if checkpoint is not None and not checkpoint.strip():
        # Spark takes a blank one for a directory below its own.
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            name="checkpointLocation",
            input=checkpoint,
            explain="needs a path",
        )
    return DeltaOptions(
        {
            key: value
            for key, value in options.items()
            if key.lower() not in _IGNORED_OPTIONS and not key.lower().startswith("delta.")
        }
    )


def _check_columns(txn: OptimisticTransaction, columns: StructType) -> None:
    """Raise for columns that streams cannot write: without a type, or identity columns."""
    table = StructType() if txn.snapshot is None else txn.snapshot.metadata.schema
    if _has_void(columns) or any(_has_void(f.data_type) for f in generated_columns(table)):
        raise SchemaError("DELTA_NULL_SCHEMA_IN_STREAMING_WRITE")
    check_explicit_insert(table, columns.names)


def _has_void(data_type: DataType) -> bool:
    return any(each == VOID for _, each in walk_types(data_type))


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
