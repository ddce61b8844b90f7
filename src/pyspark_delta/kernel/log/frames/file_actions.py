"""File actions as Arrow tables: their schemas, and conversion from and to action objects.

Log state is columns, never an object per file; objects are made only for touched files.

>>> table = add_table([AddFile(path="a", size=1, modification_time=2, data_change=True)])
>>> next(add_files(table)).size
1
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.log.arrow_types import log_arrow_type
from pyspark_delta.kernel.protocol.actions import AddFile, FileAction, RemoveFile
from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.storage.uris import resolve_action_path

STRING_MAP = pa.map_(pa.string(), pa.string())
# Rows are skipped by the vector itself, so that `maxRowIndex` is of no use.
DELETION_VECTOR = pa.struct(
    [
        f
        for f in log_arrow_type(log_schema["add"].data_type).field("deletionVector").type
        if f.name != "maxRowIndex"
    ]
)


def action_type(kind: str, without: Collection[str] = ()) -> pa.StructType:
    """The Arrow struct of a kind of action: the fields of `log_schema` but those of `without`."""
    return pa.struct(
        [
            (f.name, DELETION_VECTOR if f.name == "deletionVector" else f.type)
            for f in log_arrow_type(log_schema[kind].data_type)
            if f.name not in without
        ]
    )


ADD_SCHEMA = pa.schema(list(action_type("add")))
REMOVE_SCHEMA = pa.schema(list(action_type("remove")))

# Escapes, schemes and absolute paths: paths with these may be spelled in several ways.
_SUSPICIOUS = "[%:]|^/"
_PLAIN_PATH = re.compile(r"[\w=.-][\w=./ -]*")

_Action = TypeVar("_Action", bound=FileAction)


def add_table(adds: Iterable[AddFile]) -> pa.Table:
    """Add actions as a table of `ADD_SCHEMA`."""
    return _table(list(adds), AddFile, ADD_SCHEMA)


def remove_table(removes: Iterable[RemoveFile]) -> pa.Table:
    """Remove actions as a table of `REMOVE_SCHEMA`."""
    return _table(list(removes), RemoveFile, REMOVE_SCHEMA)


def add_files(table: pa.Table) -> Iterator[AddFile]:
    """The rows of an add table as actions."""
    return _actions(table, AddFile)


def remove_files(table: pa.Table) -> Iterator[RemoveFile]:
    """The rows of a remove table as actions."""
    return _actions(table, RemoveFile)


def table_from_values(values: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """JSON objects, checked already, as a table; keys the schema does not know are left out."""
    columns = [_array([value.get(f.name) for value in values], f.type) for f in schema]
    return pa.table(columns, schema=schema)


def conform(array: pa.ChunkedArray | pa.Array, wanted: pa.DataType) -> Any:
    """`array` as `wanted`: other writers' checkpoints differ in integer widths and struct order.

    TypeError for a column of another kind: a number is no path, although Arrow would cast it.
    """
    if array.type.equals(wanted):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if not _is_of_kind(array.type, wanted):
        raise TypeError(f"a column is of type {array.type}, not {wanted}")
    if pa.types.is_struct(wanted):
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        return pa.chunked_array([_conform_struct(chunk, wanted) for chunk in chunks], wanted)
    return array.cast(wanted)


def file_keys(table: pa.Table, root_uri: str) -> pa.Array:
    """The key of each row's file in replay: its decoded path and its vector's unique id.

    `table` needs the columns `path` and, when there are vectors, `deletionVector`.
    """
    keys = canonical_paths(combined(table.column("path")), root_uri)
    if "deletionVector" not in table.schema.names:
        return keys
    vectors = combined(table.column("deletionVector"))
    if vectors.null_count == len(vectors):
        return keys
    storage, where, offset = (
        pc.struct_field(vectors, name) for name in ("storageType", "pathOrInlineDv", "offset")
    )
    at = pc.coalesce(pc.binary_join_element_wise("@", offset.cast(pa.string()), ""), "")
    # NUL cannot be in a path, so no path can look like another file with a vector.
    unique_id = pc.binary_join_element_wise("\0", storage, where, at, "")
    return pc.coalesce(pc.binary_join_element_wise(keys, unique_id, ""), keys)


def canonical_paths(paths: pa.Array, root_uri: str) -> pa.Array:
    """Paths as replay compares them: percent-decoded once, relative where they can be."""
    if not _may_need_decoding(paths):
        return paths
    suspicious = pc.match_substring_regex(paths, _SUSPICIOUS)
    changed = _by_directory(paths.filter(suspicious), root_uri)
    return pc.replace_with_mask(paths, suspicious, changed)


def _by_directory(paths: pa.Array, root_uri: str) -> pa.Array:
    """Canonical paths, each directory decoded once: files share few of them."""
    # With a slash in front every path has a directory, if only an empty one.
    slashed = pc.binary_join_element_wise("", paths, "/")
    parts = pc.split_pattern(slashed, "/", max_splits=1, reverse=True)
    directories = pc.list_element(parts, 0).dictionary_encode()
    decoded = pa.array(
        [_inside(name[1:], root_uri) for name in directories.dictionary.to_pylist()], pa.string()
    )
    names = pc.list_element(parts, 1)
    names = pc.if_else(pc.match_substring_regex(names, _SUSPICIOUS), None, names)
    joined = pc.binary_join_element_wise(decoded.take(directories.indices), names, "/")
    rest = pc.is_null(joined)
    single = [_canonical(path, root_uri) for path in paths.filter(rest).to_pylist()]
    return pc.replace_with_mask(joined, rest, pa.array(single, pa.string()))


def _inside(directory: str, root_uri: str) -> str | None:
    """A directory of the table, decoded; None when each of its files must be resolved by itself."""
    try:
        resolved = resolve_action_path(directory, root_uri)
    except UnsafePathError:
        return None
    return None if resolved.is_absolute else resolved.path


def file_key(path: str, vector_id: str | None, root_uri: str) -> str:
    """`file_keys` for one file."""
    key = _canonical(path, root_uri)
    return key if vector_id is None else f"{key}\0{vector_id}"


def action_key(action: Any, root_uri: str) -> str:
    """`file_keys` for one add or remove."""
    vector = action.deletion_vector
    return file_key(action.path, None if vector is None else vector.unique_id, root_uri)


def _canonical(path: str, root_uri: str) -> str:
    if _PLAIN_PATH.fullmatch(path):
        return path
    try:
        return resolve_action_path(path, root_uri).path
    except UnsafePathError:
        # Replay only compares paths; the code that opens the file refuses this one.
        return path


def _may_need_decoding(paths: pa.Array) -> bool:
    # One search in the bytes of all paths is much faster than one in each.
    text = paths.buffers()[2]
    if text is None:
        return False
    content = text.to_pybytes()
    if b"%" in content or b":" in content:
        return True
    return bool(pc.any(pc.starts_with(paths, "/")).as_py())


def combined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


def _is_of_kind(actual: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(actual):
        return _is_of_kind(actual.value_type, wanted)
    if pa.types.is_string(wanted):
        # Parquet text without an annotation is binary to Arrow, which checks it in the cast.
        return any(is_kind(actual) for is_kind in _TEXT_KINDS)
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(actual))
    if pa.types.is_map(wanted):
        if not pa.types.is_map(actual) or not _is_of_kind(actual.key_type, wanted.key_type):
            return False
        item = actual.item_type
        return bool(pa.types.is_null(item)) or _is_of_kind(item, wanted.item_type)
    return bool(actual.id == wanted.id)


_TEXT_KINDS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def _conform_struct(array: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    present = {f.name: i for i, f in enumerate(array.type)}
    children = [
        conform(pc.struct_field(array, f.name), f.type)
        if f.name in present
        else pa.nulls(len(array), f.type)
        for f in wanted
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(wanted), mask=pc.is_null(array) if array.null_count else None
    )


def _table(actions: list[_Action], kind: type[_Action], schema: pa.Schema) -> pa.Table:
    attributes = {f.key: f.attribute for f in kind.FIELDS}
    columns = []
    for f in schema:
        items = [getattr(action, attributes[f.name]) for action in actions]
        if f.name == "deletionVector":
            items = [None if item is None else item.to_json_value() for item in items]
        columns.append(_array(items, f.type))
    return pa.table(columns, schema=schema)


def _array(items: list[Any], wanted: pa.DataType) -> pa.Array:
    if pa.types.is_map(wanted):
        items = [None if item is None else list(item.items()) for item in items]
    return pa.array(items, wanted)


def _actions(table: pa.Table, kind: type[_Action]) -> Iterator[_Action]:
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield kind.from_json_value(_json_value(row))


def _json_value(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the JSON object that it came from; maps arrive as lists of pairs."""
    for name in ("partitionValues", "tags"):
        if row.get(name) is not None:
            row[name] = dict(row[name])
    if (vector := row.get("deletionVector")) is not None:
        row["deletionVector"] = {key: item for key, item in vector.items() if item is not None}
    return row
