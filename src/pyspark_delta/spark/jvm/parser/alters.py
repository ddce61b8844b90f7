"""Reads ALTER TABLE and COMMENT ON from the plans of Spark's own parser.

Spark's parser does not know Delta's own clauses (DROP FEATURE, SYNC IDENTITY).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_delta.kernel.ops.schema.alter import AddedColumn, ColumnChange, Position
from pyspark_delta.kernel.protocol.column_defaults import CURRENT_DEFAULT
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.parser.parameters import parsed_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumns:
    """ADD COLUMN(S); a default is in the metadata of a field."""

    columns: tuple[AddedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumns:
    """DROP COLUMN(S) [IF EXISTS]."""

    paths: tuple[tuple[str, ...], ...]
    if_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """RENAME COLUMN path TO name."""

    path: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterColumns:
    """ALTER COLUMN or CHANGE COLUMN, of one column or several."""

    changes: tuple[ColumnChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceColumns:
    """REPLACE COLUMNS: all columns of the table afterwards."""

    columns: StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """SET TBLPROPERTIES."""

    properties: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperties:
    """UNSET TBLPROPERTIES [IF EXISTS]."""

    keys: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLocation:
    """SET LOCATION, of the table or of a partition."""

    location: str
    is_of_partition: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint:
    """ADD [CONSTRAINT name] CHECK (text); `text` is None for keys and other constraints.

    `characteristic` is what follows the parentheses: ENFORCED, RELY and so on.
    """

    name: str | None
    text: str | None
    characteristic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConstraint:
    """DROP CONSTRAINT [IF EXISTS] name [CASCADE]."""

    name: str
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBy:
    """CLUSTER BY; no columns for NONE."""

    columns: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentOnTable:
    """COMMENT ON TABLE; an empty comment for NULL."""

    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAlter:
    """Any other clause, by the name of Spark's class for it."""

    kind: str


Change = (
    AddColumns
    | DropColumns
    | RenameColumn
    | AlterColumns
    | ReplaceColumns
    | SetProperties
    | UnsetProperties
    | SetLocation
    | AddConstraint
    | DropConstraint
    | ClusterBy
    | CommentOnTable
    | OtherAlter
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStatement:
    """A table and how it changes; `table` is None where an expression names it."""

    table: tuple[str, ...] | None
    change: Change


_NAMED = frozenset({"UnresolvedTable", "UnresolvedTableOrView", "UnresolvedRelation"})


def parse_alter(jvm: JvmSession, sql: str, args: Any = None) -> AlterStatement:
    """Parse the statement in `sql`; Spark's ParseException for a syntax error."""
    plan = parsed_plan(jvm, sql, args)
    kind = str(plan.getClass().getSimpleName())
    read = _READERS.get(kind)
    change = OtherAlter(kind=kind) if read is None else read(jvm, plan)
    return AlterStatement(table=_table(plan), change=change)


def _table(plan: Any) -> tuple[str, ...] | None:
    # A constraint's table is one level deeper than that of other forms.
    while (children := plan.children()).size():
        plan = children.head()
        if plan.getClass().getSimpleName() in _NAMED:
            return tuple(items(plan.multipartIdentifier()))
    return None


def _add_columns(jvm: JvmSession, plan: Any) -> Change:
    return AddColumns(columns=tuple(_added(jvm, each) for each in items(plan.columnsToAdd())))


def _replace_columns(jvm: JvmSession, plan: Any) -> Change:
    added = (_added(jvm, each) for each in items(plan.columnsToAdd()))
    return ReplaceColumns(columns=StructType(tuple(column.field for column in added)))


def _drop_columns(jvm: JvmSession, plan: Any) -> Change:
    paths = tuple(_path(each) for each in items(plan.columnsToDrop()))
    return DropColumns(paths=paths, if_exists=bool(plan.ifExists()))


def _rename_column(jvm: JvmSession, plan: Any) -> Change:
    return RenameColumn(path=_path(plan.column()), name=str(plan.newName()))


def _alter_columns(jvm: JvmSession, plan: Any) -> Change:
    return AlterColumns(changes=tuple(_column_change(jvm, each) for each in items(plan.specs())))


def _set_properties(jvm: JvmSession, plan: Any) -> Change:
    return SetProperties(properties=jvm.python_dict(plan.properties()))


def _unset_properties(jvm: JvmSession, plan: Any) -> Change:
    keys = tuple(items(plan.propertyKeys()))
    return UnsetProperties(keys=keys, if_exists=bool(plan.ifExists()))


def _set_location(jvm: JvmSession, plan: Any) -> Change:
    is_of_partition = bool(plan.partitionSpec().isDefined())
    return SetLocation(location=str(plan.location()), is_of_partition=is_of_partition)


def _add_check(jvm: JvmSession, plan: Any) -> Change:
    return read_constraint(plan.checkConstraint())


def _add_constraint(jvm: JvmSession, plan: Any) -> Change:
    return read_constraint(plan.tableConstraint())


def read_constraint(constraint: Any) -> AddConstraint:
    """Read a constraint of ALTER TABLE or CREATE TABLE from the parser's plan."""
    is_check = constraint.getClass().getSimpleName() == "CheckConstraint"
    characteristic = constraint.userProvidedCharacteristic()
    told = [
        word
        for value, (yes, no) in (
            (characteristic.enforced(), ("ENFORCED", "NOT ENFORCED")),
            (characteristic.rely(), ("RELY", "NORELY")),
        )
        if value.isDefined()
        for word in [yes if value.get() else no]
    ]
    return AddConstraint(
        name=constraint.userProvidedName(),
        text=str(constraint.condition()) if is_check else None,
        characteristic=" ".join(told),
    )


def _drop_constraint(jvm: JvmSession, plan: Any) -> Change:
    return DropConstraint(
        name=str(plan.name()), if_exists=bool(plan.ifExists()), cascade=bool(plan.cascade())
    )


def _cluster_by(jvm: JvmSession, plan: Any) -> Change:
    spec = plan.clusterBySpec()
    if not spec.isDefined():
        return ClusterBy(columns=())
    columns = items(spec.get().columnNames())
    return ClusterBy(columns=tuple(tuple(each.fieldNames()) for each in columns))


def _comment_on_table(jvm: JvmSession, plan: Any) -> Change:
    return CommentOnTable(comment=str(plan.comment() or ""))


def _collation(jvm: JvmSession, plan: Any) -> Change:
    """DEFAULT COLLATION; Spark also stores it as a property."""
    return SetProperties(properties={"collation": str(plan.collation())})


_READERS: Mapping[str, Callable[[JvmSession, Any], Change]] = {
    "AddColumns": _add_columns,
    "ReplaceColumns": _replace_columns,
    "DropColumns": _drop_columns,
    "RenameColumn": _rename_column,
    "AlterColumns": _alter_columns,
    "SetTableProperties": _set_properties,
    "UnsetTableProperties": _unset_properties,
    "SetTableLocation": _set_location,
    "AddCheckConstraint": _add_check,
    "AddConstraint": _add_constraint,
    "DropConstraint": _drop_constraint,
    "AlterTableClusterBy": _cluster_by,
    "AlterTableCollation": _collation,
    "CommentOnTable": _comment_on_table,
}


def _added(jvm: JvmSession, column: Any) -> AddedColumn:
    parent = column.path()
    name = str(column.colName())
    f = _field(jvm, name, column.dataType(), nullable=bool(column.nullable()))
    comment, default = column.comment(), column.default()
    told: dict[str, Any] = {}
    if comment.isDefined():
        told["comment"] = str(comment.get())
    if default.isDefined():
        told[CURRENT_DEFAULT] = str(default.get().originalSQL())
    return AddedColumn(
        path=(*(_path(parent.get()) if parent.isDefined() else ()), name),
        field=f.with_metadata_items(told),
        position=_position(column.position()),
    )


def _column_change(jvm: JvmSession, spec: Any) -> ColumnChange:
    path = _path(spec.column())
    data_type, nullable = spec.newDataType(), spec.newNullability()
    comment, default = spec.newComment(), spec.newDefaultExpression()
    return ColumnChange(
        path=path,
        new_type=_field(jvm, path[-1], data_type.get()) if data_type.isDefined() else None,
        nullable=bool(nullable.get()) if nullable.isDefined() else None,
        comment=str(comment.get()) if comment.isDefined() else None,
        position=_position(spec.newPosition()),
        default=str(default.get().originalSQL()) if default.isDefined() else None,
        drops_comment=_flag(spec, "dropComment"),
        drops_default=bool(spec.dropDefault()),
    )


def _field(jvm: JvmSession, name: str, data_type: Any, *, nullable: bool = True) -> StructField:
    """A kernel field; CHAR(n) and VARCHAR(n) become STRING with Spark's metadata."""
    struct = jvm.java_class("org.apache.spark.sql.types.StructType")()
    plain = jvm.static(
        "org.apache.spark.sql.catalyst.util.CharVarcharUtils",
        "replaceCharVarcharWithStringInSchema",
    )(struct.add(name, data_type, nullable))
    parsed = parse_type(json.loads(plain.json()))
    assert isinstance(parsed, StructType)
    return parsed.fields[0]


def _path(name: Any) -> tuple[str, ...]:
    return tuple(items(name.name()))


def _position(position: Any) -> Position | None:
    if not position.isDefined():
        return None
    place = position.get().position()
    is_after = place.getClass().getSimpleName() == "After"
    return Position(after=str(place.column())) if is_after else Position()


def _flag(node: Any, name: str) -> bool:
    """A boolean field of a node; False if an older Spark does not have it."""
    return bool(getattr(node, name)()) if name in dir(node) else False
