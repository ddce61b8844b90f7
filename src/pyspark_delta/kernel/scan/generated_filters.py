"""What a filter says of partition columns that are generated from the columns it names.

Where `day` is generated as `CAST(ts AS DATE)`, `ts > X` can hold only where `day >= CAST(X AS
DATE)`.  That works for every generation expression that never goes down where its column goes up;
`generation_shapes` knows those.  What follows is implied, not the same: the filter itself stays.
A day depends on the time zone of whoever wrote the row, which nobody noted, so timestamps are
taken for up to a day more or less.  PROTOCOL.md, "Generated Columns".

>>> from pyspark_delta.kernel.protocol.schema_json import format_schema
>>> from pyspark_delta.kernel.protocol.types import DATE, INTEGER, StructType
>>> year = StructField("y", INTEGER, metadata={"delta.generationExpression": "YEAR(d)"})
>>> schema = format_schema(StructType((StructField("d", DATE), year)))
>>> table = Metadata(id="1", schema_string=schema, partition_columns=("y",))
>>> day = Comparison("<", Column(("d",)), Literal(0, DATE))
>>> implied_partition_filter(bind(day, table.schema), table).to_sql()
'y <= 1970 OR y IS NULL'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.datetimes import MICROS_PER_DAY
from pyspark_delta.kernel.protocol.types import STRING, StructField
from pyspark_delta.kernel.scan.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.generation_shapes import GenerationRule, generation_rules
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.kernel.scan.predicates import (
    TRUE,
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    StartsWith,
    conjunction,
    disjunction,
)

# Longer lists are taken for all that lies between their least and their largest value.
_MOST_VALUES = 50
_CONTRARY = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def implied_partition_filter(predicate: BoundPredicate, metadata: Metadata) -> BoundPredicate:
    """What must hold of partition columns wherever `predicate` is true; TRUE when nothing must."""
    rules = generation_rules(metadata)
    if not rules or predicate.is_true:
        return replace(predicate, predicate=TRUE)
    zone = zone_named(predicate.time_zone)
    found = conjunction(_implied(predicate.predicate, rule, zone) for rule in rules)
    return bind(found, metadata.schema, time_zone=predicate.time_zone, lenient=True)


def _implied(predicate: Predicate, rule: GenerationRule, zone: tzinfo) -> Predicate:
    match predicate:
        case And(all_of=parts):
            return conjunction(_implied(part, rule, zone) for part in parts)
        case Or(any_of=parts):
            return disjunction(_implied(part, rule, zone) for part in parts)
        case Not(operand=Comparison(op=op, left=left, right=right)) if op in _CONTRARY:
            return _implied(Comparison(_CONTRARY[op], left, right), rule, zone)
        case IsNull(column=column) if column.path == rule.source:
            return conjunction(IsNull(Column((f.name,))) for f in rule.columns)
        case StartsWith(column=column, prefix=prefix) if column.path == rule.source:
            if rule.prefix_length is None:
                return TRUE
            beginning = prefix[: rule.prefix_length]
            return _or_null(StartsWith(Column((rule.columns[0].name,)), beginning), rule)
        case Comparison(op=op, left=Column(path=path), right=Literal() as value):
            if path == rule.source and op != "!=":
                return _compared(op, value, rule, zone)
        case In(column=column, values=values) if column.path == rule.source:
            return _listed(values, rule, zone)
    return TRUE


def _compared(op: str, value: Literal, rule: GenerationRule, zone: tzinfo) -> Predicate:
    if value.value is None or value.data_type != rule.source_type:
        return TRUE
    inner = value.value
    assert isinstance(inner, int | str)
    bounds = []
    if op in ("=", "<=>", ">", ">="):
        bounds.append((_image(inner, -1, rule, zone), True))
    if op in ("=", "<=>", "<", "<="):
        bounds.append((_image(inner, 1, rule, zone), False))
    if any(image is None for image, _ in bounds):
        return TRUE
    if len(bounds) == 2 and bounds[0][0] == bounds[1][0]:
        same = bounds[0][0] or ()
        return _or_null(conjunction(_each(rule, "=", same)), rule)
    return conjunction(
        _or_null(_beyond(rule, image or (), is_lower=is_lower), rule) for image, is_lower in bounds
    )


def _listed(values: Sequence[Literal], rule: GenerationRule, zone: tzinfo) -> Predicate:
    given = [value for value in values if value.value is not None]
    if not given or any(value.data_type != rule.source_type for value in given):
        return TRUE
    if len(given) <= _MOST_VALUES:
        return disjunction(_compared("=", value, rule, zone) for value in given)
    ordered = sorted(given, key=lambda value: value.value)  # type: ignore[arg-type, return-value]
    return conjunction(
        [_compared(">=", ordered[0], rule, zone), _compared("<=", ordered[-1], rule, zone)]
    )


def _image(
    value: int | str, direction: int, rule: GenerationRule, zone: tzinfo
) -> tuple[int | str, ...] | None:
    """The partition values of a value, or of the one a day before or after; None out of range."""
    if rule.depends_on_zone and isinstance(value, int):
        value += direction * MICROS_PER_DAY
    try:
        image = rule.image(value, zone)
    except (ValueError, OverflowError):
        return None
    if rule.is_instant and isinstance(image[0], int):
        return (image[0] + direction * MICROS_PER_DAY,)
    return image


def _beyond(rule: GenerationRule, image: tuple[int | str, ...], *, is_lower: bool) -> Predicate:
    """The partition columns, taken together as one, not below `image`, or not above it."""
    strict, loose = (">", ">=") if is_lower else ("<", "<=")
    *firsts, last = rule.columns
    found: Predicate = _one(last, loose, image[-1])
    for f, value in reversed(list(zip(firsts, image, strict=False))):
        found = disjunction([_one(f, strict, value), conjunction([_one(f, "=", value), found])])
    return found


def _each(rule: GenerationRule, op: str, image: tuple[int | str, ...]) -> list[Predicate]:
    return [_one(f, op, value) for f, value in zip(rule.columns, image, strict=True)]


def _one(f: StructField, op: str, value: int | str) -> Predicate:
    kind = STRING if isinstance(value, str) else f.data_type
    return Comparison(op, Column((f.name,)), Literal(value, kind))


def _or_null(predicate: Predicate, rule: GenerationRule) -> Predicate:
    # A value that has no image, such as a year too large, is null in the partition column.
    return disjunction([predicate, *(IsNull(Column((f.name,))) for f in rule.columns)])
