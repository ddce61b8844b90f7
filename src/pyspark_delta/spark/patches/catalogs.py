"""`spark.catalog`: columns as the log has them, tables made with the source delta, path names."""

from __future__ import annotations

from typing import Any

from pyspark.sql.catalog import Catalog, Column
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.protocol.column_mapping import physical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructType
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.catalog import TableName, log_of, look_up, look_up_relation
from pyspark_delta.spark.commands.create_table import TableDefinition, run_create_table
from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.callback_errors import raised_again
from pyspark_delta.spark.patches.said import Method, Wrap, source_name
from pyspark_delta.spark.sql.path_names import with_path_names
from pyspark_delta.spark.types import from_spark, to_spark_type


def _named(original: Method) -> Method:
    """A call about one table, whose name may be a path."""

    def wrapped(self: Any, tableName: str, *args: Any, **kwargs: Any) -> Any:
        if not is_enabled(self._sparkSession) or not isinstance(tableName, str):
            return original(self, tableName, *args, **kwargs)
        with raised_again():
            return original(self, with_path_names(tableName), *args, **kwargs)

    return wrapped


def _table_exists(original: Method) -> Method:
    named = _named(original)

    def tableExists(self: Any, tableName: str, dbName: str | None = None) -> Any:
        try:
            return named(self, tableName, dbName)
        except TableNotFoundError:
            return False  # a path without a table, or an entry whose log is gone

    return tableExists


def _list_columns(original: Method) -> Method:
    def listColumns(self: Any, tableName: str, dbName: str | None = None) -> Any:
        spark = self._sparkSession
        if is_enabled(spark):
            name = tableName if dbName is None else (dbName, tableName)
            table = look_up_relation(spark, name)
            if table is not None and table.is_delta:
                return _columns(spark, table)
        return original(self, tableName, dbName)

    return listColumns


def _create_table(original: Method) -> Method:
    def createTable(
        self: Any,
        tableName: str,
        path: str | None = None,
        source: str | None = None,
        schema: Any = None,
        description: str | None = None,
        **options: str,
    ) -> Any:
        spark = self._sparkSession
        table = None
        if is_enabled(spark) and source_name(spark, source) == "delta":
            table = look_up(spark, tableName)
        if table is None:
            return original(self, tableName, path, source, schema, description, **options)
        given = StructType() if schema is None else from_spark(_spark_schema(schema))
        run_create_table(
            spark,
            TableDefinition(
                name=table,
                schema=given,
                location=path,
                comment=description,
                properties={
                    key: str(value)
                    for key, value in options.items()
                    if key.lower().startswith("delta.")
                },
            ),
        )
        return spark.table(tableName)

    return createTable


def _spark_schema(schema: Any) -> SparkStructType:
    found = SparkStructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(found, SparkStructType)
    return found


def _columns(spark: Any, table: TableName) -> list[Column]:
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


CHANGED: dict[tuple[type, str], Wrap] = {
    (Catalog, "tableExists"): _table_exists,
    (Catalog, "getTable"): _named,
    (Catalog, "cacheTable"): _named,
    (Catalog, "uncacheTable"): _named,
    (Catalog, "isCached"): _named,
    (Catalog, "refreshTable"): _named,
    (Catalog, "listColumns"): _list_columns,
    (Catalog, "createTable"): _create_table,
}
