"""A directory tree, listed on the driver or, when it is large, by Spark tasks.

A tree begins to be listed on the driver, breadth first, for the directories of one level make
even shares.  Once many are left they are shared out among tasks: a local tree's when executors are
elsewhere, and then what they found stays cached with them until it is taken; a tree's behind
Hadoop's FileSystem always, and Spark's own lister runs there, for executors have no way to it but
Java's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops import tree_listing
from pyspark_delta.kernel.ops.tree_listing import (
    Identity,
    Listed,
    is_hidden,
    is_hidden_path,
    list_directory,
    list_tree,
    listed_trees,
    with_identity,
)
from pyspark_delta.kernel.storage.base import FileInfo
from pyspark_delta.spark.convert.tasks import cached_by_value, has_own_executors
from pyspark_delta.spark.jvm.hadoop_store import HadoopStore

_DISTRIBUTE_ABOVE = 64
_DIRECTORIES_AT_ONCE = 10_000
_TREES_AT_ONCE = 1_000
_THREADS = 16


def listed_tree(
    spark: SparkSession, root: str, distribute_above: int | None = None
) -> Iterator[list[Listed]]:
    """The files below a local directory, one directory after another."""
    if distribute_above is None:
        if not has_own_executors(spark):
            yield from list_tree(root)
            return
        distribute_above = _DISTRIBUTE_ABOVE
    start = with_identity(root, "", frozenset())
    pending: list[tuple[str, frozenset[Identity]]] = [("", start or frozenset())]
    while pending and len(pending) <= distribute_above:
        below: list[tuple[str, frozenset[Identity]]] = []
        for directory, above in pending:
            files, directories = list_directory(root, directory)
            if files:
                yield files
            for name in directories:
                identities = with_identity(root, name, above)
                if identities is not None:
                    below.append((name, identities))
        pending = below
    directories = [directory for directory, _ in pending]
    for at in range(0, len(directories), _DIRECTORIES_AT_ONCE):
        some = directories[at : at + _DIRECTORIES_AT_ONCE]
        yield from cached_by_value(spark, tree_listing, partial(listed_trees, root), some)


def walked_tree(
    store: HadoopStore, distribute_above: int = _DISTRIBUTE_ABOVE
) -> Iterator[list[Listed]]:
    """The files of a store of Hadoop's, one directory or some after another."""
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


def _data_files(infos: Iterable[FileInfo]) -> list[Listed]:
    return sorted(
        (info.path, info.size, info.modified_ms)
        for info in infos
        if not is_hidden_path(info.path)  # Spark's lister takes `_metadata` for data
    )
