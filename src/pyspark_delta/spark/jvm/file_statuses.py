"""Thousands of Hadoop's `FileStatus` objects in one call.

They are written here as Hadoop 3 writes them on the wire, a `FileStatusProto` message behind its
length each, and read there by `ArrayWritable`.  A call for each file would cost far more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession

# Field numbers of FileStatusProto, each with its wire type: 0 is a number, 2 is bytes.
_FILE_TYPE, _PATH, _LENGTH, _PERMISSION = 0x08, 0x12, 0x18, 0x22
_OWNER, _GROUP, _MODIFIED, _ACCESSED = 0x2A, 0x32, 0x38, 0x40
_IS_FILE = 2
_HEAD = bytes((_FILE_TYPE, _IS_FILE, _PATH))
# Permission 0644, no owner, no group: nobody asks a scan for them.
_MIDDLE = bytes((_PERMISSION, 3, 0x08)) + b"\xa4\x03" + bytes((_OWNER, 0, _GROUP, 0, _MODIFIED))
_TAIL = bytes((_ACCESSED, 0))


class FileStatuses:
    """Many `FileStatus` objects, made at once and taken in parts."""

    def __init__(self, jvm: JvmSession, files: Iterable[tuple[str, int, int]]) -> None:
        """`files` are decoded locations, sizes, and modification times in ms."""
        messages = [_message(location, size, modified) for location, size, modified in files]
        parts = [struct.pack(">i", len(messages))]
        for message in messages:
            parts += (struct.pack(">i", len(message)), message)
        java = jvm.jvm
        status_class = java.java.lang.Class.forName("org.apache.hadoop.fs.FileStatus")
        array = java.org.apache.hadoop.io.ArrayWritable(status_class)
        stream = java.java.io.ByteArrayInputStream(b"".join(parts))
        array.readFields(java.java.io.DataInputStream(stream))
        self._jvm = jvm
        self._all: Any = array.get()

    def part(self, start: int, length: int) -> Any:
        """A Java array of `length` of them, from `start` on."""
        java = self._jvm.jvm
        part = self._jvm.gateway.new_array(java.org.apache.hadoop.fs.FileStatus, length)
        # Py4J would not take an array of Writable for anything but an Object.
        java.java.lang.System.arraycopy(self._all, start, part, 0, length)
        return part


def _message(location: str, size: int, modified: int) -> bytes:
    path = location.encode()
    return b"".join(
        (
            _HEAD,
            _varint(len(path)),
            path,
            bytes((_LENGTH,)),
            _varint(size),
            _MIDDLE,
            _varint(modified),
            _TAIL,
        )
    )


def _varint(number: int) -> bytes:
    """A whole number, seven bits a byte, the last one without its top bit."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
