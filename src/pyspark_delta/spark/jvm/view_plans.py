"""What a view shows: one table as it is, some of its columns, or something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame

_NAMES = ("SubqueryAlias", "View")
# What looks at each row by itself.
_BY_ROW = ("Filter", "Project")


def relation_frame(jvm: JvmSession, name: Sequence[str]) -> DataFrame:
    """The rows of a table or view by its name; Spark's own error when there is none."""
    relation = jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation")
    no_options = jvm.static("org.apache.spark.sql.util.CaseInsensitiveStringMap", "empty")()
    return plan_frame(jvm, relation(jvm.seq(name), no_options, False))


def shows_one_table(view: DataFrame) -> bool:
    """Whether each row of a view is a row of one relation: nothing is joined, sorted or limited."""
    *above, leaf = _chain(view._jdf.queryExecution().analyzed())
    return leaf.children().isEmpty() and all(node.nodeName() in _BY_ROW for node in above)


def is_frame_view(view: DataFrame) -> bool:
    """Whether a view is a DataFrame under a name, and not the text of a query or another view."""
    plan = _below_names(view._jdf.queryExecution().analyzed())
    if plan.nodeName() != "View" or not plan.isTempViewStoringAnalyzedPlan():
        return False
    return bool(_below_names(plan.child()).nodeName() != "View")


def _below_names(plan: Any) -> Any:
    while plan.nodeName() == "SubqueryAlias":
        plan = plan.child()
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A view that shows each row of a table; `columns` says which of its columns, by their names.

    A column of the view that is none of the table's has None.
    """

    rows: DataFrame = field(hash=False)
    columns: Mapping[str, str | None] = field(hash=False)


def shown_table(view: DataFrame, table: DataFrame) -> ShownTable | None:
    """What a view shows of a table; None when it leaves out rows.

    `table` are the rows of that very table.
    """
    own = len(_chain(table._jdf.queryExecution().analyzed()))
    found = _chain(view._jdf.queryExecution().analyzed())
    above = len(found) - own
    if above < 0 or any(node.nodeName() != "Project" for node in found[:above]):
        return None
    known = {_id(each): str(each.name()) for each in items(found[above].output())}
    for node in reversed(found[:above]):
        known |= {
            _id(each): known[_id(shown)]
            for each in items(node.projectList())
            if (shown := _column_behind(each)) is not None and _id(shown) in known
        }
    output = items(view._jdf.queryExecution().analyzed().output())
    return ShownTable(
        rows=view, columns={str(each.name()): known.get(_id(each)) for each in output}
    )


def catalog_name(view: DataFrame) -> tuple[str, str, str] | None:
    """The whole name of the one table that a view reads; None when no catalog knows it."""
    (leaf,) = items(view._jdf.queryExecution().analyzed().collectLeaves())
    table = leaf.catalogTable()
    if not table.isDefined():
        return None
    identifier = table.get().identifier()
    catalog, database = identifier.catalog(), identifier.database()
    if not catalog.isDefined() or not database.isDefined():
        return None
    return str(catalog.get()), str(database.get()), str(identifier.table())


def _chain(plan: Any) -> list[Any]:
    """The nodes from the top down to the first that has not exactly one below it."""
    found = []
    while True:
        if plan.nodeName() not in _NAMES:
            found.append(plan)
        below = plan.children()
        if below.size() != 1:
            return found
        plan = below.head()


def _column_behind(value: Any) -> Any:
    """The column that a value of a projection is, under whatever name; None when it is computed.

    A view casts its columns to the types that they had when it was made.
    """
    if value.nodeName() == "Alias":
        value = value.child()
    if value.nodeName() == "Cast":
        value = value.child()
    return value if value.nodeName() == "AttributeReference" else None


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
