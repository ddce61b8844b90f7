"""The changes of a batch of a stream: its commits, as `spark.change_rows` tells them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from pyspark_delta.kernel.ops.changed_files import ChangedFiles
from pyspark_delta.kernel.ops.stream_commits import FileRun
from pyspark_delta.kernel.ops.stream_definitions import StreamDefinition
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.vectors import VectorReader
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.change_rows import ChangesOf, change_frame
from pyspark_delta.spark.jvm.gateway import JvmSession


def change_rows(
    jvm: JvmSession, store: LogStore, runs: Sequence[FileRun], definition: StreamDefinition
) -> DataFrame:
    """The changed rows of the files, as a batch of a stream."""
    vectors = VectorReader(Locations(store, allowed_stores(jvm.spark)))
    is_partitioned = bool(definition.metadata.partition_columns)
    # A batch is read once and as a whole, so no file of it is skipped.
    changed = ChangedFiles(vectors.read, is_partitioned=is_partitioned, has_stats=False)
    for run in runs:
        changed.take(run)
    table = ChangesOf(store=store, metadata=definition.metadata, protocol=definition.protocol)
    return change_frame(jvm, table, changed, is_stream=True)
