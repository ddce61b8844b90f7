"""Reads ALTER TABLE and COMMENT ON from the plans of Spark's own parser.

Spark's parser does not know Delta's own clauses (DROP FEATURE, SYNC IDENTITY).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_delta.kernel.ops.schema.alter import AddedColumn, ColumnChange, Position
from pyspark_delta.kernel.protocol.column_defaults import CURRENT_DEFAULT
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.spark.jvm.expressions.catalyst import stored_schema
from pyspark_delta.spark.jvm.gateway import JvmSession, items, option_value, simple_name
from pyspark_delta.spark.jvm.parser.changes import parsed_plan

Arguments = Mapping[str, Any]
"""What a clause says, by the names of the parameters of the function that runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStatement:
    """A table, and a clause by the name of Spark's class for it.

    `table` is None where an expression names it.  A clause that `_READERS` lacks has no arguments.
    """

    table: tuple[str, ...] | None
    kind: str
    arguments: Arguments = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintClause:
    """[CONSTRAINT name] CHECK (text); `text` is None for keys and other constraints.

    `characteristic` is what follows the parentheses: ENFORCED, RELY and so on.
    """

    name: str | None
    text: str | None
    characteristic: str


_NAMED = frozenset({"UnresolvedTable", "UnresolvedTableOrView", "UnresolvedRelation"})


def parse_alter(jvm: JvmSession, sql: str, args: Any = None) -> AlterStatement:
    """Parse the statement in `sql`; Spark's ParseException for a syntax error."""
    plan = parsed_plan(jvm, sql, args)
    kind = simple_name(plan)
    read = _READERS.get(kind)
    arguments = {} if read is None else read(jvm, plan)
    return AlterStatement(table=_table(plan), kind=kind, arguments=arguments)


def _table(plan: Any) -> tuple[str, ...] | None:
    # A constraint's table is one level deeper than that of other forms.
    while (children := plan.children()).size():
        plan = children.head()
        if simple_name(plan) in _NAMED:
            return tuple(items(plan.multipartIdentifier()))
    return None


def read_constraint(constraint: Any) -> ConstraintClause:
    """Read a constraint of ALTER TABLE or CREATE TABLE from the parser's plan."""
    characteristic = constraint.userProvidedCharacteristic()
    words = [
        yes if value.get() else no
        for value, yes, no in (
            (characteristic.enforced(), "ENFORCED", "NOT ENFORCED"),
            (characteristic.rely(), "RELY", "NORELY"),
        )
        if value.isDefined()
    ]
    is_check = simple_name(constraint) == "CheckConstraint"
    return ConstraintClause(
        name=constraint.userProvidedName(),
        text=str(constraint.condition()) if is_check else None,
        characteristic=" ".join(words),
    )


def _set_location(jvm: JvmSession, plan: Any) -> Arguments:
    is_of_partition = bool(plan.partitionSpec().isDefined())
    return {"location": str(plan.location()), "is_of_partition": is_of_partition}


def _drop_constraint(jvm: JvmSession, plan: Any) -> Arguments:
    if_exists, cascade = bool(plan.ifExists()), bool(plan.cascade())
    return {"name": str(plan.name()), "if_exists": if_exists, "cascade": cascade}


def _cluster_by(jvm: JvmSession, plan: Any) -> Arguments:
    """The columns; none for CLUSTER BY NONE."""
    spec = option_value(plan.clusterBySpec())
    columns = [] if spec is None else items(spec.columnNames())
    return {"columns": tuple(tuple(each.fieldNames()) for each in columns)}


_READERS: Mapping[str, Callable[[JvmSession, Any], Arguments]] = {
    # A default is in the metadata of a field.
    "AddColumns": lambda jvm, plan: {"added": _all_added(jvm, plan)},
    "ReplaceColumns": lambda jvm, plan: {
        "columns": StructType(tuple(column.field for column in _all_added(jvm, plan)))
    },
    "DropColumns": lambda jvm, plan: {
        "paths": tuple(_path(each) for each in items(plan.columnsToDrop())),
        "if_exists": bool(plan.ifExists()),
    },
    "RenameColumn": lambda jvm, plan: {"path": _path(plan.column()), "name": str(plan.newName())},
    "AlterColumns": lambda jvm, plan: {
        "changes": tuple(_column_change(jvm, each) for each in items(plan.specs()))
    },
    "SetTableProperties": lambda jvm, plan: {"properties": jvm.python_dict(plan.properties())},
    "UnsetTableProperties": lambda jvm, plan: {"keys": tuple(items(plan.propertyKeys()))},
    "SetTableLocation": _set_location,
    "AddCheckConstraint": lambda jvm, plan: {"clause": read_constraint(plan.checkConstraint())},
    "AddConstraint": lambda jvm, plan: {"clause": read_constraint(plan.tableConstraint())},
    "DropConstraint": _drop_constraint,
    "AlterTableClusterBy": _cluster_by,
    # DEFAULT COLLATION; Spark also stores it as a property.
    "AlterTableCollation": lambda jvm, plan: {"properties": {"collation": str(plan.collation())}},
    # NULL removes the comment.
    "CommentOnTable": lambda jvm, plan: {"comment": str(plan.comment() or "")},
}


def _all_added(jvm: JvmSession, plan: Any) -> tuple[AddedColumn, ...]:
    return tuple(_added(jvm, each) for each in items(plan.columnsToAdd()))


def _added(jvm: JvmSession, column: Any) -> AddedColumn:
    parent, name = option_value(column.path()), str(column.colName())
    f = _field(jvm, name, column.dataType(), nullable=bool(column.nullable()))
    comment, default = option_value(column.comment()), option_value(column.default())
    metadata: dict[str, Any] = {} if comment is None else {"comment": comment}
    if default is not None:
        metadata[CURRENT_DEFAULT] = str(default.originalSQL())
    return AddedColumn(
        path=(*(() if parent is None else _path(parent)), name),
        field=f.with_metadata_items(metadata),
        position=_position(column.position()),
    )


def _column_change(jvm: JvmSession, spec: Any) -> ColumnChange:
    path = _path(spec.column())
    data_type = option_value(spec.newDataType())
    default = option_value(spec.newDefaultExpression())
    return ColumnChange(
        path=path,
        new_type=None if data_type is None else _field(jvm, path[-1], data_type),
        nullable=option_value(spec.newNullability()),
        comment=option_value(spec.newComment()),
        position=_position(spec.newPosition()),
        default=None if default is None else str(default.originalSQL()),
        drops_comment=_flag(spec, "dropComment"),
        drops_default=bool(spec.dropDefault()),
    )


def _field(jvm: JvmSession, name: str, data_type: Any, *, nullable: bool = True) -> StructField:
    """A kernel field; CHAR(n) and VARCHAR(n) become STRING with Spark's metadata."""
    struct = jvm.java_class("org.apache.spark.sql.types.StructType")()
    return stored_schema(jvm, struct.add(name, data_type, nullable)).fields[0]


def _path(name: Any) -> tuple[str, ...]:
    return tuple(items(name.name()))


def _position(position: Any) -> Position | None:
    found = option_value(position)
    if found is None:
        return None
    place = found.position()
    return Position(after=str(place.column())) if simple_name(place) == "After" else Position()


def _flag(node: Any, name: str) -> bool:
    """A boolean field of a node; False if an older Spark does not have it."""
    return bool(getattr(node, name)()) if name in dir(node) else False
