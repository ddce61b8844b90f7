"""The generation expressions of partition columns that go up with the column they come from.

Each gives the values of its partition columns for a value of that column.  Only their text is read
here; what filters follow is in `generated_filters`.

>>> schema = StructType((StructField("d", DATE),))
>>> year = StructField("y", INTEGER, metadata={"delta.generationExpression": "YEAR(d)"})
>>> [rule] = _read_rules(schema, (year,))
>>> rule.source, rule.image(366, UTC)
(('d',), (1971,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.binding import has_binary_order
from pyspark_delta.kernel.scan.literals import start_of_day
from pyspark_delta.kernel.scan.predicates import Path
from pyspark_delta.kernel.scan.sql_tokens import Token, TokenError, TokenKind, tokenize

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_PARTS = ("YEAR", "MONTH", "DAY", "HOUR")
_IDENTICAL = (DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, BYTE, SHORT, INTEGER, LONG)


@dataclass(frozen=True, slots=True)
class GenerationRule:
    """Partition columns that one column gives, the most significant first.

    `image` gives their values for a value of the column.
    """

    source: Path
    source_type: DataType
    columns: tuple[StructField, ...]
    image: Callable[[int | str, tzinfo], tuple[int | str, ...]]
    prefix_length: int | None = None
    """Set when the value is the beginning of a text."""
    is_instant: bool = False
    """Whether the value is a time that itself depends on the zone it was made in."""

    @property
    def depends_on_zone(self) -> bool:
        """Whether another session may have seen another value."""
        return self.source_type == TIMESTAMP and self.image is not _same


def generation_rules(metadata: Metadata) -> tuple[GenerationRule, ...]:
    """The rules by which a table's partition columns are generated, as far as they are known."""
    partitions = {name.lower() for name in metadata.partition_columns}
    listed = [
        f for f in metadata.schema if f.name.lower() in partitions and generation_expression(f)
    ]
    if not listed:
        return ()
    return _rules(metadata.schema_string or "", metadata.schema, tuple(listed))


# By the text of the schema: fields compare by more than tells one rule from another.
_KNOWN: dict[str, tuple[GenerationRule, ...]] = {}
_MOST_KNOWN = 256


def _rules(
    key: str, schema: StructType, generated: tuple[StructField, ...]
) -> tuple[GenerationRule, ...]:
    key += "".join(f"\0{f.name}" for f in generated)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _read_rules(schema, generated)
    return _KNOWN[key]


def _read_rules(
    schema: StructType, generated: tuple[StructField, ...]
) -> tuple[GenerationRule, ...]:
    rules = []
    parts: dict[Path, dict[str, tuple[StructField, DataType]]] = {}
    for f in generated:
        expression = _parsed(generation_expression(f) or "")
        read = None if expression is None else _shape(expression, schema)
        if read is None:
            continue
        name, path, source_type, image, length = read
        if name in _DATE_PARTS:
            parts.setdefault(path, {})[name] = (f, source_type)
        elif image is not None:
            is_instant = name == "INSTANT"
            rules.append(GenerationRule(path, source_type, (f,), image, length, is_instant))
    for path, found in parts.items():
        # YEAR alone goes up with its column, MONTH only within a YEAR that stands beside it.
        names = []
        for name in _DATE_PARTS:
            if name not in found:
                break
            names.append(name)
        if names:
            columns = tuple(found[name][0] for name in names)
            kind = found[names[0]][1]
            rules.append(GenerationRule(path, kind, columns, _date_parts(tuple(names), kind)))
    return tuple(rules)


_Expression = tuple[str, tuple["_Expression | str | int", ...]]
_Shape = tuple[
    str,
    Path,
    DataType,
    Callable[[int | str, tzinfo], tuple[int | str, ...]] | None,
    int | None,
]


def _shape(expression: _Expression, schema: StructType) -> _Shape | None:
    """Which shape an expression has; None for one that is not known to go up with its column."""
    name, arguments = expression
    if name == "column":
        found = _source(expression, schema, _IDENTICAL)
        return None if found is None else ("SAME", *found, _same, None)
    rule = _SHAPES.get(name)
    try:
        return None if rule is None else rule(arguments, schema)
    except (ValueError, TypeError, IndexError):
        return None


def _cast_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    inner, wanted = arguments
    if wanted != "DATE":
        return None
    found = _source(inner, schema, (DATE, TIMESTAMP, TIMESTAMP_NTZ))
    return None if found is None else ("DATE", *found, _calendar(found[1], _day_number), None)


def _part_shape(name: str) -> Callable[[tuple[object, ...], StructType], _Shape | None]:
    def shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
        [inner] = arguments
        found = _dated_source(inner, schema)
        return None if found is None else (name, *found, None, None)

    return shape


def _format_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    inner, pattern = arguments
    found = _dated_source(inner, schema)
    python = _FORMATS.get(str(pattern))
    if found is None or python is None:
        return None
    return ("FORMAT", *found, _calendar(found[1], _formatted(python)), None)


def _date_trunc_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    unit, inner = arguments
    found = _source(inner, schema, (TIMESTAMP,))
    starts = _UNITS.get(str(unit).upper())
    if found is None or starts is None:
        return None
    path, kind = found

    def image(value: int | str, zone: tzinfo) -> tuple[int | str, ...]:
        day = starts(_local(value, kind, zone).date())
        return (start_of_day(_days(day), zone),)

    return "INSTANT", path, kind, image, None


def _trunc_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    inner, unit = arguments
    found = _dated_source(inner, schema)
    starts = _UNITS.get(str(unit).upper())
    if found is None or starts is None:
        return None
    return ("TRUNC", *found, _calendar(found[1], lambda at: _days(starts(at.date()))), None)


def _substring_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    inner, start, length = arguments
    if start not in (0, 1) or not isinstance(length, int) or length < 1:
        return None
    found = _source(inner, schema, (STRING,))
    if found is None:
        return None
    return ("SUBSTRING", *found, lambda value, _: (str(value)[:length],), length)


def _left_shape(arguments: tuple[object, ...], schema: StructType) -> _Shape | None:
    inner, length = arguments
    return _substring_shape((inner, 1, length), schema)


_SHAPES: dict[str, Callable[[tuple[object, ...], StructType], _Shape | None]] = {
    "CAST": _cast_shape,
    "DATE": lambda arguments, schema: _cast_shape((*arguments, "DATE"), schema),
    "TO_DATE": lambda arguments, schema: _cast_shape((*arguments, "DATE"), schema),
    "YEAR": _part_shape("YEAR"),
    "MONTH": _part_shape("MONTH"),
    "DAY": _part_shape("DAY"),
    "DAYOFMONTH": _part_shape("DAY"),
    "HOUR": _part_shape("HOUR"),
    "DATE_FORMAT": _format_shape,
    "DATE_TRUNC": _date_trunc_shape,
    "TRUNC": _trunc_shape,
    "SUBSTRING": _substring_shape,
    "SUBSTR": _substring_shape,
    "LEFT": _left_shape,
}
# Patterns whose texts sort as the times do, and what Python calls their parts.
_FORMATS = {
    "yyyy": "{0.year:04}",
    "yyyy-MM": "{0.year:04}-{0.month:02}",
    "yyyy-MM-dd": "{0.year:04}-{0.month:02}-{0.day:02}",
    "yyyy-MM-dd-HH": "{0.year:04}-{0.month:02}-{0.day:02}-{0.hour:02}",
    "yyyyMM": "{0.year:04}{0.month:02}",
    "yyyyMMdd": "{0.year:04}{0.month:02}{0.day:02}",
    "yyyyMMddHH": "{0.year:04}{0.month:02}{0.day:02}{0.hour:02}",
}
_UNITS: dict[str, Callable[[date], date]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), lambda day: day.replace(month=1, day=1)),
    "QUARTER": lambda day: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
    **dict.fromkeys(("MONTH", "MON", "MM"), lambda day: day.replace(day=1)),
    "WEEK": lambda day: day - timedelta(days=day.weekday()),
    **dict.fromkeys(("DAY", "DD"), lambda day: day),
}


def _source(
    expression: object, schema: StructType, kinds: Sequence[DataType]
) -> tuple[Path, DataType] | None:
    """The column that an expression is, when it is one of these types."""
    if not isinstance(expression, tuple) or expression[0] != "column":
        return None
    path: Path = ()
    struct: DataType = schema
    f: StructField | None = None
    for step in expression[1]:
        f = struct.get(str(step)) if isinstance(struct, StructType) else None
        if f is None:
            return None
        path, struct = (*path, f.name), f.data_type
    if f is None or f.data_type not in kinds or not has_binary_order(f):
        return None
    return path, f.data_type


def _dated_source(expression: object, schema: StructType) -> tuple[Path, DataType] | None:
    """As `_source`, for a date or a time, cast to a date or not."""
    if isinstance(expression, tuple) and expression[0] == "CAST" and len(expression[1]) == 2:
        inner, wanted = expression[1]
        if wanted not in ("DATE", "TIMESTAMP"):
            return None
        expression = inner
    return _source(expression, schema, (DATE, TIMESTAMP, TIMESTAMP_NTZ))


def _same(value: int | str, zone: tzinfo) -> tuple[int | str, ...]:
    return (value,)


def _calendar(
    kind: DataType, image: Callable[[datetime], int | str]
) -> Callable[[int | str, tzinfo], tuple[int | str, ...]]:
    return lambda value, zone: (image(_local(value, kind, zone)),)


def _date_parts(
    names: tuple[str, ...], kind: DataType
) -> Callable[[int | str, tzinfo], tuple[int | str, ...]]:
    def image(value: int | str, zone: tzinfo) -> tuple[int | str, ...]:
        at = _local(value, kind, zone)
        return (at.year, at.month, at.day, at.hour)[: len(names)]

    return image


def _formatted(pattern: str) -> Callable[[datetime], int | str]:
    return pattern.format


def _day_number(at: datetime) -> int:
    return _days(at.date())


def _days(day: date) -> int:
    return (day - _EPOCH.date()).days


def _local(value: int | str, kind: DataType, zone: tzinfo) -> datetime:
    """What calendar and clock show: in `zone` for a TIMESTAMP."""
    assert isinstance(value, int)
    if kind == DATE:
        return _EPOCH + timedelta(days=value)
    moment = _EPOCH + timedelta(microseconds=value)
    return moment.astimezone(zone) if kind == TIMESTAMP else moment


@lru_cache(maxsize=256)
def _parsed(text: str) -> _Expression | None:
    """The calls, casts, columns and literals of an expression; None for anything else."""
    try:
        tokens = tokenize(text)
        found, at = _expression(tokens, 0)
    except (TokenError, ValueError, IndexError, RecursionError):
        return None
    if tokens[at].kind is not TokenKind.END or not isinstance(found, tuple):
        return None
    return found


def _expression(tokens: Sequence[Token], at: int) -> tuple[_Expression | str | int, int]:
    token = tokens[at]
    if token.kind is TokenKind.STRING:
        return token.value, at + 1
    if token.kind is TokenKind.NUMBER:
        return int(token.text), at + 1
    if token.word == "(":
        found, at = _expression(tokens, at + 1)
        return found, _after(tokens, at, ")")
    if token.kind is TokenKind.NAME and tokens[at + 1].word == "(":
        return _call(tokens, at)
    return _named_column(tokens, at)


def _call(tokens: Sequence[Token], at: int) -> tuple[_Expression, int]:
    name = tokens[at].word
    at += 2
    arguments: list[_Expression | str | int] = []
    while tokens[at].word != ")":
        if arguments and tokens[at].word == "AS" and name == "CAST":
            arguments.append(tokens[at + 1].word)
            at += 2
            break
        if arguments:
            at = _after(tokens, at, ",")
        found, at = _expression(tokens, at)
        arguments.append(found)
    return (name, tuple(arguments)), _after(tokens, at, ")")


def _named_column(tokens: Sequence[Token], at: int) -> tuple[_Expression, int]:
    steps = []
    while True:
        if tokens[at].kind not in (TokenKind.NAME, TokenKind.QUOTED_NAME):
            raise ValueError("a name is missing")
        steps.append(tokens[at].value)
        at += 1
        if tokens[at].word != ".":
            return ("column", tuple(steps)), at
        at += 1


def _after(tokens: Sequence[Token], at: int, word: str) -> int:
    if tokens[at].word != word:
        raise ValueError(f"{word} is missing")
    return at + 1
