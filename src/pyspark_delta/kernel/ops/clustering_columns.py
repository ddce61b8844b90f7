"""Which columns a table can be clustered by: few, all different, and with statistics.

PROTOCOL.md, "Clustered Table", asks writers to collect statistics for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.column_paths import FoundColumn, find_column
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.stats_columns import has_bounds, stats_columns
from pyspark_delta.kernel.protocol.types import StructType, column_name

MOST_COLUMNS = 4
"""How many columns a table can be clustered by."""


def clustering_paths(
    metadata: Metadata, columns: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """The columns as the schema spells them; an error when a table cannot be clustered by them."""
    found = [_found(metadata.schema, path) for path in columns]
    paths = tuple(column.path for column in found)
    repeated = {column_name(path) for path in paths if paths.count(path) > 1}
    if repeated:
        raise SchemaError(
            "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY", duplicateCols=", ".join(sorted(repeated))
        )
    if len(paths) > MOST_COLUMNS:
        raise OperationNotAllowedError(
            "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            numColumnsLimit=MOST_COLUMNS,
            actualNumColumns=len(paths),
        )
    _check_types(found)
    _check_statistics(metadata, paths)
    return paths


def _found(schema: StructType, path: Sequence[str]) -> FoundColumn:
    try:
        return find_column(schema, path)
    except SchemaError:
        raise SchemaError(
            "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
            columnName=column_name(path),
            tableSchema=schema.simple_string,
        ) from None


def _check_types(columns: Sequence[FoundColumn]) -> None:
    wrong = [
        f"{column_name(each.path)} : {each.field.data_type.simple_string.upper()}"
        for each in columns
        if not has_bounds(each.field.data_type)
    ]
    if wrong:
        raise SchemaError(
            "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", columnsWithDataTypes=", ".join(wrong)
        )


def _check_statistics(metadata: Metadata, paths: Sequence[tuple[str, ...]]) -> None:
    collected = stats_columns(
        metadata.schema,
        metadata.partition_columns,
        num_indexed=property_value(metadata.configuration, NUM_INDEXED_COLUMNS),
        listed=metadata.configuration.get(STATS_COLUMNS.key),
    )
    known = {each.path for each in collected}
    missing = [column_name(path) for path in paths if path not in known]
    if missing:
        raise SchemaError(
            "DELTA_CLUSTERING_COLUMN_MISSING_STATS",
            columns=", ".join(missing),
            schema=", ".join(column_name(each.path) for each in collected),
        )
