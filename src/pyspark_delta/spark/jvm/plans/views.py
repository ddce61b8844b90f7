"""Whether a view is a projection of one table, and which of the table's columns it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items, option_value
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_NAMES = ("SubqueryAlias", "View")
# Plan nodes that process each row by itself.
_BY_ROW = ("Filter", "Project")


def relation_frame(jvm: JvmSession, name: Sequence[str]) -> DataFrame:
    """The rows of a table or view by name; Spark's own error if it does not exist."""
    relation = jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation")
    no_options = jvm.static("org.apache.spark.sql.util.CaseInsensitiveStringMap", "empty")()
    return plan_frame(jvm, relation(jvm.seq(name), no_options, False))


def shows_one_table(view: DataFrame) -> bool:
    """Whether each row of a view is a row of one relation: no join, sort or limit."""
    *above, leaf = _chain(analyzed_plan(view))
    return leaf.children().isEmpty() and all(node.nodeName() in _BY_ROW for node in above)


def is_frame_view(view: DataFrame) -> bool:
    """Whether a view is a named DataFrame, and not the text of a query or another view."""
    plan = _below_names(analyzed_plan(view))
    if plan.nodeName() != "View" or not plan.isTempViewStoringAnalyzedPlan():
        return False
    return bool(_below_names(plan.child()).nodeName() != "View")


def _below_names(plan: Any) -> Any:
    while plan.nodeName() == "SubqueryAlias":
        plan = plan.child()
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumns:
    """A view with a row for each row of a table; `columns` maps its columns to the table's.

    It has None for a column of the view that is none of the table's.
    """

    rows: DataFrame = field(hash=False)
    columns: Mapping[str, str | None] = field(hash=False)


def view_columns(view: DataFrame, table: DataFrame) -> ViewColumns | None:
    """The columns of a view over a table; None when the view leaves out rows.

    `table` has the rows of the same table.
    """
    found = _chain(analyzed_plan(view))
    above = len(found) - len(_chain(analyzed_plan(table)))
    if above < 0 or any(node.nodeName() != "Project" for node in found[:above]):
        return None
    known = {_id(each): str(each.name()) for each in items(found[above].output())}
    for node in reversed(found[:above]):
        known |= {
            _id(each): known[_id(column)]
            for each in items(node.projectList())
            if (column := _column_behind(each)) is not None and _id(column) in known
        }
    columns = {
        str(each.name()): known.get(_id(each)) for each in items(analyzed_plan(view).output())
    }
    return ViewColumns(rows=view, columns=columns)


def catalog_name(view: DataFrame) -> tuple[str, str, str] | None:
    """The full name of the one table that a view reads; None if it is in no catalog."""
    (leaf,) = items(analyzed_plan(view).collectLeaves())
    table = option_value(leaf.catalogTable())
    if table is None:
        return None
    identifier = table.identifier()
    catalog, database = option_value(identifier.catalog()), option_value(identifier.database())
    if catalog is None or database is None:
        return None
    return str(catalog), str(database), str(identifier.table())


def _chain(plan: Any) -> list[Any]:
    """The nodes from the top down to the first without exactly one child."""
    found = []
    while True:
        if plan.nodeName() not in _NAMES:
            found.append(plan)
        below = plan.children()
        if below.size() != 1:
            return found
        plan = below.head()


def _column_behind(value: Any) -> Any:
    """The column that a projection passes on or renames; None when it is computed.

    A view casts its columns to the types that they had when it was made.
    """
    for wrapper in ("Alias", "Cast"):
        if value.nodeName() == wrapper:
            value = value.child()
    return value if value.nodeName() == "AttributeReference" else None


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())
