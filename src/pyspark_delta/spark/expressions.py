"""Catalyst's filters as predicates: one JSON text each, no call per node.

What a predicate cannot say becomes `Unknown`, which rules nothing out: Spark applies the filter
to the rows itself.

>>> attribute = '{"class":"x.AttributeReference","num-children":0,"name":"a","dataType":"long"}'
>>> predicate_of('[{"class":"x.IsNull","num-children":1,"child":0},' + attribute + ']').to_sql()
'a IS NULL'
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.scan.literals import INTEGRAL, LiteralValue, cast_text
from pyspark_delta.kernel.scan.predicates import (
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operand,
    Predicate,
    StartsWith,
    Unknown,
    conjunction,
    disjunction,
)

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of an expression's tree."""

    kind: str
    fields: dict[str, Any]
    children: tuple[_Node, ...]


class _NotSaidError(Exception):
    """A part of the expression that predicates have no words for."""


def predicate_of(text: str, *, in_utc: bool = True) -> Predicate:
    """The predicate that an expression's `toJSON` says, `Unknown` where there is none.

    `in_utc` says that the session's zone is UTC.  Elsewhere a timestamp's text can mean two times,
    in the hour that autumn has twice, and is not taken for either.
    """
    try:
        nodes = json.loads(text)
        tree, rest = _tree(nodes, 0)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return Unknown("an expression")
    if rest != len(nodes) or (not in_utc and '"timestamp"' in text):
        return Unknown("an expression")
    return _predicate(tree)


def _tree(nodes: Sequence[dict[str, Any]], at: int) -> tuple[_Node, int]:
    """The tree whose root stands at `at`: a node, then its children, each with its own."""
    fields = nodes[at]
    children = []
    after = at + 1
    for _ in range(fields["num-children"]):
        child, after = _tree(nodes, after)
        children.append(child)
    return _Node(fields["class"].rpartition(".")[2], fields, tuple(children)), after


def _predicate(node: _Node) -> Predicate:
    try:
        return _RULES[node.kind](node) if node.kind in _RULES else _bare(node)
    except _NotSaidError:
        return Unknown(node.kind)


def _comparison(node: _Node) -> Predicate:
    left, right = node.children
    return Comparison(_COMPARISONS[node.kind], _operand(left), _operand(right))


def _in(node: _Node) -> Predicate:
    column, *values = node.children
    literals = [_operand(value) for value in values]
    if not all(isinstance(value, Literal) for value in literals):
        raise _NotSaidError
    return In(_column(column), tuple(v for v in literals if isinstance(v, Literal)))


def _starts_with(node: _Node) -> Predicate:
    column, prefix = node.children[0], _operand(node.children[1])
    if not isinstance(prefix, Literal) or not isinstance(prefix.value, str):
        raise _NotSaidError
    return StartsWith(_column(column), prefix.value)


def _bare(node: _Node) -> Predicate:
    """A boolean literal or column by itself."""
    operand = _operand(node)
    if isinstance(operand, Literal):
        if operand.value is None or isinstance(operand.value, bool):
            return Constant(operand.value)
        raise _NotSaidError
    return Comparison("=", operand, Literal(True, BOOLEAN))


_RULES: dict[str, Callable[[_Node], Predicate]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    "And": lambda node: conjunction(map(_predicate, node.children)),
    "Or": lambda node: disjunction(map(_predicate, node.children)),
    "Not": lambda node: Not(_predicate(node.children[0])),
    "IsNull": lambda node: IsNull(_column(node.children[0])),
    "IsNotNull": lambda node: Not(IsNull(_column(node.children[0]))),
    "In": _in,
    "StartsWith": _starts_with,
}


def _operand(node: _Node) -> Operand:
    if node.kind == "Literal":
        return _literal(node.fields)
    return _column(node)


def _column(node: _Node) -> Column:
    if node.kind == "AttributeReference":
        return Column((node.fields["name"],))
    if node.kind == "GetStructField" and node.fields.get("name"):
        return Column((*_column(node.children[0]).path, node.fields["name"]))
    raise _NotSaidError


def _literal(fields: dict[str, Any]) -> Literal:
    try:
        data_type = parse_type(fields["dataType"])
    except SchemaError:
        raise _NotSaidError from None
    text = fields.get("value")
    if text is None:
        return Literal(None, data_type)
    if not isinstance(text, str):
        raise _NotSaidError
    return Literal(_value(text, data_type), data_type)


def _value(text: str, data_type: DataType) -> LiteralValue:
    try:
        if data_type in INTEGRAL:
            return int(text)
        if isinstance(data_type, DecimalType):
            return Decimal(text)
        if data_type in (FLOAT, DOUBLE):
            return float(text)
        if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
            return cast_text(text, data_type)
    except (ValueError, InvalidOperation):
        raise _NotSaidError from None
    if data_type == STRING:
        return text
    if data_type == BOOLEAN:
        return text == "true"
    raise _NotSaidError  # bytes, say: in no form that is sure to come back
