"""Find columns at any depth of a schema by their paths, and check types and uses of them.

A path goes through structs by names, which compare ignoring case, and through arrays and maps by
`element`, `key` and `value`.

ALTER COLUMN rewrites no files: a type may only change to one that they can be read as, if the
table's `delta.enableTypeWidening` allows it.  CHAR(n) and VARCHAR(n) are STRING in files; the
declared type is in the field's metadata.  PROTOCOL.md, "Type Widening" and "Clustered Table".

>>> struct = StructType((StructField("X", types.LONG),))
>>> schema = StructType((StructField("a", ArrayType(struct)),))
>>> find_column(schema, ("A", "element", "x")).path
('a', 'element', 'X')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.stats import table_stats_columns
from pyspark_delta.kernel.protocol.stats_columns import has_bounds
from pyspark_delta.kernel.protocol.type_widening import can_widen
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    column_name,
    is_atomic,
    map_fields,
)

_MOST_CLUSTERING_COLUMNS = 4
_DECLARED = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)
_NUMBERS = (types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.FLOAT, types.DOUBLE)
_DIGITS = {types.BYTE: 3, types.SHORT: 5, types.INTEGER: 10, types.LONG: 20}
_TIMES = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_NESTED = (
    (StructType, "CANNOT_UPDATE_FIELD.STRUCT_TYPE"),
    (MapType, "CANNOT_UPDATE_FIELD.MAP_TYPE"),
    (ArrayType, "CANNOT_UPDATE_FIELD.ARRAY_TYPE"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedColumn:
    """A column as the schema spells it.

    `struct` is the struct that it is a field of.  The element of an array and the key or value of
    a map are not fields: their `field` only carries their type and whether they may be null.
    """

    path: tuple[str, ...]
    field: StructField
    struct: StructType | None

    @property
    def parent(self) -> tuple[str, ...]:
        """The path of the column's parent; empty for the table itself."""
        return self.path[:-1]


def find_column(schema: StructType, path: Sequence[str]) -> ResolvedColumn:
    """The column at a path; SchemaError when there is none."""
    here: DataType = schema
    column: ResolvedColumn | None = None
    for step in path:
        spelled = () if column is None else column.path
        struct = here if isinstance(here, StructType) else None
        f = _step(here, step)
        if f is None:
            if struct is None:
                raise no_struct(spelled, step)
            raise unresolved(struct, (*spelled, step))
        column = ResolvedColumn(path=(*spelled, f.name), field=f, struct=struct)
        here = f.data_type
    assert column is not None, "a path has a step at least"
    return column


def find_struct(
    schema: StructType, path: Sequence[str], field: str = "field"
) -> tuple[tuple[str, ...], StructType]:
    """The struct at a path, the whole table for an empty one, and the path as the schema has it.

    `field` is the field to find in it, for the error when it is not a struct.
    """
    if not path:
        return (), schema
    column = find_column(schema, path)
    if not isinstance(column.field.data_type, StructType):
        raise no_struct(column.path, field)
    return column.path, column.field.data_type


def position_of(struct: StructType, name: str) -> int | None:
    """The index of the field of that name in a struct; None when there is none."""
    for index, f in enumerate(struct):
        if f.name.lower() == name.lower():
            return index
    return None


def with_type_at(schema: StructType, path: Sequence[str], new: DataType) -> StructType:
    """`schema` with another type at a path that `find_column` gave."""
    changed = _with_type_at(schema, tuple(path), new)
    assert isinstance(changed, StructType)
    return changed


def no_struct(path: Sequence[str], field: str) -> SchemaError:
    """The error for a path through a type without fields."""
    return SchemaError(
        "INVALID_FIELD_NAME", fieldName=column_name((*path, field)), path=column_name(path)
    )


def unresolved(struct: StructType, path: Sequence[str]) -> SchemaError:
    """The error for a path whose last step `struct` does not have."""
    return SchemaError(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        objectName=column_name(path),
        proposal=", ".join(struct.names),
    )


def declared_type(f: StructField) -> str | None:
    """The type that a CHAR or VARCHAR column was declared with; None for all others.

    >>> text = {types.CHAR_VARCHAR_KEY: "VARCHAR(5)"}
    >>> declared_type(StructField("c", types.STRING, metadata=text))
    'varchar(5)'
    """
    text = f.metadata.get(types.CHAR_VARCHAR_KEY)
    return text.lower() if isinstance(text, str) else None


def with_declared(f: StructField, declared: StructField) -> StructField:
    """`f` declared as `declared` is."""
    return f.with_metadata_items(
        {types.CHAR_VARCHAR_KEY: declared.metadata.get(types.CHAR_VARCHAR_KEY)}
    )


def as_declared(f: StructField) -> StructField:
    """`f` with its declared type, as the history records it."""
    declared = declared_type(f)
    if declared is None:
        return f
    return with_declared(f.with_type(PrimitiveType(declared)), StructField(f.name, types.STRING))


def is_same_type(one: StructField, other: StructField) -> bool:
    """Whether two fields were declared with the same type, apart from other metadata."""
    if declared_type(one) != declared_type(other):
        return False
    return map_fields(one.data_type, _for_readers) == map_fields(other.data_type, _for_readers)


def check_type_change(
    column: ResolvedColumn, new: StructField, *, widens: bool, table: str
) -> None:
    """Raise for a type that the column's files cannot be read as, and for a nested one."""
    old = column.field
    name = column_name(column.path)
    if is_same_type(old, new):
        return
    for kind, condition in _NESTED:
        if isinstance(new.data_type, kind):
            raise SchemaError(condition, table=table, fieldName=name)
    if not is_atomic(old.data_type) or not _is_upcast(old, new):
        raise SchemaError(
            "NOT_SUPPORTED_CHANGE_COLUMN",
            table=table,
            originName=name,
            originType=type_text(old),
            newName=name,
            newType=type_text(new),
        )
    if old.data_type != new.data_type and not (widens and can_widen(old.data_type, new.data_type)):
        raise SchemaError(
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            fieldPath=name,
            oldField=type_text(old),
            newField=type_text(new),
        )


def type_text(f: StructField) -> str:
    """A field for messages: its type, and NOT NULL where that holds."""
    name = declared_type(f) or f.data_type.simple_string
    return name.upper() + ("" if f.nullable else " NOT NULL")


def checked_clustering_paths(
    metadata: Metadata, columns: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """The columns in the schema's spelling; raises if a table cannot be clustered by them."""
    resolved = [_clustering_column(metadata.schema, path) for path in columns]
    paths = tuple(column.path for column in resolved)
    repeated = {column_name(path) for path in paths if paths.count(path) > 1}
    if repeated:
        raise SchemaError(
            "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY", duplicateCols=", ".join(sorted(repeated))
        )
    if len(paths) > _MOST_CLUSTERING_COLUMNS:
        raise OperationNotAllowedError(
            "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            numColumnsLimit=_MOST_CLUSTERING_COLUMNS,
            actualNumColumns=len(paths),
        )
    wrong = [
        f"{column_name(each.path)} : {each.field.data_type.simple_string.upper()}"
        for each in resolved
        if not has_bounds(each.field.data_type)
    ]
    if wrong:
        raise SchemaError(
            "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", columnsWithDataTypes=", ".join(wrong)
        )
    _check_statistics(metadata, paths)
    return paths


def _clustering_column(schema: StructType, path: Sequence[str]) -> ResolvedColumn:
    try:
        return find_column(schema, path)
    except SchemaError:
        raise SchemaError(
            "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
            columnName=column_name(path),
            tableSchema=schema.simple_string,
        ) from None


def _check_statistics(metadata: Metadata, paths: Sequence[tuple[str, ...]]) -> None:
    collected = table_stats_columns(metadata)
    known = {each.path for each in collected}
    missing = [column_name(path) for path in paths if path not in known]
    if missing:
        raise SchemaError(
            "DELTA_CLUSTERING_COLUMN_MISSING_STATS",
            columns=", ".join(missing),
            schema=", ".join(column_name(each.path) for each in collected),
        )


def _step(data_type: DataType, name: str) -> StructField | None:
    match data_type:
        case StructType():
            return data_type.get(name)
        case ArrayType() if name == "element":
            return StructField(name, data_type.element_type, data_type.contains_null)
        case MapType() if name == "key":
            return StructField(name, data_type.key_type, nullable=False)
        case MapType() if name == "value":
            return StructField(name, data_type.value_type, data_type.value_contains_null)
        case _:
            return None


def _with_type_at(data_type: DataType, path: tuple[str, ...], new: DataType) -> DataType:
    if not path:
        return new
    step, rest = path[0], path[1:]
    match data_type:
        case StructType(fields=fields):
            return StructType(
                tuple(
                    f.with_type(_with_type_at(f.data_type, rest, new)) if f.name == step else f
                    for f in fields
                )
            )
        case ArrayType(element_type=element, contains_null=contains_null):
            return ArrayType(_with_type_at(element, rest, new), contains_null)
        case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            if step == "key":
                return MapType(_with_type_at(key, rest, new), value, contains_null)
            return MapType(key, _with_type_at(value, rest, new), contains_null)
        case _:
            raise AssertionError(f"{data_type} has nothing inside")


def _for_readers(f: StructField) -> StructField:
    return f.with_metadata_items({key: None for key in f.metadata if key.startswith("delta.")})


def _is_upcast(old: StructField, new: StructField) -> bool:
    """Whether Spark implicitly casts every value of the old type to the new one."""
    before, after = declared_type(old), declared_type(new)
    if old.data_type == types.STRING and new.data_type == types.STRING:
        return after is None or _fits(before, after)
    return _is_wider(old.data_type, new.data_type)


def _fits(before: str | None, after: str) -> bool:
    old, new = _DECLARED.fullmatch(before or ""), _DECLARED.fullmatch(after)
    if old is None or new is None:
        return False
    if new[1].lower() == "char":
        return old[1].lower() == "char" and int(old[2]) == int(new[2])
    return int(old[2]) <= int(new[2])


def _is_wider(old: DataType, new: DataType) -> bool:
    if old in _NUMBERS and new in _NUMBERS:
        return _NUMBERS.index(old) <= _NUMBERS.index(new)
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            more_scale = new.scale - old.scale
            return new.precision - old.precision >= more_scale >= 0
        return old in _DIGITS and new.precision - new.scale >= _DIGITS[old]
    if old == types.DATE or old in _TIMES:
        return new in _TIMES or new == types.STRING
    return new == types.STRING
