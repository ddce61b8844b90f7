"""Checks of the columns that a statement lists, sets, changes, or uses for the layout.

Spark resolves names in expressions itself, by `spark.sql.caseSensitive`; these are the names that
it does not see.  No schema has two names that differ only in case, so a name in another case is
unknown.

A table that is created by name passes two checks of its layout: `check_layout`, which Spark and its
catalog make first, and Delta's own.  A table that is saved to a path passes only Delta's.

>>> from pyspark_delta.kernel.protocol.types import LONG, StructField
>>> is_spelled(StructType((StructField("Id", LONG),)), ("id",))
False
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.schema.columns import find_column, no_struct, unresolved
from pyspark_delta.kernel.protocol.schema_checks import is_partition_type
from pyspark_delta.kernel.protocol.types import DataType, StructType, column_name
from pyspark_delta.spark.conf.settings import CASE_SENSITIVE, is_on

_MOST_CLUSTERING_COLUMNS = 4


def is_exact(spark: SparkSession) -> bool:
    """Whether the session is case-sensitive."""
    return is_on(spark, CASE_SENSITIVE)


def is_spelled(schema: StructType, path: Sequence[str]) -> bool:
    """Whether the steps of a path have the schema's case; True also for missing steps."""
    here: DataType | None = schema
    for step in path:
        if not isinstance(here, StructType):
            return True
        found = here.get(step)
        if found is not None and found.name != step:
            return False
        here = None if found is None else found.data_type
    return True


def check_spelled(schema: StructType, path: Sequence[str]) -> None:
    """Raise for a path with a step that is in another case in the schema, or not there."""
    found = find_column(schema, path)
    if found.path != tuple(path):
        raise unresolved(schema, path)


def check_layout_names(
    spark: SparkSession, schema: StructType, paths: Iterable[Sequence[str]]
) -> None:
    """Raise for partition and clustering columns in another case, in a case-sensitive session."""
    for path in paths:
        if is_exact(spark) and not is_spelled(schema, path):
            raise _not_in_schema(schema, path)


def check_layout(
    spark: SparkSession,
    schema: StructType,
    partition_by: Sequence[str],
    cluster_by: Sequence[Sequence[str]],
) -> None:
    """Raise for missing columns, types that cannot partition, or no column left for data."""
    exact = is_exact(spark)
    for path in cluster_by:
        for size in range(1, len(path)):
            outer = schema.find(tuple(path[:size]))
            if outer is not None and not isinstance(outer.data_type, StructType):
                raise no_struct(path[:size], path[size])
        if schema.find(tuple(path)) is None or (exact and not is_spelled(schema, path)):
            raise OperationNotAllowedError(
                "UNSUPPORTED_FEATURE.PARTITION_WITH_NESTED_COLUMN_IS_UNSUPPORTED",
                cols=column_name(path),
            )
    for name in partition_by:
        if exact and not is_spelled(schema, (name,)):
            columns = ", ".join(schema.names)
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND", columnName=name, schemaMap=columns
            )
    found = [f for name in partition_by if (f := schema.get(name)) is not None]
    if len({f.name for f in found}) < len(partition_by):
        return  # missing, or duplicate
    for f in found:
        if not is_partition_type(f.data_type):
            raise SchemaError("INVALID_PARTITION_COLUMN_DATA_TYPE", type=f.data_type.simple_string)
    if found and len(found) == len(schema):
        raise SchemaError("ALL_PARTITION_COLUMNS_NOT_ALLOWED")


def check_clustering(
    schema: StructType, cluster_by: Sequence[Sequence[str]], partition_by: Sequence[str]
) -> None:
    """Raise for too many or missing clustering columns, or if there are partition columns."""
    if cluster_by and partition_by:
        raise OperationNotAllowedError("DELTA_CLUSTER_BY_WITH_PARTITIONED_BY")
    if len(cluster_by) > _MOST_CLUSTERING_COLUMNS:
        raise OperationNotAllowedError(
            "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            numColumnsLimit=_MOST_CLUSTERING_COLUMNS,
            actualNumColumns=len(cluster_by),
        )
    for path in cluster_by:
        if schema.find(tuple(path)) is None:
            raise _not_in_schema(schema, path)


def _not_in_schema(schema: StructType, path: Sequence[str]) -> SchemaError:
    columns = ", ".join(schema.names)
    name = column_name(path)
    return SchemaError("DELTA_COLUMN_NOT_FOUND_IN_SCHEMA", columnName=name, tableSchema=columns)
