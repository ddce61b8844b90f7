"""Small notes beside a table's log, each a JSON object with one value, that other writers ignore.

`_creation_note` marks a table whose creation has not finished.  It is written into an empty
location before the table's first file, and deleted once the table is registered under its name.  So
files beside it are from an interrupted creation: files that no log names, or a first version that
no catalog knows.

`_last_vacuum_info` is a hint of delta-spark, not of the protocol, for VACUUM LITE: the last version
whose removed files were deleted.

>>> from pyspark_delta.kernel.storage.memory import MemoryStore
>>> store = MemoryStore()
>>> write_creation_note(store, "db.t")
>>> write_last_vacuum(store, 7)
>>> read_creation_note(store), read_last_vacuum(store)
('db.t', 7)
>>> forget_creation_note(store)
>>> read_creation_note(store) is None
True
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pyspark_delta.errors import FileMissingError, StorageError
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.storage.base import LogStore

logger = logging.getLogger(__name__)

CREATION_NOTE = f"{LOG_DIRECTORY}/_creation_note"
LAST_VACUUM = f"{LOG_DIRECTORY}/_last_vacuum_info"

_TABLE = "table"
_VERSION = "latestCommitVersionOutsideOfRetentionWindow"
_MOST_BYTES = 1 << 16


def read_creation_note(store: LogStore) -> str | None:
    """The name of the table that is being created; None when the note is missing or broken."""
    table = _read(store, CREATION_NOTE, _TABLE)
    return table if isinstance(table, str) else None


def write_creation_note(store: LogStore, table: str) -> None:
    """Write the note for the table of that name; the location must be empty."""
    _write(store, CREATION_NOTE, _TABLE, table)


def forget_creation_note(store: LogStore) -> None:
    """Delete the note, if there is one, and an empty log directory.

    A note that cannot be deleted stays: it does not change the table.
    """
    try:
        if store.exists(CREATION_NOTE):
            store.delete(CREATION_NOTE)
            store.delete_directory(LOG_DIRECTORY)
    except StorageError as error:
        logger.warning("%s is left behind: %s", store.address(CREATION_NOTE), error)


def read_last_vacuum(store: LogStore) -> int | None:
    """The last version whose removed files were deleted; None without a readable note."""
    version = _read(store, LAST_VACUUM, _VERSION)
    return version if isinstance(version, int) and version >= 0 else None


def write_last_vacuum(store: LogStore, version: int) -> None:
    """Record the last version whose removed files were deleted."""
    _write(store, LAST_VACUUM, _VERSION, version)


def _read(store: LogStore, path: str, key: str) -> Any:
    try:
        if store.size(path) > _MOST_BYTES:
            return None
        return json.loads(store.read(path))[key]
    except (FileMissingError, ValueError, TypeError, LookupError, RecursionError):
        return None


def _write(store: LogStore, path: str, key: str, value: str | int) -> None:
    text = json.dumps({key: value}, separators=(",", ":"))
    store.overwrite(path, f"{text}\n".encode())
