"""`_creation_note`: that a table is being made here, for whoever finds what was left of it.

It is written where nothing is, before the table's first file, and goes once the table is known by
its name.  So whatever lies beside it is of somebody who was stopped: files that no log names, or a
first version that no catalog knows.  The note is ours alone; other writers pass it over.

>>> from pyspark_delta.kernel.storage.memory import MemoryStore
>>> store = MemoryStore()
>>> write_creation_note(store, "db.t")
>>> read_creation_note(store)
'db.t'
>>> forget_creation_note(store)
>>> read_creation_note(store) is None
True
"""

from __future__ import annotations

import json
import logging

from pyspark_delta.errors.storage import FileMissingError, StorageError
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.storage.base import LogStore

logger = logging.getLogger(__name__)

CREATION_NOTE = f"{LOG_DIRECTORY}/_creation_note"
"""Where the note is."""

_TABLE = "table"
_MOST_BYTES = 1 << 16


def read_creation_note(store: LogStore) -> str | None:
    """The name of the table that is being made; None when there is no note, or a broken one."""
    try:
        if store.size(CREATION_NOTE) > _MOST_BYTES:
            return None
        table = json.loads(store.read(CREATION_NOTE))[_TABLE]
    except (FileMissingError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return table if isinstance(table, str) else None


def write_creation_note(store: LogStore, table: str) -> None:
    """Say that the table of that name is being made; nothing else may be there yet."""
    text = json.dumps({_TABLE: table}, separators=(",", ":"))
    store.overwrite(CREATION_NOTE, f"{text}\n".encode())


def forget_creation_note(store: LogStore) -> None:
    """Take the note away, if there is one, and the directory of a log that was never begun.

    A note that cannot be deleted stays: the table is what it is.
    """
    try:
        if store.exists(CREATION_NOTE):
            store.delete(CREATION_NOTE)
            store.delete_directory(LOG_DIRECTORY)
    except StorageError as error:
        logger.warning("%s is left behind: %s", store.address(CREATION_NOTE), error)
