"""`DeltaSourceOffset`: how far a stream has read a table, and its JSON in a checkpoint.

The JSON is delta-spark's, field by field, so that a checkpoint goes back and forth between the
two.  An offset is a version and a place in it: before its files, at one of them, at a change of
the table's definition.  A version that was read to its end is never told: the next one is.

>>> offset = DeltaSourceOffset(table_id="a", version=3, index=BASE_INDEX, is_initial=False)
>>> offset.to_json()
'{"sourceVersion":1,"reservoirId":"a","reservoirVersion":3,"index":-1,"isStartingVersion":false}'
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark_delta.errors.table import StreamError

BASE_INDEX = -100
"""Before everything in a version; stored as -1."""
METADATA_CHANGE_INDEX = -20
"""At a change of schema, properties or protocol, which the reader must take up first."""
POST_METADATA_CHANGE_INDEX = -19
"""Behind such a change."""
END_INDEX = 2**63 - 1 - 100
"""Behind all files of a version; never stored."""

_STORED_BASE_INDEX = -1
_FORMAT = 1
_FORMAT_OF_CHANGES = 3
_BARRIERS = (METADATA_CHANGE_INDEX, POST_METADATA_CHANGE_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSourceOffset:
    """All up to here is read.

    `is_initial` says that the place is one in the table as a whole at that version, with which a
    stream begins, and not one in the commit that made the version.
    """

    table_id: str
    version: int
    index: int
    is_initial: bool

    @property
    def place(self) -> tuple[int, int]:
        """Version and index; later offsets of a stream have larger ones."""
        return (self.version, self.index)

    @property
    def is_barrier(self) -> bool:
        """Whether it is at a change of the table's definition."""
        return self.index in _BARRIERS

    def to_json(self) -> str:
        """The offset as a checkpoint holds it."""
        fields = {
            "sourceVersion": _FORMAT_OF_CHANGES if self.is_barrier else _FORMAT,
            "reservoirId": self.table_id,
            "reservoirVersion": self.version,
            "index": _STORED_BASE_INDEX if self.index == BASE_INDEX else self.index,
            "isStartingVersion": self.is_initial,
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def parse_offset(text: str, table_id: str) -> DeltaSourceOffset:
    """The offset in a checkpoint of a stream that reads the table of that id."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT") from None
    if not isinstance(fields, dict):
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT")
    found_format = _whole(fields, "sourceVersion")
    if found_format > _FORMAT_OF_CHANGES:
        raise StreamError(
            "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION",
            realVersion=found_format,
            expectedVersion=_FORMAT_OF_CHANGES,
        )
    if found_format not in (_FORMAT, _FORMAT_OF_CHANGES):
        raise StreamError("DELTA_INVALID_SOURCE_VERSION", version=found_format)
    found_id, is_initial = fields.get("reservoirId"), fields.get("isStartingVersion")
    if not isinstance(found_id, str) or not isinstance(is_initial, bool):
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT")
    if found_id != table_id:
        raise StreamError(
            "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            oldTableId=found_id,
            newTableId=table_id,
        )
    version, index = _whole(fields, "reservoirVersion"), _whole(fields, "index")
    if found_format == _FORMAT and index == _STORED_BASE_INDEX:
        index = BASE_INDEX
    is_known_index = index >= 0 or index == BASE_INDEX or index in _BARRIERS
    if version < 0 or not is_known_index or index >= END_INDEX:
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT")
    return DeltaSourceOffset(table_id=table_id, version=version, index=index, is_initial=is_initial)


def _whole(fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT")
    return value
