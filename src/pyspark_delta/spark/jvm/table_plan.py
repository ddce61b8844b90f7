"""The logical plan of a table over the scan of its files: rows that are left, columns as named.

Catalyst's own nodes and expressions, so Spark optimises and compiles them as it does any query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame

METADATA = "_metadata"
"""The hidden column in which Spark tells what it knows of a row's file, unless a column has it."""

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_BIT_SETS = "org.apache.spark.unsafe.bitset.BitSetMethods"
# Where the bytes of a Java array begin.
_ARRAY_START = "16L"
# By this key Spark knows a column that is there only for those who ask for it by name.
_MARK = f'{{"__metadata_col":"{METADATA}"}}'
# A field that only a struct of ours has.
_OWN_FIELD = "row_commit_version"
# Set by the first struct that is made: without any, nobody need look for one.
_MADE = Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of the table: its name, and the SQL that makes it of the scan's columns.

    `cast_to` is set when names inside of it differ too.  `metadata` is JSON, and None for a column
    that has the metadata of what it is made of.
    """

    name: str
    expression: str
    cast_to: DataType | None = None
    metadata: str | None = None


def metadata_name(columns: Iterable[str]) -> str:
    """What Spark calls `_metadata` beside these columns.

    >>> metadata_name(["id"]), metadata_name(["_metadata"])
    ('_metadata', '__metadata')
    """
    taken = {name.lower() for name in columns}
    name = METADATA
    while name in taken:
        name = f"_{name}"
    return name


def without_deleted_rows(
    jvm: JvmSession,
    plan: Any,
    bits: str,
    metadata: str = METADATA,
    *,
    kept_from: str | None = None,
) -> Any:
    """The rows of a scan whose bit in the binary column `bits` is not set.

    The position of a row is Spark's own `_metadata.row_index`: that of the row in its file,
    whatever was split or skipped.  Where the column `kept_from` is not null, it is the row of the
    first bit, and the rows whose bit is set are the ones that stay.
    """
    condition = jvm.remembered(
        f"{__name__} {bits} {metadata} {kept_from}",
        lambda: (
            _is_left(jvm, bits, metadata)
            if kept_from is None
            else _is_left_or_kept(jvm, bits, metadata, kept_from)
        ),
    )
    return jvm.java_class(f"{_PLANS}.Filter")(condition, plan)


def with_columns(jvm: JvmSession, plan: Any, columns: Sequence[TableColumn]) -> Any:
    """The table's columns and no others, in this order."""
    parser = jvm.session.sessionState().sqlParser()
    selected = parser.parsePlan("SELECT " + ", ".join(map(_select_item, columns)))
    if all(column.metadata is None for column in columns):
        return selected.withNewChildren(jvm.seq([plan]))
    made = items(selected.projectList())
    for i, column in enumerate(columns):
        if column.metadata is not None:
            value = made[i].child()
            if column.cast_to is not None:
                value = _cast(jvm, value, column.cast_to)
            made[i] = _alias(jvm, value, column.name, column.metadata)
    return jvm.java_class(f"{_PLANS}.Project")(jvm.seq(made), plan)


def with_hidden_struct(
    jvm: JvmSession, plan: Any, columns: Sequence[TableColumn], fields: Sequence[tuple[str, str]]
) -> Any:
    """As `with_columns`, and `_metadata` made of these fields, each a name and a SQL expression.

    One of them is `row_commit_version`.
    """
    _MADE.set()
    parser = jvm.session.sessionState().sqlParser()
    listed = ", ".join(f"'{name}', {expression}" for name, expression in fields)
    selected = parser.parsePlan(f"SELECT *, named_struct({listed})").projectList()
    name = metadata_name(column.name for column in columns)
    struct = _alias(jvm, selected.last().child(), name, _MARK)
    project = jvm.java_class(f"{_PLANS}.Project")
    # The struct is the one column that is made there: in a self-join Spark makes those of a side
    # anew, all of a projection or none.
    inner = _analyzed(jvm, project(jvm.seq([selected.head(), struct]), plan))
    outer = _analyzed(jvm, with_columns(jvm, inner, columns))
    # Spark finds what a USING join hides in the same way.
    outer.setTagValue(_hidden_tag(jvm), inner.output().takeRight(1))
    return outer


def with_own_struct(jvm: JvmSession, plan: Any) -> Any:
    """The plan with a struct of its own where `with_hidden_struct` made one: for a self-join.

    Spark gives the columns of a join's right side ids of their own, and forgets what is hidden.
    """
    return _with_own_struct(jvm, plan)[0]


def frame_with_own_struct(jvm: JvmSession, data: DataFrame) -> DataFrame:
    """As `with_own_struct`; `data` itself when there is nothing to change."""
    if not _MADE.is_set():
        return data
    plan = data._jdf.queryExecution().analyzed()
    return plan_frame(jvm, with_own_struct(jvm, plan)) if has_hidden_struct(plan) else data


def has_hidden_struct(plan: Any) -> bool:
    """Whether one that was made here can be asked for, and is not among the columns."""
    return any(
        _OWN_FIELD in attribute.dataType().simpleString()
        and not plan.outputSet().contains(attribute)
        for attribute in items(plan.metadataOutput())
    )


def _with_own_struct(jvm: JvmSession, plan: Any) -> tuple[Any, Any]:
    """The new plan, and a Scala map from the old struct to the new one; None for no change."""
    if plan.getClass().getSimpleName() == "Project":
        tagged = plan.getTagValue(_hidden_tag(jvm))
        if tagged.isDefined() and _OWN_FIELD in tagged.get().head().dataType().simpleString():
            return _with_new_struct(jvm, plan, tagged.get().head())
    children, changes = [], None
    for child in items(plan.children()):
        made, changed = _with_own_struct(jvm, child)
        children.append(made)
        changes = changed if changes is None else changes
    if changes is None:
        return plan, None
    return plan.withNewChildren(jvm.seq(children)).rewriteAttrs(changes), changes


def _with_new_struct(jvm: JvmSession, outer: Any, old: Any) -> tuple[Any, Any]:
    inner = outer.child()
    listed = inner.projectList()
    new = _alias(jvm, listed.last().child(), old.name(), _MARK)
    project = jvm.java_class(f"{_PLANS}.Project")
    child = project(jvm.seq([*items(listed.init()), new]), inner.child())
    pair = jvm.java_class("scala.Tuple2")(old, new.toAttribute())
    changes = jvm.java_class(f"{_EXPRESSIONS}.AttributeMap$").apply(jvm.seq([pair]))
    made = outer.withNewChildren(jvm.seq([child])).rewriteAttrs(changes)
    made.setTagValue(_hidden_tag(jvm), jvm.seq([new.toAttribute()]))
    return made, changes


def _hidden_tag(jvm: JvmSession) -> Any:
    return jvm.java_class(f"{_PLANS}.Project$").hiddenOutputTag()


def _analyzed(jvm: JvmSession, plan: Any) -> Any:
    return plan_frame(jvm, plan)._jdf.queryExecution().analyzed()


def quoted_name(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _select_item(column: TableColumn) -> str:
    return f"{column.expression} AS {quoted_name(column.name)}"


def _cast(jvm: JvmSession, child: Any, data_type: DataType) -> Any:
    mode = jvm.java_class(f"{_EXPRESSIONS}.EvalMode$").LEGACY()
    cast = jvm.java_class(f"{_EXPRESSIONS}.Cast")
    return cast(child, jvm.data_type(data_type), jvm.none(), mode)


def _alias(jvm: JvmSession, child: Any, name: str, metadata: str) -> Any:
    explicit = jvm.static("org.apache.spark.sql.types.Metadata", "fromJson")(metadata)
    identity = jvm.java_class(f"{_EXPRESSIONS}.NamedExpression$").newExprId()
    nothing = jvm.seq([])
    return jvm.java_class(f"{_EXPRESSIONS}.Alias")(
        child, name, identity, nothing, jvm.some(explicit), nothing
    )


def _is_left(jvm: JvmSession, bits: str, metadata: str) -> Any:
    """Whether a row's bit is not set; rows beyond the last bit, and without bits, are left."""
    parse = jvm.session.sessionState().sqlParser().parseExpression
    index = f"{metadata}.row_index"
    untouched = parse(f"{bits} IS NULL OR {index} >= length({bits}) * 8L")
    negated = jvm.java_class(f"{_EXPRESSIONS}.Not")(_is_set(jvm, bits, index))
    return jvm.java_class(f"{_EXPRESSIONS}.Or")(untouched, negated)


def _is_left_or_kept(jvm: JvmSession, bits: str, metadata: str, kept_from: str) -> Any:
    parse = jvm.session.sessionState().sqlParser().parseExpression
    both = jvm.java_class(f"{_EXPRESSIONS}.And")
    index = f"({metadata}.row_index - {kept_from})"
    has_bit = parse(f"{kept_from} IS NOT NULL AND {index} BETWEEN 0 AND length({bits}) * 8L - 1")
    left = both(parse(f"{kept_from} IS NULL"), _is_left(jvm, bits, metadata))
    kept = both(has_bit, _is_set(jvm, bits, index))
    return jvm.java_class(f"{_EXPRESSIONS}.Or")(left, kept)


def _is_set(jvm: JvmSession, bits: str, index: str) -> Any:
    """Whether the bit of that index is set; there must be one."""
    parse = jvm.session.sessionState().sqlParser().parseExpression
    arguments = [parse(bits), parse(_ARRAY_START), parse(f"cast({index} as int)")]
    flags = (True, True, True)  # null gives null, may be null, the same each time
    return jvm.java_class(f"{_EXPRESSIONS}.objects.StaticInvoke")(
        jvm.static("java.lang.Class", "forName")(_BIT_SETS),
        jvm.data_type(BOOLEAN),
        "isSet",
        jvm.seq(arguments),
        jvm.seq([]),
        *flags,
        jvm.none(),
    )
