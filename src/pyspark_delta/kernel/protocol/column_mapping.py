"""Column mapping: logical names for people, physical names and ids for files.

Under the modes `name` and `id` every struct field, nested ones included, has an id and a physical
name in its metadata.  The log speaks physical names (partition values, statistics, clustering),
the schema and the properties logical ones.  Steps into arrays and maps are `element`, `key` and
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

from pyspark_delta.errors.table import PropertyError, SchemaError
from pyspark_delta.kernel.protocol.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_name,
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

_METADATA_KEYS = (
    ID_KEY,
    PHYSICAL_NAME_KEY,
    NESTED_IDS_KEY,
    PARQUET_FIELD_ID_KEY,
    PARQUET_NESTED_IDS_KEY,
)
_MAX_ID = 2**31 - 1


class ColumnMappingMode(Enum):
    """How the columns of a schema are found in a file."""

    NONE = "none"
    NAME = "name"
    ID = "id"

    @classmethod
    def parse(cls, text: str | None) -> ColumnMappingMode:
        """The mode that the property `delta.columnMapping.mode` spells; absent means none."""
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


# Old mode, new mode.  The last two take a rewrite of the files, and have a command of their own.
_CHANGES = frozenset({(ColumnMappingMode.NONE, ColumnMappingMode.NAME)})
_REMOVALS = frozenset(
    {
        (ColumnMappingMode.NAME, ColumnMappingMode.NONE),
        (ColumnMappingMode.ID, ColumnMappingMode.NONE),
    }
)


def check_mode_change(
    old: ColumnMappingMode, new: ColumnMappingMode, *, removing: bool = False
) -> None:
    """Raise SchemaError when an existing table cannot go from `old` to `new`.

    `removing` is for the command that rewrites files so that mapping can be switched off.
    """
    allowed = _CHANGES | _REMOVALS if removing else _CHANGES
    if old is not new and (old, new) not in allowed:
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
    found = f.metadata.get(ID_KEY)
    if not _is_id(found):
        raise _missing(f, ID_KEY)
    return found


def physical_schema(schema: StructType, mode: ColumnMappingMode) -> StructType:
    """The schema under the names that files have.  Metadata stays, so ids stay too."""
    if mode is ColumnMappingMode.NONE:
        return schema
    return _map_schema(schema, lambda f: f.with_name(physical_name(f, mode)))


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
    found = [0]
    for _, f in walk_fields(schema):
        if _is_id(f.metadata.get(ID_KEY)):
            found.append(column_id(f))
        found.extend(_nested_ids(f).values())
    return max(found)


def assign_columns(
    schema: StructType,
    *,
    max_id: int,
    new_uuid: Callable[[], UUID | str],
    keep_names: bool = False,
    nested_ids: bool = False,
) -> tuple[StructType, int]:
    """The schema with an id and a physical name on every field, and the new largest id.

    What a field has already it keeps.  `keep_names` gives new fields their own name as physical
    name: right when files exist that were written under it.  `nested_ids` also numbers the
    elements of arrays and maps, which IcebergCompatV2 asks for.
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

    def assign(data_type: DataType) -> DataType:
        match data_type:
            case StructType(fields=fields):
                return StructType(tuple(assign_field(f) for f in fields))
            case ArrayType(element_type=element, contains_null=contains_null):
                return ArrayType(assign(element), contains_null)
            case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
                return MapType(assign(key), assign(value), contains_null)
            case _:
                return data_type

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
        return named.with_type(assign(named.data_type))

    assigned = assign(schema)
    assert isinstance(assigned, StructType)
    return assigned, top


def reuse_columns(schema: StructType, former: StructType) -> StructType:
    """The schema, whose new columns are those of `former` where name and type are the same.

    For a schema that takes the place of another: whoever follows the table, a stream or a change
    feed, then sees a column that stays as one that stays.
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
    keys = (ID_KEY, PHYSICAL_NAME_KEY, NESTED_IDS_KEY)
    kept = {key: old.metadata[key] for key in keys if key in old.metadata}
    return f.with_type(data_type).with_metadata_items(kept)


def _reused_type(new: DataType, old: DataType) -> DataType | None:
    match new, old:
        case StructType(fields=fields), StructType(fields=others):
            if len(fields) != len(others):
                return None
            found = [_reused(f, other) for f, other in zip(fields, others, strict=True)]
            known = tuple(f for f in found if f is not None)
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
    """The schema with every trace of column mapping taken out."""
    gone = dict.fromkeys(_METADATA_KEYS)
    return _map_schema(schema, lambda f: f.with_metadata_items(gone))


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
        match here:
            case StructType():
                found = _child(here, step, physical_mode)
                if found is None:
                    raise _not_found(schema, path)
                yield step, found
                here = found.data_type
            case ArrayType() if step == "element":
                yield step, None
                here = here.element_type
            case MapType() if step in ("key", "value"):
                yield step, None
                here = here.key_type if step == "key" else here.value_type
            case _:
                raise _not_found(schema, path)


def _child(
    struct: StructType, step: str, physical_mode: ColumnMappingMode | None
) -> StructField | None:
    if physical_mode is None:
        return struct.get(step)
    return next((f for f in struct if physical_name(f, physical_mode) == step), None)


def _collection_paths(data_type: DataType, prefix: str) -> Iterator[str]:
    """Dotted paths of the elements of a collection, down to the next struct."""
    match data_type:
        case ArrayType(element_type=element):
            yield f"{prefix}.element"
            yield from _collection_paths(element, f"{prefix}.element")
        case MapType(key_type=key, value_type=value):
            yield f"{prefix}.key"
            yield from _collection_paths(key, f"{prefix}.key")
            yield f"{prefix}.value"
            yield from _collection_paths(value, f"{prefix}.value")
        case _:
            return


def _nested_ids(f: StructField) -> Mapping[str, int]:
    found = f.metadata.get(NESTED_IDS_KEY)
    if not isinstance(found, Mapping):
        return {}
    return {str(path): nested for path, nested in found.items() if _is_id(nested)}


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID


def _map_schema(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    changed = map_fields(schema, change)
    assert isinstance(changed, StructType)
    return changed


def _missing(f: StructField, key: str) -> SchemaError:
    return SchemaError("DELTA_COLUMN_MAPPING_MISSING_METADATA", columnName=f.name, key=key)


def _not_found(schema: StructType, path: Sequence[str]) -> SchemaError:
    return SchemaError(
        "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
        columnName=column_name(path),
        tableSchema=schema.simple_string,
    )
