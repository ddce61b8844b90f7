"""`_last_vacuum_info`: up to which version an earlier VACUUM has looked, for VACUUM LITE.

It is a hint of delta-spark's, not of the protocol.  One that is absent or broken is none.

>>> from pyspark_delta.kernel.storage.memory import MemoryStore
>>> store = MemoryStore()
>>> write_last_vacuum(store, 7)
>>> read_last_vacuum(store)
7
"""

from __future__ import annotations

import json
import logging

from pyspark_delta.errors.storage import FileMissingError, StorageError
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.storage.base import LogStore

logger = logging.getLogger(__name__)

LAST_VACUUM = f"{LOG_DIRECTORY}/_last_vacuum_info"
_VERSION = "latestCommitVersionOutsideOfRetentionWindow"
_MOST_BYTES = 1 << 16


def read_last_vacuum(store: LogStore) -> int | None:
    """The last version whose removed files are gone; None when nobody noted one."""
    try:
        if store.size(LAST_VACUUM) > _MOST_BYTES:
            return None
        version = json.loads(store.read(LAST_VACUUM))[_VERSION]
    except (FileMissingError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return version if isinstance(version, int) and version >= 0 else None


def write_last_vacuum(store: LogStore, version: int) -> None:
    """Note the last version whose removed files are gone; a note that fails is not missed."""
    text = json.dumps({_VERSION: version}, separators=(",", ":"))
    try:
        store.overwrite(LAST_VACUUM, f"{text}\n".encode())
    except StorageError as error:
        logger.warning("the next VACUUM LITE will look at more than it must: %s", error)
