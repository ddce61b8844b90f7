"""Field ids inside of arrays and maps, which Spark's Parquet writer cannot write.

Iceberg finds columns by ids, so a table that is compatible with it needs one for every element,
key and value too.  A finished file is copied with another footer: only the schema in it changes,
and all that it points to stays where it is.  PROTOCOL.md, "Iceberg Compatibility V2".

The footer is Thrift in its compact form, of which this knows as much as it takes to step over a
value.

>>> _varint(300).hex()
'ac02'
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import field_ids
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.types import (
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.jvm.file_writer import WrittenFile

_THREADS = 8
_CHUNK_BYTES = 8 << 20
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"
# Thrift's types, and the fields of Parquet's structs that matter here.
_BINARY, _LIST, _SET, _MAP, _STRUCT, _I32 = 8, 9, 10, 11, 12, 5
_SCHEMA_FIELD, _NAME_FIELD, _ID_FIELD = 2, 4, 9

_Path = tuple[str, ...]
# A column of a file or a group in one: its name, and the id that it must have, if any.
_Node = tuple[str, int | None]


def needs_nested_ids(metadata: Metadata, written: StructType) -> bool:
    """Whether files of the table need ids that Spark does not write."""
    return (enabled_version(metadata) or 0) >= 2 and any(
        _has_collection(f.data_type) for f in written
    )


def with_nested_ids(
    store: LogStore, files: Sequence[WrittenFile], schema: StructType, written: StructType
) -> list[WrittenFile]:
    """The files as copies that have all ids; the first ones are deleted.

    `schema` is the table's, `written` that of the files, under physical names and in their order.
    """
    nodes = list(_nodes(written, (), field_ids(schema)))

    def copied(file: WrittenFile) -> WrittenFile:
        directory, slash, name = file.path.rpartition("/")
        task, _, rest = name.partition("-")[2].partition("-")
        # part-00000-<uuid>.c000.snappy.parquet: the number stays, the id is another.
        new = f"{directory}{slash}part-{task}-{uuid4()}{rest[36:]}"
        store.create_from(new, _chunks(store, file, nodes))
        info = store.stat(new)
        return replace(file, path=new, size=info.size, modified_ms=info.modified_ms)

    with ThreadPoolExecutor(min(_THREADS, max(len(files), 1))) as pool:
        made = list(pool.map(copied, files))
    store.delete_many([file.path for file in files])
    return made


def _has_collection(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields=fields):
            return any(_has_collection(f.data_type) for f in fields)
        case ArrayType() | MapType():
            return True
    return False


def _nodes(struct_type: StructType, path: _Path, ids: Mapping[_Path, int]) -> Iterator[_Node]:
    for f in struct_type:
        yield from _type_nodes(f.name, f.data_type, (*path, f.name), ids)


def _type_nodes(
    name: str, data_type: DataType, path: _Path, ids: Mapping[_Path, int]
) -> Iterator[_Node]:
    """The nodes of a column, in the order in which a footer lists them."""
    yield name, ids.get(path)
    match data_type:
        case StructType():
            yield from _nodes(data_type, path, ids)
        case ArrayType(element_type=element):
            yield "list", None
            yield from _type_nodes("element", element, (*path, "element"), ids)
        case MapType(key_type=key, value_type=value):
            yield "key_value", None
            yield from _type_nodes("key", key, (*path, "key"), ids)
            yield from _type_nodes("value", value, (*path, "value"), ids)
        case _ if data_type == VARIANT:
            yield from (("value", None), ("metadata", None))


def _chunks(store: LogStore, file: WrittenFile, nodes: Sequence[_Node]) -> Iterator[bytes]:
    """The bytes of the copy."""
    length, magic = _END.unpack(store.read_range(file.path, file.size - _END.size, _END.size))
    start = file.size - _END.size - length
    if magic != _MAGIC or start < len(_MAGIC):
        raise _unexpected(store, file)
    try:
        footer = _with_field_ids(store.read_range(file.path, start, length), nodes)
    except (IndexError, ValueError) as error:
        raise _unexpected(store, file) from error
    for place in range(0, start, _CHUNK_BYTES):
        yield store.read_range(file.path, place, min(_CHUNK_BYTES, start - place))
    yield footer + _END.pack(len(footer), _MAGIC)


def _unexpected(store: LogStore, file: WrittenFile) -> StorageError:
    return StorageError(
        operation="read",
        path=store.address(file.path),
        reason="its footer is not as it was written",
    )


def _with_field_ids(footer: bytes, nodes: Sequence[_Node]) -> bytes:
    """A footer whose schema has the ids; ValueError when the names in it are others."""
    lists = (
        start
        for field, kind, start, _ in _fields(footer, 0)
        if (field, kind) == (_SCHEMA_FIELD, _LIST)
    )
    count, element_kind, place = _list_header(footer, next(lists, len(footer)))
    if element_kind != _STRUCT or count != len(nodes) + 1:
        raise ValueError("another schema")
    _, root_end = _element(footer, place)
    made, place = [footer[:root_end]], root_end
    for name, field_id in nodes:
        fields, end = _element(footer, place)
        if _text(fields.get(_NAME_FIELD, (0, b""))[1]) != name:
            raise ValueError("another schema")
        if field_id is not None:
            fields[_ID_FIELD] = (_I32, _varint(field_id << 1))
        made.append(_struct(fields))
        place = end
    made.append(footer[place:])
    return b"".join(made)


def _element(data: bytes, place: int) -> tuple[dict[int, tuple[int, bytes]], int]:
    """The fields of a struct by their number, each its type and its bytes; and where it ends."""
    found, end = {}, place
    for field, kind, start, end in _fields(data, place):
        found[field] = (kind, data[start:end])
    return found, end + 1


def _fields(data: bytes, place: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a struct: number, type, where its value starts and where it ends."""
    field = 0
    while kind := data[place] & 15:
        delta = data[place] >> 4
        place += 1
        if delta:
            field += delta
        else:
            number, place = _read_varint(data, place)
            field = (number >> 1) ^ -(number & 1)
        end = _value_end(data, place, kind)
        yield field, kind, place, end
        place = end


def _struct(fields: Mapping[int, tuple[int, bytes]]) -> bytes:
    made, last = [], 0
    for field, (kind, value) in sorted(fields.items()):
        delta = field - last
        made.append(
            bytes([delta << 4 | kind]) if delta < 16 else bytes([kind]) + _varint(field << 1)
        )
        made.append(value)
        last = field
    return b"".join(made) + b"\0"


def _value_end(data: bytes, place: int, kind: int, *, is_element: bool = False) -> int:
    """Where a value ends."""
    if kind in (1, 2):
        return place + is_element  # a flag is in its field's type, or a byte of its own
    if kind in (_LIST, _SET):
        count, element_kind, place = _list_header(data, place)
        for _ in range(count):
            place = _value_end(data, place, element_kind, is_element=True)
        return place
    if kind == _STRUCT:
        return max((end for *_, end in _fields(data, place)), default=place) + 1
    if kind == _BINARY:
        length, place = _read_varint(data, place)
        return place + length
    if kind in (4, 5, 6):
        return _read_varint(data, place)[1]
    if kind in (3, 7):
        return place + (1 if kind == 3 else 8)
    raise ValueError(f"Thrift's type {kind}")


def _list_header(data: bytes, place: int) -> tuple[int, int, int]:
    count, kind = data[place] >> 4, data[place] & 15
    if count == 15:
        count, place = _read_varint(data, place + 1)
        return count, kind, place
    return count, kind, place + 1


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        shift, place = shift + 7, place + 1
    return value | data[place] << shift, place + 1


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _text(raw: bytes) -> str:
    length, place = _read_varint(raw, 0) if raw else (0, 0)
    return raw[place : place + length].decode("utf-8", "replace")
