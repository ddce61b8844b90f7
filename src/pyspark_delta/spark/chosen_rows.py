"""Rows of files picked one by one: those a command is about to replace, or has just written.

Each row knows its file (`_metadata.file_path`) and, where rows are tracked, its id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.scan.log_answers import Answers, Asked
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.jvm.filters import Filter
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.reader import read_source, session_zone
from pyspark_delta.spark.snapshot_source import SnapshotSource


class ChosenSource(SnapshotSource):
    """Some files of a table; no two such sources are taken for each other."""

    checks_every_link = True

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
        session_zone(jvm.spark),
        allowed=lambda: allowed_stores(jvm.spark),
    )
    return read_source(jvm, source)
