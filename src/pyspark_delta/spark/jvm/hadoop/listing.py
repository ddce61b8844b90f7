"""Listings of Hadoop file systems: passes many `FileStatus` objects out of the JVM in one call."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark_delta.kernel.ops.footers.thrift_compact import read_varint
from pyspark_delta.kernel.storage.base import FileInfo
from pyspark_delta.spark.jvm.gateway import JvmSession, items

_DIRECTORY, _FILE = 1, 2
# Field numbers of FileStatusProto.
_KIND_FIELD, _PATH_FIELD, _LENGTH_FIELD, _MODIFIED_FIELD = 1, 2, 3, 7
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_LISTER = "org.apache.spark.util.HadoopFSUtils"
_MAX_TASKS = 10_000
_STATUS = "org.apache.hadoop.fs.FileStatus"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStatus:
    """An entry of a directory; `parent` is the directory's path without scheme and host."""

    parent: str
    name: str
    kind: int
    size: int
    modified_ms: int

    def file_info(self, path: str) -> FileInfo:
        """The entry as a file at that path below a store's root."""
        return FileInfo(path=path, size=self.size, modified_ms=self.modified_ms)

    @property
    def is_file(self) -> bool:
        """Whether it is a file: neither a directory nor a symbolic link."""
        return self.kind == _FILE

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory, and not a symbolic link to one."""
        return self.kind == _DIRECTORY


def listed_statuses(jvm: JvmSession, statuses: Any) -> list[ListedStatus]:
    """The entries of a Java array of `FileStatus`."""
    count = len(statuses)
    if not count:
        return []
    # Py4J passes an array of a subclass only as an Object.
    writables = jvm.gateway.new_array(jvm.java_class("org.apache.hadoop.io.Writable"), count)
    jvm.static("java.lang.System", "arraycopy")(statuses, 0, writables, 0, count)
    array_of = jvm.java_class("org.apache.hadoop.io.ArrayWritable")
    array = array_of(jvm.class_named(_STATUS), writables)
    buffer = jvm.java_class("java.io.ByteArrayOutputStream")()
    array.write(jvm.java_class("java.io.DataOutputStream")(buffer))
    return parse_statuses(buffer.toByteArray())


def parse_statuses(data: bytes) -> list[ListedStatus]:
    r"""The entries that Hadoop's `ArrayWritable` wrote, as on the wire.

    That is their number, then each as a `FileStatusProto` message with its length in front.

    >>> message = bytes((0x08, 2, 0x12, 4)) + b"/a/b" + bytes((0x18, 5, 0x22, 1, 0, 0x38, 7))
    >>> parse_statuses(b"\0\0\0\1\0\0\0\x0f" + message)
    [ListedStatus(parent='/a', name='b', kind=2, size=5, modified_ms=7)]
    """
    (count,) = struct.unpack_from(">i", data)
    at = 4
    found = []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, at)
        found.append(_parse_status(data[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def list_leaf_files(
    jvm: JvmSession, directories: Iterable[Any], conf: Any, tasks_above: int
) -> list[ListedStatus]:
    """The files below Java paths, by Spark tasks when there are more than `tasks_above` of these.

    Executors reach a Hadoop file system through Java alone, so this is Spark's own lister, which
    Spark uses for its own tables.  It skips the names that `kernel.ops.convert.tree_listing` calls
    hidden.
    """
    lister = jvm.java_class(_LISTER)
    # Newer versions of Spark also take the pattern of hidden names.
    pattern = (
        (lister.defaultIgnoredPathSegmentRegexPattern(),)
        if "defaultIgnoredPathSegmentRegexPattern" in dir(lister)
        else ()
    )
    ignores_missing, ignores_locality = True, True
    by_directory = lister.parallelListLeafFiles(
        jvm.spark.sparkContext._jsc.sc(),
        jvm.seq(directories),
        conf,
        None,
        ignores_missing,
        *pattern,
        ignores_locality,
        tasks_above,
        _MAX_TASKS,
    )
    tag = jvm.static("scala.reflect.ClassTag", "apply")(jvm.class_named(_STATUS))
    arrays = [pair._2().toArray(tag) for pair in items(by_directory)]
    return [entry for array in arrays for entry in listed_statuses(jvm, array)]


def _parse_status(message: bytes) -> ListedStatus:
    numbers: dict[int, int] = defaultdict(int)
    path = ""
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            numbers[field], at = read_varint(message, at)
        elif wire == _BYTES:
            length, at = read_varint(message, at)
            if field == _PATH_FIELD:
                path = message[at : at + length].decode()
            at += length
        else:
            at += {_FIXED_64: 8, _FIXED_32: 4}[wire]
    parent, _, name = _without_host(path).rpartition("/")
    return ListedStatus(
        parent=parent,
        name=name,
        kind=numbers[_KIND_FIELD],
        size=numbers[_LENGTH_FIELD],
        modified_ms=numbers[_MODIFIED_FIELD],
    )


def _without_host(location: str) -> str:
    """The path of a location as Hadoop prints it: not escaped, with or without scheme and host."""
    if location.startswith("/"):
        return location
    rest = location.partition(":")[2]
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest
