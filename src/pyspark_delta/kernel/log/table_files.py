"""`TableFiles`: files with the protocol and metadata by which a scan reads them.

A `Snapshot` has all files of a version; `ChosenFiles` some of them, or files not committed yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, file_keys
from pyspark_delta.kernel.log.replay import FilePart, FileState, TableSource
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.storage.base import LogStore

_T = TypeVar("_T")


class TableFiles(ABC):
    """Files of a table in `store`, with the protocol and metadata by which they are read.

    `files` is an Arrow table with a row for each; `files_with` returns only the named columns,
    which spares reading unused statistics; `adds` has the columns that add actions need.
    """

    def __init__(self, store: LogStore, version: int) -> None:
        self.store = store
        self.version = version

    @property
    def protocol(self) -> Protocol:
        """The versions and features that a client must support to use the table."""
        return self._protocol_and_metadata()[0]

    @property
    def metadata(self) -> Metadata:
        """Schema, partitioning and properties."""
        return self._protocol_and_metadata()[1]

    @property
    def schema(self) -> StructType:
        """The table's schema, partition columns included."""
        return self.metadata.schema

    @property
    def files(self) -> pa.Table:
        """Every live file, with all columns of an add action, as the log has them.

        A checkpoint may have only typed statistics; `stats` is null then, because the text of
        millions of files takes longer to format, and more memory, than all their other columns.
        """
        return self._loaded(lambda: self.file_state.columns(ADD_SCHEMA.names))

    @property
    def adds(self) -> pa.Table:
        """As `files`, with all statistics as text: the complete add actions."""
        return self.files_with(ADD_SCHEMA.names)

    def files_with(self, columns: Sequence[str]) -> pa.Table:
        """Every live file, with the named add columns, and all statistics as text."""
        return self._loaded(lambda: self.file_state.complete(columns))

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return self.file_state.num_files

    @property
    def size_in_bytes(self) -> int:
        """The sum of the live files' sizes."""
        return self._loaded(lambda: self.file_state.size_in_bytes)

    @property
    def file_state(self) -> FileState:
        """The live files as replay keeps them."""
        return self._loaded(self._resolved_files)

    @abstractmethod
    def _protocol_and_metadata(self) -> tuple[Protocol, Metadata]:
        """The protocol and metadata by which the files are read."""

    @abstractmethod
    def _resolved_files(self) -> FileState:
        """The files, read where they are not yet in memory."""

    def _loaded(self, load: Callable[[], _T]) -> _T:
        """The result of `load()`, which may read the log."""
        return load()


class ChosenFiles(TableFiles):
    """A given table of add actions with a protocol and metadata, and without a version."""

    def __init__(
        self, store: LogStore, files: pa.Table, *, protocol: Protocol, metadata: Metadata
    ) -> None:
        super().__init__(store, -1)
        self._definition = (protocol, metadata)
        keys = file_keys(files, store.root_uri)
        self._files = FileState([FilePart(source=TableSource(files), keys=keys)])

    def _protocol_and_metadata(self) -> tuple[Protocol, Metadata]:
        return self._definition

    def _resolved_files(self) -> FileState:
        return self._files
