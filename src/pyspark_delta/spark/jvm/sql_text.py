"""SQL text to Catalyst and back: what an expression is made of, before anything runs.

Spark's own parser reads it.  What may stand in it is decided elsewhere, by the names given here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
_BUILTIN_QUALIFIERS = ("builtin, ", "system, builtin, ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression as it is written, nothing looked up yet.

    `sql` is Spark's spelling of it, `nodes` the short names of its Catalyst classes, `functions`
    the functions it calls by name, parts joined by a comma.  `columns` are those it names, by the
    name as written, and `paths` the parts of their names.  `is_named` says that an alias stands
    behind it.
    """

    column: Column = field(hash=False, compare=False)
    sql: str
    nodes: frozenset[str]
    functions: frozenset[str]
    columns: tuple[tuple[str, Column], ...] = field(hash=False, compare=False)
    paths: tuple[tuple[str, ...], ...] = ()
    is_named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What an expression turned out to be over given columns.

    `nodes` are the classes of its tree and of the plan that it needs, one of rows by themselves
    left out.
    """

    data_type: DataType | None  # None: a type that no table has
    nodes: frozenset[str]
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


def is_builtin(jvm: JvmSession, function: str) -> bool:
    """Whether a function of `Expression.functions` is Spark's own."""
    name = function.lower()
    for qualifier in _BUILTIN_QUALIFIERS:
        name = name.removeprefix(qualifier)
    registry = jvm.java_class(_FUNCTIONS)
    return bool(registry.builtin().functionExists(registry.builtinFunctionIdentifier(name)))


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
            nodes=_nodes(_below_alias(e)) | operators,
            is_deterministic=bool(e.deterministic()),
        )
        for e in resolved
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
        functions=frozenset(
            node["nameParts"][1:-1] for node in tree if _short(node) == "UnresolvedFunction"
        ),
        columns=tuple((str(leaf.name()), column_of(jvm, leaf)) for leaf in named),
        paths=tuple(tuple(str(part) for part in items(leaf.nameParts())) for leaf in named),
        is_named=_short(tree[0]) in _NAMES,
    )


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
