"""The files to convert: from a listing, the log of a streaming sink, or the catalog's partitions.

The list stays on the driver's disk, so that a million files need no more memory than a thousand.
Hidden names are skipped, see `kernel.ops.convert.tree_listing`; no file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, TableNotFoundError
from pyspark_delta.kernel.ops.convert import tree_listing
from pyspark_delta.kernel.ops.convert.files import (
    PartitionRules,
    given_partition_values,
    has_sink_log,
    partition_values,
    sink_files,
)
from pyspark_delta.kernel.ops.convert.tree_listing import (
    Identity,
    Listed,
    is_hidden,
    is_hidden_file,
    is_hidden_path,
    list_directory,
    list_tree,
    listed_trees,
    with_directory,
)
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.uris import encode_path, resolve_action_path
from pyspark_delta.spark.conf.progress import Progress
from pyspark_delta.spark.conf.setting_table import CONVERT_SINK_LOG
from pyspark_delta.spark.convert.tasks import (
    Spooled,
    cached_by_value,
    has_own_executors,
    shared_items,
)
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore
from pyspark_delta.spark.tables.locations import hadoop_location, location_uri, open_log

_DISTRIBUTE_ABOVE = 64
_DIRECTORIES_AT_ONCE = 10_000
_TREES_AT_ONCE = 1_000
_THREADS = 16
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("partition", pa.int32()),
    ]
)
"""A file to convert.

`path` is decoded and relative to the root, or the URI of a file outside of it.  `partition` counts
the partitions of the catalog, and is null when they do not come from there.
"""
FILES_AT_ONCE = 1_000
Keep = Callable[[pa.RecordBatch], pa.Array]
"""Which rows of a batch of files are to be converted."""


def listed_tree(
    spark: SparkSession, root: str, distribute_above: int | None = None
) -> Iterator[list[Listed]]:
    """The files below a local directory, directory by directory.

    The driver lists the first levels, breadth first, because the directories of one level make even
    shares.  Once many are left and there are separate executors, tasks share the rest; the
    executors cache their results until the driver takes them.
    """
    if distribute_above is None:
        if not has_own_executors(spark):
            yield from list_tree(root)
            return
        distribute_above = _DISTRIBUTE_ABOVE
    start = with_directory(root, "", frozenset())
    pending: list[tuple[str, frozenset[Identity]]] = [("", start or frozenset())]
    while pending and len(pending) <= distribute_above:
        below: list[tuple[str, frozenset[Identity]]] = []
        for directory, above in pending:
            files, directories = list_directory(root, directory)
            if files:
                yield files
            for name in directories:
                identities = with_directory(root, name, above)
                if identities is not None:
                    below.append((name, identities))
        pending = below
    directories = [directory for directory, _ in pending]
    for at in range(0, len(directories), _DIRECTORIES_AT_ONCE):
        some = directories[at : at + _DIRECTORIES_AT_ONCE]
        shares = shared_items(spark, some)
        yield from cached_by_value(shares, tree_listing, partial(listed_trees, root))


def walked_tree(store: HadoopStore, distribute_above: int | None) -> Iterator[list[Listed]]:
    """The files behind Hadoop's FileSystem, one or a few directories at a time.

    As `listed_tree`, but tasks always share the rest, and Spark's own lister runs there: executors
    reach a Hadoop file system through Java alone.
    """
    if distribute_above is None:
        distribute_above = _DISTRIBUTE_ABOVE
    pending = [""]
    with ThreadPoolExecutor(_THREADS) as pool:
        while pending and len(pending) <= distribute_above:
            below: list[str] = []
            for infos, directories in pool.map(store.list_directory, pending):
                yield _data_files(infos)
                below += sorted(d for d in directories if not is_hidden(d.rpartition("/")[2]))
            pending = below
    for at in range(0, len(pending), _TREES_AT_ONCE):
        some = pending[at : at + _TREES_AT_ONCE]
        yield _data_files(store.list_trees(some, tasks_above=min(distribute_above, len(some) - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPartition:
    """A partition of a catalog's table; `location` is a text for Hadoop's Path."""

    values: Mapping[str, str | None]
    location: str


class FileManifest(Spooled):
    """The files to convert, kept on the driver's disk until it is closed."""

    def __init__(
        self, spark: SparkSession, location: str, partitions: Sequence[CatalogPartition] = ()
    ) -> None:
        self.store = open_log(spark, location).store
        self.root = hadoop_location(self.store.root_uri)
        self.partitions = tuple(partitions)
        self.num_files = 0
        self.num_bytes = 0
        self._spark = spark
        self._stores: dict[str, LogStore] = {}
        super().__init__()

    @property
    def is_local(self) -> bool:
        """Whether the files are in the local file system, which executors share."""
        return isinstance(self.store, LocalStore)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The files: path, size, modificationTime, partition."""
        for block in self._spool:
            with pa.ipc.open_stream(block) as reader:
                yield from reader

    def append(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FILES) as writer:
            writer.write_batch(batch)
        self._spool.append(sink.getvalue().to_pybytes())
        self.num_files += batch.num_rows
        self.num_bytes += sum(batch.column("size").to_pylist())

    def local_path(self, path: str) -> str:
        """The path of a local file for the operating system."""
        if isinstance(self.store, LocalStore) and not is_uri(path):
            return f"{self.store.root_path.rstrip('/')}/{path}"
        return unquote(path.partition("://")[2])

    def opened(self, path: str) -> tuple[LogStore, str]:
        """The store that a file is in, and its path there."""
        if not is_uri(path):
            return self.store, path
        directory, _, _ = path.rpartition("/")
        if directory not in self._stores:
            self._stores[directory] = open_log(self._spark, hadoop_location(directory)).store
        store = self._stores[directory]
        return store, resolve_action_path(path, store.root_uri).path

    def address(self, path: str) -> str:
        """The absolute URI of a file in the form of its store."""
        return path if is_uri(path) else self.store.address(path)

    def uri(self, path: str) -> str:
        """The absolute URI of a file, with the scheme that the user spelled."""
        address = self.address(path)
        spelled = hadoop_location(address).partition(":")[0]
        return f"{spelled}:{address.partition(':')[2]}"

    def directory(self, path: str, partition: int | None) -> str | int:
        """The directory of a file, or its catalog partition: files of one share their values."""
        return path.rpartition("/")[0] if partition is None else partition

    def partition_values(
        self, path: str, partition: int | None, schema: StructType, rules: PartitionRules
    ) -> dict[str, str | None]:
        """The log's partition values of a file; PartitionValueError if it does not have them."""
        if partition is None:
            return partition_values(path, schema, rules)
        return given_partition_values(self.partitions[partition].values, schema, rules)


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
    manifest = FileManifest(spark, location, partitions or ())
    rows = _rows(spark, manifest, by_catalog=partitions is not None, above=distribute_above)
    try:
        with closing(rows):  # frees the cache of tasks now, not when an error is garbage
            _fill_manifest(manifest, rows, progress, keep)
        if not manifest.num_files and keep is None:
            raise OperationNotAllowedError("DELTA_EMPTY_DIRECTORY", directory=location)
    except BaseException:
        manifest.close()
        raise
    return manifest


def is_uri(path: str) -> bool:
    """Whether a path in a manifest is the URI of a file outside the root."""
    return "://" in path


def _data_files(infos: Iterable[FileInfo]) -> list[Listed]:
    return sorted(
        (info.path, info.size, info.modified_ms)
        for info in infos
        if not is_hidden_path(info.path)  # Spark's lister takes `_metadata` for data
    )


def _fill_manifest(
    manifest: FileManifest,
    rows: Iterable[tuple[int | None, list[Listed]]],
    progress: Progress | None,
    keep: Keep | None,
) -> None:
    waiting: list[tuple[str, int, int, int | None]] = []

    def flush() -> None:
        batch = _file_batch(waiting)
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


def _file_batch(rows: Sequence[tuple[str, int, int, int | None]]) -> pa.RecordBatch:
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
        yield from walked_tree(store, distribute_above)
    else:
        for info in store.list_recursive(""):
            if not is_hidden_path(info.path):
                yield [(info.path, info.size, info.modified_ms)]


def _rows(
    spark: SparkSession, manifest: FileManifest, *, by_catalog: bool, above: int | None
) -> Generator[tuple[int | None, list[Listed]]]:
    """The files by directory, each with the number of its partition in the catalog."""
    store = manifest.store
    if CONVERT_SINK_LOG.of(spark) and has_sink_log(store):
        for file in sink_files(store):
            path = resolve_action_path(file.uri, store.root_uri).path
            yield None, [(path, file.size, file.modified_ms)]
    elif by_catalog:
        yield from _catalog_rows(spark, manifest)
    else:
        yield from ((None, files) for files in _listed_rows(spark, store, above))


def _catalog_rows(
    spark: SparkSession, manifest: FileManifest
) -> Generator[tuple[int | None, list[Listed]]]:
    """The files directly in the directories of the partitions."""
    for number, partition in enumerate(manifest.partitions):
        place = resolve_action_path(
            location_uri(spark, partition.location), manifest.store.root_uri
        )
        if place.is_absolute:
            store, directory = open_log(spark, partition.location).store, ""
        else:
            store, directory = manifest.store, f"{place.path}/"
        address = store.address if place.is_absolute else str
        files = [
            (address(info.path), info.size, info.modified_ms)
            for info in store.list_from(directory)
            if not is_hidden_file(info.path.rpartition("/")[2])
        ]
        yield number, files
