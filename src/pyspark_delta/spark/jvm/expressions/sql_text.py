"""Converts SQL text to Catalyst and back, and lists the parts of an expression without a job.

Spark's own parser reads the text.  Which parts are allowed is decided elsewhere, by the names given
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pyspark.sql import Column

from pyspark_delta.kernel.protocol.types import DataType, StructType
from pyspark_delta.spark.jvm.expressions.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession, items, type_of_json

_FUNCTIONS = "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$"
_NAMES = frozenset({"Alias", "MultiAlias", "UnresolvedAlias"})
_BUILTIN_QUALIFIERS = ("builtin.", "system.builtin.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a function by its name, in lower case, with its parts joined by dots.

    `arguments` has, for each argument that is a map of literal texts, its keys and values, else
    None.
    """

    name: str
    arguments: tuple[Mapping[str, str] | None, ...] = field(hash=False)

    @property
    def builtin_name(self) -> str:
        """The name without the qualifier of Spark's own functions; others keep theirs."""
        name = self.name
        for qualifier in _BUILTIN_QUALIFIERS:
            name = name.removeprefix(qualifier)
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A parsed expression, not resolved yet.

    `sql` is Spark's text of it, `nodes` the short names of its Catalyst classes, `calls` the
    functions that it calls by name.  `columns` are the names of columns as written, and `paths` the
    parts of these names.  `is_named` means that it has an alias.
    """

    column: Column = field(hash=False, compare=False)
    sql: str
    nodes: frozenset[str]
    calls: tuple[FunctionCall, ...]
    columns: tuple[tuple[str, Column], ...] = field(hash=False, compare=False)
    paths: tuple[tuple[str, ...], ...] = ()
    is_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """An expression resolved over given columns.

    `nodes` are the classes of its tree, `leaves` those without arguments, and `operators` the plan
    nodes that it needs besides a projection of the rows.
    """

    data_type: DataType | None  # None: a type that tables cannot have
    nodes: frozenset[str]
    leaves: frozenset[str]
    operators: frozenset[str]
    is_deterministic: bool = True


def parse_expression(jvm: JvmSession, text: str) -> Expression | None:
    """Parse a SQL expression; None if Spark cannot, or if it is too deep for Java's stack."""
    try:
        return _expression(jvm, jvm.parser.parseExpression(text))
    except JAVA_FAILURES:
        return None


def expression(jvm: JvmSession, column: Column) -> Expression:
    """The parts of the expression of a column."""
    return _expression(jvm, expression_of(jvm, column))


def raw_type(jvm: JvmSession, text: str) -> Any:
    """A type in Spark's JSON form, with CHAR and VARCHAR kept; "void" for an invalid type."""
    parser = jvm.java_class("org.apache.spark.sql.catalyst.parser.CatalystSqlParser$")
    try:
        return json.loads(parser.parseDataType(text).json())
    except JAVA_FAILURES:
        return "void"


def is_builtin(jvm: JvmSession, function: FunctionCall) -> bool:
    """Whether the function is Spark's own."""
    name = function.builtin_name

    def exists() -> bool:
        registry = jvm.java_class(_FUNCTIONS)
        return bool(registry.builtin().functionExists(registry.builtinFunctionIdentifier(name)))

    return bool(jvm.remembered(f"{_FUNCTIONS}{name}", exists))


def resolve(
    jvm: JvmSession, schema: StructType, expressions: Sequence[Expression]
) -> list[Resolved]:
    """Resolve expressions over the columns of `schema` alone, without the session's tables.

    Raises Spark's AnalysisException for an expression that is invalid there.  No job runs.
    """
    if not expressions:
        return []
    nothing = jvm.java_class("java.util.ArrayList")()
    empty = jvm.data_frame(jvm.session.createDataFrame(nothing, jvm.data_type(schema)))
    # A name that no expression can refer to, because Spark also resolves names by it.
    name = uuid4().hex
    frame = empty.select(*[e.column.alias(f"{name}{i}") for i, e in enumerate(expressions)])
    plan = frame._jdf.queryExecution().analyzed()
    operators = frozenset(_operators(plan))
    return [_resolved(e, operators) for e in items(plan.expressions())[-len(expressions) :]]


def _resolved(expression: Any, operators: frozenset[str]) -> Resolved:
    tree = _tree(expression)
    if _short(tree[0]) == "Alias":
        del tree[0]
    return Resolved(
        data_type=type_of_json(json.loads(expression.dataType().json())),
        nodes=_nodes(tree),
        leaves=_nodes([node for node in tree if node["num-children"] == 0]),
        operators=operators,
        is_deterministic=bool(expression.deterministic()),
    )


def _operators(plan: Any) -> Iterator[str]:
    while (children := plan.children()).size():
        if (name := str(plan.nodeName())) != "Project":
            yield name
        plan = children.head()


def _expression(jvm: JvmSession, parsed: Any) -> Expression:
    tree = _tree(parsed)
    named = sorted(_named_leaves(parsed, tree), key=lambda leaf: str(leaf.name()))
    return Expression(
        column=column_of(jvm, parsed),
        sql=str(parsed.sql()),
        nodes=_nodes(tree),
        calls=tuple(_calls(tree)),
        columns=tuple((str(leaf.name()), column_of(jvm, leaf)) for leaf in named),
        paths=tuple(tuple(str(part) for part in items(leaf.nameParts())) for leaf in named),
        is_named=_short(tree[0]) in _NAMES,
    )


def _calls(tree: Sequence[dict[str, Any]]) -> Iterator[FunctionCall]:
    """The function calls in a tree, whose nodes are listed before their children."""
    ends = [0] * len(tree)  # where what is below a node ends
    for index in reversed(range(len(tree))):
        below = _children(tree, ends, index)
        ends[index] = ends[below[-1]] if below else index + 1
        if _short(tree[index]) == "UnresolvedFunction":
            arguments = tuple(_literal_map(tree, _children(tree, ends, i), i) for i in below)
            yield FunctionCall(name=_called(tree[index]), arguments=arguments)


def _children(tree: Sequence[dict[str, Any]], ends: Sequence[int], index: int) -> list[int]:
    children: list[int] = []
    for _ in range(tree[index]["num-children"]):
        children.append(ends[children[-1]] if children else index + 1)
    return children


def _literal_map(
    tree: Sequence[dict[str, Any]], children: Sequence[int], index: int
) -> dict[str, str] | None:
    node, texts = tree[index], [tree[child] for child in children]
    if _short(node) != "UnresolvedFunction" or _called(node) != "map" or len(texts) % 2:
        return None
    if any(_short(text) != "Literal" or text["dataType"] != "string" for text in texts):
        return None
    values = [str(text["value"]) for text in texts]
    return dict(zip(values[::2], values[1::2], strict=True))


def _called(node: dict[str, Any]) -> str:
    return str(node["nameParts"])[1:-1].replace(", ", ".").lower()


def _named_leaves(parsed: Any, tree: Sequence[dict[str, Any]]) -> list[Any]:
    # A call for each leaf would be slow for thousands of leaves, as in a long IN.
    leaves = [node for node in tree if node["num-children"] == 0]
    places = {
        node["nameParts"]: index
        for index, node in enumerate(leaves)
        if _short(node) == "UnresolvedAttribute"
    }
    found = parsed.collectLeaves()
    return [found.apply(index) for index in places.values()]


def _tree(node: Any) -> list[dict[str, Any]]:
    tree: list[dict[str, Any]] = json.loads(node.toJSON())
    return tree


def _nodes(tree: Sequence[dict[str, Any]]) -> frozenset[str]:
    return frozenset(_short(node) for node in tree)


def _short(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2].rstrip("$")
