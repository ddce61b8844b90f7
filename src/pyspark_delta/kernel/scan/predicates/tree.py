"""The tree of predicates on rows, and functions on it that need no data.

Predicates are three-valued, as in SQL: true, false, or null, and only true selects a row.
`Unknown` replaces an unsupported part: it may be anything, so no file is skipped because of it.
`binding` checks types and names against a schema; `evaluation` evaluates rows, `skipping` files;
`sql` parses the text form.

>>> predicate = conjunction([compare("a.b", "<", 5), Not(IsNull(Column(("c",))))])
>>> predicate.to_sql()
'a.b < 5 AND NOT (c IS NULL)'
>>> columns_of(predicate)
(('a', 'b'), ('c',))
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.scan.predicates.literals import (
    INTEGRAL,
    MAX_LONG,
    MIN_LONG,
    LiteralValue,
    cast_text,
    format_literal,
)
from pyspark_delta.kernel.sql.quoting import quoted_name, string_literal

Path = tuple[str, ...]

# Operator -> the operator for swapped operands.
FLIPPED = {"=": "=", "<=>": "<=>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Words that must be quoted to be column names.
RESERVED = frozenset(
    (
        *("AND", "BETWEEN", "CASE", "CAST", "DATE", "DISTINCT", "END", "EXISTS", "FALSE", "FROM"),
        *("ILIKE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "REGEXP", "RLIKE", "SELECT", "TABLE"),
        *("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TRUE", "UNKNOWN", "VALUES", "WITH"),
    )
)
_SUFFIXES: dict[str, DataType] = {"L": LONG, "S": SHORT, "Y": BYTE, "F": FLOAT, "D": DOUBLE}
_MAX_DIGITS = 38
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Operand(ABC):
    """One side of a comparison: a column or a literal."""

    __slots__ = ()

    @abstractmethod
    def to_sql(self) -> str:
        """The operand in Spark's SQL."""


@dataclass(frozen=True, slots=True)
class Column(Operand):
    """A column, or a field inside of structs, by its path of names."""

    path: Path

    def to_sql(self) -> str:
        return ".".join(_name(part) for part in self.path)


@dataclass(frozen=True, slots=True)
class Literal(Operand):
    """A value of a type, in the form that `literals` defines."""

    value: LiteralValue
    data_type: DataType

    def to_sql(self) -> str:
        return format_literal(self.value, self.data_type)


class Predicate(ABC):
    """A condition on a row.  Closed family: the classes below."""

    __slots__ = ()

    @abstractmethod
    def to_sql(self) -> str:
        """The predicate as SQL, which `parse_predicate` reads back."""

    @property
    def operands(self) -> tuple[Predicate, ...]:
        match self:
            case And(all_of=parts) | Or(any_of=parts):
                return parts
            case Not(operand=operand):
                return (operand,)
        return ()


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """A predicate with the same value for every row; None is null."""

    value: bool | None

    def to_sql(self) -> str:
        return format_literal(self.value, VOID if self.value is None else BOOLEAN)


TRUE = Constant(True)
FALSE = Constant(False)
NULL = Constant(None)


@dataclass(frozen=True, slots=True)
class Unknown(Predicate):
    """An unsupported condition; `text` is its SQL."""

    text: str = ""

    def to_sql(self) -> str:
        return f"({self.text})" if self.text else "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """`left op right`: null when a side is null, except that nulls are equal for `<=>`."""

    op: str
    left: Operand
    right: Operand

    def __post_init__(self) -> None:
        if self.op not in FLIPPED:
            raise ValueError(f"there is no operator {self.op!r}")

    def to_sql(self) -> str:
        return f"{self.left.to_sql()} {self.op} {self.right.to_sql()}"


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """Whether a column is null; never null itself."""

    column: Column

    def to_sql(self) -> str:
        return f"{self.column.to_sql()} IS NULL"


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """Whether a column equals one of some values; null when it does not, but a value is null."""

    column: Column
    values: tuple[Literal, ...]

    def to_sql(self) -> str:
        return f"{self.column.to_sql()} IN ({', '.join(v.to_sql() for v in self.values)})"


@dataclass(frozen=True, slots=True)
class StartsWith(Predicate):
    """Whether a text column begins with `prefix`."""

    column: Column
    prefix: str

    def to_sql(self) -> str:
        pattern = re.sub(r"([\\%_])", r"\\\1", self.prefix) + "%"
        return f"{self.column.to_sql()} LIKE {string_literal(pattern)}"


@dataclass(frozen=True, slots=True)
class Not(Predicate):
    """True for false, false for true, null for null."""

    operand: Predicate

    def to_sql(self) -> str:
        return f"NOT ({self.operand.to_sql()})"


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """True when all are, false when one is false, else null."""

    all_of: tuple[Predicate, ...]

    def to_sql(self) -> str:
        return _joined(" AND ", self.all_of, TRUE)


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """True when one is, false when all are false, else null."""

    any_of: tuple[Predicate, ...]

    def to_sql(self) -> str:
        return _joined(" OR ", self.any_of, FALSE)


def literal(value: LiteralValue | date | datetime) -> Literal:
    """A Python value as a literal of its type in SQL.

    >>> literal(date(1970, 1, 3)), literal(Decimal("1.50")).data_type.simple_string
    (Literal(value=2, data_type=PrimitiveType(name='date')), 'decimal(3,2)')
    """
    match value:
        case None:
            return Literal(None, VOID)
        case bool():
            return Literal(value, BOOLEAN)
        case int():
            if not MIN_LONG <= value <= MAX_LONG:
                return _decimal_literal(Decimal(value))
            return Literal(value, INTEGER if -(2**31) <= value < 2**31 else LONG)
        case float():
            return Literal(value, DOUBLE)
        case str():
            return Literal(value, STRING)
        case bytes():
            return Literal(value, BINARY)
        case Decimal():
            return _decimal_literal(value)
        case datetime():
            has_zone = value.tzinfo is not None
            since = value - datetime(1970, 1, 1, tzinfo=UTC if has_zone else None)
            kind = TIMESTAMP if has_zone else TIMESTAMP_NTZ
            return Literal(since // timedelta(microseconds=1), kind)
        case date():
            return Literal((value - date(1970, 1, 1)).days, DATE)


def parse_number(text: str) -> Literal:
    """A number with its sign and suffix; ValueError when its type cannot hold it.

    >>> parse_number("-2.50").data_type.simple_string, parse_number("7L").data_type.simple_string
    ('decimal(3,2)', 'bigint')
    """
    upper = text.upper()
    if upper.endswith("BD"):
        return _decimal_number(upper[:-2])
    kind = _SUFFIXES.get(upper[-1])
    digits = upper[:-1] if kind else upper
    if kind is None and "E" in digits:
        kind = DOUBLE
    if kind is not None:
        if kind in INTEGRAL and not digits.lstrip("-").isdigit():
            raise ValueError(f"{text} is not a whole number")
        return Literal(cast_text(digits, kind), kind)
    return _decimal_number(digits) if "." in digits or len(digits) > 19 else literal(int(digits))


def parse_typed(kind: DataType, text: str, zone: tzinfo) -> Literal:
    """The literal of a type and a text, as in DATE '...'; ValueError when it has no such value."""
    return literal(_binary(text)) if kind == BINARY else Literal(cast_text(text, kind, zone), kind)


def compare(column: str | Path, op: str, value: LiteralValue | date | datetime) -> Predicate:
    """`column op value`; a column in text is a path with dots between its names."""
    path = tuple(column.split(".")) if isinstance(column, str) else column
    return Comparison(op, Column(path), literal(value))


def conjunction(predicates: Iterable[Predicate]) -> Predicate:
    """The AND of all, flattened; TRUE of none."""
    parts = [part for predicate in predicates for part in conjuncts(predicate)]
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else And(tuple(parts)) if parts else TRUE


def disjunction(predicates: Iterable[Predicate]) -> Predicate:
    """The OR of all, flattened; FALSE of none."""
    parts: list[Predicate] = []
    for predicate in predicates:
        parts += predicate.any_of if isinstance(predicate, Or) else (predicate,)
    parts = [part for part in parts if part != FALSE]
    if TRUE in parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Or(tuple(parts)) if parts else FALSE


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The predicates that must all be true; none for TRUE."""
    if isinstance(predicate, And):
        return tuple(part for operand in predicate.all_of for part in conjuncts(operand))
    return () if predicate == TRUE else (predicate,)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """The predicate and every one inside of it, outermost first."""
    pending = [predicate]
    while pending:
        found = pending.pop()
        yield found
        pending += reversed(found.operands)


def columns_of(predicate: Predicate) -> tuple[Path, ...]:
    """The paths of the columns a predicate names, each once, in order of appearance."""
    sides: list[Operand] = []
    for part in walk(predicate):
        match part:
            case Comparison(left=left, right=right):
                sides += (left, right)
            case IsNull(column=column) | In(column=column) | StartsWith(column=column):
                sides.append(column)
    return tuple(dict.fromkeys(side.path for side in sides if isinstance(side, Column)))


def has_unknown(predicate: Predicate) -> bool:
    """Whether some part is `Unknown`, so that it cannot be evaluated on rows."""
    return any(isinstance(part, Unknown) for part in walk(predicate))


def map_predicates(predicate: Predicate, change: Callable[[Predicate], Predicate]) -> Predicate:
    """`predicate` with `change` applied to its innermost parts; AND, OR and NOT stay."""
    match predicate:
        case And(all_of=parts):
            return conjunction(map_predicates(part, change) for part in parts)
        case Or(any_of=parts):
            return disjunction(map_predicates(part, change) for part in parts)
        case Not(operand=operand):
            return Not(map_predicates(operand, change))
        case _:
            return change(predicate)


def rename_columns(predicate: Predicate, rename: Callable[[Path], Path]) -> Predicate:
    """The same predicate with other names, for example physical for logical ones."""

    def renamed(part: Predicate) -> Predicate:
        match part:
            case Comparison(op=op, left=left, right=right):
                return Comparison(op, side(left), side(right))
            case IsNull(column=column):
                return IsNull(Column(rename(column.path)))
            case In(column=column, values=values):
                return In(Column(rename(column.path)), values)
            case StartsWith(column=column, prefix=prefix):
                return StartsWith(Column(rename(column.path)), prefix)
            case _:
                return part

    def side(operand: Operand) -> Operand:
        return Column(rename(operand.path)) if isinstance(operand, Column) else operand

    return map_predicates(predicate, renamed)


def split_partition_part(
    predicate: Predicate, partition_columns: Sequence[str]
) -> tuple[Predicate, Predicate]:
    """The part on partition columns alone, and the rest; their AND is the predicate."""
    partitions = {name.lower() for name in partition_columns}
    sides: tuple[list[Predicate], list[Predicate]] = ([], [])
    for part in conjuncts(predicate):
        names = {path[0].lower() for path in columns_of(part)}
        sides[not (names <= partitions) or has_unknown(part)].append(part)
    return conjunction(sides[0]), conjunction(sides[1])


def _decimal_literal(value: Decimal) -> Literal:
    if not value.is_finite():
        raise ValueError(f"{value} is not a decimal")
    digits, exponent = len(value.as_tuple().digits), int(value.as_tuple().exponent)
    scale = max(0, -exponent)
    return Literal(value, DecimalType(max(digits + max(exponent, 0), scale, 1), scale))


def _binary(digits: str) -> bytes:
    """The bytes of `X'...'`; Spark prepends a 0 to an odd number of digits."""
    if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError("a binary literal has digits from 0 to F only")
    return bytes.fromhex("0" * (len(digits) % 2) + digits)


def _decimal_number(digits: str) -> Literal:
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"{digits[:45]} is not a decimal") from None
    _, figures, exponent = number.as_tuple()
    if len(figures) > _MAX_DIGITS or not -_MAX_DIGITS <= int(exponent) <= _MAX_DIGITS:
        raise ValueError(f"{digits[:45]} has more than {_MAX_DIGITS} digits")
    return literal(number)


def _joined(word: str, parts: Sequence[Predicate], empty: Predicate) -> str:
    if not parts:
        return empty.to_sql()
    return word.join(
        f"({part.to_sql()})" if isinstance(part, And | Or) else part.to_sql() for part in parts
    )


def _name(part: str) -> str:
    if _PLAIN_NAME.fullmatch(part) and part.upper() not in RESERVED:
        return part
    return quoted_name(part)
