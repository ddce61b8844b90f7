"""Footers of the files to convert: one pass over them gives the schema and the statistics.

Many footers are read by Spark tasks, few by threads of the driver through the store.  Executors
have no `pyspark_delta`, so the module that tasks need is sent along.  The contents stay on the
driver's disk until the actions are made, because the schema is known only after the last footer.
Spark writes its schema into the footers of its files.  For files of other writers, Spark infers the
schema from one file of each layout.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from pyspark_delta.errors import DataFileError, SchemaError, StorageError
from pyspark_delta.kernel.ops.footers import parquet as parquet_footers
from pyspark_delta.kernel.ops.footers.parquet import (
    FileFooter,
    FooterBlock,
    ParquetLayout,
    StatsRequest,
    footer_blocks,
    given_footer_blocks,
    joined_blocks,
    read_local_tail,
    unpickled_block,
)
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.protocol.schema_merge import (
    as_nullable,
    check_no_duplicates,
    merge_schemas,
)
from pyspark_delta.kernel.protocol.stats_columns import parse_column_list
from pyspark_delta.kernel.protocol.types import StructField, StructType, map_fields
from pyspark_delta.spark.conf.progress import Progress
from pyspark_delta.spark.conf.setting_table import CONVERT_SCHEMA_BATCH, CONVERT_STATS_BATCH
from pyspark_delta.spark.conf.settings import IGNORE_CORRUPT_FILES, is_on
from pyspark_delta.spark.convert.files import FileManifest
from pyspark_delta.spark.convert.tasks import (
    Spooled,
    can_run_python,
    has_own_executors,
    run_by_value,
    shared_items,
)
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark
from pyspark_delta.spark.jvm.hadoop.footers import footer_bytes, has_file_system
from pyspark_delta.spark.tables.locations import hadoop_location, scan_options

TASKS_FROM_FILES = {True: 200, False: 20_000}
"""The number of files from which on tasks read footers: with separate executors, and without."""
_BLOCK_FILES = 250
_PART_FILES = 50
_LOCAL_THREADS = 2
_STORE_THREADS = 16
# A column of the table may have a later position in a file, but hardly by more leaves than this.
_SPARE_LEAVES = 64
_DUPLICATES = "DELTA_DUPLICATE_COLUMNS_FOUND"
_SPARK_DUPLICATES = "COLUMN_ALREADY_EXISTS"
# Read one file, and no partition columns from the names of its directories.
_ONE_FILE = {"recursiveFileLookup": "true", "__globPaths__": "false"}
_LOGGER = logging.getLogger(__name__)


def local_footers(
    spark: SparkSession, blocks: Sequence[Sequence[tuple[str, int]]], request: StatsRequest | None
) -> Iterator[FooterBlock]:
    """The footers of blocks of local files, given by path and size; tasks read them in Python."""
    plain = None if request is None else tuple(request)
    shares = shared_items(spark, blocks)
    pickled = run_by_value(shares, parquet_footers, partial(footer_blocks, plain))
    # One block at a time: as objects they take ten times the memory.
    return map(unpickled_block, pickled)


def hadoop_footers(
    spark: SparkSession,
    blocks: Sequence[Sequence[str]],
    options: Mapping[str, str],
    request: StatsRequest | None,
) -> Iterator[FooterBlock]:
    """The footers of blocks of files behind Hadoop's FileSystem, given by location.

    Java reads the bytes of a footer, and Python parses them.  For a file that a task could not
    read, the result has no reason, only the failure.
    """
    plain = None if request is None else tuple(request)
    files = [(number, place) for number, places in enumerate(blocks) for place in places]
    frame = spark.createDataFrame(
        shared_items(spark, files), "block INT, location STRING", verifySchema=False
    )
    footer = footer_bytes(JvmSession(spark), col("location"), options)
    rows = frame.select("block", footer).rdd
    footers = run_by_value(rows, parquet_footers, partial(given_footer_blocks, plain))
    for _, parts in groupby(footers, key=itemgetter(0)):
        yield joined_blocks([unpickled_block(data) for _, data in parts])


class FileRows(NamedTuple):
    """Files of one block, with their footers if these are read."""

    paths: list[str]
    sizes: list[int]
    times: list[int]
    partitions: list[int | None]
    footers: list[FileFooter] | None


class Footers(Spooled):
    """Files, footers and schema; on the driver's disk until closed.

    `schema` is that of the data, None when it is not inferred.  The footers of `rows` refer to
    `layouts` by number.  `unread` reads footers only when `rows` is called.
    """

    def __init__(self, manifest: FileManifest, *, has_stats: bool) -> None:
        super().__init__()
        self.manifest = manifest
        self.has_stats = has_stats
        self.schema: StructType | None = None
        self.layouts: list[ParquetLayout] = []
        self.num_files = manifest.num_files
        self.num_bytes = manifest.num_bytes
        self.unread: Iterator[FileRows] | None = None
        self._is_kept = False

    def rows(self) -> Iterator[FileRows]:
        """The files with their footers."""
        if self._is_kept:
            return (FileRows(*pickle.loads(block)) for block in self._spool)
        if self.unread is not None:
            return self.unread
        return map(_without_footers, self.manifest.batches())

    def keep(self, rows: FileRows) -> None:
        if not self._is_kept:
            self._is_kept = True
            self.num_files = self.num_bytes = 0
        self._spool.append(pickle.dumps(tuple(rows), pickle.HIGHEST_PROTOCOL))
        self.num_files += len(rows.paths)
        self.num_bytes += sum(rows.sizes)


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

    Without `infer_schema`, footers are read while the actions are made; without `stats` as well,
    they are not read at all.  The table's `configuration` selects the columns with statistics.
    """
    footers = Footers(manifest, has_stats=stats)
    if not infer_schema and not stats:
        return footers
    reading = _Reading(
        spark,
        manifest,
        request=_stats_request(configuration or {}, manifest.is_local) if stats else None,
        layouts=footers.layouts,
        progress=progress,
        tasks_from_files=tasks_from_files,
    )
    if not infer_schema:
        footers.unread = reading.rows()
        return footers
    try:
        footers.schema = StructType()
        merged = 0
        for rows in reading.rows():
            footers.keep(rows)
            for layout, path in zip(
                footers.layouts[merged:], reading.first_paths[merged:], strict=True
            ):
                footers.schema = _merged(spark, footers.schema, layout, manifest.uri(path))
            merged = len(footers.layouts)
        if not footers.num_files or not footers.schema.fields:
            raise SchemaError("DELTA_FAILED_INFER_SCHEMA")
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
        layouts: list[ParquetLayout],
        progress: Progress | None,
        tasks_from_files: int | None,
    ) -> None:
        self._spark = spark
        self._manifest = manifest
        self._stats_request = request
        self._layouts = layouts
        self._numbers: dict[ParquetLayout, int] = {}
        self.first_paths: list[str] = []
        self._progress = progress
        self._ignores_corrupt = is_on(spark, IGNORE_CORRUPT_FILES)
        if tasks_from_files is None:
            tasks_from_files = TASKS_FROM_FILES[has_own_executors(spark)]
        self._store = manifest.store
        self._uses_tasks = (
            manifest.num_files >= tasks_from_files
            and can_run_python(spark)
            # Hadoop may lack the object store's file system.
            and (manifest.is_local or has_file_system(JvmSession(spark), manifest.root, {}))
        )

    def rows(self) -> Iterator[FileRows]:
        """All files, in blocks, with layouts numbered over all blocks."""
        done = 0
        blocks = _file_blocks(self._manifest)
        while batch := list(islice(blocks, max(1, self._batch_files() // _BLOCK_FILES))):
            for rows, block in zip(batch, self._read(batch), strict=True):
                done += len(rows.paths)
                kept = self._numbered(rows, block)
                if self._progress is not None:
                    self._progress("footers", done, self._manifest.num_files)
                if kept.paths:
                    yield kept

    def _batch_files(self) -> int:
        for_schemas = CONVERT_SCHEMA_BATCH.of(self._spark)
        if self._stats_request is None:
            return for_schemas
        return min(for_schemas, CONVERT_STATS_BATCH.of(self._spark))

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
            return local_footers(
                self._spark, [self._files(rows) for rows in batch], self._stats_request
            )
        places = [
            [hadoop_location(self._manifest.address(path)) for path in rows.paths] for rows in batch
        ]
        blocks = hadoop_footers(self._spark, places, scan_options(self._store), self._stats_request)
        return self._with_reasons(batch, blocks)

    def _with_reasons(
        self, batch: Sequence[FileRows], blocks: Iterable[FooterBlock]
    ) -> Iterator[FooterBlock]:
        """The blocks; the driver reads failed files again, for the rows or for the reason."""
        for rows, block in zip(batch, blocks, strict=True):
            if any(footer.problem is not None for footer in block.files):
                yield from self._read_by_driver([rows])
            else:
                yield block

    def _read_by_driver(self, batch: Sequence[FileRows]) -> Iterator[FooterBlock]:
        is_local = self._manifest.is_local
        read_tail = read_local_tail if is_local else self._store_tail
        # Parsing holds the GIL, so more threads help only while they wait for a store.
        threads = min(_LOCAL_THREADS, os.cpu_count() or 1) if is_local else _STORE_THREADS
        if sum(len(rows.paths) for rows in batch) <= _PART_FILES:
            threads = 1

        def read(files: Sequence[tuple[str, int]]) -> FooterBlock:
            return parquet_footers.read_footer_block(files, read_tail, self._stats_request)

        with ThreadPoolExecutor(threads) as pool:
            # A block at a time: results wait in memory until they are consumed.
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
        path_of = self._manifest.local_path if self._manifest.is_local else str
        return list(zip(map(path_of, rows.paths), rows.sizes, strict=True))

    def _numbered(self, rows: FileRows, block: FooterBlock) -> FileRows:
        """The files that could be read, with layouts numbered over all blocks."""
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

    def _number(self, layout: ParquetLayout, path: str) -> int:
        if layout not in self._numbers:
            self._numbers[layout] = len(self._layouts)
            self._layouts.append(layout)
            self.first_paths.append(path)
        return self._numbers[layout]

    def _refuse(self, path: str, problem: str, is_corrupt: bool) -> None:
        # As in Spark, a file that is missing or cannot be opened is never skipped.
        if is_corrupt and self._ignores_corrupt:
            _LOGGER.warning("Left out %s, for its footer cannot be read: %s", path, problem)
            return
        uri = self._manifest.uri(path)
        error = DataFileError("DELTA_FAILED_READ_FILE_FOOTER", currentFile=uri)
        error.add_note(problem)
        raise error


def _merged(spark: SparkSession, schema: StructType, layout: ParquetLayout, uri: str) -> StructType:
    """The schema with the columns of a layout, of which the file at `uri` is one."""
    own = _schema_of(spark, layout, uri)
    try:
        check_no_duplicates(own, f"{_DUPLICATES}.CONVERT_TO_DELTA")
        return merge_schemas(schema, own)
    except SchemaError as error:
        error.add_note(f"The file is {uri}: {own.simple_string}")
        raise


def _schema_of(spark: SparkSession, layout: ParquetLayout, uri: str) -> StructType:
    """The schema that Spark wrote into a footer, or infers from a file of another writer."""
    if layout.spark_schema is not None:
        try:
            return _plain(parse_schema(layout.spark_schema))
        except SchemaError as error:
            if error.condition == _DUPLICATES:
                raise _duplicates(uri, error.parameters["duplicateCols"]) from error
            # Otherwise the file has a type that tables cannot have.
    try:
        read = spark.read.format("parquet").options(**_ONE_FILE).load(hadoop_location(uri))
        return _plain(from_spark(read.schema))
    except JAVA_FAILURES as error:
        if isinstance(error, PySparkException) and error.getCondition() == _SPARK_DUPLICATES:
            name = (error.getMessageParameters() or {}).get("columnName", "").strip("`")
            raise _duplicates(uri, name) from error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataFileError(
            "DELTA_CONVERT_UNREADABLE_COLUMNS", file=uri, reason=reason[:500]
        ) from error


def _duplicates(uri: str, name: str) -> SchemaError:
    error = SchemaError(f"{_DUPLICATES}.CONVERT_TO_DELTA", duplicateCols=name)
    error.add_note(f"The file is {uri}")
    return error


def _plain(schema: StructType) -> StructType:
    """The schema for a new table: all nullable, with comments as the only metadata."""

    def with_comment_only(f: StructField) -> StructField:
        kept = {key: value for key, value in f.metadata.items() if key == "comment"}
        return StructField(f.name, f.data_type, f.nullable, kept)

    plain = map_fields(as_nullable(schema), with_comment_only)
    assert isinstance(plain, StructType)
    return plain


def _stats_request(configuration: Mapping[str, str], is_local: bool) -> StatsRequest:
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None:
        names = frozenset(path[0].lower() for path in parse_column_list(listed))
        return StatsRequest(names=names, reads_int96=is_local)
    indexed = property_value(configuration, NUM_INDEXED_COLUMNS)
    most = None if indexed < 0 else 2 * indexed + _SPARE_LEAVES
    return StatsRequest(most_leaves=most, reads_int96=is_local)


def _file_blocks(manifest: FileManifest) -> Iterator[FileRows]:
    for batch in manifest.batches():
        for at in range(0, batch.num_rows, _BLOCK_FILES):
            yield _without_footers(batch.slice(at, _BLOCK_FILES))


def _without_footers(batch: pa.RecordBatch) -> FileRows:
    paths, sizes, times, partitions = (column.to_pylist() for column in batch.columns)
    return FileRows(paths, sizes, times, partitions, None)
