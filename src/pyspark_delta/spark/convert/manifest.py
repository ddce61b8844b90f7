"""Which files there are to convert: by listing, by the log of a streaming sink, or by a catalog.

The list stays on the driver's disk, so that a million files need no more memory than a thousand.
Hidden names are passed over (`tree_listing`); what is in the files is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.ops.sink_log import has_sink_log, sink_files
from pyspark_delta.kernel.ops.tree_listing import Listed, is_hidden_file, is_hidden_path
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import encode_path, resolve_action_path
from pyspark_delta.spark.convert.listing import listed_tree, walked_tree
from pyspark_delta.spark.convert.spool import Spool
from pyspark_delta.spark.jvm.hadoop_store import HadoopStore
from pyspark_delta.spark.table_access import hadoop_location, location_uri, open_log

USE_SINK_LOG = "spark.databricks.delta.convert.useMetadataLog"

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("partition", pa.int32()),
    ]
)
"""A file to convert.  `path` is decoded and relative to the root, or the URI of a file outside of
it; `partition` counts the partitions of the catalog, null when they do not come from there."""

FILES_AT_ONCE = 1_000

Progress = Callable[[str, int, int | None], None]
"""Told of a stage ("listing", "footers", "actions"), how many files are done, and of how many."""

Keep = Callable[[pa.RecordBatch], pa.Array]
"""Which rows of a batch of files are to be converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPartition:
    """A partition as a catalog knows it; `location` is as Hadoop's Path takes it."""

    values: Mapping[str, str | None]
    location: str


class FileManifest:
    """The files to convert, kept on the driver's disk until it is closed."""

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        *,
        source: str,
        partitions: Sequence[CatalogPartition] = (),
    ) -> None:
        self.store = open_log(spark, location).store
        self.root = hadoop_location(self.store.root_uri)
        self.source = source
        self.partitions = tuple(partitions)
        self.num_files = 0
        self.num_bytes = 0
        self._spark = spark
        self._spool = Spool()
        self._stores: dict[str, LogStore] = {}

    @property
    def is_local(self) -> bool:
        """Whether the files are in the local file system, which executors see as well."""
        return isinstance(self.store, LocalStore)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The files: path, size, modificationTime, partition."""
        for block in self._spool:
            with pa.ipc.open_stream(block) as reader:
                yield from reader

    def append(self, batch: pa.RecordBatch) -> None:
        """Take more files."""
        if not batch.num_rows:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FILES) as writer:
            writer.write_batch(batch)
        self._spool.append(sink.getvalue().to_pybytes())
        self.num_files += batch.num_rows
        self.num_bytes += sum(batch.column("size").to_pylist())

    def local_path(self, path: str) -> str:
        """A file of the local file system as the operating system spells it."""
        if isinstance(self.store, LocalStore) and not is_uri(path):
            return f"{self.store.root_path.rstrip('/')}/{path}"
        return unquote(path.partition("://")[2])

    def opened(self, path: str) -> tuple[LogStore, str]:
        """The store that a file is in, and its path there."""
        if not is_uri(path):
            return self.store, path
        directory, _, _ = path.rpartition("/")
        store = self._stores.get(directory)
        if store is None:
            store = self._stores[directory] = open_log(
                self._spark, hadoop_location(directory)
            ).store
        return store, resolve_action_path(path, store.root_uri).path

    def address(self, path: str) -> str:
        """The absolute URI of a file, as its store has it."""
        return path if is_uri(path) else self.store.address(path)

    def uri(self, path: str) -> str:
        """The absolute URI of a file, with the scheme as its user spells it."""
        found = self.address(path)
        spelled = hadoop_location(found).partition(":")[0]
        return f"{spelled}:{found.partition(':')[2]}"

    def close(self) -> None:
        """Give back what is kept on disk."""
        self._spool.close()

    def __enter__(self) -> FileManifest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def list_files(
    spark: SparkSession,
    location: str,
    *,
    partitions: Sequence[CatalogPartition] | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    distribute_above: int | None = None,
) -> FileManifest:
    """The files of the Parquet table at `location`; close it when done.

    The log of a streaming sink wins over `partitions`, and these over a listing.  A tree with
    more than `distribute_above` directories is listed by Spark tasks; by default a local one never
    is when the executors are this very machine.
    """
    store = open_log(spark, location).store
    if isinstance(store, LocalStore) and not store.has_root():
        raise TableNotFoundError("DELTA_PATH_DOES_NOT_EXIST", path=location)
    uses_sink_log = str(spark.conf.get(USE_SINK_LOG, "true")).lower() == "true"
    rows: Generator[tuple[int | None, list[Listed]]]
    if uses_sink_log and has_sink_log(store):
        manifest = FileManifest(spark, location, source="sink log")
        rows = ((None, files) for files in _sink_rows(store))
    elif partitions is not None:
        manifest = FileManifest(spark, location, source="catalog", partitions=partitions)
        rows = _catalog_rows(spark, manifest)
    else:
        manifest = FileManifest(spark, location, source="listing")
        rows = ((None, files) for files in _listed_rows(spark, store, distribute_above))
    try:
        with closing(rows):  # what tasks have cached goes now, not when an error is forgotten
            _fill(manifest, rows, progress, keep)
        if not manifest.num_files and keep is None:
            raise OperationNotAllowedError("DELTA_EMPTY_DIRECTORY", directory=location)
    except BaseException:
        manifest.close()
        raise
    return manifest


def is_uri(path: str) -> bool:
    """Whether a path of a manifest is that of a file outside of the root."""
    return "://" in path


def _fill(
    manifest: FileManifest,
    rows: Iterable[tuple[int | None, list[Listed]]],
    progress: Progress | None,
    keep: Keep | None,
) -> None:
    waiting: list[tuple[str, int, int, int | None]] = []

    def flush() -> None:
        batch = _batch(waiting)
        manifest.append(batch if keep is None else batch.filter(keep(batch)))
        waiting.clear()
        if progress is not None:
            progress("listing", manifest.num_files, None)

    for partition, files in rows:
        for path, size, modified_ms in files:
            waiting.append((path, size, modified_ms, partition))
            if len(waiting) == FILES_AT_ONCE:
                flush()
    if waiting:
        flush()


def _batch(rows: Sequence[tuple[str, int, int, int | None]]) -> pa.RecordBatch:
    paths, sizes, times, partitions = zip(*rows, strict=True)
    try:
        return pa.record_batch([paths, sizes, times, partitions], schema=FILES)
    except UnicodeEncodeError:
        for path in paths:
            encode_path(path)  # raises for the one that is no text
        raise


def _listed_rows(
    spark: SparkSession, store: LogStore, distribute_above: int | None
) -> Iterator[list[Listed]]:
    if isinstance(store, LocalStore):
        yield from listed_tree(spark, store.root_path, distribute_above)
    elif isinstance(store, HadoopStore):
        yield from (
            walked_tree(store) if distribute_above is None else walked_tree(store, distribute_above)
        )
    else:
        for info in store.list_recursive(""):
            if not is_hidden_path(info.path):
                yield [(info.path, info.size, info.modified_ms)]


def _sink_rows(store: LogStore) -> Iterator[list[Listed]]:
    for file in sink_files(store):
        yield [(resolve_action_path(file.uri, store.root_uri).path, file.size, file.modified_ms)]


def _catalog_rows(
    spark: SparkSession, manifest: FileManifest
) -> Generator[tuple[int | None, list[Listed]]]:
    """The files that stand directly in the directories of the partitions."""
    for number, partition in enumerate(manifest.partitions):
        place = resolve_action_path(
            location_uri(spark, partition.location), manifest.store.root_uri
        )
        if place.is_absolute:
            store, directory = open_log(spark, partition.location).store, ""
        else:
            store, directory = manifest.store, f"{place.path}/"
        yield (
            number,
            [
                (
                    store.address(info.path) if place.is_absolute else info.path,
                    info.size,
                    info.modified_ms,
                )
                for info in store.list_from(directory)
                if not is_hidden_file(info.path.rpartition("/")[2])
            ],
        )
