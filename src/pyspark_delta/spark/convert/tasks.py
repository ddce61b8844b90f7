"""Runs Python functions as Spark tasks, and keeps their results on disk.

Executors have no `pyspark_delta`, so the module that a function needs is sent along by value.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, Self

from pyspark import RDD, StorageLevel, cloudpickle
from pyspark.sql import SparkSession

_TASKS_PER_CORE = 3
_BLOCK_LENGTH = struct.Struct("<Q")
_FASTEST_LEVEL = 1


def has_own_executors(spark: SparkSession) -> bool:
    """Whether tasks run outside the driver's process."""
    return not str(spark.sparkContext.master).startswith("local")


def can_run_python(spark: SparkSession) -> bool:
    """Whether the Python of tasks may have the packages that functions import.

    On this machine only the driver's own interpreter certainly has them; elsewhere a missing
    package makes a task fail.
    """
    if has_own_executors(spark):
        return True
    python = shutil.which(spark.sparkContext.pythonExec)
    # Not by its real path: a virtual environment links to an interpreter with fewer packages.
    return python is not None and os.path.abspath(python) == os.path.abspath(sys.executable)


def run_by_value(
    items: RDD[Any], module: ModuleType, function: Callable[[Iterable[Any]], Iterator[Any]]
) -> list[Any]:
    """The results of `function` for all partitions of `items`, in the order of the items.

    `module` is the one that defines the function: it is sent along, so it may import only packages
    that executors have.  Results must be plain values.
    """
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return list(items.context.runJob(items, function))


def cached_by_value(
    items: RDD[Any], module: ModuleType, function: Callable[[Iterable[Any]], Iterator[Any]]
) -> Iterator[Any]:
    """As `run_by_value`, but the results wait with the executors until they are taken.

    All tasks run at once; the driver then holds the results of one of them at a time.  The cache
    is freed in the end, also when the caller fails.
    """
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    results = items.mapPartitions(function)
    results.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        results.count()
        yield from results.toLocalIterator()
    finally:
        results.unpersist()


def shared_items(spark: SparkSession, items: Sequence[Any]) -> RDD[Any]:
    """The items in even shares, a few tasks for every core."""
    context = spark.sparkContext
    slices = max(1, min(len(items), _TASKS_PER_CORE * context.defaultParallelism))
    return context.parallelize(items, slices)


class Spool:
    """Blocks of bytes on the driver's disk: too many for its memory, written once, read often.

    The file has no name, and is gone when it is closed or the process ends.  For one thread.
    """

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="pyspark-delta-")  # noqa: SIM115 - closed by `close`
        self._end = 0

    def append(self, block: bytes) -> None:
        """Add a block behind the others."""
        packed = zlib.compress(block, _FASTEST_LEVEL)
        self._file.seek(self._end)
        self._end += self._file.write(_BLOCK_LENGTH.pack(len(packed))) + self._file.write(packed)

    def __iter__(self) -> Iterator[bytes]:
        """The blocks in their order; may be repeated."""
        at = 0
        while at < self._end:
            self._file.seek(at)
            (length,) = _BLOCK_LENGTH.unpack(self._file.read(_BLOCK_LENGTH.size))
            block = zlib.decompress(self._file.read(length))
            at += _BLOCK_LENGTH.size + length
            yield block

    def close(self) -> None:
        self._file.close()


class Spooled:
    """Something that is kept on the driver's disk until it is closed."""

    def __init__(self) -> None:
        self._spool = Spool()

    def close(self) -> None:
        """Free the disk."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
