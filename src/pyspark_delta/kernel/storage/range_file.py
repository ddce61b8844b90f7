"""A stored file as a seekable Python file, for readers that jump about: Parquet footers first.

Every read is one range request; nothing is kept between them, because pyarrow already asks for
whole column chunks.

>>> file = RangeFile(lambda path, start, length: b"abcdef"[start : start + length], "x", 6)
>>> file.seek(4), file.read()
(4, b'ef')
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class RangeFile(io.RawIOBase):
    """`read_range(path, start, length)` behind the interface of a file of `size` bytes."""

    def __init__(self, read_range: Callable[[str, int, int], bytes], path: str, size: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """True: this is what it is for."""
        return True

    def seekable(self) -> bool:
        """True: a position costs nothing until it is read from."""
        return True

    def tell(self) -> int:
        """Where the next read starts."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move as `io.IOBase.seek` does, without touching the store."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def size(self) -> int:
        """The file's length, which pyarrow asks for."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, all that are left when it is negative; b"" at the end."""
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._read_range(self._path, self._position, length)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Everything from the position on, as one range."""
        return self.read(-1)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as the file goes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
