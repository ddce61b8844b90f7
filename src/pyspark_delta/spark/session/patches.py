"""What is changed in PySpark itself, because no hook of the JVM reaches it: one table.

Each row has a class or module, a name, and what makes the replacement of the method that is there.
`session.enable` installs the rows, and restores PySpark when no session is enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyspark.errors.exceptions import captured
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog, Column
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_delta.errors import DeltaError, TableNotFoundError
from pyspark_delta.kernel.protocol.column_mapping import physical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.api.errors import as_pyspark_raises
from pyspark_delta.spark.conf.setting_table import ENABLED
from pyspark_delta.spark.jvm.callbacks import error_behind
from pyspark_delta.spark.jvm.failures import missing_file_behind
from pyspark_delta.spark.jvm.gateway import JvmSession, to_spark_type
from pyspark_delta.spark.jvm.plans.frames import frame_with_own_struct
from pyspark_delta.spark.jvm.scan.file_index import input_files
from pyspark_delta.spark.session.analyzer import check_analyzer_setting, is_single_pass
from pyspark_delta.spark.session.delta_spark_settings import is_delta_spark_catalog, log_dropped
from pyspark_delta.spark.session.enabled import enabled_session, is_enabled
from pyspark_delta.spark.tables.names import TableName, log_of, look_up_relation

Method = Callable[..., Any]
Wrap = Callable[[Method], Method]


def _convert_exception(original: Method) -> Method:
    """An error that Python raised in a hook is that error again, not what Java made of it."""

    def convert_exception(e: Any) -> Any:
        found = _delta_error(e)
        if found is None:
            return original(e)
        if e.getClass().getSimpleName() != "StreamingQueryException":
            return found
        error = original(e)
        error.__class__, error.reason = _FailedQuery, found
        return error

    return convert_exception


class _FailedQuery(StreamingQueryException):
    """The error of a query that failed by an error of ours, which is its cause.

    PySpark raises it `from None`, which would take a cause away that is only set.
    """

    reason: DeltaError

    @property
    def __cause__(self) -> DeltaError:  # type: ignore[override]
        return self.reason


def _delta_error(java_error: Any) -> DeltaError | None:
    found = error_behind(str(java_error.toString()))
    if found is None and (session := enabled_session()) is not None:
        found = missing_file_behind(JvmSession(session), java_error)
    return None if found is None else as_pyspark_raises(found)


def _set(original: Method) -> Method:
    """delta-spark's catalog is not there, and Spark would look for it."""

    def set(self: Any, key: str, value: Any) -> None:
        is_special = is_delta_spark_catalog(key, value) or is_single_pass(key, value)
        if is_special and ENABLED.by(lambda name: self.get(name, None)):
            check_analyzer_setting(key, value)
            log_dropped(key, value)
            return
        original(self, key, value)

    return set


def _alias(original: Method) -> Method:
    """Both sides of a self-join need row ids of their own."""

    def alias(self: Any, alias: str) -> Any:
        if is_enabled(self.sparkSession):
            return original(frame_with_own_struct(JvmSession(self.sparkSession), self), alias)
        return original(self, alias)

    return alias


def _input_files(original: Method) -> Method:
    """The files that the query opens, not all of the table's."""

    def inputFiles(self: Any) -> list[str]:
        found = input_files(self) if is_enabled(self.sparkSession) else None
        if found is None:
            return list(original(self))
        ours, others = found
        return list(dict.fromkeys([*ours, *(file for each in others for file in original(each))]))

    return inputFiles


def _table_exists(original: Method) -> Method:
    """No table at a path is no error here, unlike in a query."""

    def tableExists(self: Any, tableName: str, dbName: str | None = None) -> Any:
        try:
            return original(self, tableName, dbName)
        except TableNotFoundError:
            return False

    return tableExists


def _list_columns(original: Method) -> Method:
    """Columns as the log has them; a catalog can be behind it."""

    def listColumns(self: Any, tableName: str, dbName: str | None = None) -> Any:
        spark = self._sparkSession
        if is_enabled(spark):
            name = tableName if dbName is None else (dbName, tableName)
            table = look_up_relation(spark, name)
            if table is not None and table.is_delta:
                return _columns(spark, table)
        return original(self, tableName, dbName)

    return listColumns


def _columns(spark: SparkSession, table: TableName) -> list[Column]:
    snapshot = log_of(spark, table).update()
    metadata, mode = snapshot.metadata, mapping_mode(snapshot.metadata)
    clustered = clustering_columns(snapshot.domains) or ()
    return [
        Column(
            name=f.name,
            description=f.comment,
            dataType=f.metadata.get(CHAR_VARCHAR_KEY) or to_spark_type(f.data_type).simpleString(),
            nullable=f.nullable,
            isPartition=f.name in metadata.partition_columns,
            isBucket=False,
            isCluster=physical_path(metadata.schema, (f.name,), mode) in clustered,
        )
        for f in metadata.schema
    ]


def _exception(original: Method) -> Method:
    """The error of a failed query has ours as its cause."""

    def exception(self: Any) -> Any:
        error = original(self)
        if error is not None:
            error.__cause__ = error_behind(str(error)) or error.__cause__
        return error

    return exception


CHANGED: dict[tuple[type | ModuleType, str], Wrap] = {
    (captured, "convert_exception"): _convert_exception,
    (RuntimeConfig, "set"): _set,
    (DataFrame, "alias"): _alias,
    (DataFrame, "inputFiles"): _input_files,
    (Catalog, "listColumns"): _list_columns,
    (Catalog, "tableExists"): _table_exists,
    (StreamingQuery, "exception"): _exception,
}
