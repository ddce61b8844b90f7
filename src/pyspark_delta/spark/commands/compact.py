"""Files written together: bins of files, one new file each or a few in an order; no row changed.

Which files go into a bin is planned by `kernel.ops`.  Deleted rows stay behind, row ids come
along.  Many bins that become one file each are written by one job with a task for each: a job has
its price, and one task would leave the other cores idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.ops.bin_packing import num_bytes
from pyspark_delta.kernel.ops.zcubes import PROVIDER, ZCube
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.scan.string_literals import string_literal
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.commands.replaced_rows import hidden_columns, num_live_rows, tracked
from pyspark_delta.spark.curve_keys import Curve, along_curve
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.unions import UNION_SETTINGS, union_of
from pyspark_delta.spark.recorded_stats import with_recorded_stats
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.writer import stage

# So many bins are one job: planning takes longer than in proportion.
_MOST_BINS = 32
_R = TypeVar("_R")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Files that were written anew, and those they take the place of."""

    added: tuple[AddFile, ...]
    removed: tuple[AddFile, ...]

    def actions(self, now_ms: int) -> list[Action]:
        """What the commit says: the rows are where they were, in other files."""
        return [*[file.remove(now_ms, data_change=False) for file in self.removed], *self.added]

    @property
    def metrics(self) -> dict[str, object]:
        """The metrics of OPTIMIZE."""
        sizes = sorted(file.size for file in self.added)
        quarters = {f"p{share}FileSize": _percentile(sizes, share) for share in (25, 50, 75)}
        return {
            "numAddedFiles": len(self.added),
            "numRemovedFiles": len(self.removed),
            "numAddedBytes": sum(sizes),
            "numRemovedBytes": sum(file.size for file in self.removed),
            "minFileSize": sizes[0] if sizes else 0,
            **quarters,
            "maxFileSize": sizes[-1] if sizes else 0,
            "numDeletionVectorsRemoved": sum(
                file.deletion_vector is not None for file in self.removed
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the rows of a bin are written.

    Without a `curve` they become one file, through a shuffle if `shuffles`.  With one they are laid
    along it, in files of about `file_size` bytes; `new_cube` gives the cube of a bin, if the table
    has such.  At most `threads` jobs run at a time.
    """

    curve: Curve | None = None
    file_size: int = 1 << 30
    new_cube: Callable[[], ZCube] | None = None
    shuffles: bool = False
    threads: int = 2

    def num_files(self, bin_of_files: pa.Table) -> int:
        """How many files a bin becomes."""
        if self.curve is None:
            return 1
        return max(1, num_bytes(bin_of_files) // self.file_size)


def compact(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    bins: Sequence[pa.Table],
    staged: StagedFiles,
    layout: Layout | None = None,
    *,
    tell: Callable[[int], None] = lambda _: None,
) -> Compacted:
    """Write each bin, a table of add actions of one partition, into files of its own.

    The transaction depends on the files from here on.  `tell` is told how many files were written
    anew, as it goes on.
    """
    asked = layout or Layout()
    removed = [file for each in bins for file in add_files(each)]
    txn.read_files(file.path for file in removed)
    jobs = _jobs(bins, asked)

    def conf(key: str) -> str | None:
        return jvm.spark.conf.get(key, None)

    def run(job: Sequence[pa.Table]) -> list[AddFile]:
        files = stage(
            jvm,
            txn.log,
            _rows(jvm, txn, job, asked),
            txn.metadata,
            txn.protocol,
            hidden=hidden_columns(txn),
            planning=UNION_SETTINGS if len(job) > 1 else None,
            data_change=False,
            one_partition_each=True,
        )
        files = with_recorded_stats(_in_cube(files, asked), txn, conf)
        staged.add(files)
        tell(sum(each.num_rows for each in job))
        return files

    written = in_threads(jvm.spark, run, jobs, asked.threads)
    return Compacted(added=tuple(f for each in written for f in each), removed=tuple(removed))


def in_threads(
    spark: SparkSession, run: Callable[[_T], _R], tasks: Sequence[_T], threads: int
) -> list[_R]:
    """What `run` gives for each task, some at a time; after an error none is begun any more."""
    if len(tasks) < 2 or threads < 2:
        return [run(task) for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        # Each thread tells Spark whose job it runs, as the calling one would.
        target = inheritable_thread_target(spark)(run)
        futures = [pool.submit(target, task) for task in tasks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
        for future in done:
            future.result()
        return [future.result() for future in futures]


def _jobs(bins: Sequence[pa.Table], layout: Layout) -> list[list[pa.Table]]:
    """Bins that one job writes: those of one file each together, unless each is a cube."""
    plain = [each for each in bins if layout.num_files(each) == 1 and layout.new_cube is None]
    others = [each for each in bins if layout.num_files(each) > 1 or layout.new_cube is not None]
    groups = [plain[start : start + _MOST_BINS] for start in range(0, len(plain), _MOST_BINS)]
    return [*[[each] for each in others], *groups]


def _rows(
    jvm: JvmSession, txn: OptimisticTransaction, bins: Sequence[pa.Table], layout: Layout
) -> DataFrame:
    """The rows of bins: a part for each file that they become."""
    if len(bins) > 1:
        return union_of(jvm, [_rows(jvm, txn, [each], layout) for each in bins])
    (files,) = bins
    store = txn.log.store
    rows = chosen_rows(jvm, store, files, protocol=txn.protocol, metadata=txn.metadata)
    rows = tracked(txn, rows)
    num_files = layout.num_files(files)
    if layout.curve is not None and num_files > 1:
        known = num_live_rows(tuple(add_files(files)))
        num_rows = rows.count() if known is None else known
        return along_curve(jvm, rows, layout.curve, num_files=num_files, num_rows=num_rows)
    return rows.repartition(1) if layout.shuffles else rows.coalesce(1)


def _in_cube(files: Iterable[AddFile], layout: Layout) -> list[AddFile]:
    """The files of a bin, as members of the cube that it becomes."""
    if layout.new_cube is None:
        return list(files)
    tags = layout.new_cube().tags
    return [
        replace(file, tags={**(file.tags or {}), **tags}, clustering_provider=PROVIDER)
        for file in files
    ]


def _percentile(ordered: Sequence[int], share: int) -> int:
    return ordered[len(ordered) * share // 100] if ordered else 0


def partition_predicates(partitions: Sequence[Mapping[str, str | None]]) -> list[str]:
    """How a history names partitions; none stands for the whole table.

    >>> partition_predicates([{"p": "a"}, {"p": None}])
    ["(p <=> 'a') OR (p <=> NULL)"]
    """
    named = [
        " AND ".join(f"{name} <=> {_literal(value)}" for name, value in values.items())
        for values in partitions
        if values
    ]
    return [" OR ".join(f"({text})" for text in named)] if named else []


def _literal(value: str | None) -> str:
    return "NULL" if value is None else string_literal(value)
