"""Bind a predicate to a schema: resolve names, and cast literals to the compared types.

Spark casts before it compares; binding decides which side is cast, once, so that rows, partition
values and statistics are evaluated by the same rule.  A bound predicate compares a column with a
literal of the column's own type, or a whole or decimal number with a DOUBLE.  The type
`BoundPredicate` makes sure that a predicate is bound only once between a query and a file.

>>> schema = StructType((StructField("Day", DATE), StructField("n", INTEGER)))
>>> day = tree.Literal("2024-02-29", STRING)
>>> bind(tree.Comparison("<", tree.Column(("day",)), day), schema).to_sql()
"Day < DATE '2024-02-29'"
>>> half = tree.Literal(Decimal("2.5"), DecimalType(2, 1))
>>> bind(tree.Comparison("<", tree.Column(("n",)), half), schema).to_sql()
'n <= 2'
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from pyspark_delta.errors import InvalidPredicateError
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    CHAR_VARCHAR_KEY,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates import tree
from pyspark_delta.kernel.scan.predicates.literals import (
    FRACTIONAL,
    INTEGRAL,
    MAX_LONG,
    MIN_LONG,
    LiteralValue,
    cast_text,
    decimal_value,
    float_value,
    local_day,
    start_of_day,
    to_instant,
    zone_named,
)

COLLATIONS_KEY = "__COLLATIONS"
"""The metadata key of a field's collations; without it texts compare by their bytes."""

_EXACT = Context(prec=100)
_MAX_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPredicate:
    """A predicate with the names and types of `schema`, ready to evaluate on rows and files.

    `bind` makes one.  Parts of a bound predicate, and the AND of several, are bound as well.
    """

    predicate: tree.Predicate
    schema: StructType = field(repr=False, compare=False)
    time_zone: str = field(repr=False, compare=False)

    @property
    def is_true(self) -> bool:
        """Whether it is the constant TRUE, which selects every row."""
        return self.predicate == tree.TRUE

    @property
    def has_unknown(self) -> bool:
        """Whether some part is `Unknown`, so that it cannot be evaluated on rows."""
        return tree.has_unknown(self.predicate)

    def split(self, partition_columns: Sequence[str]) -> tuple[BoundPredicate, BoundPredicate]:
        """The part that partition values alone decide, and the rest."""
        on_partitions, rest = tree.split_partition_part(self.predicate, partition_columns)
        return replace(self, predicate=on_partitions), replace(self, predicate=rest)

    def to_sql(self) -> str:
        """The predicate as SQL text."""
        return self.predicate.to_sql()


def bound_conjunction(
    predicates: Iterable[BoundPredicate], schema: StructType, *, time_zone: str = "UTC"
) -> BoundPredicate:
    """The AND of predicates that are bound to `schema`; TRUE of none."""
    whole = tree.conjunction(each.predicate for each in predicates)
    return BoundPredicate(predicate=whole, schema=schema, time_zone=time_zone)


def bind(
    predicate: tree.Predicate, schema: StructType, *, time_zone: str = "UTC", lenient: bool = False
) -> BoundPredicate:
    """`predicate` with the names and types of `schema`.

    An unknown name, or a comparison without a definite meaning, raises InvalidPredicateError; with
    `lenient` it becomes `Unknown`.  `time_zone` is the zone of days and of times without a zone.
    """
    binder = _Binder(schema, predicate_zone(time_zone, predicate.to_sql))

    def bound(part: tree.Predicate) -> tree.Predicate:
        try:
            return binder.bound(part)
        except ValueError as error:
            if lenient:
                return tree.Unknown(part.to_sql())
            raise InvalidPredicateError(
                "DELTA_INVALID_PREDICATE", predicate=part.to_sql(), reason=error
            ) from None

    whole = tree.map_predicates(predicate, bound)
    return BoundPredicate(predicate=whole, schema=schema, time_zone=time_zone)


def cast_literal(value: tree.Literal, data_type: DataType, zone: tzinfo = UTC) -> tree.Literal:
    """`CAST(value AS data_type)`; ValueError when the cast fails, or is not supported."""
    inner, kind = value.value, value.data_type
    if inner is None:
        return tree.Literal(None, data_type)
    if kind == data_type:
        return value
    if isinstance(inner, str):
        return tree.Literal(cast_text(inner, data_type, zone), data_type)
    if _is_number(kind):
        number = Decimal(inner) if isinstance(inner, int | float) else _decimal(inner)
        if data_type in FRACTIONAL:
            return tree.Literal(float_value(float(number), data_type), data_type)
        if isinstance(data_type, DecimalType) and number.is_finite():
            return tree.Literal(decimal_value(number, data_type), data_type)
        if data_type in INTEGRAL and kind in INTEGRAL:
            return tree.Literal(cast_text(str(inner), data_type), data_type)
    moment = _moment(inner, kind, data_type, zone)
    if moment is None:
        raise ValueError(f"a {kind} cannot be cast to {data_type} here")
    return tree.Literal(moment, data_type)


def predicate_zone(time_zone: str, text: Callable[[], str]) -> tzinfo:
    """The zone of that name; InvalidPredicateError, with the predicate's `text`, without one."""
    try:
        return zone_named(time_zone)
    except ValueError as error:
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE", predicate=text(), reason=error
        ) from None


def has_binary_order(f: StructField) -> bool:
    """Whether text in a column compares by its bytes: no collation, no padding of CHAR."""
    kind = f.metadata.get(CHAR_VARCHAR_KEY)
    padded = isinstance(kind, str) and kind.lower().startswith("char")
    return not padded and COLLATIONS_KEY not in f.metadata


def never(column: tree.Column) -> tree.Predicate:
    """False where a column has a value, null where it is null."""
    return tree.conjunction([tree.IsNull(column), tree.NULL])


def always(column: tree.Column) -> tree.Predicate:
    """True where a column has a value, null where it is null."""
    return tree.Or((tree.Not(tree.IsNull(column)), tree.NULL))


class _Binder:
    """Binds innermost predicates; ValueError has the reason when one cannot be bound."""

    def __init__(self, schema: StructType, zone: tzinfo) -> None:
        self._schema = schema
        self._zone = zone

    def bound(self, part: tree.Predicate) -> tree.Predicate:
        match part:
            case tree.Comparison(op=op, left=tree.Literal() as left, right=tree.Literal() as right):
                return _folded(op, left, right, self._zone)
            case tree.Comparison(op=op, left=tree.Literal() as left, right=tree.Column() as right):
                return self._compared(tree.FLIPPED[op], right, left)
            case tree.Comparison(op=op, left=tree.Column() as left, right=tree.Literal() as right):
                return self._compared(op, left, right)
            case tree.Comparison(op=op, left=tree.Column() as left, right=tree.Column() as right):
                return self._columns_compared(op, left, right)
            case tree.IsNull(column=column):
                return tree.IsNull(self._found(column)[0])
            case tree.In(column=column, values=values):
                return self._in(column, values)
            case tree.StartsWith(column=column, prefix=prefix):
                column, f = self._found(column)
                if f.data_type != STRING or COLLATIONS_KEY in f.metadata:
                    raise ValueError(f"{column.to_sql()} is not plain text")
                return tree.StartsWith(column, prefix)
            case _:
                return part

    def _found(self, column: tree.Column) -> tuple[tree.Column, StructField]:
        struct: DataType = self._schema
        path: tree.Path = ()
        for name in column.path:
            found = struct.get(name) if isinstance(struct, StructType) else None
            if found is None:
                raise ValueError(f"there is no column {column.to_sql()}")
            path, struct = (*path, found.name), found.data_type
        return tree.Column(path), found  # type: ignore[return-value]

    def _compared(self, op: str, column: tree.Column, value: tree.Literal) -> tree.Predicate:
        column, f = self._found(column)
        kind = f.data_type
        if not has_binary_order(f):
            raise ValueError(f"{column.to_sql()} has an order of its own")
        if not _is_comparable(kind):
            raise ValueError(f"a {kind} cannot be compared")
        if value.value is None:
            return tree.IsNull(column) if op == "<=>" else tree.NULL
        if kind == VOID:
            return tree.FALSE if op == "<=>" else tree.NULL
        rule = _against_number if _is_number(kind) else _RULES[kind]
        found = rule(op, column, kind, value, self._zone)
        if found is None:
            raise ValueError(f"a {kind} cannot be compared with a {value.data_type} here")
        return found

    def _columns_compared(self, op: str, left: tree.Column, right: tree.Column) -> tree.Predicate:
        (left, first), (right, second) = self._found(left), self._found(right)
        kinds = first.data_type, second.data_type
        numbers = all(_is_number(kind) for kind in kinds)
        if not (has_binary_order(first) and has_binary_order(second)):
            raise ValueError(f"{left.to_sql()} or {right.to_sql()} has an order of its own")
        if not (numbers or kinds[0] == kinds[1]) or not _is_comparable(kinds[0]):
            raise ValueError(f"a {kinds[0]} cannot be compared with a {kinds[1]} here")
        return tree.Comparison(op, left, right)

    def _in(self, column: tree.Column, values: tuple[tree.Literal, ...]) -> tree.Predicate:
        column, _ = self._found(column)
        parts = [self._compared("=", column, value) for value in values if value.value is not None]
        has_null = len(parts) < len(values)
        literals = [p.right for p in parts if isinstance(p, tree.Comparison)]
        values = tuple(dict.fromkeys(v for v in literals if isinstance(v, tree.Literal)))
        kinds = {value.data_type for value in values}
        if kinds == {INTEGER, LONG}:
            values, kinds = tuple(tree.Literal(value.value, LONG) for value in values), {LONG}
        if not values:
            return tree.NULL if has_null else never(column)
        if len(kinds) > 1:
            either = [tree.Comparison("=", column, value) for value in values]
            return tree.disjunction([*either, *([tree.NULL] if has_null else [])])
        return tree.In(column, (*values, tree.Literal(None, VOID)) if has_null else values)


Rule = Callable[[str, tree.Column, DataType, tree.Literal, tzinfo], tree.Predicate | None]


def _against_number(
    op: str, column: tree.Column, kind: DataType, value: tree.Literal, zone: tzinfo
) -> tree.Predicate | None:
    inner = value.value
    if isinstance(inner, str):
        # Spark reads text beside a whole number as BIGINT, beside a decimal as DOUBLE.
        inner = cast_text(inner, LONG if kind in INTEGRAL else DOUBLE)
    elif not _is_number(value.data_type):
        return None
    if isinstance(inner, float) or kind in FRACTIONAL:
        return tree.Comparison(op, column, tree.Literal(float(inner), DOUBLE))  # type: ignore[arg-type]
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    number = _decimal(inner)
    step = number.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _EXACT)
    if isinstance(kind, DecimalType):
        most = _EXACT.subtract(
            Decimal(1).scaleb(_MAX_DECIMAL_DIGITS - scale), Decimal(1).scaleb(-scale)
        )
        limits = (-most, most)
        made = tree.Literal(step, DecimalType(_MAX_DECIMAL_DIGITS, scale))
    else:
        limits = (Decimal(MIN_LONG), Decimal(MAX_LONG))
        made = tree.Literal(int(step), INTEGER if abs(step) < 2**31 else LONG)
    below, above = number < limits[0], number > limits[1]
    return _on_steps(op, column, made, below=below, above=above, exact=step == number)


def _on_steps(
    op: str, column: tree.Column, step: tree.Literal, *, below: bool, above: bool, exact: bool
) -> tree.Predicate:
    """A comparison with a value that equals `step`, or is between it and the next step up.

    `below` and `above` are for a value below or above all values of the column's type.
    """
    if op == "<=>" and (below or above or not exact):
        return tree.FALSE
    if below or above:
        holds = op == "!=" or (op in ("<", "<=") if above else op in (">", ">="))
        return always(column) if holds else never(column)
    if exact:
        return tree.Comparison(op, column, step)
    if op in ("=", "!="):
        return never(column) if op == "=" else always(column)
    return tree.Comparison("<=" if op in ("<", "<=") else ">", column, step)


def _against_same(
    op: str, column: tree.Column, kind: DataType, value: tree.Literal, zone: tzinfo
) -> tree.Predicate | None:
    if value.data_type == kind:
        return tree.Comparison(op, column, value)
    if isinstance(value.value, str) and kind != STRING:
        return tree.Comparison(op, column, tree.Literal(cast_text(value.value, kind, zone), kind))
    return None


def _against_moment(
    op: str, column: tree.Column, kind: DataType, value: tree.Literal, zone: tzinfo
) -> tree.Predicate | None:
    inner = value.value
    if kind == DATE and value.data_type in (TIMESTAMP, TIMESTAMP_NTZ) and isinstance(inner, int):
        # Spark takes the date for its first instant.
        place = zone if value.data_type == TIMESTAMP else None
        day = local_day(inner, place or UTC)
        exact = start_of_day(day, place) == inner
        return _on_steps(op, column, tree.Literal(day, DATE), below=False, above=False, exact=exact)
    moment = _moment(inner, value.data_type, kind, zone)
    if moment is not None:
        return tree.Comparison(op, column, tree.Literal(moment, kind))
    return _against_same(op, column, kind, value, zone)


_RULES: dict[DataType, Rule] = {
    **dict.fromkeys((STRING, BINARY, BOOLEAN), _against_same),
    **dict.fromkeys((DATE, TIMESTAMP, TIMESTAMP_NTZ), _against_moment),
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _moment(inner: LiteralValue, kind: DataType, wanted: DataType, zone: tzinfo) -> int | None:
    """A date or timestamp as another kind of timestamp; None without an exact equivalent."""
    if not isinstance(inner, int):
        return None
    if kind == wanted:
        return inner
    if kind == DATE and wanted in (TIMESTAMP, TIMESTAMP_NTZ):
        return start_of_day(inner, zone if wanted == TIMESTAMP else None)
    if kind == TIMESTAMP_NTZ and wanted == TIMESTAMP:
        return to_instant(inner, zone)
    return inner if kind == TIMESTAMP and wanted == TIMESTAMP_NTZ and zone is UTC else None


def _folded(op: str, left: tree.Literal, right: tree.Literal, zone: tzinfo) -> tree.Predicate:
    if left.value is None or right.value is None:
        if op == "<=>":
            return tree.TRUE if left.value is None and right.value is None else tree.FALSE
        return tree.NULL
    kind = _common_type(left, right)
    if kind:
        left, right = cast_literal(left, kind, zone), cast_literal(right, kind, zone)
    return tree.Constant(_TESTS[op](_sort_key(left.value), _sort_key(right.value)))


def _common_type(left: tree.Literal, right: tree.Literal) -> DataType | None:
    """The type in which two literals compare; None for two exact numbers, which Python compares."""
    kinds = left.data_type, right.data_type
    if all(_is_number(kind) for kind in kinds):
        return DOUBLE if any(kind in FRACTIONAL for kind in kinds) else None
    if kinds[0] == kinds[1] and kinds[0] in _RULES:
        return kinds[0]
    if STRING in kinds:
        return kinds[kinds[0] == STRING]
    if {*kinds} <= {DATE, TIMESTAMP, TIMESTAMP_NTZ}:
        return TIMESTAMP
    raise ValueError(f"a {kinds[0]} cannot be compared with a {kinds[1]} here")


def _sort_key(value: LiteralValue) -> Any:
    if not isinstance(value, float):
        return value
    # NaN equals itself and is larger than any other number.
    return (True, 0.0) if math.isnan(value) else (False, value)


def _is_number(kind: DataType) -> bool:
    return kind in INTEGRAL or kind in FRACTIONAL or isinstance(kind, DecimalType)


def _is_comparable(kind: DataType) -> bool:
    return _is_number(kind) or kind in _RULES or kind == VOID


def _decimal(value: LiteralValue) -> Decimal:
    assert isinstance(value, int | Decimal)
    return Decimal(value)
