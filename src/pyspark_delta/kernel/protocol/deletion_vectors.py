"""Deletion vectors: sets of deleted rows of a data file, their descriptors and their files.

A `DeletionVector` is a set of row positions.  A descriptor has the location of its bytes; `read`
and `pack` handle the frames of a deletion vector file.  The caller passes a function that reads
bytes; it is called for a range only when the file is long enough to hold it.
PROTOCOL.md, "Deletion Vectors", "Deletion Vector Format", "Deletion Vector File Storage Format".

>>> descriptor = inline_descriptor(DeletionVector([3, 4, 7, 11, 18, 29]))
>>> descriptor.path_or_inline_dv
'^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L'
>>> read_deletion_vector(descriptor).rows_between(4, 12).tolist()
[4, 7, 11]
"""

from __future__ import annotations

import array
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from pyroaring import BitMap64

from pyspark_delta.errors import DeletionVectorError, UnsafePathError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.roaring import MAX_ROW, format_bitmap, parse_bitmap

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {ord(character): value for value, character in enumerate(ALPHABET)}
_POWERS = (85**4, 85**3, 85**2, 85, 1)
IN_TABLE = "u"
INLINE = "i"
ABSOLUTE = "p"
TARGET_FILE_BYTES = 2 * 1024 * 1024  # delta-spark starts another file beyond this size
_FILE_VERSION = b"\x01"
_UUID_CHARACTERS = 20
_FRAME_BYTES = 8  # the length before a vector and the checksum after it
_MAX_INT = 2**31 - 1
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
ReadRange = Callable[[str, int, int], bytes]


def encode_z85(data: bytes) -> str:
    """The Z85 text of `data`, whose length must be a multiple of four.

    ZeroMQ's RFC 32 defines Z85, PROTOCOL.md names it: text that needs no escaping in JSON, four
    bytes to five characters.

    >>> encode_z85(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    if len(data) % 4:
        raise ValueError(f"Z85 takes groups of 4 bytes, not {len(data)} bytes")
    return "".join(
        ALPHABET[word // power % 85]
        for (word,) in struct.iter_unpack(">I", data)
        for power in _POWERS
    )


def decode_z85(text: str) -> bytes:
    """The bytes of a Z85 text; ValueError for a character or group that Z85 does not have.

    >>> decode_z85("HelloWorld").hex()
    '864fd26fb559f75b'
    """
    if len(text) % 5:
        raise ValueError(f"Z85 takes groups of 5 characters, not {len(text)} characters")
    try:
        digits = [_VALUES[ord(character)] for character in text]
    except KeyError as error:
        raise ValueError(f"Z85 has no character {chr(error.args[0])!r}") from None
    words = []
    for at in range(0, len(digits), 5):
        a, b, c, d, e = digits[at : at + 5]
        word = (((a * 85 + b) * 85 + c) * 85 + d) * 85 + e
        if word > 0xFFFF_FFFF:
            raise ValueError(f"the Z85 group {text[at : at + 5]!r} is larger than 4 bytes")
        words.append(word)
    return struct.pack(f">{len(words)}I", *words)


class DeletionVector:
    """An immutable set of row positions, counted from 0 in the physical order of the file."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[int] = ()) -> None:
        bitmap = rows.copy() if isinstance(rows, BitMap64) else BitMap64(rows)
        if bitmap and bitmap.max() > MAX_ROW:
            raise ValueError(f"there is no row {bitmap.max()}")
        self._rows = bitmap

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The vector that `serialize` wrote; DeletionVectorError for other bytes."""
        try:
            return cls(parse_bitmap(data))
        except ValueError as error:
            raise DeletionVectorError("DELTA_DELETION_VECTOR_MALFORMED", reason=error) from None

    def serialize(self) -> bytes:
        """The vector's bytes, without frame and checksum."""
        return format_bitmap(self._rows)

    @property
    def cardinality(self) -> int:
        """The number of deleted rows."""
        return len(self._rows)

    @property
    def max_row(self) -> int | None:
        """The last deleted row; None when there is none."""
        return int(self._rows.max()) if self._rows else None

    @property
    def min_row(self) -> int | None:
        """The first deleted row; None when there is none."""
        return int(self._rows.min()) if self._rows else None

    def rows_between(self, start: int, stop: int) -> array.array[int]:
        """The deleted rows from `start` (included) to `stop` (excluded), in order.

        The cost grows with `stop - start`: call it for a batch, not for a table.
        """
        window = self._rows
        if window and not start <= window.min() <= window.max() < stop:
            window = BitMap64()
            if start < stop:
                window.add_range(start, stop)
                window &= self._rows
        rows: array.array[int] = window.to_array()
        return rows

    def union(self, other: DeletionVector) -> DeletionVector:
        """The rows that one or both delete."""
        return DeletionVector(self._rows | other._rows)

    def difference(self, other: DeletionVector) -> DeletionVector:
        """The rows that this vector deletes and `other` does not."""
        return DeletionVector(self._rows - other._rows)

    def is_subset(self, other: DeletionVector) -> bool:
        """Whether `other` deletes every row that this vector does."""
        return bool(self._rows <= other._rows)

    def is_disjoint(self, other: DeletionVector) -> bool:
        """Whether no row is deleted by both."""
        return bool(self._rows.isdisjoint(other._rows))

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and row in self._rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeletionVector) and bool(self._rows == other._rows)

    def __hash__(self) -> int:
        return hash((len(self._rows), self.max_row))

    def __repr__(self) -> str:
        return f"DeletionVector({self.cardinality} rows)"

    def __reduce__(self) -> tuple[Callable[[bytes], DeletionVector], tuple[bytes]]:
        return (DeletionVector.parse, (self.serialize(),))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorLocation:
    """The location of a vector's bytes.  Exactly one of `path`, `uri` and `inline` is set."""

    path: str | None = None  # decoded, relative to the table's root
    uri: str | None = None  # absolute, as the log spells it
    inline: bytes | None = None
    offset: int = 0  # of the frame: length, vector, checksum
    size_in_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVectorFile:
    """A file to write at `path`, and the descriptor of each vector in it, in order."""

    path: str
    data: bytes
    descriptors: tuple[DeletionVectorDescriptor, ...]


def locate(descriptor: DeletionVectorDescriptor) -> DeletionVectorLocation:
    """The location in the descriptor.  Never a `path` that leads out of the table."""
    size = descriptor.size_in_bytes
    offset = descriptor.offset or 0
    if not 0 <= size <= _MAX_INT:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_SIZE_MISMATCH")
    if offset < 0:
        raise _illegal(f"the offset {offset} is negative")
    if descriptor.cardinality < 0:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH")
    where = descriptor.path_or_inline_dv
    match descriptor.storage_type:
        case "u":
            return DeletionVectorLocation(
                path=_path_in_table(where), offset=offset, size_in_bytes=size
            )
        case "p":
            if not _HAS_SCHEME.match(where) or "\0" in where:
                raise DeletionVectorError("DELTA_CANNOT_RECONSTRUCT_PATH_FROM_URI", uri=where)
            return DeletionVectorLocation(uri=where, offset=offset, size_in_bytes=size)
        case "i":
            return DeletionVectorLocation(inline=_inline_bytes(where, size), size_in_bytes=size)
        case other:
            raise _illegal(f"there is no storage type {other!r}")


def read_deletion_vector(
    descriptor: DeletionVectorDescriptor,
    read_range: ReadRange | None = None,
    file_size: int | None = None,
) -> DeletionVector:
    """The vector of `descriptor`, checked against every field of the descriptor.

    `read_range(path or uri, offset, length)` and the size of the file in bytes are needed unless
    the vector is inline.
    """
    location = locate(descriptor)
    if location.inline is not None:
        data = location.inline
    else:
        if read_range is None or file_size is None:
            raise ValueError("a vector in a file needs read_range and file_size")
        data = _framed_bytes(location, read_range, file_size)
    vector = DeletionVector.parse(data)
    if vector.cardinality != descriptor.cardinality:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH")
    return vector


def check_rows_exist(vector: DeletionVector, num_records: int) -> None:
    """Raise if a vector deletes a row beyond the last of its file's `num_records` rows."""
    if vector.max_row is not None and vector.max_row >= num_records:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_INVALID_ROW_INDEX")


def inline_descriptor(vector: DeletionVector) -> DeletionVectorDescriptor:
    """A descriptor that holds the vector itself; for small ones."""
    data = vector.serialize()
    return DeletionVectorDescriptor(
        storage_type=INLINE,
        path_or_inline_dv=encode_z85(data + bytes(-len(data) % 4)),
        size_in_bytes=len(data),
        cardinality=vector.cardinality,
    )


def pack_deletion_vectors(
    vectors: Sequence[DeletionVector],
    *,
    next_id: Callable[[], UUID],
    prefix: str = "",
    target_bytes: int = TARGET_FILE_BYTES,
) -> tuple[DeletionVectorFile, ...]:
    """The files that hold `vectors`, in order; a new file begins once one exceeds `target_bytes`.

    `next_id` names each file; `prefix` is a directory below the table's root, "" for the root.
    """
    files = []
    pending: list[tuple[bytes, int]] = []
    size = 1
    for vector in vectors:
        data = vector.serialize()
        if pending and size + len(data) + _FRAME_BYTES > target_bytes:
            files.append(_file(pending, next_id(), prefix))
            pending, size = [], 1
        pending.append((data, vector.cardinality))
        size += len(data) + _FRAME_BYTES
    if pending:
        files.append(_file(pending, next_id(), prefix))
    return tuple(files)


def deletion_vector_path(file_id: UUID, prefix: str = "") -> str:
    """The decoded path of a deletion vector file, relative to the table's root."""
    name = f"deletion_vector_{file_id}.bin"
    return f"{prefix}/{name}" if prefix else name


def _file(pending: Sequence[tuple[bytes, int]], file_id: UUID, prefix: str) -> DeletionVectorFile:
    where = prefix + encode_z85(file_id.bytes)
    parts = [_FILE_VERSION]
    descriptors = []
    offset = 1
    for data, cardinality in pending:
        parts += (struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data)))
        descriptors.append(
            DeletionVectorDescriptor(
                storage_type=IN_TABLE,
                path_or_inline_dv=where,
                offset=offset,
                size_in_bytes=len(data),
                cardinality=cardinality,
            )
        )
        offset += len(data) + _FRAME_BYTES
    return DeletionVectorFile(
        path=_path_in_table(where), data=b"".join(parts), descriptors=tuple(descriptors)
    )


def _framed_bytes(location: DeletionVectorLocation, read_range: ReadRange, file_size: int) -> bytes:
    length = location.size_in_bytes + _FRAME_BYTES
    if location.offset + length > file_size:
        # A descriptor may claim any size; only one that fits the file may cost memory.
        raise DeletionVectorError("DELTA_DELETION_VECTOR_SIZE_MISMATCH")
    frame = read_range(location.path or location.uri or "", location.offset, length)
    if len(frame) != length:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_SIZE_MISMATCH")
    data = frame[4:-4]
    if struct.unpack_from(">i", frame) != (len(data),):
        raise DeletionVectorError("DELTA_DELETION_VECTOR_SIZE_MISMATCH")
    if struct.unpack(">I", frame[-4:]) != (zlib.crc32(data),):
        raise DeletionVectorError("DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH")
    return data


def _path_in_table(where: str) -> str:
    prefix, encoded = where[:-_UUID_CHARACTERS], where[-_UUID_CHARACTERS:]
    try:
        file_id = UUID(bytes=decode_z85(encoded))
    except ValueError as error:
        raise _illegal(f"{where!r} does not end in the text of a UUID: {error}") from None
    if prefix and ("\0" in prefix or not _is_plain(prefix)):
        raise UnsafePathError(
            "DELTA_UNSAFE_PATH",
            path=deletion_vector_path(file_id, prefix),
            table="<unknown>",
            reason="the prefix of a deletion vector leads out of the table",
        )
    return deletion_vector_path(file_id, prefix)


def _is_plain(prefix: str) -> bool:
    # A backslash separates names for some readers, so it must not help to climb either.
    segments = prefix.replace("\\", "/").split("/")
    return not any(segment in ("", ".", "..") for segment in segments)


def _inline_bytes(text: str, size: int) -> bytes:
    try:
        data = decode_z85(text)
    except ValueError as error:
        raise _illegal(str(error)) from None
    if not size <= len(data) < size + 4:
        raise DeletionVectorError("DELTA_DELETION_VECTOR_SIZE_MISMATCH")
    return data[:size]


def _illegal(reason: str) -> DeletionVectorError:
    return DeletionVectorError("DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR", reason=reason)
