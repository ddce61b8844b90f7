"""What `FileIndex.listFiles` returns, for any number of files in a handful of calls.

Files are described in Spark's own binary rows (`unsafe_rows`), one for each group; Spark's own
machinery for objects, which makes a user's classes out of rows, makes `FileStatus` and
`PartitionDirectory` of them.  A call for each file would cost far more than to read a small one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.unsafe_rows import TextRows, array_bytes, row_bytes, values_row

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_SOURCES = "org.apache.spark.sql.execution.datasources"
_FILE_STATUS = "org.apache.hadoop.fs.FileStatus"
_FILE = StructType(
    (StructField("name", STRING), StructField("size", LONG), StructField("time", LONG))
)
_CODEGEN = "spark.sql.codegen.factoryMode"
# From so many files on a prefix is told once.
_MANY = 4096
# From so many bytes on a file is the faster way to Java.
_LARGE = 1024 * 1024
# The head of Java's serialization, and the mark of a long block of bytes.
_JAVA_BLOCK = b"\xac\xed\x00\x05\x7a"
# Where the bytes of a Java array begin, which Spark's unsafe classes count in.
_ARRAY_START = 16
_LOCK = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroups:
    """Files by their partition values, each group's in one run.

    `names` behind `prefix` are decoded locations, as Hadoop's Path takes them; `values` are those
    of the partition columns, one tuple for each group, in the form that `word_of` takes.
    """

    prefix: str
    names: pa.Array
    sizes: pa.Array
    modified_ms: pa.Array
    counts: Sequence[int]
    values: Sequence[tuple[Any, ...]]

    def only(self, wanted: Sequence[bool]) -> FileGroups:
        """The groups that are wanted."""
        if all(wanted):
            return self
        of_files = pa.array(
            [keep for keep, count in zip(wanted, self.counts, strict=True) for _ in range(count)],
            pa.bool_(),
        )
        return FileGroups(
            prefix=self.prefix,
            names=self.names.filter(of_files),
            sizes=self.sizes.filter(of_files),
            modified_ms=self.modified_ms.filter(of_files),
            counts=[c for c, keep in zip(self.counts, wanted, strict=True) if keep],
            values=[v for v, keep in zip(self.values, wanted, strict=True) if keep],
        )


def partition_directories(jvm: JvmSession, schema: StructType, groups: FileGroups) -> Any:
    """A Scala sequence of `PartitionDirectory`, whose rows have the types of `schema`."""
    if not groups.counts:
        return jvm.java_class("scala.collection.immutable.Nil$")
    is_shared = _shares_prefix(jvm, len(groups.names))
    names = groups.names if is_shared else _whole_names(groups)
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
    # Spark's maker keeps what it last made, so only one thread may use it at a time.
    with _LOCK:
        return catalyst_rows(jvm, rows, _group_type(width)).map(maker)


def _shares_prefix(jvm: JvmSession, num_files: int) -> bool:
    """Whether what is before all names is told once, and not with each of them.

    For many files that is a lot of text.  But where nothing is compiled, Spark does not let what
    is done for each file see what all have in common.
    """
    return num_files > _MANY and jvm.spark.conf.get(_CODEGEN, "FALLBACK") != "NO_CODEGEN"


def _whole_names(groups: FileGroups) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(groups.prefix), groups.names, "")


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


_ENCODERS = "org.apache.spark.sql.catalyst.encoders"


def _bound(jvm: JvmSession, one: Any, schema: StructType, attributes: Any) -> Any:
    """A filter on columns by name as one on places in a row."""
    used = one.references().toSeq()
    width = used.size()
    places: list[Any] = [None] * len(schema)
    for index in range(width):
        attribute = used.apply(index)
        places[schema.names.index(attribute.name())] = attribute
    sequence = jvm.seq(
        [found or attributes.apply(index) for index, found in enumerate(places)],
    )
    wrapped = jvm.java_class(f"{_EXPRESSIONS}.package$AttributeSeq")(sequence)
    return jvm.java_class(f"{_EXPRESSIONS}.BindReferences$").bindReference(one, wrapped, False)


def catalyst_rows(jvm: JvmSession, rows: Sequence[bytes], schema: StructType) -> Any:
    """A Scala sequence of Catalyst's rows over one shared buffer."""
    data = array_bytes(rows)
    array = jvm.java_class(f"{_EXPRESSIONS}.UnsafeArrayData")()
    if len(data) < _LARGE:
        array.pointTo(data, _ARRAY_START, len(data))
    else:
        _fill(jvm, array, data, len(rows))
    key = f"{__name__} row {len(schema)}"
    # Only how many fields there are counts here, which is no secret of their types.
    return array.toSeq(jvm.remembered(key, lambda: jvm.data_type(_as_wide(len(schema)))))


def _fill(jvm: JvmSession, array: Any, data: bytes, count: int) -> None:
    """Let an array of so many elements have the bytes, by way of a local file.

    Py4J would take them as text, and several copies of it.  Java reads the array as it would
    one that it wrote itself: sizes and bytes in one block of its serialization.
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
    """A row of a group: partition values, what is before all names, and the files."""
    return StructType(
        (
            StructField("values", _as_wide(width)),
            StructField("prefix", STRING),
            StructField("files", ArrayType(_FILE, contains_null=False)),
        )
    )


def _maker(jvm: JvmSession, width: int, is_shared: bool) -> Any:
    """A Scala function from a group's row to its `PartitionDirectory`."""
    make = _Expressions(jvm)
    values, prefix, listed = (
        make.field(place, f.data_type) for place, f in enumerate(_group_type(width))
    )
    file = jvm.java_class(f"{_EXPRESSIONS}.objects.LambdaVariable")(
        "file", jvm.data_type(_FILE), False, 0
    )
    name, size, time = (
        jvm.java_class(f"{_EXPRESSIONS}.GetStructField")(file, place, jvm.none())
        for place in range(3)
    )
    whole = make.joined(prefix, name) if is_shared else name
    text = make.called(whole, "toString", "java.lang.String")
    path = make.new("org.apache.hadoop.fs.Path", text)
    # Length, not a directory, one copy, blocks of no size, and when it was written.
    status = make.new(
        _FILE_STATUS, size, make.parsed("false"), make.parsed("1"), make.parsed("0L"), time, path
    )
    nothing = make.object(jvm.scala_map({}), "scala.collection.immutable.Map")
    described = make.new(f"{_SOURCES}.FileStatusWithMetadata", status, nothing)
    files = jvm.java_class(f"{_EXPRESSIONS}.objects.MapObjects")(
        file, described, listed, jvm.some(make.class_named("scala.collection.immutable.Seq"))
    )
    # A copy, for it lives as long as the plan, and would keep the whole buffer.
    own = make.called(values, "copy", "org.apache.spark.sql.catalyst.InternalRow")
    directory = make.new(f"{_SOURCES}.PartitionDirectory", own, files)
    return jvm.java_class(f"{_ENCODERS}.ExpressionEncoder$Deserializer")(jvm.seq([directory]))


class _Expressions:
    """Catalyst's expressions that make objects."""

    def __init__(self, jvm: JvmSession) -> None:
        self._jvm = jvm
        self._parser = jvm.session.sessionState().sqlParser()

    def field(self, place: int, data_type: Any) -> Any:
        reference = self._jvm.java_class(f"{_EXPRESSIONS}.BoundReference")
        return reference(place, self._jvm.data_type(data_type), False)

    def parsed(self, text: str) -> Any:
        return self._parser.parseExpression(text)

    def text(self, value: str) -> Any:
        return self._jvm.java_class(f"{_EXPRESSIONS}.Literal$").apply(value)

    def joined(self, *parts: Any) -> Any:
        return self._jvm.java_class(f"{_EXPRESSIONS}.Concat")(self._jvm.seq(parts))

    def object(self, value: Any, class_name: str) -> Any:
        return self._jvm.java_class(f"{_EXPRESSIONS}.Literal")(value, self._type(class_name))

    def new(self, class_name: str, *arguments: Any) -> Any:
        return self._jvm.java_class(f"{_EXPRESSIONS}.objects.NewInstance")(
            self.class_named(class_name),
            self._jvm.seq(arguments),
            self._jvm.seq([]),
            False,
            self._type(class_name),
            self._jvm.none(),
        )

    def called(self, target: Any, method: str, class_name: str) -> Any:
        flags = (True, True, True)  # null gives null, may be null, the same each time
        return self._jvm.java_class(f"{_EXPRESSIONS}.objects.Invoke")(
            target, method, self._type(class_name), self._jvm.seq([]), self._jvm.seq([]), *flags
        )

    def class_named(self, name: str) -> Any:
        return self._jvm.static("java.lang.Class", "forName")(name)

    def _type(self, class_name: str) -> Any:
        object_type = self._jvm.java_class("org.apache.spark.sql.types.ObjectType")
        return object_type(self.class_named(class_name))
