"""Builds Catalyst's rows, and the result of `FileIndex.listFiles`, in a few calls of Java.

An `UnsafeRow` has a null bit for each field, then an eight-byte word for each field, then the
values that do not fit a word, for which the word has the offset and length.  An `UnsafeArrayData`
is the same after its length.  One buffer holds all rows of a scan, so that they cross to the JVM in
one call, and are used there without a copy.

Files are described in such rows, one for each group.  Spark's object encoder, which makes user
classes from rows, makes `FileStatus` and `PartitionDirectory` from them.  A call for each file
would cost far more than reading a small file.

>>> len(row_bytes([1, None, b"text"]))
40
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import accumulate, compress, pairwise
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.expressions.catalyst import method_call, new_object, object_type
from pyspark_delta.spark.jvm.gateway import JvmSession, items

Word = int | bytes | None
"""A field: the 64 bits of its word, bytes that do not fit a word, or null."""

_WORD = 8
# Values of these types use only a part of their word.
_NARROW_BITS: dict[DataType, int] = {BOOLEAN: 8, BYTE: 8, SHORT: 16, INTEGER: 32, DATE: 32}
_LONG_DIGITS = 18
_LARGE_DECIMAL_BYTES = 16
_EXACT = Context(prec=80)
_MASK = 2**64 - 1
# Padding by the number of bytes that a text lacks to whole words.
_PADDING = pa.array([bytes(missing) for missing in range(_WORD)], pa.binary())
_SOURCES = "org.apache.spark.sql.execution.datasources"
_ENCODERS = "org.apache.spark.sql.catalyst.encoders"
_FILE = StructType(
    (StructField("name", STRING), StructField("size", LONG), StructField("time", LONG))
)
_CODEGEN = "spark.sql.codegen.factoryMode"
# The number of files from which on a common prefix is passed once.
_MANY = 4096
# The size from which on a file is the faster way to Java.
_LARGE = 1024 * 1024
# The header of Java's serialization, and the tag of a long block of bytes.
_JAVA_BLOCK = b"\xac\xed\x00\x05\x7a"
# The offset of the first byte in a Java array, by which Spark's unsafe classes address.
_ARRAY_START = 16
_LOCK = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroups:
    """Files grouped by partition values; the files of a group are consecutive.

    `names` after `prefix` are decoded locations, as Hadoop's Path takes them.  `values` are the
    partition values, one tuple for each group, in the form that `word_of` takes.
    """

    prefix: str
    names: pa.Array
    sizes: pa.Array
    modified_ms: pa.Array
    counts: Sequence[int]
    values: Sequence[tuple[Any, ...]]

    def only(self, wanted: Sequence[bool]) -> FileGroups:
        if all(wanted):
            return self
        kept = [keep for keep, count in zip(wanted, self.counts, strict=True) for _ in range(count)]
        of_files = pa.array(kept, pa.bool_())
        return FileGroups(
            prefix=self.prefix,
            names=self.names.filter(of_files),
            sizes=self.sizes.filter(of_files),
            modified_ms=self.modified_ms.filter(of_files),
            counts=list(compress(self.counts, wanted)),
            values=list(compress(self.values, wanted)),
        )


def partition_directories(jvm: JvmSession, schema: StructType, groups: FileGroups) -> Any:
    """A Scala sequence of `PartitionDirectory`, whose rows have the types of `schema`."""
    if not groups.counts:
        return jvm.java_class("scala.collection.immutable.Nil$")
    is_shared = _shares_prefix(jvm, len(groups.names))
    names = groups.names
    if not is_shared:
        names = pc.binary_join_element_wise(pa.scalar(groups.prefix), names, "")
    files = TextRows(names, groups.sizes, groups.modified_ms)
    prefix = groups.prefix.encode() if is_shared else b""
    spans = pairwise([0, *accumulate(groups.counts)])
    rows = [
        row_bytes((values_row(values, schema), prefix, files.array(start, end)))
        for values, (start, end) in zip(groups.values, spans, strict=True)
    ]
    width = len(schema)
    key = f"{__name__} {width} {is_shared}"
    maker = jvm.remembered(key, lambda: _maker(jvm, width, is_shared))
    # Spark's encoder keeps the last object it made, so only one thread may use it at a time.
    with _LOCK:
        return catalyst_rows(jvm, rows, _group_type(width)).map(maker)


def passing(
    jvm: JvmSession, filters: Sequence[Any], schema: StructType, rows: Sequence[tuple[Any, ...]]
) -> list[bool]:
    """Which rows of values pass all of Catalyst's filters, as Spark evaluates them."""
    passed = [True] * len(rows)
    if not rows:
        return passed
    attributes = jvm.java_class("org.apache.spark.sql.catalyst.types.DataTypeUtils$").toAttributes(
        jvm.data_type(schema)
    )
    java_rows = catalyst_rows(jvm, [values_row(values, schema) for values in rows], schema)
    for one in filters:
        bound = _bound(jvm, one, schema, attributes)
        evaluated = jvm.java_class(f"{_ENCODERS}.ExpressionEncoder$Deserializer")(jvm.seq([bound]))
        found = java_rows.map(evaluated).mkString(",").split(",")
        passed = [keep and text == "true" for keep, text in zip(passed, found, strict=True)]
    return passed


def catalyst_rows(jvm: JvmSession, rows: Sequence[bytes], schema: StructType) -> Any:
    """A Scala sequence of Catalyst's rows over one shared buffer."""
    data = array_bytes(rows)
    array = jvm.expression_class("UnsafeArrayData")()
    if len(data) < _LARGE:
        array.pointTo(data, _ARRAY_START, len(data))
    else:
        _fill(jvm, array, data, len(rows))
    key = f"{__name__} row {len(schema)}"
    # Only the number of fields counts here, not their types.
    return array.toSeq(jvm.remembered(key, lambda: jvm.data_type(_as_wide(len(schema)))))


def word_of(value: Any, data_type: DataType) -> Word:
    """A value as a field of a row, in Catalyst's internal form.

    Dates are days and timestamps microseconds since 1970.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return _decimal(value, data_type)
    if data_type == FLOAT:
        return int.from_bytes(struct.pack("=f", value), sys.byteorder)
    if data_type == DOUBLE:
        return int.from_bytes(struct.pack("=d", value), sys.byteorder)
    return int(value) & ((1 << _NARROW_BITS.get(data_type, 64)) - 1)


def values_row(values: Sequence[Any], schema: StructType) -> bytes:
    """A row with the values of a struct."""
    return row_bytes([word_of(v, f.data_type) for v, f in zip(values, schema, strict=True)])


def row_bytes(fields: Sequence[Word]) -> bytes:
    """An `UnsafeRow`."""
    return _laid_out(fields, b"")


def array_bytes(elements: Sequence[Word]) -> bytes:
    """An `UnsafeArrayData` of elements of one type, whose values fill a word or do not fit one."""
    return _laid_out(elements, _number(len(elements)))


class TextRows:
    """An `UnsafeRow` for each of many texts, with numbers after it, made by Arrow all at once.

    A null number becomes 0, because a missing row would have no bytes at all.
    """

    def __init__(self, texts: pa.Array, *numbers: pa.Array) -> None:
        fields = 1 + len(numbers)
        content = texts.cast(pa.binary())
        sizes = pc.binary_length(content).cast(pa.int64())
        at = _null_bytes(fields) + _WORD * fields
        known = (pc.fill_null(each.cast(pa.int64()), 0) for each in numbers)
        words = [pc.add(sizes, at << 32), *known]
        rows = pc.binary_join_element_wise(
            pa.scalar(bytes(_null_bytes(fields))),
            *(word.view(pa.binary(_WORD)).cast(pa.binary()) for word in words),
            content,
            _PADDING.take(pc.bit_wise_and(pc.negate(sizes), _WORD - 1)),
            pa.scalar(b""),
        )
        _, offsets, data = rows.buffers()
        listed = pa.Array.from_buffers(
            pa.int32(), len(rows) + 1, [None, offsets], offset=rows.offset
        )
        self._offsets: list[int] = listed.to_pylist()
        self._data = memoryview(b"" if data is None else data)

    def array(self, start: int, end: int) -> bytes:
        """An `UnsafeArrayData` of the rows from `start` up to `end`."""
        count = end - start
        offsets = self._offsets[start : end + 1]
        move = _WORD + _null_bytes(count) + _WORD * count - offsets[0]
        words = [(a + move) << 32 | (b - a) for a, b in pairwise(offsets)]
        return b"".join(
            (
                _number(count),
                bytes(_null_bytes(count)),
                struct.pack(f"={count}Q", *words),
                self._data[offsets[0] : offsets[-1]],
            )
        )


def _shares_prefix(jvm: JvmSession, num_files: int) -> bool:
    """Whether the common prefix of names is passed once, and not in each name.

    For many files it would be a lot of text.  But Spark's interpreted mode, without code
    generation, cannot use a shared value in the expression for each file.
    """
    return num_files > _MANY and jvm.spark.conf.get(_CODEGEN, "FALLBACK") != "NO_CODEGEN"


def _bound(jvm: JvmSession, one: Any, schema: StructType, attributes: Any) -> Any:
    """A filter on columns by name, bound to their positions in a row."""
    used = {attribute.name(): attribute for attribute in items(one.references().toSeq())}
    columns = [used.get(name) or attributes.apply(i) for i, name in enumerate(schema.names)]
    wrapped = jvm.expression_class("package$AttributeSeq")(jvm.seq(columns))
    return jvm.expression_class("BindReferences$").bindReference(one, wrapped, False)


def _fill(jvm: JvmSession, array: Any, data: bytes, count: int) -> None:
    """Fill an array of so many elements with the bytes, through a local file.

    Py4J would pass them as text, with several copies of it.  Java reads the array as one that it
    wrote itself: sizes and bytes in one block of its serialization.
    """
    with NamedTemporaryFile(prefix="pyspark-delta-") as file:
        sizes = struct.pack(">ii", len(data), count)
        file.write(_JAVA_BLOCK + struct.pack(">i", len(sizes) + len(data)) + sizes)
        file.write(data)
        file.flush()
        source = jvm.java_class("java.io.FileInputStream")(file.name)
        try:
            array.readExternal(jvm.java_class("java.io.ObjectInputStream")(source))
        finally:
            source.close()


def _as_wide(width: int) -> StructType:
    return StructType(tuple(StructField(f"c{i}", LONG) for i in range(width)))


def _group_type(width: int) -> StructType:
    """The row of a group: partition values, the common prefix, and the files."""
    return StructType(
        (
            StructField("values", _as_wide(width)),
            StructField("prefix", STRING),
            StructField("files", ArrayType(_FILE, contains_null=False)),
        )
    )


def _maker(jvm: JvmSession, width: int, is_shared: bool) -> Any:
    """A Scala function from a group's row to its `PartitionDirectory`."""

    def new(class_name: str, *arguments: Any) -> Any:
        return new_object(jvm, class_name, arguments, propagates_null=False)

    def object_of(class_name: str) -> Any:
        return object_type(jvm, jvm.class_named(class_name))

    reference, member = (
        jvm.expression_class("BoundReference"),
        jvm.expression_class("GetStructField"),
    )
    values, prefix, listed = (
        reference(place, jvm.data_type(f.data_type), False)
        for place, f in enumerate(_group_type(width))
    )
    file = jvm.expression_class("objects.LambdaVariable")("file", jvm.data_type(_FILE), False, 0)
    name, size, time = (member(file, place, jvm.none()) for place in range(3))
    whole = jvm.expression_class("Concat")(jvm.seq([prefix, name])) if is_shared else name
    text = method_call(jvm, whole, "toString", object_of("java.lang.String"))
    path = new("org.apache.hadoop.fs.Path", text)
    # Length, not a directory, replication 1, block size 0, and the modification time.
    constants = map(jvm.parser.parseExpression, ("false", "1", "0L"))
    status = new("org.apache.hadoop.fs.FileStatus", size, *constants, time, path)
    no_metadata = jvm.expression_class("Literal")(
        jvm.scala_map({}), object_of("scala.collection.immutable.Map")
    )
    described = new(f"{_SOURCES}.FileStatusWithMetadata", status, no_metadata)
    sequence = jvm.some(jvm.class_named("scala.collection.immutable.Seq"))
    files = jvm.expression_class("objects.MapObjects")(file, described, listed, sequence)
    # A copy, because it lives as long as the plan, and would keep the whole buffer.
    row = object_of("org.apache.spark.sql.catalyst.InternalRow")
    own = method_call(jvm, values, "copy", row)
    directory = new(f"{_SOURCES}.PartitionDirectory", own, files)
    return jvm.java_class(f"{_ENCODERS}.ExpressionEncoder$Deserializer")(jvm.seq([directory]))


def _laid_out(fields: Sequence[Word], head: bytes) -> bytes:
    nulls = 0
    words: list[int] = []
    parts: list[bytes] = []
    at = len(head) + _null_bytes(len(fields)) + _WORD * len(fields)
    for index, field in enumerate(fields):
        if field is None:
            nulls |= 1 << index
            words.append(0)
        elif isinstance(field, bytes):
            words.append(at << 32 | len(field))
            padding = -len(field) % _WORD
            parts += (field, bytes(padding))
            at += len(field) + padding
        else:
            words.append(field & _MASK)
    bits = nulls.to_bytes(_null_bytes(len(fields)), "little")
    if sys.byteorder == "big":
        bits = b"".join(bits[i : i + _WORD][::-1] for i in range(0, len(bits), _WORD))
    return b"".join((head, bits, struct.pack(f"={len(words)}Q", *words), *parts))


def _null_bytes(fields: int) -> int:
    return (fields + 63) // 64 * _WORD


def _number(number: int) -> bytes:
    return struct.pack("=q", number)


def _decimal(value: Decimal, data_type: DataType) -> Word:
    assert isinstance(data_type, DecimalType)
    unscaled = int(value.scaleb(data_type.scale, _EXACT))
    if data_type.precision <= _LONG_DIGITS:
        return unscaled
    size = max((unscaled.bit_length() + 8) // 8, 1)
    assert size <= _LARGE_DECIMAL_BYTES
    return unscaled.to_bytes(size, "big", signed=True)
