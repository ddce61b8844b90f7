"""ALTER TABLE on a schema: add, drop, rename, change and replace columns.

Each function returns the new schema, or raises before anything is changed.  A column keeps its
metadata, so that a renamed or moved column stays the same one in files; new columns get ids and
physical names when the metadata is committed (`txn.definition`).  PROTOCOL.md, "Column Mapping"
and "Type Widening".

>>> from pyspark_delta.kernel.protocol.types import LONG
>>> schema = StructType((StructField("id", LONG),))
>>> add_columns(schema, [AddedColumn(path=("n",), field=StructField("n", LONG))]).names
('id', 'n')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.schema.columns import (
    ResolvedColumn,
    check_type_change,
    declared_type,
    find_column,
    find_struct,
    is_same_type,
    no_struct,
    position_of,
    type_text,
    unresolved,
    with_declared,
    with_type_at,
)
from pyspark_delta.kernel.protocol.column_defaults import check_added_columns, with_default
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode
from pyspark_delta.kernel.protocol.identity_columns import identity_columns, is_identity
from pyspark_delta.kernel.protocol.schema_merge import check_no_duplicates
from pyspark_delta.kernel.protocol.type_widening import can_widen
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_name,
    is_atomic,
    walk_fields,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a column among its siblings: FIRST, or after the one named `after`."""

    after: str | None = None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedColumn:
    """A column to add: its full path, its field, and its position; last without one."""

    path: tuple[str, ...]
    field: StructField
    position: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """The changes of one ALTER COLUMN; None leaves a property of the column unchanged.

    `new_type` is a field of the new type, with CHAR and VARCHAR declared in its metadata.  An
    empty `comment` is set as such; `drops_comment` and `drops_default` remove existing ones.
    """

    path: tuple[str, ...]
    new_type: StructField | None = None
    nullable: bool | None = None
    comment: str | None = None
    position: Position | None = None
    default: str | None = None
    drops_comment: bool = False
    drops_default: bool = False

    def is_needed(self, f: StructField) -> bool:
        """Whether it changes anything besides repeating the column's type."""
        return self != ColumnChange(path=self.path, new_type=self.new_type) or (
            self.new_type is not None and not is_same_type(f, self.new_type)
        )

    @property
    def is_harmless(self) -> bool:
        """Whether it leaves the values of an identity column unaffected."""
        return (
            self.new_type is None
            and self.nullable is None
            and self.default is None
            and not self.drops_default
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRules:
    """What the table allows: its column mapping, and whether types may widen."""

    mode: ColumnMappingMode = ColumnMappingMode.NONE
    widens: bool = False
    table: str = "the table"

    @property
    def is_mapped(self) -> bool:
        """Whether columns can be dropped and renamed."""
        return self.mode is not ColumnMappingMode.NONE


def add_columns(schema: StructType, added: Sequence[AddedColumn]) -> StructType:
    """`schema` with more columns, which are null in existing files."""
    for column in added:
        _check_nullable(column.field)
    check_added_columns(column.field for column in added)
    for column in added:
        if _has(schema, column.path):
            raise _exists("add", column.path, schema)
    keys = [tuple(step.lower() for step in column.path) for column in added]
    for place, column in enumerate(added):
        if keys[place] in keys[:place]:
            raise SchemaError("COLUMN_ALREADY_EXISTS", columnName=column_name(column.path))
    changed = schema
    for column in added:
        changed = _with_column(changed, column)
    check_no_duplicates(changed, "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS")
    return changed


def spelled_columns(schema: StructType, added: Sequence[AddedColumn]) -> tuple[AddedColumn, ...]:
    """`added` with the schema's spelling of their parents, and of the columns that they follow."""
    spelled = []
    changed = schema
    for column in added:
        parent, struct = find_struct(changed, column.path[:-1], column.field.name)
        position = _spelled_position(struct, column.position)
        made = replace(column, path=(*parent, column.field.name), position=position)
        spelled.append(made)
        changed = _with_column(changed, made)
    return tuple(spelled)


def drop_columns(
    schema: StructType,
    paths: Sequence[Sequence[str]],
    rules: AlterRules,
    *,
    if_exists: bool = False,
) -> tuple[StructType, tuple[tuple[str, ...], ...]]:
    """`schema` without some columns, and their paths in the schema's spelling.

    With `if_exists` unknown paths are ignored.
    """
    known = [path for path in paths if not if_exists or _has(schema, path)]
    columns = [find_column(schema, path) for path in known]
    if not columns:
        return schema, ()
    if not rules.is_mapped:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_DROP_COLUMN", advice="")
    changed = schema
    for column in columns:
        changed = _without_column(changed, find_column(changed, column.path))
    return changed, tuple(column.path for column in columns)


def rename_column(
    schema: StructType, path: Sequence[str], name: str, rules: AlterRules
) -> tuple[StructType, tuple[str, ...]]:
    """`schema` with another name for a column, and its former path in the schema's spelling."""
    column = find_column(schema, path)
    if column.struct is None:
        raise no_struct(column.parent, name)
    taken = position_of(column.struct, name)
    if taken is not None and taken != position_of(column.struct, column.path[-1]):
        raise _exists("rename", (*column.parent, name), column.struct)
    if not rules.is_mapped:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_RENAME_COLUMN")
    old = column.field.name
    fields = tuple(f.with_name(name) if f.name == old else f for f in column.struct)
    return with_type_at(schema, column.parent, StructType(fields)), column.path


def change_columns(
    schema: StructType, changes: Sequence[ColumnChange], rules: AlterRules
) -> tuple[StructType, tuple[ResolvedColumn, ...]]:
    """`schema` after ALTER COLUMN, and the columns as they are now, in the statement's order.

    Does not record type changes, and does not check rows for nulls.
    """
    changed = schema
    for change in changes:
        changed = _with_change(changed, change, rules)
    return changed, tuple(find_column(changed, change.path) for change in changes)


def spelled_changes(
    schema: StructType, changes: Sequence[ColumnChange], rules: AlterRules
) -> tuple[ColumnChange, ...]:
    """`changes` with the schema's spelling of columns, without those that change nothing."""
    spelled: list[ColumnChange] = []
    for change in changes:
        column = find_column(schema, change.path)
        for other in spelled:
            if is_below(other.path, column.path) or is_below(column.path, other.path):
                raise SchemaError(
                    "NOT_SUPPORTED_CHANGE_SAME_COLUMN",
                    table=rules.table,
                    fieldName=column_name(column.path),
                )
        position = change.position
        if column.struct is not None:
            position = _spelled_position(column.struct, position)
        stays = change.new_type is not None and is_same_type(column.field, change.new_type)
        new_type = None if stays else change.new_type
        spelled.append(replace(change, path=column.path, position=position, new_type=new_type))
    return tuple(each for each in spelled if each.is_needed(find_column(schema, each.path).field))


def replace_columns(schema: StructType, new: StructType, rules: AlterRules) -> StructType:
    """`schema` as REPLACE COLUMNS leaves it: columns of the same name stay the same columns."""
    if identity_columns(schema):
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED")
    names = [f.name.lower() for f in new]
    for f in new:
        if names.count(f.name.lower()) > 1:
            raise SchemaError("COLUMN_ALREADY_EXISTS", columnName=f.name)
    check_no_duplicates(new, "DELTA_DUPLICATE_COLUMNS_FOUND.REPLACING_COLUMNS")
    reason = _why_not(schema, new, rules, ())
    if reason is not None:
        raise SchemaError(
            "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP",
            details=reason,
            oldSchema=schema.simple_string,
            newSchema=new.simple_string,
        )
    replaced = _replaced(schema, new)
    assert isinstance(replaced, StructType)
    return replaced


def lost_columns(old: StructType, new: StructType) -> tuple[tuple[str, ...], ...]:
    """Paths of the columns that `new` lacks, outermost only."""
    lost: list[tuple[str, ...]] = []
    for path, _ in walk_fields(old):
        is_inside = any(path[: len(gone)] == gone for gone in lost)
        if not is_inside and not _has(new, path):
            lost.append(path)
    return tuple(lost)


def is_below(path: Sequence[str], parent: Sequence[str]) -> bool:
    """Whether a path is `parent` or leads into it, names compared ignoring case.

    >>> is_below(("A", "b"), ("a",)), is_below(("a",), ("a", "b"))
    (True, False)
    """
    return [step.lower() for step in path[: len(parent)]] == [step.lower() for step in parent]


def _has(schema: StructType, path: Sequence[str]) -> bool:
    try:
        find_column(schema, path)
    except SchemaError:
        return False
    return True


def _with_column(schema: StructType, column: AddedColumn) -> StructType:
    parent, struct = find_struct(schema, column.path[:-1], column.field.name)
    if position_of(struct, column.field.name) is not None:
        raise _exists("add", (*parent, column.field.name), struct)
    after = None if column.position is None else column.position.after
    if after is not None and position_of(struct, after) is None:
        raise SchemaError("FIELD_NOT_FOUND", fieldName=after, fields=", ".join(struct.names))
    index = len(struct) if column.position is None else _index_for(struct, column.position)
    fields = (*struct.fields[:index], column.field, *struct.fields[index:])
    return with_type_at(schema, parent, StructType(fields))


def _index_for(struct: StructType, position: Position) -> int:
    if position.after is None:
        return 0
    before = position_of(struct, position.after)
    if before is None:
        raise unresolved(struct, (position.after,))
    return before + 1


def _spelled_position(struct: StructType, position: Position | None) -> Position | None:
    if position is None or position.after is None:
        return position
    return Position(after=struct.fields[_index_for(struct, position) - 1].name)


def _without_column(schema: StructType, column: ResolvedColumn) -> StructType:
    if column.struct is None:
        raise SchemaError(
            "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE",
            struct=column.field.data_type.simple_string,
        )
    if len(column.struct) == 1:
        raise SchemaError(
            "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA", schema=column.struct.simple_string
        )
    left = tuple(f for f in column.struct if f.name != column.field.name)
    return with_type_at(schema, column.parent, StructType(left))


def _with_change(schema: StructType, change: ColumnChange, rules: AlterRules) -> StructType:
    column = find_column(schema, change.path)
    new = _changed_field(column, change, rules)
    if is_identity(column.field) and not change.is_harmless:
        raise OperationNotAllowedError("DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED")
    if column.struct is None:
        _check_collection_change(column, change, new, rules)
        return with_type_at(schema, column.path, new.data_type)
    others = tuple(f for f in column.struct if f.name != column.field.name)
    if change.position is None or change.position.after == column.field.name:
        index = position_of(column.struct, column.field.name) or 0
    else:
        index = _index_for(StructType(others), change.position)
    fields = (*others[:index], new, *others[index:])
    return with_type_at(schema, column.parent, StructType(fields))


def _changed_field(column: ResolvedColumn, change: ColumnChange, rules: AlterRules) -> StructField:
    new = column.field
    if change.comment is not None or change.drops_comment:
        new = new.with_metadata_items({"comment": change.comment})
    if change.default is not None or change.drops_default:
        new = with_default(new, change.default)
    if change.nullable is not None:
        new = new.with_nullable(change.nullable)
    if change.new_type is not None:
        check_type_change(column, change.new_type, widens=rules.widens, table=rules.table)
        new = with_declared(new.with_type(change.new_type.data_type), change.new_type)
    return new


def _check_collection_change(
    column: ResolvedColumn, change: ColumnChange, new: StructField, rules: AlterRules
) -> None:
    """Raise for a change of an element, key or value other than its type."""
    name = column_name(column.path)
    if change.comment is not None or change.drops_comment:
        raise SchemaError("DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY", fieldPath=name)
    if change.position is not None or new.nullable != column.field.nullable:
        raise SchemaError(
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            fieldPath=name,
            oldField=type_text(column.field),
            newField=type_text(new),
        )
    if change.default is not None or change.drops_default:
        raise SchemaError(
            "DELTA_INVALID_COLUMN_DEFAULT",
            columnName=name,
            reason=f"it is no column of {rules.table}",
        )


def _replaced(old: DataType, new: DataType) -> DataType:
    """`new`, with the metadata of the columns of `old` on those of the same name."""
    match old, new:
        case ArrayType(), ArrayType():
            return ArrayType(_replaced(old.element_type, new.element_type), old.contains_null)
        case MapType(), MapType():
            return MapType(
                _replaced(old.key_type, new.key_type),
                _replaced(old.value_type, new.value_type),
                old.value_contains_null,
            )
        case StructType(), StructType():
            return StructType(tuple(_replaced_field(old.get(f.name), f) for f in new))
        case _:
            return new


def _replaced_field(old: StructField | None, new: StructField) -> StructField:
    if old is None:
        return new
    kept = old if new.comment is None else old.with_metadata_items({"comment": new.comment})
    typed = kept.with_type(_replaced(old.data_type, new.data_type)).with_nullable(new.nullable)
    return with_declared(typed, new) if is_atomic(new.data_type) else typed


def _why_not(old: DataType, new: DataType, rules: AlterRules, path: tuple[str, ...]) -> str | None:
    """The reason why a type cannot be replaced by another; None if it can."""
    match old, new:
        case ArrayType(), ArrayType():
            if old.contains_null and not new.contains_null:
                return _tightening(path)
            return _why_not(old.element_type, new.element_type, rules, (*path, "element"))
        case MapType(), MapType():
            if old.value_contains_null and not new.value_contains_null:
                return _tightening(path)
            return _why_not(old.key_type, new.key_type, rules, (*path, "key")) or _why_not(
                old.value_type, new.value_type, rules, (*path, "value")
            )
        case StructType(), StructType():
            return _why_not_struct(old, new, rules, path)
        case _:
            if old == new or (rules.widens and can_widen(old, new)):
                return None
            types = f"from {old.simple_string} to {new.simple_string}"
            return f"changing the type of {column_name(path)} {types}"


def _why_not_struct(
    old: StructType, new: StructType, rules: AlterRules, path: tuple[str, ...]
) -> str | None:
    for f in new:
        before = old.get(f.name)
        here = (*path, f.name)
        if before is None and not f.nullable:
            return f"adding {column_name(here)}, which is NOT NULL"
        if before is None:
            continue
        if before.nullable and not f.nullable:
            return _tightening(here)
        reason = _why_not(before.data_type, f.data_type, rules, here)
        if reason is None and declared_type(f) not in (None, declared_type(before)):
            reason = f"changing the type of {column_name(here)} to {declared_type(f)}"
        if reason is not None:
            return reason
    lost = [f.name for f in old if f.name not in new]
    if lost and any(f.name not in old for f in new):
        return f"dropping {', '.join(lost)} and adding others, which may be meant as renaming"
    if lost and not rules.is_mapped:
        place = f" from {column_name(path)}" if path else ""
        return f"dropping the columns {', '.join(lost)}{place}"
    return None


def _tightening(path: tuple[str, ...]) -> str:
    return f"making {column_name(path)} NOT NULL"


def _check_nullable(f: StructField) -> None:
    if not f.nullable or not all(inner.nullable for _, inner in walk_fields(f.data_type)):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation="NOT NULL in ALTER TABLE ADD COLUMNS"
        )


def _exists(verb: str, path: Sequence[str], struct: StructType) -> SchemaError:
    return SchemaError(
        "FIELD_ALREADY_EXISTS", op=verb, fieldNames=column_name(path), struct=struct.simple_string
    )
