"""Values cast as Spark stores them into tables: by `spark.sql.storeAssignmentPolicy`.

`saveAsTable`, `insertInto` and `writeTo` cast; `save(path)` does not.  What the table has no
column for is left alone: whether it may stay is decided on the schemas.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.type_widening import can_widen
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    INTEGER,
    LONG,
    SHORT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    is_atomic,
)
from pyspark_delta.spark.column_alignment import bare_type, column
from pyspark_delta.spark.jvm.catalyst import (
    StorePolicy,
    assignment_policy,
    store_policy,
    stored_as,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.types import from_spark

_INTEGRAL = frozenset({BYTE, SHORT, INTEGER, LONG})


def store_assigned(
    jvm: JvmSession,
    data: DataFrame,
    metadata: Metadata,
    *,
    by_position: bool,
    fields_by_position: bool = False,
    widens: bool = False,
    table: str | None = None,
) -> DataFrame:
    """`data` with the types of the table's columns, which it is matched with by name or position.

    Structs go by position when columns do and by name when they do, but for `fields_by_position`:
    an INSERT that lists columns names none of their fields.  With `widens` a type that the table's
    could be widened to stays, for the table to follow.  `table` is its name for errors.
    """
    wanted = metadata.schema
    called = table or metadata.name or metadata.id
    casts = _Casts(jvm, store_policy(jvm), by_position or fields_by_position, widens, called)
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


class ValueCasts:
    """Casts of single values to the types of a table's columns and fields, as UPDATE stores them.

    Fields of structs go by position.
    """

    def __init__(self, jvm: JvmSession, metadata: Metadata) -> None:
        called = metadata.name or metadata.id
        self._casts = _Casts(jvm, assignment_policy(jvm), True, False, called)

    def cast(self, value: Column, own: DataType, wanted: DataType, name: str) -> Column:
        """`value`, which is of type `own`, for the column or field `name` of type `wanted`."""
        return self._casts.cast(value, own, wanted, name)


def _fits(own: StructField, wanted: StructField | None) -> bool:
    return wanted is None or bare_type(own.data_type) == bare_type(wanted.data_type)


@dataclass(frozen=True, slots=True)
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
            case ArrayType(), ArrayType():
                return self._items(value, own.element_type, wanted.element_type, "element")
            case MapType(), MapType():
                keys = self._items(F.map_keys(value), own.key_type, wanted.key_type, "key")
                values = self._items(
                    F.map_values(value), own.value_type, wanted.value_type, "value"
                )
                return F.map_from_arrays(keys, values)
            case _:
                return stored_as(
                    self.jvm,
                    value,
                    bare_type(wanted),
                    self.policy,
                    name=name,
                    can_overflow=wanted in _INTEGRAL or isinstance(wanted, DecimalType),
                )

    def _widened(self, own: DataType, wanted: DataType) -> bool:
        return self.widens and is_atomic(own) and is_atomic(wanted) and can_widen(wanted, own)

    def _items(self, values: Column, own: DataType, wanted: DataType, name: str) -> Column:
        if bare_type(own) == bare_type(wanted):
            return values
        return F.transform(values, lambda item: self.cast(item, own, wanted, name))

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
        # A struct of nulls is not the null it was.
        return F.when(value.isNotNull(), F.struct(*fields))
