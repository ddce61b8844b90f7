"""Project the columns of one Parquet file onto those of a table.

Columns are found by name (physical under column mapping) or, in `id` mode, by Parquet field id,
at every level of nesting.  Columns that the file lacks are null; other columns are not read.
PROTOCOL.md, "Column Mapping", "Reader Requirements for Column Mapping".

>>> from pyspark_delta.kernel.protocol.types import LONG, STRING
>>> wanted = StructType((StructField("b", LONG), StructField("c", STRING)))
>>> found = file_projection(wanted, pa.schema([("a", pa.int32()), ("B", pa.int32())]))
>>> found.leaves
(1,)
>>> found.columns(pa.record_batch({"B": pa.array([5], pa.int32())}))[0].type
DataType(int64)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.arrow_types import (
    VARIANT_PARTS,
    Convert,
    arrow_field,
    arrow_type,
    caster,
    is_list,
    unchanged,
)
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, column_id, physical_name
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

_FIELD_ID = b"PARQUET:field_id"


class ProjectionError(ValueError):
    """A file whose columns are incompatible with those of the table; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The leaf columns to read of a file, and their conversion to the table's columns."""

    leaves: tuple[int, ...]
    """The Parquet columns to read, by position among all leaf columns, ascending."""
    _fields: tuple[pa.Field, ...]
    _sources: tuple[tuple[int, Convert] | None, ...]
    """For each field its position among those that are read, and its conversion."""

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The table's columns, from a batch with the columns `leaves` of the file."""
        return self._converted(batch.columns, batch.num_rows)

    def struct(self, source: pa.StructArray) -> pa.StructArray:
        """The table's struct, from one of the file."""
        children = [source.field(i) for i in range(source.type.num_fields)]
        return _struct(source, self._converted(children, len(source)), self._fields)

    def _converted(self, present: Sequence[pa.Array], num_rows: int) -> list[pa.Array]:
        return [
            pa.nulls(num_rows, f.type) if source is None else source[1](present[source[0]])
            for f, source in zip(self._fields, self._sources, strict=True)
        ]


def file_projection(
    wanted: StructType, file_schema: pa.Schema, mode: ColumnMappingMode = ColumnMappingMode.NONE
) -> Projection:
    """The projection of a file onto the columns `wanted`, which have logical names.

    ProjectionError when types of the file and the table are incompatible, or when ids are needed
    and the file has none.
    """
    if (
        mode is ColumnMappingMode.ID
        and len(wanted)
        and all(_field_id(f) is None for f in file_schema)
    ):
        raise ProjectionError("it has no field ids, by which the table finds its columns")
    return _Matcher(mode).projection(wanted, file_schema, 0, ())


def find_leaf(
    path: Sequence[str],
    schema: StructType,
    file_schema: pa.Schema,
    mode: ColumnMappingMode = ColumnMappingMode.NONE,
) -> tuple[int, pa.DataType] | None:
    """The Parquet column of a leaf inside of structs, and its type there; None without one.

    `path` are logical names of `schema`; the column is an index among all leaf columns.
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


class _Index:
    """The fields of a file at one level, by id or by name."""

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


class _Matched(NamedTuple):
    """A column of the table in a file: the leaves to read, and the conversion of its values."""

    leaves: Iterable[int]
    convert: Convert


class _Matcher:
    """Matches the types of a table with those of a file, at every level of nesting.

    `first` is the position of a type's first leaf, `path` are the names that lead to it.
    """

    def __init__(self, mode: ColumnMappingMode) -> None:
        self._mode = mode

    def projection(
        self, wanted: StructType, present: Iterable[pa.Field], first: int, path: tuple[str, ...]
    ) -> Projection:
        fields = list(present)
        index = _Index(fields, self._mode)
        places = [index.place_of(f, path) for f in wanted]
        starts = list(accumulate((_leaf_count(f.type) for f in fields), initial=first))
        # The reader returns only the fields read, in the file's order.
        read = sorted({place for place in places if place is not None})
        order = {place: i for i, place in enumerate(read)}
        leaves: set[int] = set()
        sources: list[tuple[int, Convert] | None] = []
        for f, place in zip(wanted, places, strict=True):
            if place is None:
                sources.append(None)
                continue
            names = (*path, f.name)
            matched = self._match(f.data_type, fields[place].type, starts[place], names)
            leaves.update(matched.leaves)
            sources.append((order[place], matched.convert))
        return Projection(
            leaves=tuple(sorted(leaves)),
            _fields=tuple(arrow_field(f) for f in wanted),
            _sources=tuple(sources),
        )

    def _match(
        self, wanted: DataType, present: pa.DataType, first: int, path: tuple[str, ...]
    ) -> _Matched:
        if isinstance(present, pa.BaseExtensionType):
            inner = self._match(wanted, present.storage_type, first, path)
            return _Matched(inner.leaves, lambda a: inner.convert(getattr(a, "storage", a)))
        can_be_same = self._mode is ColumnMappingMode.NONE
        if can_be_same and present.equals(arrow_type(wanted), check_metadata=True):
            return _Matched(range(first, first + _leaf_count(present)), unchanged)
        match wanted:
            case StructType() if pa.types.is_struct(present):
                found = self.projection(wanted, present, first, path)
                # Without requested fields one leaf is read, to know where the struct is null.
                return _Matched(found.leaves or (first,), found.struct)
            case ArrayType() if is_list(present):
                return self._match_list(wanted, present, first, path)
            case MapType() if pa.types.is_map(present):
                return self._match_map(wanted, present, first, path)
            case _ if wanted == VARIANT and pa.types.is_struct(present):
                return _match_variant(present, first, path)
        is_nested = isinstance(wanted, StructType | ArrayType | MapType)
        convert = None if is_nested or pa.types.is_nested(present) else caster(present, wanted)
        if convert is None:
            raise ProjectionError(
                f"column {column_name(path)} is {wanted.simple_string} in the table "
                f"and {present} in it"
            )
        return _Matched((first,), convert)

    def _match_list(
        self, wanted: ArrayType, present: pa.DataType, first: int, path: tuple[str, ...]
    ) -> _Matched:
        inner = self._match(wanted.element_type, present.value_type, first, (*path, "element"))
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
        self, wanted: MapType, present: pa.MapType, first: int, path: tuple[str, ...]
    ) -> _Matched:
        key = self._match(wanted.key_type, present.key_type, first, (*path, "key"))
        behind_key = first + _leaf_count(present.key_type)
        value = self._match(wanted.value_type, present.item_type, behind_key, (*path, "value"))
        target = arrow_type(wanted)

        def convert(array: pa.MapArray) -> pa.MapArray:
            offsets, keys = _used(array, array.keys)
            _, items = _used(array, array.items)
            return pa.MapArray.from_arrays(
                offsets, key.convert(keys), value.convert(items), type=target, mask=_nulls(array)
            )

        return _Matched((*key.leaves, *value.leaves), convert)


def _match_variant(present: pa.StructType, first: int, path: tuple[str, ...]) -> _Matched:
    names = [f.name for f in present]
    if sorted(names) != sorted(VARIANT_PARTS):
        # Shredded variants have more parts, which would have to be reassembled.
        raise ProjectionError(
            f"the variant {column_name(path)} has the parts {', '.join(names)}, "
            f"where {' and '.join(VARIANT_PARTS)} are expected"
        )

    def convert(array: pa.StructArray) -> pa.StructArray:
        parts = [array.field(array.type.get_field_index(name)) for name in VARIANT_PARTS]
        return _struct(
            array, [part.cast(pa.binary()) for part in parts], tuple(arrow_type(VARIANT))
        )

    return _Matched(range(first, first + _leaf_count(present)), convert)


def _struct(
    source: pa.StructArray, children: Sequence[pa.Array], fields: Sequence[pa.Field]
) -> pa.StructArray:
    """A struct of new children that is null where `source` is."""
    if children:
        return pa.StructArray.from_arrays(children, fields=list(fields), mask=_nulls(source))
    return pa.array([None if one is None else {} for one in source.to_pylist()], pa.struct([]))


def _used(array: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets from 0 on, and only the values in their range: a slice keeps all values."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, first), values.slice(first, last - first)


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def _leaf_count(arrow: pa.DataType) -> int:
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
