"""Rows of files picked one by one: those a command is about to replace, or has just written.

Each row knows its file (`_metadata.file_path`) and, where rows are tracked, its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.log_answers import Answers, Asked
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.jvm.filters import Filter
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.reader import TIME_ZONE, read_source
from pyspark_delta.spark.snapshot_source import SnapshotSource
from pyspark_delta.spark.table_access import hadoop_location

FILE_PATH = "_metadata.file_path"
"""The column that says which file a row is in, as a URI."""


class ChosenSource(SnapshotSource):
    """Some files of a table; no two such sources are taken for each other."""

    def __init__(
        self,
        files: ChosenFiles,
        time_zone: str,
        *,
        allowed: Callable[[], Sequence[LogStore]] = tuple,
    ) -> None:
        super().__init__(files, time_zone, allowed=allowed)
        self._key = uuid4().hex

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.snapshot.store.root_uri, self.snapshot.metadata.id, f"files {self._key}")

    def answers(
        self, partition_filters: Sequence[Filter], asked: Sequence[Asked]
    ) -> Answers | None:
        return None  # whoever chose files means to read them


def chosen_rows(
    jvm: JvmSession, store: LogStore, files: pa.Table, *, protocol: Protocol, metadata: Metadata
) -> DataFrame:
    """The rows of `files`, a table of add actions, as a table of that definition has them."""
    chosen = ChosenFiles(store, files, protocol=protocol, metadata=metadata)
    source = ChosenSource(
        chosen,
        jvm.spark.conf.get(TIME_ZONE) or "UTC",
        allowed=lambda: allowed_stores(jvm.spark),
    )
    return read_source(jvm, source)


def paths_by_location(store: LogStore, paths: pa.ChunkedArray) -> dict[str, str]:
    """The log's spelling of each file by its location, in the form that `location_of` gives."""
    located = Locations(store).resolve(paths)
    root = hadoop_location(store.root_uri)
    rows: Iterable[tuple[str, str, bool]] = zip(
        paths.to_pylist(),
        located.column("location").to_pylist(),
        located.column("isAbsolute").to_pylist(),
        strict=True,
    )
    return {
        _bare(hadoop_location(location) if is_absolute else f"{root}/{location}"): path
        for path, location, is_absolute in rows
    }


def location_of(file_path: str) -> str:
    """The location that Spark means by a value of `FILE_PATH`."""
    return _bare(unquote(file_path))


def _bare(location: str) -> str:
    """A location however many slashes stand before a local path."""
    if not location.startswith("file:"):
        return location
    return "file:/" + location.removeprefix("file:").lstrip("/")
