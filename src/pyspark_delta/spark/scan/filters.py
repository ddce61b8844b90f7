"""Converts Catalyst's filters to predicates.

A part without a predicate becomes `Unknown`, which prunes nothing: Spark applies the filter to the
rows itself.  A filter with such a part becomes the other part AND `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    is_atomic,
)
from pyspark_delta.kernel.scan.predicates.binding import COLLATIONS_KEY
from pyspark_delta.kernel.scan.predicates.literals import (
    INTEGRAL,
    LiteralValue,
    cast_text,
    float_value,
    zone_named,
)
from pyspark_delta.kernel.scan.predicates.tree import (
    FLIPPED,
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
from pyspark_delta.spark.jvm.expressions.catalyst import Filter
from pyspark_delta.spark.scan.monotonic_functions import Stepped, day_of, truncated_to, year_of

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
# Doubles represent every whole number of this many bits exactly.
_DOUBLE_BITS = 53
# Catalyst's name of collated string types; fields have the collation in their metadata.
_COLLATED = "string collate "
# Types whose JSON form depends on the session's zone, or is missing; Spark returns the value.
_VALUES_FROM_SPARK = (TIMESTAMP, BINARY)


def predicate_of(tree: Filter, *, time_zone: str = "UTC") -> Predicate:
    """The predicate of a filter; `time_zone` is the session's, which defines days."""
    if tree.nodes is None:
        return Unknown("an expression")
    try:
        zone: tzinfo | None = zone_named(time_zone)
    except ValueError:
        zone = None
    try:
        root, _ = _node(tree.nodes, 0)
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return Unknown("an expression")
    return _Reader(tree, zone).predicate(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node of an expression's tree, and its position in the list of nodes."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[_Node, ...]
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column or field: its path, its own type, and the type after casts.

    `is_collated` means that its texts compare by a collation: only its nulls are known.
    """

    path: tuple[str, ...]
    own: DataType
    given: DataType
    is_collated: bool


class _NoPredicateError(Exception):
    """A part of the expression that predicates cannot express."""


# Raised for an expression, a type or a value that predicates do not have.
_FAILURES = (_NoPredicateError, SchemaError, ArithmeticError, LookupError, TypeError, ValueError)


def _node(nodes: Sequence[Mapping[str, Any]], at: int) -> tuple[_Node, int]:
    """The tree with its root at `at`: a node, then its children, each with its own."""
    fields = nodes[at]
    children = []
    after = at + 1
    for _ in range(fields["num-children"]):
        child, after = _node(nodes, after)
        children.append(child)
    return _Node(
        kind=fields["class"].rpartition(".")[2],
        fields=fields,
        children=tuple(children),
        position=at,
    ), after


class _Reader:
    def __init__(self, tree: Filter, zone: tzinfo | None) -> None:
        self._tree = tree
        self._zone = zone

    def predicate(self, node: _Node) -> Predicate:
        rule = _RULES.get(node.kind, _Reader._bare)
        try:
            return rule(self, node)
        except _FAILURES:
            return Unknown(node.kind)

    def _comparison(self, node: _Node) -> Predicate:
        op = _COMPARISONS[node.kind]
        left, right = node.children
        if left.kind == right.kind == "Literal":
            raise _NoPredicateError  # Spark evaluates what needs no column
        if left.kind == "Literal":
            op, left, right = FLIPPED[op], right, left
        if right.kind == "Literal" and not _is_column(left):
            return self._function_compared(op, left, self._literal(right))
        return Comparison(op, self._operand(left), self._operand(right))

    def _function_compared(self, op: str, function: _Node, value: Literal) -> Predicate:
        if function.kind == "Substring":
            return self._beginning_compared(op, function, value)
        if value.value is None or not isinstance(value.value, int):
            raise _NoPredicateError
        stepped = self._stepped(function)
        # Spark applies it again to the rows: where clocks go back, days overlap.
        return conjunction([stepped.compared(op, value.value), Unknown(function.kind)])

    def _beginning_compared(self, op: str, function: _Node, value: Literal) -> Predicate:
        column, start, _ = function.children
        first = self._literal(start).value
        if op not in ("=", "<=>") or first not in (0, 1) or not isinstance(value.value, str):
            raise _NoPredicateError
        begins = StartsWith(self.column(column)[0], value.value)
        return conjunction([begins, Unknown(function.kind)])

    def _stepped(self, node: _Node) -> Stepped:
        """A monotonic function of a column, which goes up in steps."""
        if node.kind == "Cast":
            child, wanted = node.children[0], parse_type(node.fields["dataType"])
            column, kind = self.column(child)
            if wanted == DATE and kind in (TIMESTAMP, TIMESTAMP_NTZ):
                return day_of(column, kind, self._zone_of(node, kind))
            raise _NoPredicateError
        if node.kind == "Year":
            return year_of(self._day(node.children[0]))
        if node.kind == "TruncTimestamp":
            unit, child = node.children
            column, kind = self.column(child)
            if kind != TIMESTAMP:
                raise _NoPredicateError
            return truncated_to(self.text(unit), day_of(column, kind, self._zone_of(node, kind)))
        if node.kind == "TruncDate":
            child, unit = node.children
            return truncated_to(self.text(unit), self._day(child), to_day=True)
        raise _NoPredicateError

    def _day(self, node: _Node) -> Stepped:
        if node.kind == "Cast":
            return self._stepped(node)
        column, kind = self.column(node)
        if kind != DATE:
            raise _NoPredicateError
        return day_of(column, DATE, None)

    def _in(self, node: _Node) -> Predicate:
        column, *values = node.children
        literals = [self._literal(value) for value in values]
        return In(self.column(column)[0], tuple(literals))

    def _in_set(self, node: _Node) -> Predicate:
        column, kind = self.column(node.children[0])
        texts, has_null = self._tree.set_values(node.position)
        values = [Literal(_from_java(text, kind), kind) for text in texts]
        return In(column, (*values, *([Literal(None, kind)] if has_null else [])))

    def _bare(self, node: _Node) -> Predicate:
        """A boolean literal or column by itself."""
        operand = self._operand(node)
        if isinstance(operand, Literal):
            if operand.value is None or isinstance(operand.value, bool):
                return Constant(operand.value)
            raise _NoPredicateError
        return Comparison("=", operand, Literal(True, BOOLEAN))

    def _operand(self, node: _Node) -> Operand:
        return self._literal(node) if node.kind == "Literal" else self.column(node)[0]

    def text(self, node: _Node) -> str:
        value = self._literal(node).value
        if not isinstance(value, str):
            raise _NoPredicateError
        return value

    def same_null(self, node: _Node) -> Column:
        """The column that is null exactly where an expression is."""
        while node.kind in _KEEP_NULLS:
            node = node.children[_KEEP_NULLS[node.kind]]
        return Column(self._place(node).path)

    def column(self, node: _Node) -> tuple[Column, DataType]:
        """The column with an expression's value, and the expression's type."""
        place = self._place(node)
        if place.is_collated:
            raise _NoPredicateError
        return Column(place.path), place.given

    def _place(self, node: _Node) -> _Place:
        """The column or field with an expression's values, which is null exactly where that is."""
        place = self._reached(node)
        # A struct is cast field by field, and only this field matters.
        is_nested = not is_atomic(place.own) and type(place.own) is type(place.given)
        if is_nested or _keeps_value(place.own, place.given):
            return place
        raise _NoPredicateError

    def _reached(self, node: _Node) -> _Place:
        if node.kind == "AttributeReference":
            spelled = node.fields["dataType"]
            kind = parse_type(spelled)
            return _Place(
                path=(node.fields["name"],),
                own=kind,
                given=kind,
                is_collated=_has_collation(spelled),
            )
        if node.kind == "GetStructField":
            return _field(self._place(node.children[0]), node.fields["ordinal"])
        if node.kind == "Cast":
            inner, spelled = self._place(node.children[0]), node.fields["dataType"]
            wanted = parse_type(spelled)
            if isinstance(wanted, StructType):
                # Two casts of one field are not analyzed further.
                keeps = inner.own == inner.given and isinstance(inner.own, StructType)
            else:
                keeps = _keeps_value(inner.given, wanted)
            if keeps:
                is_collated = inner.is_collated or _has_collation(spelled)
                return replace(inner, given=wanted, is_collated=is_collated)
        raise _NoPredicateError

    def _literal(self, node: _Node) -> Literal:
        if node.kind != "Literal":
            raise _NoPredicateError
        spelled = node.fields["dataType"]
        if _has_collation(spelled):
            raise _NoPredicateError
        data_type = parse_type(spelled)
        text = node.fields.get("value")
        if text is None:
            return Literal(None, data_type)
        if data_type in _VALUES_FROM_SPARK:
            value = self._tree.literal_value(node.position)
            return Literal(bytes(value) if data_type == BINARY else int(value), data_type)
        if data_type == DATE:
            return Literal(cast_text(text, DATE), DATE)
        return Literal(_from_java(text, data_type), data_type)

    def _zone_of(self, node: _Node, kind: DataType) -> tzinfo | None:
        if kind == TIMESTAMP_NTZ:
            return None
        name = node.fields.get("timeZoneId")
        zone = zone_named(name) if isinstance(name, str) else self._zone
        if zone is None:
            raise _NoPredicateError
        return zone


_RULES: dict[str, Callable[[_Reader, _Node], Predicate]] = {
    **dict.fromkeys(_COMPARISONS, _Reader._comparison),
    "And": lambda reader, node: conjunction(map(reader.predicate, node.children)),
    "Or": lambda reader, node: disjunction(map(reader.predicate, node.children)),
    "Not": lambda reader, node: Not(reader.predicate(node.children[0])),
    "IsNull": lambda reader, node: IsNull(reader.same_null(node.children[0])),
    "IsNotNull": lambda reader, node: Not(IsNull(reader.same_null(node.children[0]))),
    "In": _Reader._in,
    "InSet": _Reader._in_set,
    "StartsWith": lambda reader, node: StartsWith(
        reader.column(node.children[0])[0], reader.text(node.children[1])
    ),
}
# Functions that are null exactly where one argument is, and the position of that argument.
_KEEP_NULLS = {"Year": 0, "Month": 0, "DayOfMonth": 0, "Upper": 0, "Lower": 0, "Length": 0}


def _is_column(node: _Node) -> bool:
    if node.kind == "AttributeReference":
        return True
    if node.kind == "GetStructField":
        return _is_column(node.children[0])
    if node.kind != "Cast" or not _is_column(node.children[0]):
        return False
    return bool(node.fields["dataType"] != "date")


def _field(struct: _Place, ordinal: int) -> _Place:
    """By position: a struct that is cast to other names has the columns of the first."""
    if not (isinstance(struct.own, StructType) and isinstance(struct.given, StructType)):
        raise _NoPredicateError
    own, given = struct.own.fields[ordinal], struct.given.fields[ordinal]
    # In structs, types are plain, and fields have their collations in metadata.
    is_collated = COLLATIONS_KEY in own.metadata or COLLATIONS_KEY in given.metadata
    return _Place(
        path=(*struct.path, own.name),
        own=own.data_type,
        given=given.data_type,
        is_collated=is_collated,
    )


def _has_collation(spelled: Any) -> bool:
    """Whether a type has texts that do not compare by bytes."""
    if not isinstance(spelled, str) or not spelled.startswith(_COLLATED):
        return False
    return spelled != f"{_COLLATED}UTF8_BINARY"


def _keeps_value(kind: DataType, wanted: DataType) -> bool:
    """Whether a cast changes no value, so that a comparison can ignore it."""
    if kind == wanted:
        return True
    if kind in INTEGRAL:
        bits = INTEGRAL[kind]
        if wanted in INTEGRAL:
            return bool(INTEGRAL[wanted] >= bits)
        if wanted == DOUBLE:
            return bits < _DOUBLE_BITS
        if isinstance(wanted, DecimalType):
            return wanted.precision - wanted.scale >= _INTEGER_DIGITS[str(kind)]
    if kind == FLOAT:
        return wanted == DOUBLE
    if isinstance(kind, DecimalType) and isinstance(wanted, DecimalType):
        whole, wanted_whole = kind.precision - kind.scale, wanted.precision - wanted.scale
        return wanted.scale >= kind.scale and wanted_whole >= whole
    return kind == DATE and wanted in (TIMESTAMP, TIMESTAMP_NTZ)


def _from_java(text: str, data_type: DataType) -> LiteralValue:
    """A value from Java's text of its Catalyst form."""
    if data_type in INTEGRAL or data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return int(text)
    if isinstance(data_type, DecimalType):
        return Decimal(text)
    if data_type in (FLOAT, DOUBLE):
        # Java prints the shortest digits of a float, which denote another double.
        return float_value(float(text), data_type)
    if data_type == STRING:
        return text
    if data_type == BOOLEAN:
        return text == "true"
    raise _NoPredicateError
