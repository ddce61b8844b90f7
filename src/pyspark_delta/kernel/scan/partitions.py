"""Partition values of many files as typed columns, and the choice of files by them.

The log spells a partition value as text; here every distinct text is parsed once, however many
files share it.  A text that is not a value of its column's type is an error, and so is a file
that has no value for a column: the rows of such a file cannot be told.
PROTOCOL.md, "Partition Value Serialization".

>>> from pyspark_delta.kernel.protocol.types import INTEGER, StructField
>>> values = pa.array([[("p", "1")], [("p", None)]], pa.map_(pa.string(), pa.string()))
>>> files = pa.table({"path": ["a", "b"], "partitionValues": values})
>>> typed_partitions(files, StructType((StructField("p", INTEGER),)), {"p": "p"}).to_pylist()
[{'p': 1}, {'p': None}]
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import CorruptLogError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_name,
)
from pyspark_delta.kernel.protocol.partition_values import parse_partition_value
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.kernel.scan.arrow_types import arrow_type
from pyspark_delta.kernel.scan.binding import bind
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.kernel.scan.predicates import Predicate
from pyspark_delta.kernel.scan.skipping import skipping_mask


def partition_columns_table(files: pa.Table, metadata: Metadata, *, zone: tzinfo = UTC) -> pa.Table:
    """The partition columns of `files`, in the table's order, under their logical names.

    `files` needs the columns `path` and `partitionValues`; `zone` is the one of timestamps that
    do not say theirs.
    """
    mode = ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))
    schema = metadata.partition_schema
    keys = {f.name: physical_name(f, mode) for f in schema}
    return typed_partitions(files, schema, keys, zone=zone)


def partition_mask(
    predicate: Predicate, files: pa.Table, metadata: Metadata, *, time_zone: str = "UTC"
) -> pa.BooleanArray:
    """Whether each file may hold a row that `predicate` selects, by its partition values alone.

    `time_zone` is where days begin, and the zone of timestamps that do not say theirs.
    """
    partitions = partition_columns_table(files, metadata, zone=zone_named(time_zone))
    nothing = pa.table({"path": files.column("path")})
    bound = bind(predicate, metadata.schema, time_zone=time_zone, lenient=True)
    return skipping_mask(bound, nothing, partitions=partitions)


def typed_partitions(
    files: pa.Table, schema: StructType, keys: Mapping[str, str], *, zone: tzinfo = UTC
) -> pa.Table:
    """A column for each field of `schema`; `keys` gives the name each has in the log."""
    maps = files.column("partitionValues")
    columns = []
    for f in schema:
        texts = [_values_of(chunk, keys[f.name], f, files) for chunk in _placed(maps)]
        columns.append(_typed(pa.chunked_array(texts, pa.string()), f, zone))
    names = [f.name for f in schema]
    if not names:
        return files.select([])
    return pa.table(columns, names=names)


def _placed(maps: pa.ChunkedArray) -> list[tuple[int, pa.MapArray]]:
    """The chunks, each with the number of its first file."""
    placed, start = [], 0
    for chunk in maps.chunks:
        placed.append((start, chunk))
        start += len(chunk)
    return placed


def _values_of(
    placed: tuple[int, pa.MapArray], key: str, f: StructField, files: pa.Table
) -> pa.Array:
    """The texts under `key`, one for each map."""
    start, maps = placed
    if not len(maps):
        return pa.array([], pa.string())
    found = pc.indices_nonzero(pc.equal(maps.keys, key)).cast(pa.int64())
    offsets = maps.offsets.cast(pa.int64())
    first, end = offsets.slice(0, len(maps)), offsets.slice(1)
    # Usually each map has the key once, so the n-th place where it stands belongs to the n-th map.
    window = found
    if len(found) != len(maps):
        inside = pc.and_(pc.greater_equal(found, offsets[0]), pc.less(found, offsets[-1]))
        window = found.filter(inside)
    if len(window) == len(maps) and not maps.null_count:
        fits = pc.and_(pc.greater_equal(window, first), pc.less(window, end))
        if pc.all(fits).as_py():
            return maps.items.take(window).cast(pa.string())
    return _values_one_by_one(start, maps, key, f, files)


def _values_one_by_one(
    start: int, maps: pa.MapArray, key: str, f: StructField, files: pa.Table
) -> pa.Array:
    texts = []
    for number, entries in enumerate(maps.to_pylist()):
        values = dict(entries or ())
        if key not in values:
            # Names compare ignoring case; a writer may spell its keys as it likes.
            others = [name for name in values if name.lower() == key.lower()]
            if len(others) != 1:
                path = files.column("path")[start + number].as_py()
                raise CorruptLogError("DELTA_MISSING_PARTITION_VALUE", path=path, column=f.name)
            values[key] = values[others[0]]
        texts.append(values[key])
    return pa.array(texts, pa.string())


def _typed(texts: pa.ChunkedArray, f: StructField, zone: tzinfo) -> pa.Array:
    encoded = pa.concat_arrays([pa.array([], pa.string()), *texts.chunks]).dictionary_encode()
    values = [
        parse_partition_value(text, f.data_type, column=f.name, zone=zone)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(values, arrow_type(f.data_type)).take(encoded.indices)
