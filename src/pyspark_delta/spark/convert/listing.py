"""A directory tree, listed on the driver or, when it is large, by Spark tasks.

A local tree begins to be listed on the driver.  Once there are many directories left, and
executors elsewhere, they are shared out among tasks.  A tree behind Hadoop's FileSystem is listed
by the driver, in threads: executors have no way to it but Java's.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops import tree_listing
from pyspark_delta.kernel.ops.tree_listing import (
    Identity,
    Listed,
    is_hidden,
    is_hidden_file,
    list_directory,
    list_tree,
    listed_trees,
    with_identity,
)
from pyspark_delta.spark.convert.tasks import has_own_executors, run_by_value
from pyspark_delta.spark.jvm.hadoop_store import HadoopStore

_DISTRIBUTE_ABOVE = 64
_DIRECTORIES_AT_ONCE = 10_000
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
    # Breadth first, for the directories of one level make even shares.
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
        yield from run_by_value(spark, tree_listing, partial(listed_trees, root), some)


def walked_tree(store: HadoopStore) -> Iterator[list[Listed]]:
    """The files of a store of Hadoop's, one directory after another."""
    pending = [""]
    with ThreadPoolExecutor(_THREADS) as pool:
        while pending:
            some, pending = pending[:_THREADS], pending[_THREADS:]
            below: list[str] = []
            for infos, directories in pool.map(store.list_directory, some):
                yield sorted(
                    (info.path, info.size, info.modified_ms)
                    for info in infos
                    if not is_hidden_file(info.path.rpartition("/")[2])
                )
                below += sorted(d for d in directories if not is_hidden(d.rpartition("/")[2]))
            # What lies deeper comes first, so that few directories wait.
            pending = below + pending
