"""What the footers of files say: one pass over them gives the schema and the statistics.

Footers are read by Spark tasks when there are many (`footer_tasks`), else by threads of the driver
through the store.  What they say stays on the driver's disk until the actions are made, for the
schema is known only after the last of them.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import DataFileError, SchemaError
from pyspark_delta.kernel.ops import parquet_footers
from pyspark_delta.kernel.ops.parquet_footers import (
    FileFooter,
    FooterBlock,
    Layout,
    StatsRequest,
    joined_blocks,
    read_local_tail,
)
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.stats_columns import parse_column_list
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.convert.footer_tasks import (
    hadoop_footers,
    has_hadoop_footers,
    local_footers,
)
from pyspark_delta.spark.convert.manifest import FileManifest, Progress
from pyspark_delta.spark.convert.schemas import SchemaMerge
from pyspark_delta.spark.convert.spool import Spool
from pyspark_delta.spark.convert.tasks import can_run_python, has_own_executors
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.table_access import hadoop_location, scan_options

SCHEMA_BATCH = "spark.databricks.delta.import.batchSize.schemaInference"
STATS_BATCH = "spark.databricks.delta.import.batchSize.statsCollection"
IGNORE_CORRUPT = "spark.sql.files.ignoreCorruptFiles"
_DEFAULT_BATCHES = {SCHEMA_BATCH: 1_000_000, STATS_BATCH: 50_000}

TASKS_FROM_FILES = {True: 200, False: 20_000}
"""From how many files on tasks read footers: with executors of their own, and without."""

_BLOCK_FILES = 250
_PART_FILES = 50
_LOCAL_THREADS = 2
_STORE_THREADS = 16
# A leaf of the table may stand further behind in a file, but hardly this far.
_SPARE_LEAVES = 64

_LOGGER = logging.getLogger(__name__)


class FileRows(NamedTuple):
    """Some files; without `footers` nothing is known of what is in them."""

    paths: list[str]
    sizes: list[int]
    times: list[int]
    partitions: list[int | None]
    footers: list[FileFooter] | None


class Footers:
    """What is known of the files; kept on the driver's disk until it is closed.

    `schema` is that of the data, None when it was not asked for.  `layouts` are what the footers
    of `rows` count.
    """

    def __init__(self, manifest: FileManifest, *, has_stats: bool) -> None:
        self.manifest = manifest
        self.has_stats = has_stats
        self.schema: StructType | None = None
        self.layouts: list[Layout] = []
        self.num_files = manifest.num_files
        self.num_bytes = manifest.num_bytes
        self._spool: Spool | None = None
        self._unread: Iterator[FileRows] | None = None

    def rows(self) -> Iterator[FileRows]:
        """The files with their footers."""
        if self._spool is not None:
            for block in self._spool:
                yield FileRows(*pickle.loads(block))
        elif self._unread is not None:
            yield from self._unread
        else:
            yield from map(_without_footers, self.manifest.batches())

    def read_later(self, rows: Iterator[FileRows]) -> None:
        """Read footers only when `rows` is asked for."""
        self._unread = rows

    def keep(self, rows: FileRows) -> None:
        """Take files whose footers are read."""
        if self._spool is None:
            self._spool = Spool()
            self.num_files = self.num_bytes = 0
        self._spool.append(pickle.dumps(tuple(rows), pickle.HIGHEST_PROTOCOL))
        self.num_files += len(rows.paths)
        self.num_bytes += sum(rows.sizes)

    def close(self) -> None:
        """Give back what is kept on disk."""
        if self._spool is not None:
            self._spool.close()

    def __enter__(self) -> Footers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_footers(
    spark: SparkSession,
    manifest: FileManifest,
    *,
    stats: bool,
    infer_schema: bool = True,
    configuration: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    tasks_from_files: int | None = None,
) -> Footers:
    """Read the footers of all files, and merge their schemas; close it when done.

    Without `infer_schema` they are read while the actions are made, and without `stats` too not at
    all.  `configuration`, that of the table, says which columns have statistics.
    """
    footers = Footers(manifest, has_stats=stats)
    if not infer_schema and not stats:
        return footers
    reading = _Reading(
        spark,
        manifest,
        request=_request(configuration or {}, manifest.is_local) if stats else None,
        layouts=footers.layouts,
        progress=progress,
        tasks_from_files=tasks_from_files,
    )
    if not infer_schema:
        footers.read_later(reading.rows())
        return footers
    try:
        merge = SchemaMerge(spark, manifest)
        for rows in reading.rows():
            footers.keep(rows)
            merge.add(footers.layouts, reading.first_paths)
        if not footers.num_files:
            raise SchemaError("DELTA_FAILED_INFER_SCHEMA")
        footers.schema = merge.schema()
    except BaseException:
        footers.close()
        raise
    return footers


class _Reading:
    """One pass over the footers of a manifest, in batches."""

    def __init__(
        self,
        spark: SparkSession,
        manifest: FileManifest,
        *,
        request: StatsRequest | None,
        layouts: list[Layout],
        progress: Progress | None,
        tasks_from_files: int | None,
    ) -> None:
        self._spark = spark
        self._manifest = manifest
        self._request = request
        self._layouts = layouts
        self._numbers: dict[Layout, int] = {}
        self.first_paths: list[str] = []
        self._progress = progress
        self._ignores_corrupt = str(spark.conf.get(IGNORE_CORRUPT, "false")).lower() == "true"
        if tasks_from_files is None:
            tasks_from_files = TASKS_FROM_FILES[has_own_executors(spark)]
        self._store = manifest.store
        self._uses_tasks = (
            manifest.num_files >= tasks_from_files
            and can_run_python(spark)
            and (manifest.is_local or has_hadoop_footers(spark, manifest.root))
        )

    def rows(self) -> Iterator[FileRows]:
        """All files, in blocks, with layouts counted over all of them."""
        done = 0
        blocks = _blocks(self._manifest)
        while batch := list(islice(blocks, max(1, self._batch_files() // _BLOCK_FILES))):
            for rows, block in zip(batch, self._read(batch), strict=True):
                done += len(rows.paths)
                kept = self._numbered(rows, block)
                if self._progress is not None:
                    self._progress("footers", done, self._manifest.num_files)
                if kept.paths:
                    yield kept

    def _batch_files(self) -> int:
        keys = (SCHEMA_BATCH,) if self._request is None else (SCHEMA_BATCH, STATS_BATCH)
        return min(_positive(self._spark, key, _DEFAULT_BATCHES[key]) for key in keys)

    def _read(self, batch: Sequence[FileRows]) -> Iterable[FooterBlock]:
        if self._uses_tasks:
            try:
                return self._read_by_tasks(batch)
            except JAVA_FAILURES as error:
                # Executors may lack Python or pyarrow; the driver has both.
                _LOGGER.warning("Footers are read by the driver, as tasks failed: %.500s", error)
                self._uses_tasks = False
        return self._read_by_driver(batch)

    def _read_by_tasks(self, batch: Sequence[FileRows]) -> Iterator[FooterBlock]:
        if self._manifest.is_local:
            return local_footers(self._spark, [self._files(rows) for rows in batch], self._request)
        places = [
            [hadoop_location(self._manifest.address(path)) for path in rows.paths] for rows in batch
        ]
        found = hadoop_footers(self._spark, places, scan_options(self._store), self._request)
        return self._with_reasons(batch, found)

    def _with_reasons(
        self, batch: Sequence[FileRows], blocks: Iterable[FooterBlock]
    ) -> Iterator[FooterBlock]:
        """The blocks; where a task could not read a file the driver does, or says why not."""
        for rows, block in zip(batch, blocks, strict=True):
            if any(footer.problem is not None for footer in block.files):
                yield from self._read_by_driver([rows])
            else:
                yield block

    def _read_by_driver(self, batch: Sequence[FileRows]) -> Iterator[FooterBlock]:
        is_local = self._manifest.is_local
        read_tail = read_local_tail if is_local else self._store_tail
        # Parsing holds Python's lock, so more threads help only to wait for a store.
        threads = min(_LOCAL_THREADS, os.cpu_count() or 1) if is_local else _STORE_THREADS
        if sum(len(rows.paths) for rows in batch) <= _PART_FILES:
            threads = 1

        def read(files: Sequence[tuple[str, int]]) -> FooterBlock:
            return parquet_footers.read_footers(files, read_tail, self._request)

        with ThreadPoolExecutor(threads) as pool:
            # A block at a time: footers that nobody has taken yet are in memory.
            for rows in batch:
                files = self._files(rows)
                parts = [files[at : at + _PART_FILES] for at in range(0, len(files), _PART_FILES)]
                yield joined_blocks(list(pool.map(read, parts)))

    def _store_tail(self, path: str, start: int, length: int) -> bytes:
        store, relative = self._manifest.opened(path)
        try:
            return store.read_range(relative, start, length)
        except StorageError as error:
            raise OSError(str(error)) from error

    def _files(self, rows: FileRows) -> list[tuple[str, int]]:
        paths: Iterable[str] = rows.paths
        if self._manifest.is_local:
            paths = map(self._manifest.local_path, paths)
        return list(zip(paths, rows.sizes, strict=True))

    def _numbered(self, rows: FileRows, block: FooterBlock) -> FileRows:
        """The files that could be read, with layouts counted over all blocks."""
        numbers: dict[int, int] = {}
        kept: list[int] = []
        footers: list[FileFooter] = []
        for at, footer in enumerate(block.files):
            if footer.problem is not None:
                self._refuse(rows.paths[at], footer.problem, footer.is_corrupt)
                continue
            number = numbers.get(footer.layout)
            if number is None:
                number = self._number(block.layouts[footer.layout], rows.paths[at])
                numbers[footer.layout] = number
            kept.append(at)
            footers.append(footer if number == footer.layout else footer._replace(layout=number))
        if len(kept) == len(rows.paths):
            return rows._replace(footers=footers)
        return FileRows(
            paths=[rows.paths[at] for at in kept],
            sizes=[rows.sizes[at] for at in kept],
            times=[rows.times[at] for at in kept],
            partitions=[rows.partitions[at] for at in kept],
            footers=footers,
        )

    def _number(self, layout: Layout, path: str) -> int:
        number = self._numbers.setdefault(layout, len(self._layouts))
        if number == len(self._layouts):
            self._layouts.append(layout)
            self.first_paths.append(path)
        return number

    def _refuse(self, path: str, problem: str, is_corrupt: bool) -> None:
        # As Spark has it: a file that is not there, or not to be opened, is never passed over.
        if is_corrupt and self._ignores_corrupt:
            _LOGGER.warning("Left out %s, for its footer cannot be read: %s", path, problem)
            return
        uri = self._manifest.uri(path)
        error = DataFileError("DELTA_FAILED_READ_FILE_FOOTER", currentFile=uri)
        error.add_note(problem)
        raise error


def _request(configuration: Mapping[str, str], is_local: bool) -> StatsRequest:
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None:
        names = frozenset(path[0].lower() for path in parse_column_list(listed))
        return StatsRequest(names=names, reads_int96=is_local)
    indexed = property_value(configuration, NUM_INDEXED_COLUMNS)
    most = None if indexed < 0 else 2 * indexed + _SPARE_LEAVES
    return StatsRequest(most_leaves=most, reads_int96=is_local)


def _blocks(manifest: FileManifest) -> Iterator[FileRows]:
    for batch in manifest.batches():
        for at in range(0, batch.num_rows, _BLOCK_FILES):
            yield _without_footers(batch.slice(at, _BLOCK_FILES))


def _without_footers(batch: pa.RecordBatch) -> FileRows:
    paths, sizes, times, partitions = (column.to_pylist() for column in batch.columns)
    return FileRows(paths, sizes, times, partitions, None)


def _positive(spark: SparkSession, key: str, default: int) -> int:
    text = spark.conf.get(key, None)
    return int(text) if text and text.isdecimal() and int(text) > 0 else default
