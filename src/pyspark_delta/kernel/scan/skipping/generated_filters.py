"""Derive partition filters from filters on the columns that partition columns are generated from.

Where `day` is generated as `CAST(ts AS DATE)`, `ts > X` can hold only where `day >= CAST(X AS
DATE)`.  That works for every generation expression that is monotonic in its column; the rules below
recognize them.  The derived filter is implied, not equivalent: the filter itself stays.  A day
depends on the time zone of the row's writer, which is not recorded, so timestamps are widened by up
to a day in both directions.  PROTOCOL.md, "Generated Columns".

>>> from pyspark_delta.kernel.protocol.schema_json import format_schema
>>> year = StructField("y", types.INTEGER, metadata={"delta.generationExpression": "YEAR(d)"})
>>> schema = format_schema(StructType((StructField("d", types.DATE), year)))
>>> table = Metadata(id="1", schema_string=schema, partition_columns=("y",))
>>> day = tree.Comparison("<", tree.Column(("d",)), tree.Literal(0, types.DATE))
>>> implied_partition_filter(bind(day, table.schema), table).to_sql()
'y <= 1970 OR y IS NULL'
>>> [rule] = generation_rules(table)
>>> rule.shape.source, rule.shape.image(366, UTC)
(('d',), (1971,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.datetimes import MICROS_PER_DAY
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.protocol.types import DataType, StructField, StructType
from pyspark_delta.kernel.scan.predicates import tree
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind, has_binary_order
from pyspark_delta.kernel.scan.predicates.literals import start_of_day, zone_named
from pyspark_delta.kernel.sql.lexer import Token, TokenError, TokenKind, tokenize

# Longer lists are replaced by the range from their least to their largest value.
_MOST_VALUES = 50
_CONTRARY = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_PARTS = ("YEAR", "MONTH", "DAY", "HOUR")
_TIMES = (types.DATE, types.TIMESTAMP, types.TIMESTAMP_NTZ)
_IDENTICAL = (*_TIMES, types.STRING, types.BYTE, types.SHORT, types.INTEGER, types.LONG)

Values = tuple[int | str, ...]
Image = Callable[[int | str, tzinfo], Values]


class _Shape(NamedTuple):
    """A generation expression that is monotonic in its column: `image` computes its value.

    A `date_part` is monotonic only together with those before it.
    """

    source: tree.Path
    source_type: DataType
    image: Image
    date_part: str = ""
    prefix_length: int | None = None
    """Set when the value is the beginning of a text."""
    is_instant: bool = False
    """Whether the value is a time that depends on the zone of its writer."""

    @property
    def depends_on_zone(self) -> bool:
        return self.source_type == types.TIMESTAMP and self.image is not _same


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRule:
    """Partition columns generated from one column, the most significant first."""

    columns: tuple[StructField, ...]
    shape: _Shape


def implied_partition_filter(predicate: BoundPredicate, metadata: Metadata) -> BoundPredicate:
    """The filter on partition columns that `predicate` implies; TRUE when it implies none."""
    rules = generation_rules(metadata)
    if not rules or predicate.is_true:
        return replace(predicate, predicate=tree.TRUE)
    zone = zone_named(predicate.time_zone)
    found = tree.conjunction(_implied(predicate.predicate, rule, zone) for rule in rules)
    return bind(found, metadata.schema, time_zone=predicate.time_zone, lenient=True)


def _implied(predicate: tree.Predicate, rule: GenerationRule, zone: tzinfo) -> tree.Predicate:
    match predicate:
        case tree.And(all_of=parts):
            return tree.conjunction(_implied(part, rule, zone) for part in parts)
        case tree.Or(any_of=parts):
            return tree.disjunction(_implied(part, rule, zone) for part in parts)
        case tree.Not(operand=tree.Comparison(op=op, left=left, right=right)) if op in _CONTRARY:
            return _implied(tree.Comparison(_CONTRARY[op], left, right), rule, zone)
        case tree.IsNull(column=column) if column.path == rule.shape.source:
            return tree.conjunction(tree.IsNull(tree.Column((f.name,))) for f in rule.columns)
        case tree.StartsWith(column=column, prefix=prefix) if column.path == rule.shape.source:
            if rule.shape.prefix_length is None:
                return tree.TRUE
            beginning = prefix[: rule.shape.prefix_length]
            return _or_null(tree.StartsWith(tree.Column((rule.columns[0].name,)), beginning), rule)
        case tree.Comparison(op=op, left=tree.Column(path=path), right=tree.Literal() as value):
            if path == rule.shape.source and op != "!=":
                return _compared(op, value, rule, zone)
        case tree.In(column=column, values=values) if column.path == rule.shape.source:
            return _listed(values, rule, zone)
    return tree.TRUE


def _compared(op: str, value: tree.Literal, rule: GenerationRule, zone: tzinfo) -> tree.Predicate:
    if value.value is None or value.data_type != rule.shape.source_type:
        return tree.TRUE
    inner = value.value
    assert isinstance(inner, int | str)
    bounds = []
    if op in ("=", "<=>", ">", ">="):
        bounds.append((_image(inner, -1, rule, zone), True))
    if op in ("=", "<=>", "<", "<="):
        bounds.append((_image(inner, 1, rule, zone), False))
    if any(image is None for image, _ in bounds):
        return tree.TRUE
    if len(bounds) == 2 and bounds[0][0] == bounds[1][0]:
        same = zip(rule.columns, bounds[0][0] or (), strict=True)
        return _or_null(tree.conjunction(_one(f, "=", value) for f, value in same), rule)
    return tree.conjunction(
        _or_null(_beyond(rule, image or (), is_lower=is_lower), rule) for image, is_lower in bounds
    )


def _listed(values: Sequence[tree.Literal], rule: GenerationRule, zone: tzinfo) -> tree.Predicate:
    given = [value for value in values if value.value is not None]
    if not given or any(value.data_type != rule.shape.source_type for value in given):
        return tree.TRUE
    if len(given) <= _MOST_VALUES:
        return tree.disjunction(_compared("=", value, rule, zone) for value in given)
    ordered = sorted(given, key=lambda value: value.value)  # type: ignore[arg-type, return-value]
    return tree.conjunction(
        [_compared(">=", ordered[0], rule, zone), _compared("<=", ordered[-1], rule, zone)]
    )


def _image(value: int | str, direction: int, rule: GenerationRule, zone: tzinfo) -> Values | None:
    """The partition values of a value, or of one a day before or after; None out of range."""
    if rule.shape.depends_on_zone and isinstance(value, int):
        value += direction * MICROS_PER_DAY
    try:
        image = rule.shape.image(value, zone)
    except (ValueError, OverflowError):
        return None
    if rule.shape.is_instant and isinstance(image[0], int):
        return (image[0] + direction * MICROS_PER_DAY,)
    return image


def _beyond(rule: GenerationRule, image: Values, *, is_lower: bool) -> tree.Predicate:
    """The filter that the tuple of partition columns is not below `image`, or not above it."""
    strict, loose = (">", ">=") if is_lower else ("<", "<=")
    *firsts, last = rule.columns
    found: tree.Predicate = _one(last, loose, image[-1])
    for f, value in reversed(list(zip(firsts, image, strict=False))):
        found = tree.disjunction(
            [_one(f, strict, value), tree.conjunction([_one(f, "=", value), found])]
        )
    return found


def _one(f: StructField, op: str, value: int | str) -> tree.Predicate:
    kind = types.STRING if isinstance(value, str) else f.data_type
    return tree.Comparison(op, tree.Column((f.name,)), tree.Literal(value, kind))


def _or_null(predicate: tree.Predicate, rule: GenerationRule) -> tree.Predicate:
    # A value without an image, such as a year too large, is null in the partition column.
    return tree.disjunction(
        [predicate, *(tree.IsNull(tree.Column((f.name,))) for f in rule.columns)]
    )


def generation_rules(metadata: Metadata) -> tuple[GenerationRule, ...]:
    """The rules for a table's generated partition columns, as far as they are recognized."""
    partitions = {name.lower() for name in metadata.partition_columns}
    names = tuple(
        f.name for f in metadata.schema if f.name.lower() in partitions and generation_expression(f)
    )
    return _rules(metadata.schema_string or "", names) if names else ()


# Keyed by the text of the schema: equality of fields covers more than the rules depend on.
@lru_cache(maxsize=256)
def _rules(schema_string: str, names: tuple[str, ...]) -> tuple[GenerationRule, ...]:
    """The rules for the columns `names`; one for YEAR, MONTH, DAY and HOUR of a column together."""
    schema = parse_schema(schema_string)
    rules = []
    parts: dict[tree.Path, dict[str, tuple[StructField, DataType]]] = {}
    for f in (f for f in schema if f.name in names):
        shape = _shape(generation_expression(f) or "", schema)
        if shape is None:
            continue
        if shape.date_part:
            parts.setdefault(shape.source, {})[shape.date_part] = (f, shape.source_type)
            continue
        rules.append(GenerationRule(columns=(f,), shape=shape))
    for path, found in parts.items():
        # YEAR alone is monotonic, MONTH only together with a YEAR.
        columns = [found[part] for part in takewhile(found.__contains__, _DATE_PARTS)]
        if columns:
            kind = columns[0][1]
            whole = _Shape(path, kind, _date_parts(len(columns), kind))
            rules.append(GenerationRule(columns=tuple(f for f, _ in columns), shape=whole))
    return tuple(rules)


_Expression = tuple[str, tuple["_Expression | str | int", ...]]


def _shape(text: str, schema: StructType) -> _Shape | None:
    """The shape of an expression; None for one that is not known to be monotonic."""
    expression = _parsed(text)
    if expression is None:
        return None
    name, arguments = expression
    try:
        if name == "column":
            return _Shape(*_source(expression, schema, _IDENTICAL), _same)
        return _SHAPES[name](arguments, schema)
    except (ValueError, TypeError, LookupError):
        return None


def _cast_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    inner, wanted = arguments
    if wanted != "DATE":
        raise ValueError(f"{wanted} is not a date")
    path, kind = _source(inner, schema, _TIMES)
    return _Shape(path, kind, _calendar(kind, lambda at: _days(at.date())))


def _part_shape(part: str) -> Callable[[Sequence[object], StructType], _Shape]:
    def shape(arguments: Sequence[object], schema: StructType) -> _Shape:
        [inner] = arguments
        path, kind = _time_source(inner, schema)
        return _Shape(path, kind, _date_parts(len(_DATE_PARTS), kind), date_part=part)

    return shape


def _format_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    inner, pattern = arguments
    path, kind = _time_source(inner, schema)
    return _Shape(path, kind, _calendar(kind, _FORMATS[str(pattern)].format))


def _date_trunc_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    unit, inner = arguments
    path, kind = _source(inner, schema, (types.TIMESTAMP,))
    start = _UNITS[str(unit).upper()]

    def image(value: int | str, zone: tzinfo) -> Values:
        return (start_of_day(_days(start(_local(value, kind, zone).date())), zone),)

    return _Shape(path, kind, image, is_instant=True)


def _trunc_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    inner, unit = arguments
    path, kind = _time_source(inner, schema)
    start = _UNITS[str(unit).upper()]
    return _Shape(path, kind, _calendar(kind, lambda at: _days(start(at.date()))))


def _substring_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    inner, start, length = arguments
    if start not in (0, 1) or not isinstance(length, int) or length < 1:
        raise ValueError("it is not the beginning of a text")
    path, kind = _source(inner, schema, (types.STRING,))
    return _Shape(path, kind, lambda value, _: (str(value)[:length],), prefix_length=length)


def _left_shape(arguments: Sequence[object], schema: StructType) -> _Shape:
    inner, length = arguments
    return _substring_shape((inner, 1, length), schema)


_SHAPES: dict[str, Callable[[Sequence[object], StructType], _Shape]] = {
    "CAST": _cast_shape,
    **dict.fromkeys(
        ("DATE", "TO_DATE"), lambda arguments, schema: _cast_shape((*arguments, "DATE"), schema)
    ),
    **{part: _part_shape(part) for part in _DATE_PARTS},
    "DAYOFMONTH": _part_shape("DAY"),
    "DATE_FORMAT": _format_shape,
    "DATE_TRUNC": _date_trunc_shape,
    "TRUNC": _trunc_shape,
    "SUBSTRING": _substring_shape,
    "SUBSTR": _substring_shape,
    "LEFT": _left_shape,
}
# Patterns whose texts sort like the times, and the Python names of their parts.
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
) -> tuple[tree.Path, DataType]:
    """The column of an expression that is just a column of one of these types; else ValueError."""
    if isinstance(expression, tuple) and expression[0] == "column":
        path: tree.Path = ()
        struct: DataType = schema
        f: StructField | None = None
        for step in expression[1]:
            f = struct.get(str(step)) if isinstance(struct, StructType) else None
            if f is None:
                break
            path, struct = (*path, f.name), f.data_type
        if f is not None and f.data_type in kinds and has_binary_order(f):
            return path, f.data_type
    raise ValueError("it is not a column of that type")


def _time_source(expression: object, schema: StructType) -> tuple[tree.Path, DataType]:
    """As `_source`, for a date or a time, cast to a date or not."""
    if isinstance(expression, tuple) and expression[0] == "CAST" and len(expression[1]) == 2:
        expression, wanted = expression[1]
        if wanted not in ("DATE", "TIMESTAMP"):
            raise ValueError(f"{wanted} is not a time")
    return _source(expression, schema, _TIMES)


def _same(value: int | str, zone: tzinfo) -> Values:
    return (value,)


def _calendar(kind: DataType, image: Callable[[datetime], int | str]) -> Image:
    return lambda value, zone: (image(_local(value, kind, zone)),)


def _date_parts(count: int, kind: DataType) -> Image:
    def image(value: int | str, zone: tzinfo) -> Values:
        at = _local(value, kind, zone)
        return (at.year, at.month, at.day, at.hour)[:count]

    return image


def _days(day: date) -> int:
    return (day - _EPOCH.date()).days


def _local(value: int | str, kind: DataType, zone: tzinfo) -> datetime:
    """The local date and time: in `zone` for a TIMESTAMP."""
    assert isinstance(value, int)
    if kind == types.DATE:
        return _EPOCH + timedelta(days=value)
    moment = _EPOCH + timedelta(microseconds=value)
    return moment.astimezone(zone) if kind == types.TIMESTAMP else moment


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
