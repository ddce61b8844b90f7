"""Projects data to a table's columns and types, with Catalyst expressions alone.

`aligned` gives the table's columns, by name and in the table's order, to data that fits:
`protocol.schema_merge` decides that on the schemas.  `store_assigned` casts before, as
`saveAsTable`, `insertInto` and `writeTo` do and `save(path)` does not: by Spark's
`spark.sql.storeAssignmentPolicy`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_merge import as_nullable
from pyspark_delta.kernel.protocol.type_widening import can_widen
from pyspark_delta.kernel.protocol.types import (
    INTEGER_TYPES,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    is_atomic,
    map_fields,
    walk_fields,
)
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.conf.setting_table import CASTS_FOLLOW_ANSI
from pyspark_delta.spark.jvm.expressions.catalyst import (
    StorePolicy,
    assignment_policy,
    store_policy,
    stored_as,
)
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark, to_spark_type

ValueCast = Callable[[Column, DataType, DataType, str], Column]
"""Makes a value of another type, from a value, its type, that type, and the name of the field."""


def aligned(
    data: DataFrame, schema: StructType, filled: Mapping[str, Column] | None = None
) -> DataFrame:
    """`data` with exactly the columns of `schema`; missing ones come from `filled`, or are null.

    The names in `filled` are the schema's.
    """
    own = from_spark(data.schema)
    if _is_ready(own, schema):
        return data  # a projection without a change still costs an analysis
    missing = filled or {}
    return data.select(*[_top_level(own.get(f.name), f, missing.get(f.name)) for f in schema])


def store_assigned(
    jvm: JvmSession,
    data: DataFrame,
    metadata: Metadata,
    *,
    by_position: bool,
    fields_by_position: bool = False,
    widens: bool = False,
) -> DataFrame:
    """`data` cast to the types of the table's columns, matched by name or position.

    Structs match like columns, by position or by name, except with `fields_by_position`: an INSERT
    with a column list names no fields.  With `widens`, a type to which the table's could be widened
    stays, so that the table can be widened.  Columns that the table lacks stay as they are: the
    check of the schemas decides about them.
    """
    wanted = metadata.schema
    casts = _Casts(
        jvm=jvm,
        policy=store_policy(jvm),
        by_position=by_position or fields_by_position,
        widens=widens,
        table=metadata.name or metadata.id,
    )
    if by_position:
        names = data.columns
        if len(names) < len(wanted):
            raise casts.too_few("not enough data columns", len(names), len(wanted))
        renamed = [*wanted.names, *names[len(wanted) :]]
        if renamed != names:
            data = data.toDF(*renamed)
    own = from_spark(data.schema)
    if all(_fits(f, wanted.get(f.name)) for f in own):
        return data
    return data.select(*[casts.top_level(f, wanted.get(f.name)) for f in own])


def value_cast(jvm: JvmSession, metadata: Metadata) -> ValueCast:
    """A cast of single values to the types of a table's columns and fields, as UPDATE stores them.

    Fields of structs match by position.
    """
    policy = assignment_policy(jvm, follows_ansi=CASTS_FOLLOW_ANSI.of(jvm.spark))
    table = metadata.name or metadata.id
    return _Casts(jvm=jvm, policy=policy, by_position=True, widens=False, table=table).cast


def with_items(value: Column, own: DataType, wanted: DataType, cast: ValueCast) -> Column:
    """An array or map, both types being one, with its items cast where their types differ."""

    def items(values: Column, one: DataType, other: DataType, name: str) -> Column:
        if bare_type(one) == bare_type(other):
            return values
        return F.transform(values, lambda item: cast(item, one, other, name))

    match own, wanted:
        case MapType(), MapType():
            keys = items(F.map_keys(value), own.key_type, wanted.key_type, "key")
            values = items(F.map_values(value), own.value_type, wanted.value_type, "value")
            return F.map_from_arrays(keys, values)
    assert isinstance(own, ArrayType)
    assert isinstance(wanted, ArrayType)
    return items(value, own.element_type, wanted.element_type, "element")


def column(name: str) -> Column:
    """The column of exactly that name, which may have any characters."""
    return F.col(quoted_name(name))


def bare_type(data_type: DataType) -> DataType:
    """A type without nullability and field metadata, which do not affect its values."""
    bare = map_fields(
        StructType((StructField("", data_type),)), lambda f: StructField(f.name, f.data_type)
    )
    assert isinstance(bare, StructType)
    return as_nullable(bare).fields[0].data_type


def is_exact_number(data_type: DataType) -> bool:
    """Whether it is an integer or decimal type, into which a cast may overflow."""
    return data_type in INTEGER_TYPES or isinstance(data_type, DecimalType)


def _is_ready(own: StructType, wanted: StructType) -> bool:
    return bare_type(own) == bare_type(wanted) and not any(f.metadata for _, f in walk_fields(own))


def _top_level(own: StructField | None, wanted: StructField, filled: Column | None) -> Column:
    if own is None:
        value = _null(wanted.data_type) if filled is None else filled
        return value.alias(wanted.name)
    found = _aligned(column(own.name), own.data_type, wanted.data_type)
    # The metadata of the data's columns (comments, ids of another table) is not the table's.
    return found.alias(wanted.name, metadata={})


def _aligned(value: Column, own: DataType, wanted: DataType, _: str = "") -> Column:
    if bare_type(own) == bare_type(wanted):
        return value
    match own, wanted:
        case StructType(), StructType():

            def field(f: StructField) -> Column:
                found = own.get(f.name)
                if found is None:
                    return _null(f.data_type)
                return _aligned(value.getField(found.name), found.data_type, f.data_type)

            fields = F.struct(*[field(f).alias(f.name) for f in wanted])
            return F.when(value.isNotNull(), fields)
        case (ArrayType(), ArrayType()) | (MapType(), MapType()):
            return with_items(value, own, wanted, _aligned)
        case _:
            return value.cast(to_spark_type(wanted))


def _null(data_type: DataType) -> Column:
    return F.lit(None).cast(to_spark_type(data_type))


def _fits(own: StructField, wanted: StructField | None) -> bool:
    return wanted is None or bare_type(own.data_type) == bare_type(wanted.data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Casts:
    jvm: JvmSession
    policy: StorePolicy
    by_position: bool
    widens: bool
    table: str

    def too_few(self, what: str, given: int, wanted: int) -> SchemaError:
        return SchemaError(
            "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
            tableName=self.table,
            columnName=what,
            numColumns=wanted,
            insertColumns=given,
        )

    def top_level(self, own: StructField, wanted: StructField | None) -> Column:
        found = column(own.name)
        if _fits(own, wanted):
            return found
        assert wanted is not None
        return self.cast(found, own.data_type, wanted.data_type, wanted.name).alias(own.name)

    def cast(self, value: Column, own: DataType, wanted: DataType, name: str) -> Column:
        """`value` of type `own` as one of type `wanted`, for the column or field `name`."""
        if bare_type(own) == bare_type(wanted) or wanted == VOID or self._widened(own, wanted):
            return value
        match own, wanted:
            case StructType(), StructType():
                return self._struct(value, own, wanted, name)
            case (ArrayType(), ArrayType()) | (MapType(), MapType()):
                return with_items(value, own, wanted, self.cast)
            case _:
                return stored_as(
                    self.jvm,
                    value,
                    bare_type(wanted),
                    self.policy,
                    name=name,
                    can_overflow=is_exact_number(wanted),
                )

    def _widened(self, own: DataType, wanted: DataType) -> bool:
        return self.widens and is_atomic(own) and is_atomic(wanted) and can_widen(wanted, own)

    def _struct(self, value: Column, own: StructType, wanted: StructType, name: str) -> Column:
        if self.by_position and len(own) < len(wanted):
            raise self.too_few(f"not enough nested fields in {name}", len(own), len(wanted))
        fields = []
        for index, f in enumerate(own):
            inner = value.getField(f.name)
            if self.by_position:
                target = wanted.fields[index] if index < len(wanted) else None
            else:
                target = wanted.get(f.name)
            called = f.name
            if target is not None:
                inner = self.cast(inner, f.data_type, target.data_type, target.name)
                called = target.name if self.by_position else f.name
            fields.append(inner.alias(called))
        # Keep null: a struct of nulls is not null.
        return F.when(value.isNotNull(), F.struct(*fields))
