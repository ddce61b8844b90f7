"""A stream's checkpoint: `DeltaSourceOffset` as JSON, and a guard on the numbers of sources.

The JSON is delta-spark's, field by field, so that both engines can continue a checkpoint.  An
offset is a version and a place in it: before its files, at one of them, at a change of the table's
definition.  An offset never is the end of a version, but the beginning of the next one.

>>> offset = DeltaSourceOffset(table_id="a", version=3, index=BASE_INDEX, is_initial=False)
>>> offset.to_json()
'{"sourceVersion":1,"reservoirId":"a","reservoirVersion":3,"index":-1,"isStartingVersion":false}'
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark_delta.errors import FileAlreadyExistsError, FileMissingError, StreamError
from pyspark_delta.kernel.storage.base import LogStore

BASE_INDEX = -100
"""Before everything in a version; stored as -1."""
METADATA_CHANGE_INDEX = -20
"""At a change of schema, properties or protocol, which the reader must adopt first."""
POST_METADATA_CHANGE_INDEX = -19
"""After such a change."""
END_INDEX = 2**63 - 1 - 100
"""After all files of a version; never stored."""
_STORED_BASE_INDEX = -1
_FORMAT = 1
_FORMAT_OF_CHANGES = 3
_BARRIERS = (METADATA_CHANGE_INDEX, POST_METADATA_CHANGE_INDEX)
SOURCE_MARK = b"v1000000\nThe sources of this query are numbered as pyspark-delta numbers them.\n"
"""A source state of an impossible version, which no release of Spark can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSourceOffset:
    """A position in a table's stream: all entries up to it are read.

    With `is_initial` the position is among all files of the table at that version, with which a
    stream begins, and not in the commit that made the version.
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
        return self.index in _BARRIERS

    def to_json(self) -> str:
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


def guard_numbers(checkpoint: LogStore, ours: Sequence[bool]) -> None:
    """Raise for a checkpoint that delta-spark began; mark others so that delta-spark rejects them.

    Spark numbers the sources that it makes: the state of the first file source is in `sources/0`.
    Sources of this package are part of the plan and get no number, delta-spark's do.  Behind one
    of them, the two engines look for the state of a source of another format in different places,
    would find none, and begin again.  So such a query stays with the engine that began it.

    `ours` has for each source of the query, in its order, whether it is a Delta table.

    >>> from pyspark_delta.kernel.storage.memory import MemoryStore
    >>> store = MemoryStore()
    >>> guard_numbers(store, [False, True])
    >>> [file.path for file in store.list_recursive("")]
    []
    >>> guard_numbers(store, [True, False])
    >>> [file.path for file in store.list_recursive("")]
    ['sources/1/0']
    """
    numbers = [number for number, is_ours in enumerate(ours) if not is_ours]
    for number in numbers:
        if number < len(numbers):
            continue  # Spark assigns that number here, too
        directory = f"sources/{number}"
        mark = f"{directory}/0"
        if not _is_marked(checkpoint, mark) and any(checkpoint.list_recursive(directory)):
            raise StreamError(
                "DELTA_STREAMING_SOURCES_NUMBERED_OTHERWISE",
                directory=checkpoint.address(directory),
            )
        with suppress(FileAlreadyExistsError):
            checkpoint.create(mark, SOURCE_MARK)


def is_last_batch_done(checkpoint: LogStore) -> bool:
    """Whether the last batch that the checkpoint has offsets for was committed."""
    offsets, commits = (file_numbers(checkpoint, name) for name in ("offsets", "commits"))
    return bool(offsets) and offsets[-1:] == commits[-1:]


def file_numbers(store: LogStore, directory: str) -> list[int]:
    """The numbers that are names of files in a directory, in order; none without the directory."""
    try:
        names = [file.path.rpartition("/")[2] for file in store.list_from(f"{directory}/")]
    except FileMissingError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _whole(fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise StreamError("DELTA_INVALID_SOURCE_OFFSET_FORMAT")
    return value


def _is_marked(checkpoint: LogStore, path: str) -> bool:
    try:
        return checkpoint.read(path) == SOURCE_MARK
    except FileMissingError:
        return False
