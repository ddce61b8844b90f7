"""Where the columns of a table are in one Parquet file, and how to make them of what is there.

Columns are found by name (physical under column mapping) or, in `id` mode, by Parquet field id,
at every level of nesting.  What the file lacks is null; what the table does not name is not read.
PROTOCOL.md, "Column Mapping", "Reader Requirements for Column Mapping".

>>> from pyspark_delta.kernel.protocol.types import LONG, STRING
>>> wanted = StructType((StructField("b", LONG), StructField("c", STRING)))
>>> found = project(wanted, pa.schema([("a", pa.int32()), ("B", pa.int32())]))
>>> found.leaves
(1,)
>>> found.columns(pa.record_batch({"B": pa.array([5], pa.int32())}))[0].type
DataType(int64)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    column_id,
    physical_name,
)
from pyspark_delta.kernel.protocol.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    column_name,
)
from pyspark_delta.kernel.scan.arrow_casts import Convert, caster
from pyspark_delta.kernel.scan.arrow_types import VARIANT_PARTS, arrow_field, arrow_type, is_list

_FIELD_ID = b"PARQUET:field_id"


class ProjectionError(ValueError):
    """A file whose columns cannot be taken for those of the table; the text says why."""


@dataclass(frozen=True, slots=True)
class Projection:
    """What to read of a file, and how to make the table's columns of it."""

    leaves: tuple[int, ...]
    """The Parquet columns to read, by position among all leaf columns, ascending."""
    _converts: tuple[Convert | None, ...]
    _positions: tuple[int | None, ...]
    _fields: tuple[pa.Field, ...]

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The table's columns, of a batch that holds the columns `leaves` of the file."""
        children = [batch.column(i) for i in range(batch.num_columns)]
        return _placed(children, batch.num_rows, self._positions, self._converts, self._fields)


def project(
    wanted: StructType,
    file_schema: pa.Schema,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
) -> Projection:
    """The projection of a file onto the columns `wanted`, which have logical names.

    ProjectionError when a column of the file cannot hold values of the table's, or when ids are
    needed and the file has none.
    """
    if mode is ColumnMappingMode.ID and len(wanted) and not _has_ids(file_schema):
        raise ProjectionError("it has no field ids, by which the table finds its columns")
    found = _match_fields(wanted.fields, list(file_schema), 0, mode, ())
    return Projection(
        tuple(sorted(found.leaves)), found.converts, found.positions, tuple(found.fields)
    )


def find_leaf(
    path: Sequence[str],
    schema: StructType,
    file_schema: pa.Schema,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
) -> tuple[int, pa.DataType] | None:
    """The Parquet column of a leaf inside of structs, and its type there; None without one.

    `path` are logical names of `schema`; the column is given by its place among all leaf columns.
    """
    struct: DataType = schema
    present, first_leaf = list(file_schema), 0
    for depth, name in enumerate(path):
        f = struct.get(name) if isinstance(struct, StructType) else None
        place = None if f is None else _Index(present, mode).place_of(f, tuple(path[:depth]))
        if f is None or place is None:
            return None
        first_leaf += sum(_leaf_count(before.type) for before in present[:place])
        found = present[place].type
        struct, present = f.data_type, list(found) if pa.types.is_struct(found) else []
    return None if pa.types.is_nested(found) else (first_leaf, found)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a struct, matched: where each stands among those that are read."""

    leaves: frozenset[int]
    positions: tuple[int | None, ...]
    converts: tuple[Convert | None, ...]
    fields: tuple[pa.Field, ...]


@dataclass(frozen=True, slots=True)
class _Matched:
    leaves: frozenset[int]
    convert: Convert


def _match_fields(
    wanted: Sequence[StructField],
    present: Sequence[pa.Field],
    first_leaf: int,
    mode: ColumnMappingMode,
    path: tuple[str, ...],
) -> _Fields:
    starts = [first_leaf]
    for f in present:
        starts.append(starts[-1] + _leaf_count(f.type))
    index = _Index(present, mode)
    places = [index.place_of(f, path) for f in wanted]
    matched = [
        None
        if place is None
        else _match(f.data_type, present[place].type, starts[place], mode, (*path, f.name))
        for f, place in zip(wanted, places, strict=True)
    ]
    # Only fields that are read come back, in the file's order.
    order = {place: i for i, place in enumerate(sorted({p for p in places if p is not None}))}
    return _Fields(
        frozenset().union(*(m.leaves for m in matched if m is not None)),
        tuple(None if place is None else order[place] for place in places),
        tuple(None if m is None else m.convert for m in matched),
        tuple(arrow_field(f) for f in wanted),
    )


class _Index:
    """The fields that a file has at one level, by id or by name."""

    def __init__(self, present: Sequence[pa.Field], mode: ColumnMappingMode) -> None:
        self._mode = mode
        self._places: dict[object, list[int]] = {}
        self._lower_places: dict[str, list[int]] = {}
        for place, f in enumerate(present):
            if mode is ColumnMappingMode.ID:
                self._places.setdefault(_field_id(f), []).append(place)
            else:
                self._places.setdefault(f.name, []).append(place)
                self._lower_places.setdefault(f.name.lower(), []).append(place)

    def place_of(self, f: StructField, path: tuple[str, ...]) -> int | None:
        """The place of a table's field; None when the file does not have it."""
        if f.data_type == VOID:
            return None
        if self._mode is ColumnMappingMode.ID:
            found = self._places.get(column_id(f), [])
        else:
            name = physical_name(f, self._mode)
            found = self._places.get(name) or self._lower_places.get(name.lower(), [])
        if len(found) > 1:
            raise ProjectionError(f"it has more than one column {column_name((*path, f.name))}")
        return found[0] if found else None


def _match(
    wanted: DataType,
    present: pa.DataType,
    first_leaf: int,
    mode: ColumnMappingMode,
    path: tuple[str, ...],
) -> _Matched:
    if isinstance(present, pa.BaseExtensionType):
        inner = _match(wanted, present.storage_type, first_leaf, mode, path)
        return _Matched(inner.leaves, lambda array: inner.convert(_storage(array)))
    if mode is ColumnMappingMode.NONE and present.equals(arrow_type(wanted), check_metadata=True):
        leaves = range(first_leaf, first_leaf + _leaf_count(present))
        return _Matched(frozenset(leaves), _unchanged)
    match wanted:
        case StructType() if pa.types.is_struct(present):
            return _match_struct(wanted, present, first_leaf, mode, path)
        case ArrayType() if is_list(present):
            return _match_list(wanted, present, first_leaf, mode, path)
        case MapType() if pa.types.is_map(present):
            return _match_map(wanted, present, first_leaf, mode, path)
        case _ if wanted == VARIANT and pa.types.is_struct(present):
            return _match_variant(present, first_leaf, path)
        case StructType() | ArrayType() | MapType():
            convert = None
        case _:
            convert = None if pa.types.is_nested(present) else caster(present, wanted)
    if convert is None:
        raise ProjectionError(
            f"column {column_name(path)} is {wanted.simple_string} in the table and {present} in it"
        )
    return _Matched(frozenset([first_leaf]), convert)


def _match_struct(
    wanted: StructType,
    present: pa.StructType,
    first_leaf: int,
    mode: ColumnMappingMode,
    path: tuple[str, ...],
) -> _Matched:
    found = _match_fields(wanted.fields, list(present), first_leaf, mode, path)
    # A struct of which nothing is wanted still tells where it is null itself.
    leaves = found.leaves or frozenset([first_leaf])

    def convert(array: pa.StructArray) -> pa.StructArray:
        children = [array.field(i) for i in range(array.type.num_fields)]
        placed = _placed(children, len(array), found.positions, found.converts, found.fields)
        return _struct(array, placed, found.fields)

    return _Matched(leaves, convert)


def _match_list(
    wanted: ArrayType,
    present: pa.DataType,
    first_leaf: int,
    mode: ColumnMappingMode,
    path: tuple[str, ...],
) -> _Matched:
    inner = _match(wanted.element_type, present.value_type, first_leaf, mode, (*path, "element"))
    target = arrow_type(wanted)
    is_plain = pa.types.is_list(present)

    def convert(array: pa.ListArray) -> pa.ListArray:
        if not is_plain:
            array = array.cast(pa.list_(array.type.value_field))
        offsets, values = _used(array, array.values)
        return pa.ListArray.from_arrays(
            offsets, inner.convert(values), type=target, mask=_nulls(array)
        )

    return _Matched(inner.leaves, convert)


def _match_map(
    wanted: MapType,
    present: pa.MapType,
    first_leaf: int,
    mode: ColumnMappingMode,
    path: tuple[str, ...],
) -> _Matched:
    key = _match(wanted.key_type, present.key_type, first_leaf, mode, (*path, "key"))
    value_leaf = first_leaf + _leaf_count(present.key_type)
    value = _match(wanted.value_type, present.item_type, value_leaf, mode, (*path, "value"))
    target = arrow_type(wanted)

    def convert(array: pa.MapArray) -> pa.MapArray:
        offsets, keys = _used(array, array.keys)
        _, items = _used(array, array.items)
        return pa.MapArray.from_arrays(
            offsets, key.convert(keys), value.convert(items), type=target, mask=_nulls(array)
        )

    return _Matched(key.leaves | value.leaves, convert)


def _match_variant(present: pa.StructType, first_leaf: int, path: tuple[str, ...]) -> _Matched:
    names = [f.name for f in present]
    if sorted(names) != sorted(VARIANT_PARTS):
        # Shredded variants have more parts, which would have to be put together.
        raise ProjectionError(
            f"the variant {column_name(path)} has the parts {', '.join(names)}, "
            f"where {' and '.join(VARIANT_PARTS)} are expected"
        )
    target = arrow_type(VARIANT)

    def convert(array: pa.StructArray) -> pa.StructArray:
        parts = [array.field(array.type.get_field_index(name)) for name in VARIANT_PARTS]
        return _struct(array, [part.cast(pa.binary()) for part in parts], tuple(target))

    return _Matched(frozenset(range(first_leaf, first_leaf + _leaf_count(present))), convert)


def _placed(
    children: Sequence[pa.Array],
    num_rows: int,
    positions: Sequence[int | None],
    converts: Sequence[Convert | None],
    fields: Sequence[pa.Field],
) -> list[pa.Array]:
    return [
        pa.nulls(num_rows, f.type)
        if position is None or convert is None
        else convert(children[position])
        for position, convert, f in zip(positions, converts, fields, strict=True)
    ]


def _struct(
    source: pa.StructArray, children: Sequence[pa.Array], fields: Sequence[pa.Field]
) -> pa.StructArray:
    """A struct of new children that is null where `source` is."""
    if children:
        return pa.StructArray.from_arrays(children, fields=list(fields), mask=_nulls(source))
    return pa.array([None if one is None else {} for one in source.to_pylist()], pa.struct([]))


def _used(array: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0 on, and only the values they span: a slice keeps those of its whole."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, first), values.slice(first, last - first)


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _leaf_count(arrow: pa.DataType) -> int:
    """How many Parquet columns a column of this type is stored in."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _leaf_count(arrow.storage_type)
    if pa.types.is_struct(arrow):
        return sum(_leaf_count(f.type) for f in arrow)
    if pa.types.is_map(arrow):
        return _leaf_count(arrow.key_type) + _leaf_count(arrow.item_type)
    return _leaf_count(arrow.value_type) if is_list(arrow) else 1


def _field_id(f: pa.Field) -> int | None:
    text = (f.metadata or {}).get(_FIELD_ID, b"")
    return int(text) if text.isdigit() else None


def _has_ids(schema: pa.Schema) -> bool:
    return any(_field_id(f) is not None for f in schema)
