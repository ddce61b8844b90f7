r"""A directory's `FileStatus` objects out of the JVM in one call: the way back of `file_statuses`.

Hadoop writes them as it does on the wire: their number, then a `FileStatusProto` message behind
its length each.

>>> message = bytes((0x08, 2, 0x12, 4)) + b"/a/b" + bytes((0x18, 5, 0x22, 1, 0, 0x38, 7))
>>> parse_statuses(b"\0\0\0\1\0\0\0\x0f" + message)
[ListedStatus(parent='/a', name='b', kind=2, size=5, modified_ms=7)]
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession

_DIRECTORY, _FILE = 1, 2
# Field numbers of FileStatusProto.
_KIND, _PATH, _LENGTH, _MODIFIED = 1, 2, 3, 7
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ListedStatus:
    """An entry of a directory; `parent` is the directory's path without scheme and host."""

    parent: str
    name: str
    kind: int
    size: int
    modified_ms: int

    @property
    def is_file(self) -> bool:
        """Neither a directory nor a symbolic link."""
        return self.kind == _FILE

    @property
    def is_directory(self) -> bool:
        """A directory, and no symbolic link to one."""
        return self.kind == _DIRECTORY


def listed_statuses(jvm: JvmSession, statuses: Any) -> list[ListedStatus]:
    """The entries of a Java array of `FileStatus`."""
    count = len(statuses)
    if not count:
        return []
    # Py4J takes an array of a subclass for nothing but an Object.
    writables = jvm.gateway.new_array(jvm.java_class("org.apache.hadoop.io.Writable"), count)
    jvm.static("java.lang.System", "arraycopy")(statuses, 0, writables, 0, count)
    status_class = jvm.static("java.lang.Class", "forName")("org.apache.hadoop.fs.FileStatus")
    array = jvm.java_class("org.apache.hadoop.io.ArrayWritable")(status_class, writables)
    buffer = jvm.java_class("java.io.ByteArrayOutputStream")()
    array.write(jvm.java_class("java.io.DataOutputStream")(buffer))
    return parse_statuses(buffer.toByteArray())


def parse_statuses(data: bytes) -> list[ListedStatus]:
    """The entries that Hadoop's `ArrayWritable` wrote."""
    (count,) = struct.unpack_from(">i", data)
    at = 4
    found = []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", data, at)
        found.append(_parse_status(data[at + 4 : at + 4 + length]))
        at += 4 + length
    return found


def _parse_status(message: bytes) -> ListedStatus:
    numbers = dict.fromkeys((_KIND, _LENGTH, _MODIFIED), 0)
    path = ""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            if field in numbers:
                numbers[field] = value
        elif wire == _BYTES:
            length, at = _varint(message, at)
            if field == _PATH:
                path = message[at : at + length].decode()
            at += length
        else:
            at += {_FIXED_64: 8, _FIXED_32: 4}[wire]
    parent, _, name = _without_host(path).rpartition("/")
    return ListedStatus(parent, name, numbers[_KIND], numbers[_LENGTH], numbers[_MODIFIED])


def _without_host(location: str) -> str:
    """The path of a location as Hadoop prints it: not escaped, with or without scheme and host."""
    if location.startswith("/"):
        return location
    rest = location.partition(":")[2]
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    return rest


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
