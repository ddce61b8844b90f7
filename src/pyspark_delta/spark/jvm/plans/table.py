"""The logical plan of a table over the scan of its files: deleted rows dropped, columns renamed.

It uses Catalyst's own nodes and expressions, so Spark optimizes and compiles it as any query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.expressions.catalyst import alias_of, static_call
from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items, simple_name
from pyspark_delta.spark.jvm.plans.frames import plan_frame

METADATA = "_metadata"
"""Spark's hidden column with metadata of a row's file, unless a column has that name."""

_BIT_SETS = "org.apache.spark.unsafe.bitset.BitSetMethods"
# The offset of the first byte in a Java array.
_ARRAY_START = "16L"
# The metadata key of columns that are resolved by name but are not in `*`.
_MARK = f'{{"__metadata_col":"{METADATA}"}}'
# A field that only our struct has.
_OWN_FIELD = "row_commit_version"
# Set when the first struct is made: before that, no plan need be searched for one.
_MADE = Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of the table: its name, and the SQL over the scan's columns that computes it.

    `cast_to` is set when names of nested fields differ too.  `metadata` is JSON, or None for a
    column that keeps the metadata of its expression.
    """

    name: str
    expression: str
    cast_to: DataType | None = None
    metadata: str | None = None


def metadata_name(columns: Iterable[str]) -> str:
    """Spark's name for `_metadata` beside these columns.

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

    The position of a row is Spark's own `_metadata.row_index`: its position in the file, regardless
    of splits and skipped row groups.  Where the column `kept_from` is not null, it is the row of
    the first bit, and the rows whose bits are set are kept.
    """
    condition = jvm.remembered(
        f"{__name__} {bits} {metadata} {kept_from}",
        lambda: _is_live(jvm, bits, f"{metadata}.row_index", kept_from),
    )
    return jvm.plan_class("Filter")(condition, plan)


def with_columns(jvm: JvmSession, plan: Any, columns: Sequence[TableColumn]) -> Any:
    """The table's columns and no others, in this order."""
    listed = ", ".join(f"{each.expression} AS {quoted_name(each.name)}" for each in columns)
    selected = jvm.parser.parsePlan(f"SELECT {listed}")
    if all(column.metadata is None for column in columns):
        return selected.withNewChildren(jvm.seq([plan]))
    made = items(selected.projectList())
    for i, column in enumerate(columns):
        if column.metadata is not None:
            value = made[i].child()
            if column.cast_to is not None:
                value = _cast(jvm, value, column.cast_to)
            made[i] = alias_of(jvm, value, column.name, column.metadata)
    return jvm.plan_class("Project")(jvm.seq(made), plan)


def with_hidden_struct(
    jvm: JvmSession, plan: Any, columns: Sequence[TableColumn], fields: Sequence[tuple[str, str]]
) -> Any:
    """As `with_columns`, with `_metadata` made from these fields, each a name and a SQL expression.

    One of them is `row_commit_version`.
    """
    _MADE.set()
    listed = ", ".join(f"'{name}', {expression}" for name, expression in fields)
    text = f"SELECT *, named_struct({listed})"
    selected = jvm.parser.parsePlan(text).projectList()
    name = metadata_name(column.name for column in columns)
    struct = alias_of(jvm, selected.last().child(), name, _MARK)
    project = jvm.plan_class("Project")
    # The struct is the only column computed there: for a self-join Spark gives new ids to all
    # computed columns of a projection, or to none.
    inner = analyzed_plan(plan_frame(jvm, project(jvm.seq([selected.head(), struct]), plan)))
    outer = analyzed_plan(plan_frame(jvm, with_columns(jvm, inner, columns)))
    # Spark resolves the columns that a USING join hides in the same way.
    outer.setTagValue(_hidden_tag(jvm), inner.output().takeRight(1))
    return outer


def with_own_struct(jvm: JvmSession, plan: Any) -> Any:
    """The plan with a new struct where `with_hidden_struct` made one: for a self-join.

    Spark gives the columns of a join's right side new ids, and loses hidden ones.
    """
    return _with_own_struct(jvm, plan)[0]


def frame_with_own_struct(jvm: JvmSession, data: DataFrame) -> DataFrame:
    """As `with_own_struct`; `data` itself when there is nothing to change."""
    if not _MADE.is_set():
        return data
    plan = analyzed_plan(data)
    return plan_frame(jvm, with_own_struct(jvm, plan)) if has_hidden_struct(plan) else data


def has_hidden_struct(plan: Any) -> bool:
    """Whether the plan has a struct that was made here, and not among its columns."""
    return any(
        _OWN_FIELD in attribute.dataType().simpleString()
        and not plan.outputSet().contains(attribute)
        for attribute in items(plan.metadataOutput())
    )


def _with_own_struct(jvm: JvmSession, plan: Any) -> tuple[Any, Any]:
    """The new plan, and a Scala map from the old struct to the new; None for no change."""
    if simple_name(plan) == "Project":
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
    new = alias_of(jvm, listed.last().child(), old.name(), _MARK)
    child = jvm.plan_class("Project")(jvm.seq([*items(listed.init()), new]), inner.child())
    pair = jvm.java_class("scala.Tuple2")(old, new.toAttribute())
    changes = jvm.expression_class("AttributeMap$").apply(jvm.seq([pair]))
    made = outer.withNewChildren(jvm.seq([child])).rewriteAttrs(changes)
    made.setTagValue(_hidden_tag(jvm), jvm.seq([new.toAttribute()]))
    return made, changes


def _hidden_tag(jvm: JvmSession) -> Any:
    return jvm.plan_class("Project$").hiddenOutputTag()


def _cast(jvm: JvmSession, child: Any, data_type: DataType) -> Any:
    mode = jvm.expression_class("EvalMode$").LEGACY()
    return jvm.expression_class("Cast")(child, jvm.data_type(data_type), jvm.none(), mode)


def _is_live(jvm: JvmSession, bits: str, index: str, kept_from: str | None) -> Any:
    """Whether a row's bit is not set; true for rows after the last bit, and without bits.

    Where `kept_from` is not null, whether the bit that belongs to the row is set.
    """
    parse = jvm.parser.parseExpression
    both, either = jvm.expression_class("And"), jvm.expression_class("Or")
    untouched = parse(f"{bits} IS NULL OR {index} >= length({bits}) * 8L")
    left = either(untouched, jvm.expression_class("Not")(_is_set(jvm, bits, index)))
    if kept_from is None:
        return left
    place = f"({index} - {kept_from})"
    has_bit = parse(f"{kept_from} IS NOT NULL AND {place} BETWEEN 0 AND length({bits}) * 8L - 1")
    kept = both(has_bit, _is_set(jvm, bits, place))
    return either(both(parse(f"{kept_from} IS NULL"), left), kept)


def _is_set(jvm: JvmSession, bits: str, index: str) -> Any:
    """Whether the bit of that index is set; the index must be valid."""
    texts = (bits, _ARRAY_START, f"cast({index} as int)")
    arguments = list(map(jvm.parser.parseExpression, texts))
    return static_call(jvm, _BIT_SETS, "isSet", jvm.data_type(BOOLEAN), arguments)
