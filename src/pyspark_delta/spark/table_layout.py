"""What a table that is made by its name may be laid out by: Spark and its catalog look at it first.

What they let pass is for Delta's own checks, which a table that is saved to a path has alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.column_paths import no_struct
from pyspark_delta.kernel.protocol.schema_checks import is_partition_type
from pyspark_delta.kernel.protocol.types import StructType, column_name
from pyspark_delta.spark.exact_names import is_exact, is_spelled


def check_layout(
    spark: SparkSession,
    schema: StructType,
    partition_by: Sequence[str],
    cluster_by: Sequence[Sequence[str]],
) -> None:
    """Refuse columns that are not there, that cannot be partitioned by, or that leave no others."""
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
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=name,
                schemaMap=", ".join(schema.names),
            )
    found = [f for name in partition_by if (f := schema.get(name)) is not None]
    if len({f.name for f in found}) < len(partition_by):
        return  # missing, or there twice
    for f in found:
        if not is_partition_type(f.data_type):
            raise SchemaError("INVALID_PARTITION_COLUMN_DATA_TYPE", type=f.data_type.simple_string)
    if found and len(found) == len(schema):
        raise SchemaError("ALL_PARTITION_COLUMNS_NOT_ALLOWED")
