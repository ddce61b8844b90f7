"""Blocks of bytes on the driver's disk: too much for its memory, written once, read often."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from tempfile import TemporaryFile

_LENGTH = struct.Struct("<Q")
_FASTEST = 1


class Spool:
    """A file without a name, gone when it is closed or the process ends.  For one thread."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="pyspark-delta-")  # noqa: SIM115 - closed by `close`
        self._end = 0

    def append(self, block: bytes) -> None:
        """Add a block behind the others."""
        packed = zlib.compress(block, _FASTEST)
        self._file.seek(self._end)
        self._end += self._file.write(_LENGTH.pack(len(packed))) + self._file.write(packed)

    def __iter__(self) -> Iterator[bytes]:
        """The blocks in their order; as often as one likes."""
        at = 0
        while at < self._end:
            self._file.seek(at)
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            block = zlib.decompress(self._file.read(length))
            at += _LENGTH.size + length
            yield block

    def close(self) -> None:
        """Free the disk."""
        self._file.close()
