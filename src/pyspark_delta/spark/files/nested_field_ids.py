"""Field ids inside of arrays and maps, which Spark's Parquet writer cannot write.

Iceberg finds columns by ids, so a table that is compatible with it also needs one for every
element, key and value.  A finished file is copied with another footer: only the schema in it
changes, and all offsets stay valid.  PROTOCOL.md, "Iceberg Compatibility V2".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

from pyspark_delta.errors import StorageError
from pyspark_delta.kernel.ops.footers import thrift_compact as thrift
from pyspark_delta.kernel.protocol.column_mapping import field_ids
from pyspark_delta.kernel.protocol.types import VARIANT, ArrayType, DataType, MapType, StructType
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.jvm.write.file_writer import WrittenFile

_THREADS = 8
_CHUNK_BYTES = 8 << 20
_END = struct.Struct("<I4s")
_MAGIC = b"PAR1"
# The Thrift field numbers of Parquet's structs that are used here.
_SCHEMA_FIELD, _NAME_FIELD, _ID_FIELD = 2, 4, 9

_Path = tuple[str, ...]
# A column of a file, or a group in one: its name, and its id, if it needs one.
_Node = tuple[str, int | None]


def with_nested_ids(
    store: LogStore, files: Sequence[WrittenFile], schema: StructType, written: StructType
) -> list[WrittenFile]:
    """Copies of the files with all ids; the originals are deleted.

    `schema` is the table's, `written` that of the files, under physical names and in their order.
    """
    nodes = list(_nodes(written, (), field_ids(schema)))

    def copied(file: WrittenFile) -> WrittenFile:
        directory, slash, name = file.path.rpartition("/")
        task, _, rest = name.partition("-")[2].partition("-")
        # part-00000-<uuid>.c000.snappy.parquet: the number stays, the uuid changes.
        new = f"{directory}{slash}part-{task}-{uuid4()}{rest[36:]}"
        store.create_from(new, _chunks(store, file, nodes))
        info = store.stat(new)
        return replace(file, path=new, size=info.size, modified_ms=info.modified_ms)

    with ThreadPoolExecutor(min(_THREADS, max(len(files), 1))) as pool:
        made = list(pool.map(copied, files))
    store.delete_many([file.path for file in files])
    return made


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
    length, magic = _END.unpack(store.read_range(file.path, file.size - _END.size, _END.size))
    start = file.size - _END.size - length
    try:
        if magic != _MAGIC or start < len(_MAGIC):
            raise ValueError("another footer")
        footer = _with_field_ids(store.read_range(file.path, start, length), nodes)
    except (IndexError, ValueError) as error:
        raise StorageError(
            operation="read",
            path=store.address(file.path),
            reason="its footer is not as it was written",
        ) from error
    for place in range(0, start, _CHUNK_BYTES):
        yield store.read_range(file.path, place, min(_CHUNK_BYTES, start - place))
    yield footer + _END.pack(len(footer), _MAGIC)


def _with_field_ids(footer: bytes, nodes: Sequence[_Node]) -> bytes:
    """A footer whose schema has the ids; ValueError when the names in it are others."""
    lists = (
        start
        for field, kind, start, _ in thrift.fields(footer, 0)
        if (field, kind) == (_SCHEMA_FIELD, thrift.LIST)
    )
    count, element_kind, place = thrift.list_header(footer, next(lists, len(footer)))
    if element_kind != thrift.STRUCT or count != len(nodes) + 1:
        raise ValueError("another schema")
    _, root_end = thrift.element(footer, place)
    made, place = [footer[:root_end]], root_end
    for name, field_id in nodes:
        fields, end = thrift.element(footer, place)
        if thrift.text(fields.get(_NAME_FIELD, (0, b""))[1]) != name:
            raise ValueError("another schema")
        if field_id is not None:
            fields[_ID_FIELD] = (thrift.I32, thrift.varint(field_id << 1))
        made.append(thrift.struct_bytes(fields))
        place = end
    made.append(footer[place:])
    return b"".join(made)
