"""Column mapping: logical names for people, physical names and ids for files.

In the modes `name` and `id` every struct field, nested ones included, has an id and a physical name
in its metadata.  The log uses physical names (partition values, statistics, clustering), the
schema and the properties use logical ones.  Steps into arrays and maps are `element`, `key` and
`value` on both sides.  PROTOCOL.md, "Column Mapping".

>>> mapped = StructField("s", StructType(), metadata={PHYSICAL_NAME_KEY: "col-1", ID_KEY: 1})
>>> physical_name(mapped, ColumnMappingMode.NAME), physical_name(mapped, ColumnMappingMode.NONE)
('col-1', 's')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeGuard
from uuid import UUID

from pyspark_delta.errors import PropertyError, SchemaError
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_name,
    inner_types,
    map_fields,
    walk_fields,
)

MODE_KEY = "delta.columnMapping.mode"
MAX_ID_KEY = "delta.columnMapping.maxColumnId"
ID_KEY = "delta.columnMapping.id"
PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
NESTED_IDS_KEY = "delta.columnMapping.nested.ids"
PARQUET_FIELD_ID_KEY = "parquet.field.id"
PARQUET_NESTED_IDS_KEY = "parquet.field.nested.ids"

_REUSED_KEYS = (ID_KEY, PHYSICAL_NAME_KEY, NESTED_IDS_KEY)
_METADATA_KEYS = (*_REUSED_KEYS, PARQUET_FIELD_ID_KEY, PARQUET_NESTED_IDS_KEY)
_MAX_ID = 2**31 - 1


class ColumnMappingMode(Enum):
    """How a reader finds the columns of a schema in a file."""

    NONE = "none"
    NAME = "name"
    ID = "id"

    @classmethod
    def parse(cls, text: str | None) -> ColumnMappingMode:
        """The mode in the property `delta.columnMapping.mode`; absent means none."""
        if text is None:
            return cls.NONE
        try:
            return cls(text.lower())
        except ValueError:
            raise PropertyError(
                "DELTA_INVALID_TABLE_PROPERTY",
                key=MODE_KEY,
                value=text,
                reason="it must be none, name or id",
            ) from None


def check_mode_change(
    old: ColumnMappingMode, new: ColumnMappingMode, *, removing: bool = False
) -> None:
    """Raise SchemaError when an existing table cannot go from `old` to `new`.

    `removing` is for the command that rewrites files so that mapping can be switched off.
    """
    none = ColumnMappingMode.NONE
    is_allowed = (old, new) == (none, ColumnMappingMode.NAME) or (removing and new is none)
    if old is not new and not is_allowed:
        raise SchemaError(
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", oldMode=old.value, newMode=new.value
        )


def physical_name(f: StructField, mode: ColumnMappingMode) -> str:
    """The name that files and the log have for a field."""
    if mode is ColumnMappingMode.NONE:
        return f.name
    name = f.metadata.get(PHYSICAL_NAME_KEY)
    if not isinstance(name, str) or not name:
        raise _missing(f, PHYSICAL_NAME_KEY)
    return name


def column_id(f: StructField) -> int:
    """The id that a mapped field has, and that its column has in Parquet files."""
    number = f.metadata.get(ID_KEY)
    if not _is_id(number):
        raise _missing(f, ID_KEY)
    return number


def physical_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """The schema under the names that files have.  Metadata stays, so ids stay too."""
    if mode is ColumnMappingMode.NONE:
        return schema
    return map_fields(schema, lambda f: f.with_name(physical_name(f, mode)))


def physical_path(
    schema: StructType, path: Sequence[str], mode: ColumnMappingMode
) -> tuple[str, ...]:
    """A logical path, names compared ignoring case, as files and the log spell it."""
    return tuple(
        step if f is None else physical_name(f, mode) for step, f in _steps(schema, path, None)
    )


def logical_path(
    schema: StructType, path: Sequence[str], mode: ColumnMappingMode
) -> tuple[str, ...]:
    """A physical path, names compared exactly, as the schema spells it."""
    return tuple(step if f is None else f.name for step, f in _steps(schema, path, mode))


def physical_paths(
    schema: StructType, mode: ColumnMappingMode
) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Every field's logical path with its physical one, outermost first."""
    logical = (path for path, _ in walk_fields(schema))
    physical = (path for path, _ in walk_fields(physical_schema(schema, mode)))
    return dict(zip(logical, physical, strict=True))


def field_ids(schema: StructType) -> Mapping[tuple[str, ...], int]:
    """The Parquet field id of every physical path, those of nested elements included."""
    ids: dict[tuple[str, ...], int] = {}
    for path, f in walk_fields(physical_schema(schema, ColumnMappingMode.ID)):
        ids[path] = column_id(f)
        for text, nested_id in _nested_ids(f).items():
            # `a.b.element` of the field whose physical name is `a.b`: the steps follow the name.
            steps = text.removeprefix(f"{f.name}.").split(".")
            ids[(*path, *steps)] = nested_id
    return ids


def max_column_id(schema: StructType) -> int:
    """The largest id in use, nested ones included; 0 when there is none."""
    ids = [0]
    for _, f in walk_fields(schema):
        if _is_id(f.metadata.get(ID_KEY)):
            ids.append(column_id(f))
        ids.extend(_nested_ids(f).values())
    return max(ids)


def assign_columns(
    schema: StructType,
    *,
    max_id: int,
    new_uuid: Callable[[], UUID | str],
    keep_names: bool = False,
    nested_ids: bool = False,
) -> tuple[StructType, int]:
    """The schema with an id and a physical name on every field, and the new largest id.

    A field keeps the id and name that it has.  `keep_names` gives new fields their own name as
    physical name: right when files exist that were written under it.  `nested_ids` also numbers
    the elements of arrays and maps, which IcebergCompatV2 requires.
    """
    top = max(max_id, max_column_id(schema))

    def next_id() -> int:
        nonlocal top
        if top >= _MAX_ID:
            raise SchemaError(
                "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
                prop=MAX_ID_KEY,
                tableMax=top,
                fieldMax=top + 1,
            )
        top += 1
        return top

    def assign_field(f: StructField) -> StructField:
        changes: dict[str, object] = {}
        if not _is_id(f.metadata.get(ID_KEY)):
            changes[ID_KEY] = next_id()
        if not f.metadata.get(PHYSICAL_NAME_KEY):
            changes[PHYSICAL_NAME_KEY] = f.name if keep_names else f"col-{new_uuid()}"
        named = f.with_metadata_items(changes)
        if nested_ids and isinstance(f.data_type, ArrayType | MapType):
            known = dict(_nested_ids(named))
            root = physical_name(named, ColumnMappingMode.NAME)
            for path in _collection_paths(f.data_type, root):
                if path not in known:
                    known[path] = next_id()
            named = named.with_metadata_items({NESTED_IDS_KEY: known})
        return named

    return map_fields(schema, assign_field), top


def reuse_columns(schema: StructType, former: StructType) -> StructType:
    """The schema with the ids and physical names of `former` where name and type are the same.

    For a schema that replaces another: a stream or a change feed over the table then sees the
    same column before and after.
    """
    taken = {f.metadata[ID_KEY] for _, f in walk_fields(schema) if ID_KEY in f.metadata}
    fields = []
    for f in schema:
        old = former.get(f.name)
        if old is None or ID_KEY in f.metadata or old.metadata.get(ID_KEY) in taken:
            fields.append(f)
        else:
            fields.append(_reused(f, old) or f)
    return StructType(tuple(fields))


def _reused(f: StructField, old: StructField) -> StructField | None:
    """The field with the ids and physical names of `old`; None when they differ in type."""
    data_type = _reused_type(f.data_type, old.data_type)
    if data_type is None or f.name != old.name:
        return None
    kept = {key: old.metadata[key] for key in _REUSED_KEYS if key in old.metadata}
    return f.with_type(data_type).with_metadata_items(kept)


def _reused_type(new: DataType, old: DataType) -> DataType | None:
    match new, old:
        case StructType(fields=fields), StructType(fields=others):
            if len(fields) != len(others):
                return None
            reused = [_reused(f, other) for f, other in zip(fields, others, strict=True)]
            known = tuple(f for f in reused if f is not None)
            return StructType(known) if len(known) == len(fields) else None
        case ArrayType(), ArrayType():
            element = _reused_type(new.element_type, old.element_type)
            return None if element is None else ArrayType(element, new.contains_null)
        case MapType(), MapType():
            key = _reused_type(new.key_type, old.key_type)
            value = _reused_type(new.value_type, old.value_type)
            if key is None or value is None:
                return None
            return MapType(key, value, new.value_contains_null)
        case _:
            return new if new == old else None


def check_columns(schema: StructType, mode: ColumnMappingMode, max_id: int | None) -> None:
    """Raise SchemaError unless every field is mapped, once, and `max_id` covers all ids.

    `max_id` is the property `delta.columnMapping.maxColumnId`, None when it is not set.
    """
    if mode is ColumnMappingMode.NONE:
        return
    by_id: dict[int, str] = {}
    by_path: dict[tuple[str, ...], str] = {}
    for logical, physical in physical_paths(schema, mode).items():
        name = column_name(logical)
        if physical in by_path:
            raise SchemaError(
                "DELTA_COLUMN_MAPPING_DUPLICATE_PHYSICAL_NAME",
                columns=f"{by_path[physical]}, {name}",
                physicalName=column_name(physical),
            )
        by_path[physical] = name
    for logical, f in walk_fields(schema):
        name, one_id = column_name(logical), column_id(f)
        if one_id in by_id:
            raise SchemaError(
                "DELTA_COLUMN_MAPPING_DUPLICATE_ID", columns=f"{by_id[one_id]}, {name}", id=one_id
            )
        by_id[one_id] = name
    if max_id is None:
        raise SchemaError("DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET", prop=MAX_ID_KEY)
    if max_id < max_column_id(schema):
        raise SchemaError(
            "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
            prop=MAX_ID_KEY,
            tableMax=max_id,
            fieldMax=max_column_id(schema),
        )


def without_mapping(schema: StructType) -> StructType:
    """The schema without ids and physical names."""
    gone = dict.fromkeys(_METADATA_KEYS)
    return map_fields(schema, lambda f: f.with_metadata_items(gone))


def has_mapping(schema: StructType) -> bool:
    """Whether any field carries an id or a physical name."""
    return any(
        ID_KEY in f.metadata or PHYSICAL_NAME_KEY in f.metadata for _, f in walk_fields(schema)
    )


def is_rename_or_drop(old: StructType, new: StructType) -> bool:
    """Whether a mapped schema lost a column, or gave one another name, between `old` and `new`."""
    mode = ColumnMappingMode.NAME
    names = {physical: logical for logical, physical in physical_paths(new, mode).items()}
    return any(
        physical not in names or names[physical][-1] != logical[-1]
        for logical, physical in physical_paths(old, mode).items()
    )


def _steps(
    schema: StructType, path: Sequence[str], physical_mode: ColumnMappingMode | None
) -> Iterator[tuple[str, StructField | None]]:
    """Each step of a path with the field it names; None for a step into a collection."""
    here: DataType = schema
    for step in path:
        f: StructField | None = None
        if isinstance(here, StructType):
            f = (
                here.get(step)
                if physical_mode is None
                else next((f for f in here if physical_name(f, physical_mode) == step), None)
            )
            inner = None if f is None else f.data_type
        else:
            inner = dict(inner_types(here)).get(step)
        if inner is None:
            raise _not_found(schema, path)
        yield step, f
        here = inner


def _collection_paths(data_type: DataType, prefix: str) -> Iterator[str]:
    """Dotted paths of the elements of a collection, down to the next struct."""
    if not isinstance(data_type, StructType):
        for step, inner in inner_types(data_type):
            yield f"{prefix}.{step}"
            yield from _collection_paths(inner, f"{prefix}.{step}")


def _nested_ids(f: StructField) -> Mapping[str, int]:
    ids = f.metadata.get(NESTED_IDS_KEY)
    if not isinstance(ids, Mapping):
        return {}
    return {str(path): nested for path, nested in ids.items() if _is_id(nested)}


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID


def _missing(f: StructField, key: str) -> SchemaError:
    return SchemaError("DELTA_COLUMN_MAPPING_MISSING_METADATA", columnName=f.name, key=key)


def _not_found(schema: StructType, path: Sequence[str]) -> SchemaError:
    return SchemaError(
        "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        columnName=column_name(path),
        tableSchema=schema.simple_string,
    )
