"""Three-valued predicates in plain Python, a row at a time: what the kernel must agree with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate, bind
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.predicates.tree import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operand,
    Or,
    Predicate,
    StartsWith,
)

Row = Mapping[str, Any]


def judge(predicate: Predicate, row: Row) -> bool | None:
    """What a predicate is for a row of values in the form that literals have."""
    match predicate:
        case Constant(value=value):
            return value
        case Not(operand=operand):
            inner = judge(operand, row)
            return None if inner is None else not inner
        case And(all_of=parts):
            values = [judge(part, row) for part in parts]
            return False if False in values else None if None in values else True
        case Or(any_of=parts):
            values = [judge(part, row) for part in parts]
            return True if True in values else None if None in values else False
        case IsNull(column=column):
            return value_of(column, row) is None
        case StartsWith(column=column, prefix=prefix):
            text = value_of(column, row)
            return None if text is None else text.startswith(prefix)
        case In(column=column, values=values):
            return judge(Or(tuple(Comparison("=", column, value) for value in values)), row)
        case Comparison(op=op, left=left, right=right):
            return compared(op, value_of(left, row), value_of(right, row))
    raise AssertionError(predicate)


def value_of(operand: Operand, row: Row) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    assert isinstance(operand, Column)
    value: Any = row
    for name in operand.path:
        value = None if value is None else value[name]
    return value


def compared(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return left is right if left is None or right is None else compared("=", left, right)
    if left is None or right is None:
        return None
    if isinstance(left, float) != isinstance(right, float):
        left, right = float(left), float(right)  # Spark compares exact numbers with floats so
    first, second = key(left), key(right)
    return {
        "=": first == second,
        "!=": first != second,
        "<": first < second,
        "<=": first <= second,
        ">": first > second,
        ">=": first >= second,
    }[op]


def key(value: Any) -> Any:
    """A value as Python orders it; NaN above all other numbers, text by its bytes."""
    if isinstance(value, float):
        return (1, 0) if math.isnan(value) else (0, value)
    if isinstance(value, int | Decimal):
        return Fraction(value)
    return value.encode() if isinstance(value, str) else value


def parse_for_skipping(text: str, schema: StructType, *, time_zone: str = "UTC") -> BoundPredicate:
    """The predicate for choosing files: bound to `schema`, with `Unknown` for all other parts."""
    predicate = parse_predicate(text, time_zone=time_zone)
    return bind(predicate, schema, time_zone=time_zone, lenient=True)
