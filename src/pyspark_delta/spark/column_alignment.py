"""Data in the shape of a table: columns by name, in the table's order, with the table's types.

Whether the data fits is decided before, on the schemas (`protocol.schema_merge`); here nothing is
refused.  All of it is Catalyst expressions.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    map_fields,
    walk_fields,
)
from pyspark_delta.spark.types import from_spark, to_spark_type


def aligned(
    data: DataFrame, schema: StructType, filled: Mapping[str, Column] | None = None
) -> DataFrame:
    """`data` with exactly the columns of `schema`; what it lacks is as `filled` says, else null.

    The names in `filled` are the schema's.
    """
    own = from_spark(data.schema)
    if _is_ready(own, schema):
        return data  # a projection that changes nothing still costs an analysis
    missing = filled or {}
    return data.select(*[_top_level(own.get(f.name), f, missing.get(f.name)) for f in schema])


def column(name: str) -> Column:
    """The column of that very name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def bare_type(data_type: DataType) -> DataType:
    """A type without what makes no difference to its values: nullability and field metadata."""
    bare = map_fields(
        StructType((StructField("", data_type),)), lambda f: StructField(f.name, f.data_type)
    )
    assert isinstance(bare, StructType)
    return as_nullable(bare).fields[0].data_type


def _is_ready(own: StructType, wanted: StructType) -> bool:
    return bare_type(own) == bare_type(wanted) and not any(f.metadata for _, f in walk_fields(own))


def _top_level(own: StructField | None, wanted: StructField, filled: Column | None) -> Column:
    if own is None:
        value = _null(wanted.data_type) if filled is None else filled
        return value.alias(wanted.name)
    found = _aligned(column(own.name), own.data_type, wanted.data_type)
    # Metadata of the data's columns (comments, ids of another table) is not the table's.
    return found.alias(wanted.name, metadata={})


def _aligned(value: Column, own: DataType, wanted: DataType) -> Column:
    if bare_type(own) == bare_type(wanted):
        return value
    match own, wanted:
        case StructType(), StructType():
            return _aligned_struct(value, own, wanted)
        case ArrayType(element_type=one), ArrayType(element_type=other):
            return F.transform(value, lambda item: _aligned(item, one, other))
        case MapType(), MapType():
            keys = F.transform(
                F.map_keys(value), lambda key: _aligned(key, own.key_type, wanted.key_type)
            )
            values = F.transform(
                F.map_values(value), lambda v: _aligned(v, own.value_type, wanted.value_type)
            )
            return F.map_from_arrays(keys, values)
        case _:
            return value.cast(to_spark_type(wanted))


def _aligned_struct(value: Column, own: StructType, wanted: StructType) -> Column:
    fields = []
    for f in wanted:
        found = own.get(f.name)
        inner = (
            _null(f.data_type)
            if found is None
            else _aligned(value.getField(found.name), found.data_type, f.data_type)
        )
        fields.append(inner.alias(f.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _null(data_type: DataType) -> Column:
    return F.lit(None).cast(to_spark_type(data_type))
