"""The logical plan of a table over the scan of its files: rows that are left, columns as named.

Catalyst's own nodes and expressions, so Spark optimises and compiles them as it does any query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType
from pyspark_delta.spark.jvm.gateway import JvmSession

METADATA = "_metadata"
"""The hidden column in which Spark tells what it knows of a row's file."""

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_BIT_SETS = "org.apache.spark.unsafe.bitset.BitSetMethods"
# Where the bytes of a Java array begin.
_ARRAY_START = "16L"
# By this key Spark knows a column that is there only for those who ask for it by name.
_METADATA_COLUMN_KEY = "__metadata_col"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of the table: its name, and the one that the scan has it under.

    `cast_to` is set when names inside of it differ too.  `metadata` is JSON, for a cast column.
    """

    name: str
    scanned: str
    cast_to: DataType | None = None
    metadata: str = "{}"


def data_frame(jvm: JvmSession, plan: Any) -> DataFrame:
    """The DataFrame of a plan."""
    dataset = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    return jvm.data_frame(dataset.ofRows(jvm.session, plan))


def without_deleted_rows(jvm: JvmSession, plan: Any, bits: str) -> Any:
    """The rows of a scan whose bit in the binary column `bits` is not set.

    The position of a row is Spark's own `_metadata.row_index`: that of the row in its file,
    whatever was split or skipped.
    """
    condition = jvm.remembered(f"{__name__} {bits}", lambda: _is_left(jvm, bits))
    return jvm.java_class(f"{_PLANS}.Filter")(condition, plan)


def with_columns(jvm: JvmSession, plan: Any, columns: Sequence[TableColumn]) -> Any:
    """The table's columns and no others, in this order."""
    return _project(jvm, plan, [_select_item(column) for column in columns], columns)


def with_hidden_struct(
    jvm: JvmSession, plan: Any, columns: Sequence[TableColumn], fields: Sequence[tuple[str, str]]
) -> Any:
    """As `with_columns`, and `_metadata` made of these fields, each a name and a SQL expression."""
    listed = ", ".join(f"'{name}', {expression}" for name, expression in fields)
    items = [*map(_select_item, columns), f"named_struct({listed})"]
    inner = _project(jvm, plan, items, columns, hidden=METADATA)
    analyzed = data_frame(jvm, inner)._jdf.queryExecution().analyzed()
    output = analyzed.output()
    outer = jvm.java_class(f"{_PLANS}.Project")(output.take(len(columns)), analyzed)
    # Spark finds what a USING join hides in the same way.
    tag = jvm.java_class(f"{_PLANS}.Project$").hiddenOutputTag()
    outer.setTagValue(tag, output.takeRight(1))
    return outer


def quoted_name(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def _select_item(column: TableColumn) -> str:
    return f"{quoted_name(column.scanned)} AS {quoted_name(column.name)}"


def _project(
    jvm: JvmSession,
    plan: Any,
    select_items: Sequence[str],
    columns: Sequence[TableColumn],
    hidden: str | None = None,
) -> Any:
    parser = jvm.session.sessionState().sqlParser()
    selected = parser.parsePlan("SELECT " + ", ".join(select_items))
    child = jvm.seq([plan])
    casts = {i: column for i, column in enumerate(columns) if column.cast_to is not None}
    if not casts and hidden is None:
        return selected.withNewChildren(child)
    listed = selected.projectList()
    made = [listed.apply(i) for i in range(len(select_items))]
    for i, column in casts.items():
        assert column.cast_to is not None
        value = _cast(jvm, made[i].child(), column.cast_to)
        made[i] = _alias(jvm, value, column.name, column.metadata)
    if hidden is not None:
        mark = f'{{"{_METADATA_COLUMN_KEY}":"{hidden}"}}'
        made[-1] = _alias(jvm, made[-1].child(), hidden, mark)
    return jvm.java_class(f"{_PLANS}.Project")(jvm.seq(made), plan)


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


def _is_left(jvm: JvmSession, bits: str) -> Any:
    """Whether a row's bit is not set; rows beyond the last bit, and without bits, are left."""
    parse = jvm.session.sessionState().sqlParser().parseExpression
    index = f"{METADATA}.row_index"
    arguments = [parse(bits), parse(_ARRAY_START), parse(f"cast({index} as int)")]
    flags = (True, True, True)  # null gives null, may be null, the same each time
    is_set = jvm.java_class(f"{_EXPRESSIONS}.objects.StaticInvoke")(
        jvm.static("java.lang.Class", "forName")(_BIT_SETS),
        jvm.data_type(BOOLEAN),
        "isSet",
        jvm.seq(arguments),
        jvm.seq([]),
        *flags,
        jvm.none(),
    )
    untouched = parse(f"{bits} IS NULL OR {index} >= length({bits}) * 8L")
    negated = jvm.java_class(f"{_EXPRESSIONS}.Not")(is_set)
    return jvm.java_class(f"{_EXPRESSIONS}.Or")(untouched, negated)
