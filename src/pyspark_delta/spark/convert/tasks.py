"""Python functions as Spark tasks on executors that do not have this package."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from pyspark import RDD, StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_CORE = 3


def has_own_executors(spark: SparkSession) -> bool:
    """Whether tasks run elsewhere than in the driver's own process."""
    return not str(spark.sparkContext.master).startswith("local")


def can_run_python(spark: SparkSession) -> bool:
    """Whether tasks may find what this module sends them.

    On this machine that is certain only of the interpreter that runs the driver; elsewhere it
    shows when a task fails.
    """
    if has_own_executors(spark):
        return True
    found = shutil.which(spark.sparkContext.pythonExec)
    # Not by its real path: a virtual environment is a link to what has fewer packages.
    return found is not None and os.path.abspath(found) == os.path.abspath(sys.executable)


def run_by_value(
    spark: SparkSession,
    module: ModuleType,
    function: Callable[[Iterable[Any]], Iterator[Any]],
    items: Sequence[Any],
) -> list[Any]:
    """What `function` gives for all of `items`, shared out among tasks, in their order.

    `module` is the one the function is defined in: it is sent along, so it may import only what
    executors have.  Results must be plain values.
    """
    _send_along(module)
    return list(spark.sparkContext.runJob(shared_items(spark, items), function))


def run_on_rows(
    frame: DataFrame,
    module: ModuleType,
    function: Callable[[Iterable[Any]], Iterator[Any]],
) -> list[Any]:
    """As `run_by_value`, for the rows that tasks make of a DataFrame."""
    _send_along(module)
    return list(frame.sparkSession.sparkContext.runJob(frame.rdd, function))


def cached_by_value(
    spark: SparkSession,
    module: ModuleType,
    function: Callable[[Iterable[Any]], Iterator[Any]],
    items: Sequence[Any],
) -> Iterator[Any]:
    """As `run_by_value`, but the results wait with the executors until they are taken.

    All tasks run at once; the driver then holds the results of one of them at a time.  The cache
    is given back in the end, also when whoever takes the results fails.
    """
    _send_along(module)
    found = shared_items(spark, items).mapPartitions(function)
    found.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found.count()
        yield from found.toLocalIterator()
    finally:
        found.unpersist()


def shared_items(spark: SparkSession, items: Sequence[Any]) -> RDD[Any]:
    """The items, as many to each of some tasks for every core."""
    context = spark.sparkContext
    slices = max(1, min(len(items), _TASKS_PER_CORE * context.defaultParallelism))
    return context.parallelize(items, slices)


def _send_along(module: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
