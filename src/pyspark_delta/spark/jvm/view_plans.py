"""What a view shows: one table as it is, some of its columns, or something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame

_NAMES = ("SubqueryAlias", "View")


def relation_frame(jvm: JvmSession, name: Sequence[str]) -> DataFrame:
    """The rows of a table or view by its name; Spark's own error when there is none."""
    relation = jvm.java_class("org.apache.spark.sql.catalyst.analysis.UnresolvedRelation")
    no_options = jvm.static("org.apache.spark.sql.util.CaseInsensitiveStringMap", "empty")()
    return plan_frame(jvm, relation(jvm.seq(name), no_options, False))


def shows_one_table(view: DataFrame) -> bool:
    """Whether each row of a view is a row of one relation: nothing is joined or summed up."""
    found = _chain(view._jdf.queryExecution().analyzed())
    return found[-1].children().isEmpty() and all(node.nodeName() != "Aggregate" for node in found)


def shows_all_rows(view: DataFrame, table: DataFrame) -> bool:
    """Whether a view is a table, or columns of it, and nothing is renamed, computed or filtered.

    `table` are the rows of that very table.
    """
    own = len(_chain(table._jdf.queryExecution().analyzed()))
    found = _chain(view._jdf.queryExecution().analyzed())
    return len(found) >= own and all(map(_is_plain, found[: len(found) - own]))


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


def _is_plain(node: Any) -> bool:
    """Whether a node only picks columns, which keep their names."""
    if node.nodeName() != "Project":
        return False
    return all(_keeps_name(each) for each in items(node.projectList()))


def _keeps_name(value: Any) -> bool:
    if value.nodeName() == "AttributeReference":
        return True
    if value.nodeName() != "Alias":
        return False
    below = value.child()
    if below.nodeName() == "Cast":
        below = below.child()
    if below.nodeName() != "AttributeReference":
        return False
    return str(below.name()).lower() == str(value.name()).lower()
