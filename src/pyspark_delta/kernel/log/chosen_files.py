"""Files picked out of a table, or about to become part of it, read as if they were all it has."""

from __future__ import annotations

from threading import RLock

import pyarrow as pa

from pyspark_delta.kernel.log.frames import file_keys
from pyspark_delta.kernel.log.replay import FilePart, FileState, TableSource
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.storage.base import LogStore


class ChosenFiles(Snapshot):
    """A snapshot of no version: just these files, a table of add actions, under this definition.

    It answers what a scan asks; there is no log behind it for anything else.
    """

    def __init__(
        self, store: LogStore, files: pa.Table, *, protocol: Protocol, metadata: Metadata
    ) -> None:
        self.store = store
        self.version = -1
        self._lock = RLock()
        self._definition = (protocol, metadata)
        keys = file_keys(files, store.root_uri)
        self._file_state = FileState([FilePart(TableSource(files), keys)])

    def _protocol_and_metadata(self) -> tuple[Protocol, Metadata]:
        return self._definition

    def _resolved_files(self) -> FileState:
        assert self._file_state is not None
        return self._file_state
