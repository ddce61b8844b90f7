"""SQL text to Catalyst and back: what an expression is made of, before anything runs.

Spark's own parser reads it.  What may stand in it is decided elsewhere, by the names given here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import DataType, StructType
from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_FUNCTIONS = "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$"
_NAMES = frozenset({"Alias", "MultiAlias", "UnresolvedAlias"})
_BUILTIN_QUALIFIERS = ("builtin.", "system.builtin.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A function that is called by its name, in lower case, parts joined by a dot.

    `arguments` has, for each, its keys and values where it is a map of literal texts, else None.
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
    """An expression as it is written, nothing looked up yet.

    `sql` is Spark's spelling of it, `nodes` the short names of its Catalyst classes, `calls` the
    functions it calls by name.  `columns` are those it names, by the name as written, and `paths`
    the parts of their names.  `is_named` says that an alias stands behind it.
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
    """What an expression turned out to be over given columns.

    `nodes` are the classes of its tree, `leaves` those of them that have no arguments, `operators`
    what its plan needs besides a projection of the rows.
    """

    data_type: DataType | None  # None: a type that no table has
    nodes: frozenset[str]
    leaves: frozenset[str]
    operators: frozenset[str]
    is_deterministic: bool = True


def parse_expression(jvm: JvmSession, text: str) -> Expression | None:
    """Read one SQL expression; None when Spark refuses it, or it is too deep for Java's stack."""
    try:
        return _expression(jvm, jvm.session.sessionState().sqlParser().parseExpression(text))
    except (PySparkException, Py4JJavaError):
        return None


def expression(jvm: JvmSession, column: Column) -> Expression:
    """What a column is made of."""
    return _expression(jvm, expression_of(jvm, column))


def raw_type(jvm: JvmSession, text: str) -> Any:
    """A type in Spark's JSON form, CHAR and VARCHAR in it kept; "void" for what is no type."""
    parser = jvm.java_class("org.apache.spark.sql.catalyst.parser.CatalystSqlParser$")
    try:
        return json.loads(parser.parseDataType(text).json())
    except (PySparkException, Py4JJavaError):
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
    """Analyse expressions over the columns of `schema` alone, and nothing of the session's data.

    Spark's AnalysisException when one of them makes no sense there.  No job runs.
    """
    if not expressions:
        return []
    nothing = jvm.java_class("java.util.ArrayList")()
    empty = jvm.data_frame(jvm.session.createDataFrame(nothing, jvm.data_type(schema)))
    # A name that no expression can refer to: Spark would look there too.
    name = uuid4().hex
    frame = empty.select(*[e.column.alias(f"{name}{i}") for i, e in enumerate(expressions)])
    plan = frame._jdf.queryExecution().analyzed()
    operators = frozenset(_operators(plan))
    resolved = items(plan.expressions())[-len(expressions) :]
    return [
        Resolved(
            data_type=_type(e),
            nodes=_nodes(tree),
            leaves=_nodes([node for node in tree if node["num-children"] == 0]),
            operators=operators,
            is_deterministic=bool(e.deterministic()),
        )
        for e in resolved
        for tree in [_below_alias(e)]
    ]


def _below_alias(resolved: Any) -> list[dict[str, Any]]:
    tree = _tree(resolved)
    return tree[1:] if _short(tree[0]) == "Alias" else tree


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
    """The calls of a tree whose nodes stand before what is below them."""
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
    # A call for each leaf would be slow where there are thousands, as in a long IN.
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


def _type(resolved: Any) -> DataType | None:
    try:
        return parse_type(json.loads(resolved.dataType().json()))
    except DeltaError:
        return None
