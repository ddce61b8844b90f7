"""Values of a MERGE as its columns take them: cast as Spark stores them, structs field by field.

Fields of structs go by name, whatever their order.  Without schema evolution two structs must have
the same fields; with it those that a value lacks are null, or stay as they are in the target.
A struct that is null stays so, unless the session says that it becomes one of nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_delta.errors.table import SchemaError
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
)
from pyspark_delta.spark.column_alignment import bare_type
from pyspark_delta.spark.jvm.catalyst import StorePolicy, assignment_policy, can_cast, stored_as
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.types import to_spark_type

_BY_NAME = "spark.databricks.delta.resolveMergeUpdateStructsByName.enabled"
_KEEPS_NULL = "spark.databricks.delta.merge.preserveNullSourceStructs"
_KEEPS_NULL_IN_STAR = f"{_KEEPS_NULL}.updateStar"
_INTEGRAL = frozenset({BYTE, SHORT, INTEGER, LONG})


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression and its type."""

    column: Column
    data_type: DataType

    def field(self, f: StructField) -> Typed:
        """A field of a struct."""
        return Typed(self.column.getField(f.name), f.data_type)


_Made = Callable[[Typed, DataType, str, Typed | None], Column]
"""What makes a field of a value one of a type, for a name; the last is what the target has."""


@dataclass(frozen=True, slots=True)
class Conversions:
    """How values become those of columns; `evolves` says that structs may lack fields.

    Structs that do not go `by_name` are cast as Spark casts them: by position.  `keeps_null` says
    that a null is no struct of nulls when its type changes; `keeps_null_in_star` that it is none
    either where a star sets it and the schema evolves.
    """

    jvm: JvmSession
    policy: StorePolicy
    evolves: bool
    by_name: bool = True
    keeps_null: bool = True
    keeps_null_in_star: bool = True

    @classmethod
    def of(cls, jvm: JvmSession, *, evolves: bool) -> Conversions:
        """As the session has them."""
        keeps_null = _is_on(jvm, _KEEPS_NULL)
        return cls(
            jvm,
            assignment_policy(jvm),
            evolves,
            by_name=_is_on(jvm, _BY_NAME),
            keeps_null=keeps_null,
            keeps_null_in_star=keeps_null and _is_on(jvm, _KEEPS_NULL_IN_STAR),
        )

    def stored(
        self, value: Typed, wanted: DataType, name: str, original: Typed | None = None
    ) -> Column:
        """`value` as one of the type `wanted`, for the column or field `name`.

        Fields that only `original` has keep their values, where there is one.
        """
        own = value.data_type
        if bare_type(own) == bare_type(wanted) and original is None:
            return value.column
        match own, wanted:
            case StructType(), StructType() if self.by_name:
                return self._struct(value, own, wanted, original)
            case ArrayType(), ArrayType() if self._goes_by_name(own, wanted):
                return self._items(value.column, own.element_type, wanted.element_type, name)
            case MapType(), MapType() if self._goes_by_name(own, wanted) or not can_cast(
                self.jvm, bare_type(own), bare_type(wanted)
            ):
                keys = self._items(F.map_keys(value.column), own.key_type, wanted.key_type, name)
                values = self._items(
                    F.map_values(value.column), own.value_type, wanted.value_type, name
                )
                return F.map_from_arrays(keys, values)
        if bare_type(own) == bare_type(wanted):
            return value.column
        if own == VOID:
            return value.column.cast(to_spark_type(wanted))
        return stored_as(
            self.jvm,
            value.column,
            bare_type(wanted),
            self.policy,
            name=name,
            can_overflow=_holds(wanted, _is_exact_number),
        )

    def spread(
        self, value: Typed, wanted: DataType, name: str, original: Typed | None = None
    ) -> Column:
        """As `stored`, but each field of a struct is set by itself: a null becomes one of nulls."""
        match value.data_type, wanted:
            case StructType() as own, StructType():
                return F.struct(*self._fields(value, own, wanted, original, self.spread))
        return self.stored(value, wanted, name)

    def updated(
        self,
        original: Typed | None,
        wanted: StructField,
        assigned: Sequence[tuple[tuple[str, ...], Typed]],
    ) -> Column:
        """A column of which only fields are assigned, by paths below it; the others stay.

        A struct that was null is one of nulls, but for what is assigned.
        """
        struct = wanted.data_type
        assert isinstance(struct, StructType)  # nothing else has fields that a name can mean
        fields = []
        for f in struct:
            before = None
            if original is not None and isinstance(original.data_type, StructType):
                known = original.data_type.get(f.name)
                before = None if known is None else original.field(known)
            below = [each for each in assigned if each[0][0].lower() == f.name.lower()]
            made = self.column(before, f, below)
            fields.append(made.alias(f.name))
        return F.struct(*fields)

    def column(
        self,
        original: Typed | None,
        wanted: StructField,
        assigned: Sequence[tuple[tuple[str, ...], Typed]],
    ) -> Column:
        """A column or field with what is assigned to it, or below it; paths begin with its name."""
        whole = [value for steps, value in assigned if len(steps) == 1]
        if whole:
            return self.stored(whole[0], wanted.data_type, wanted.name)
        if assigned:
            below = [(steps[1:], value) for steps, value in assigned]
            return self.updated(original, wanted, below)
        if original is None:
            return F.lit(None).cast(to_spark_type(wanted.data_type))
        return self.kept(original, wanted.data_type, wanted.name)

    def kept(self, original: Typed, wanted: DataType, name: str) -> Column:
        """A value of the target in the type that its column gets by evolution."""
        everything = replace(self, policy=StorePolicy.ANSI, evolves=True, by_name=True)
        return everything.stored(original, wanted, name)

    def _items(self, values: Column, own: DataType, wanted: DataType, name: str) -> Column:
        if bare_type(own) == bare_type(wanted):
            return values
        return F.transform(values, lambda item: self.stored(Typed(item, own), wanted, name))

    def _struct(
        self, value: Typed, own: StructType, wanted: StructType, original: Typed | None
    ) -> Column:
        names = {f.name.lower() for f in own}
        missing = [f for f in wanted if f.name.lower() not in names]
        if any(f.name not in wanted for f in own) or (missing and not self.evolves):
            raise SchemaError(
                "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
                fromCatalog=own.simple_string,
                toCatalog=wanted.simple_string,
            )
        fields = self._fields(value, own, wanted, original, self.stored)
        if not self.keeps_null:
            return F.struct(*fields)
        is_there = value.column.isNotNull()
        if original is not None and _has_more(_fields_of(original), own):
            # What only the target has outlives a source that is null.
            is_there = is_there | original.column.isNotNull()
        # A struct of nulls is not the null it was.
        return F.when(is_there, F.struct(*fields))

    def _fields(
        self,
        value: Typed,
        own: StructType,
        wanted: StructType,
        original: Typed | None,
        made: _Made,
    ) -> list[Column]:
        """The fields of a struct: as the value has them, else as the target, else null."""
        known = _fields_of(original)
        fields = []
        for f in wanted:
            given, old = own.get(f.name), known.get(f.name)
            kept = None if original is None or old is None else original.field(old)
            if given is not None:
                inner = made(value.field(given), f.data_type, f.name, kept)
            elif kept is not None:
                inner = self.kept(kept, f.data_type, f.name)
            else:
                inner = F.lit(None).cast(to_spark_type(f.data_type))
            fields.append(inner.alias(f.name))
        return fields

    def _goes_by_name(self, own: DataType, wanted: DataType) -> bool:
        """Whether structs in two types must be told apart by their fields' names.

        Others are cast in one piece, and an error tells of the whole.
        """
        return self.by_name and _holds(own, _is_struct) and _holds(wanted, _is_struct)


def _is_on(jvm: JvmSession, name: str) -> bool:
    return str(jvm.spark.conf.get(name, "true")).lower() != "false"


def _is_struct(data_type: DataType) -> bool:
    return isinstance(data_type, StructType)


def _is_exact_number(data_type: DataType) -> bool:
    return data_type in _INTEGRAL or isinstance(data_type, DecimalType)


def _holds(data_type: DataType, is_wanted: Callable[[DataType], bool]) -> bool:
    """Whether a type, or one inside of it, is as wanted."""
    if is_wanted(data_type):
        return True
    match data_type:
        case ArrayType():
            inner: Sequence[DataType] = (data_type.element_type,)
        case MapType():
            inner = (data_type.key_type, data_type.value_type)
        case StructType():
            inner = [f.data_type for f in data_type]
        case _:
            return False
    return any(_holds(each, is_wanted) for each in inner)


def _fields_of(original: Typed | None) -> StructType:
    """The fields that a value of the target has; none where it is no struct, or not there."""
    known = None if original is None else original.data_type
    return known if isinstance(known, StructType) else StructType()


def _has_more(known: StructType, own: StructType) -> bool:
    """Whether a struct of the target has fields, at any depth, that the source's lacks."""
    for f in known:
        given = own.get(f.name)
        if given is None:
            return True
        match f.data_type, given.data_type:
            case StructType() as one, StructType() as other if _has_more(one, other):
                return True
    return False
