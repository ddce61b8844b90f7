"""Casts values of a MERGE to the types of their columns, structs field by field.

Fields of structs match by name, in any order.  Without schema evolution two structs must have the
same fields; with it, fields that a value lacks are null, or keep the target's value.
A null struct stays null, unless the session sets that it becomes a struct of nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.types import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    walk_types,
)
from pyspark_delta.spark.conf.setting_table import (
    CASTS_FOLLOW_ANSI,
    MERGE_NULL_STRUCTS,
    MERGE_NULL_STRUCTS_IN_STAR,
    MERGE_STRUCTS_BY_NAME,
)
from pyspark_delta.spark.jvm.expressions.catalyst import (
    StorePolicy,
    assignment_policy,
    can_cast,
    stored_as,
)
from pyspark_delta.spark.jvm.gateway import JvmSession, to_spark_type
from pyspark_delta.spark.rules.alignment import bare_type, is_exact_number, with_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """An expression and its type."""

    column: Column
    data_type: DataType

    def field(self, f: StructField) -> Typed:
        return Typed(column=self.column.getField(f.name), data_type=f.data_type)


_Made = Callable[[Typed, DataType, str, Typed | None], Column]
"""Makes the value of a field from a value, a type, a name, and the target's value, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """Casts of values to columns; `evolves` means that structs may lack fields.

    Structs that do not match `by_name` are cast as Spark casts them: by position.  `keeps_null`
    means that a null struct stays null when its type changes; `keeps_null_in_star` that it does so
    also in a star with schema evolution.
    """

    jvm: JvmSession
    policy: StorePolicy
    evolves: bool
    by_name: bool = True
    keeps_null: bool = True
    keeps_null_in_star: bool = True

    @classmethod
    def of(cls, jvm: JvmSession, *, evolves: bool) -> Conversions:
        """By the session's settings."""
        keeps_null = MERGE_NULL_STRUCTS.of(jvm.spark)
        return cls(
            jvm=jvm,
            policy=assignment_policy(jvm, follows_ansi=CASTS_FOLLOW_ANSI.of(jvm.spark)),
            evolves=evolves,
            by_name=MERGE_STRUCTS_BY_NAME.of(jvm.spark),
            keeps_null=keeps_null,
            keeps_null_in_star=keeps_null and MERGE_NULL_STRUCTS_IN_STAR.of(jvm.spark),
        )

    def stored(
        self, value: Typed, wanted: DataType, name: str, original: Typed | None = None
    ) -> Column:
        """`value` as one of type `wanted`, for the column or field `name`.

        Fields that only `original` has keep their values, if there is an original.
        """
        own = value.data_type
        if bare_type(own) == bare_type(wanted) and original is None:
            return value.column
        match own, wanted:
            case StructType(), StructType() if self.by_name:
                return self._struct(value, own, wanted, original)
            case ArrayType(), ArrayType() if self._goes_by_name(own, wanted):
                return self._with_items(value, wanted, name)
            case MapType(), MapType() if self._goes_by_name(own, wanted) or not can_cast(
                self.jvm, bare_type(own), bare_type(wanted)
            ):
                return self._with_items(value, wanted, name)
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
            can_overflow=_holds(wanted, is_exact_number),
        )

    def spread(
        self, value: Typed, wanted: DataType, name: str, original: Typed | None = None
    ) -> Column:
        """As `stored`, but each field is set by itself: a null struct becomes one of nulls."""
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
        """A column with assignments to some of its fields, by relative paths; other fields stay.

        A null struct becomes one of nulls, except for the assigned fields.
        """
        struct = wanted.data_type
        assert isinstance(struct, StructType)  # only structs have fields that a name can refer to
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
        """A column or field with the assignments to it, or below it; paths begin with its name."""
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
        """A value of the target, cast to the type that its column evolves to."""
        everything = replace(self, policy=StorePolicy.ANSI, evolves=True, by_name=True)
        return everything.stored(original, wanted, name)

    def _with_items(self, value: Typed, wanted: DataType, name: str) -> Column:
        def cast(item: Column, own: DataType, wanted: DataType, _: str) -> Column:
            return self.stored(Typed(column=item, data_type=own), wanted, name)

        return with_items(value.column, value.data_type, wanted, cast)

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
            # Fields that only the target has are kept when the source is null.
            is_there = is_there | original.column.isNotNull()
        # Keep null: a struct of nulls is not null.
        return F.when(is_there, F.struct(*fields))

    def _fields(
        self, value: Typed, own: StructType, wanted: StructType, original: Typed | None, made: _Made
    ) -> list[Column]:
        """The fields of a struct: from the value, else from the target, else null."""
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
        """Whether structs in two types must be matched by the names of their fields.

        Otherwise a value is cast as a whole, and an error names the whole column.
        """
        return self.by_name and all(
            _holds(each, lambda inner: isinstance(inner, StructType)) for each in (own, wanted)
        )


def _holds(data_type: DataType, is_wanted: Callable[[DataType], bool]) -> bool:
    """Whether a type, or one nested in it, satisfies `is_wanted`."""
    return any(is_wanted(each) for _, each in walk_types(data_type))


def _fields_of(original: Typed | None) -> StructType:
    """The fields of a target value; none if it is not a struct, or does not exist."""
    known = None if original is None else original.data_type
    return known if isinstance(known, StructType) else StructType()


def _has_more(known: StructType, own: StructType) -> bool:
    """Whether a struct of the target has fields, at any depth, that the source lacks."""
    for f in known:
        given = own.get(f.name)
        if given is None:
            return True
        match f.data_type, given.data_type:
            case StructType() as one, StructType() as other if _has_more(one, other):
                return True
    return False
