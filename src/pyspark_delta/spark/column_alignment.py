"""Data in the shape of a table: columns by name, in the table's order, with the table's types.

Whether the data fits is decided before, on the schemas (`protocol.schema_merge`); here nothing is
refused.  All of it is Catalyst expressions.
"""

from __future__ import annotations

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
)
from pyspark_delta.spark.types import from_spark, to_spark_type


def aligned(data: DataFrame, schema: StructType) -> DataFrame:
    """`data` with exactly the columns of `schema`; what it lacks is null."""
    own = from_spark(data.schema)
    return data.select(*[_top_level(own.get(f.name), f) for f in schema])


def column(name: str) -> Column:
    """The column of that very name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _top_level(own: StructField | None, wanted: StructField) -> Column:
    if own is None:
        return _null(wanted.data_type).alias(wanted.name)
    found = _aligned(column(own.name), own.data_type, wanted.data_type)
    # Metadata of the data's columns (comments, ids of another table) is not the table's.
    return found.alias(wanted.name, metadata={})


def _aligned(value: Column, own: DataType, wanted: DataType) -> Column:
    if _shape(own) == _shape(wanted):
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


def _shape(data_type: DataType) -> DataType:
    """A type without what makes no difference to its values: nullability and field metadata."""
    bare = map_fields(
        StructType((StructField("", data_type),)), lambda f: StructField(f.name, f.data_type)
    )
    assert isinstance(bare, StructType)
    return as_nullable(bare).fields[0].data_type
