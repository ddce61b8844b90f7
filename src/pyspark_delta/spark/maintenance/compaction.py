"""Compaction: rewrite bins of files into one file each, or a few along a curve; auto compaction.

No row changes: deleted rows are left out, row ids are kept.  `kernel.ops.layout` plans the bins.
Many bins that become one file each are written by one job with a task for each, because every job
has a fixed cost, and one task would leave the other cores idle.

Writing may take hours.  A commit that lost a race for a reason that does not matter here is retried
on the newest version: as long as every file that was read is live with the same deleted rows, the
new files are right, whatever else changed.  A change of metadata that keeps the format of files
accepts files from before it, and so the new ones too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.log.frames.file_actions import add_files, add_table, file_keys
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.layout.bins import (
    PROVIDER,
    Sizes,
    ZCube,
    num_bytes,
    plan_auto_compaction,
)
from pyspark_delta.kernel.ops.rewrite_plan import num_live_rows
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.domains import CLUSTERING
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.operations import Operation, optimize
from pyspark_delta.kernel.protocol.properties import (
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    TARGET_FILE_SIZE,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.protocol.row_tracking import is_row_tracking_enabled as has_row_tracking
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.sql.quoting import string_literal
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import (
    AUTO_COMPACT_MAX_FILE_SIZE,
    AUTO_COMPACT_MAX_PARTITIONS,
    AUTO_COMPACT_MIN_FILE_SIZE,
    AUTO_COMPACT_MIN_FILES,
)
from pyspark_delta.spark.conf.settings import Conf, conf_of
from pyspark_delta.spark.files.stage import (
    StagedFiles,
    StageRequest,
    WriteHook,
    add_write_hook,
    hidden_columns,
    stage,
    with_row_ids,
)
from pyspark_delta.spark.files.stats import with_recorded_stats
from pyspark_delta.spark.files.write_options import is_auto_compacted
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import UNION_SETTINGS, union_of
from pyspark_delta.spark.maintenance.curve_keys import Curve, along_curve
from pyspark_delta.spark.scan.frame import chosen_rows

# The time for planning a job grows faster than the number of its bins.
_MOST_BINS = 32
_Result = TypeVar("_Result")
_Task = TypeVar("_Task")
logger = logging.getLogger(__name__)
_AUTO_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """New files, and the files that they replace."""

    added: tuple[AddFile, ...]
    removed: tuple[AddFile, ...]

    def actions(self, now_ms: int) -> list[Action]:
        """The actions of the commit, which change no data."""
        return [*[file.remove(now_ms, data_change=False) for file in self.removed], *self.added]

    @property
    def metrics(self) -> dict[str, object]:
        """The metrics of OPTIMIZE."""
        sizes = sorted(file.size for file in self.added)
        quarters = {
            f"p{share}FileSize": sizes[len(sizes) * share // 100] if sizes else 0
            for share in (25, 50, 75)
        }
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

    Without a `curve` they become one file, after a shuffle if `shuffles`.  With one they are
    ordered along it, in files of about `file_size` bytes; `new_cube` makes the ZCube of a bin, if
    the table is clustered.  At most `threads` jobs run at a time.
    """

    curve: Curve | None = None
    file_size: int = 1 << 30
    new_cube: Callable[[], ZCube] | None = None
    shuffles: bool = False
    threads: int = 2

    def num_files(self, bin_of_files: pa.Table) -> int:
        """The number of files that a bin becomes."""
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
    report: Callable[[int], None] = lambda _: None,
) -> Compacted:
    """Write each bin, a table of add actions of one partition, into files of its own.

    The transaction depends on the files from here on.  `report` is called with the number of files
    that each job has rewritten.
    """
    layout = layout or Layout()
    removed = [file for each in bins for file in add_files(each)]
    txn.read_files(file.path for file in removed)
    jobs = _jobs(bins, layout)

    def run(job: Sequence[pa.Table]) -> list[AddFile]:
        files = stage(
            jvm,
            StageRequest(
                log=txn.log,
                data=_bin_rows(jvm, txn, job, layout),
                metadata=txn.metadata,
                protocol=txn.protocol,
                extra=hidden_columns(txn),
                planning=UNION_SETTINGS if len(job) > 1 else None,
                data_change=False,
                one_partition_each=True,
            ),
        )
        staged.add(files)
        files = with_recorded_stats(_in_cube(files, layout), txn, conf_of(jvm.spark))
        report(sum(each.num_rows for each in job))
        return files

    written = in_threads(jvm.spark, run, jobs, layout.threads)
    return Compacted(added=tuple(f for each in written for f in each), removed=tuple(removed))


def commit_rewrite(
    log: DeltaLog,
    txn: OptimisticTransaction,
    staged: StagedFiles,
    done: Compacted,
    operation: Operation,
    user_metadata: str | None = None,
) -> int:
    """Commit the new files in place of the old ones; returns the version."""
    staged.offer()
    actions = done.actions(log.now_ms())
    while True:
        try:
            committed = txn.commit(
                actions,
                operation,
                tags=preserved_tags(txn),
                user_metadata=user_metadata,
                metrics=done.metrics,
            )
            return committed.version
        except DeltaConcurrentModificationException as error:
            newer = _retried(log, txn, done.removed)
            if newer is None:
                raise
            logger.info("files are as they were, so the commit is tried again: %s", error)
            txn = newer
            staged.move(txn)


def preserved_tags(txn: OptimisticTransaction) -> dict[str, str] | None:
    """The commit's tags, which say that row ids are kept, if the table has them."""
    return {PRESERVED_TAG: "true"} if hidden_columns(txn).fields else None


def in_threads(
    spark: SparkSession, run: Callable[[_Task], _Result], tasks: Sequence[_Task], threads: int
) -> list[_Result]:
    """The results of `run` for each task, some at a time; after an error no other task begins."""
    if len(tasks) < 2 or threads < 2:
        return [run(task) for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        # Each thread has the local properties of the calling one, so Spark knows whose job it runs.
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


def partition_predicates(partitions: Sequence[Mapping[str, str | None]]) -> list[str]:
    """Partitions as predicates for the history; no partitions stand for the whole table.

    >>> partition_predicates([{"p": "a"}, {"p": None}])
    ["(p <=> 'a') OR (p <=> NULL)"]
    """
    texts = [
        " AND ".join(
            f"{name} <=> {'NULL' if value is None else string_literal(value)}"
            for name, value in values.items()
        )
        for values in partitions
        if values
    ]
    return [" OR ".join(f"({text})" for text in texts)] if texts else []


def compact_after_writes() -> None:
    """Register auto compaction after writes of this process; calling it again does nothing."""
    add_write_hook(
        WriteHook(name="auto compaction", is_due=is_auto_compacted, run=run_auto_compaction)
    )


def run_auto_compaction(
    spark: SparkSession, log: DeltaLog, added: Sequence[AddFile], conf: Conf
) -> int | None:
    """Compact small files of the partitions that a commit wrote to; the new version, or None.

    It is a commit of its own, by the same session, after the write.  An error is logged, and the
    next write tries again.
    """
    try:
        return _compact_after_write(spark, log, added, conf)
    except Exception as error:
        logger.warning("the write stands, but its files were not compacted: %s", error)
        return None


def _jobs(bins: Sequence[pa.Table], layout: Layout) -> list[list[pa.Table]]:
    """Groups of bins for one job each: bins of one file share a job, unless each is a ZCube."""
    alone: list[list[pa.Table]] = []
    shared: list[pa.Table] = []
    for each in bins:
        if layout.num_files(each) > 1 or layout.new_cube is not None:
            alone.append([each])
        else:
            shared.append(each)
    return [*alone, *(shared[at : at + _MOST_BINS] for at in range(0, len(shared), _MOST_BINS))]


def _bin_rows(
    jvm: JvmSession, txn: OptimisticTransaction, bins: Sequence[pa.Table], layout: Layout
) -> DataFrame:
    """The rows of bins, with a partition for each new file."""
    if len(bins) > 1:
        return union_of(jvm, [_bin_rows(jvm, txn, [each], layout) for each in bins])
    (files,) = bins
    rows = with_row_ids(txn, chosen_rows(jvm, txn, files))
    num_files = layout.num_files(files)
    if layout.curve is not None and num_files > 1:
        known = num_live_rows(tuple(add_files(files)))
        num_rows = rows.count() if known is None else known
        return along_curve(jvm, rows, layout.curve, num_files=num_files, num_rows=num_rows)
    return rows.repartition(1) if layout.shuffles else rows.coalesce(1)


def _in_cube(files: Iterable[AddFile], layout: Layout) -> list[AddFile]:
    """The files of a bin, as members of its new ZCube."""
    if layout.new_cube is None:
        return list(files)
    tags = layout.new_cube().tags
    return [
        replace(file, tags={**(file.tags or {}), **tags}, clustering_provider=PROVIDER)
        for file in files
    ]


def _compact_after_write(
    spark: SparkSession, log: DeltaLog, added: Sequence[AddFile], conf: Conf
) -> int | None:
    txn = log.start_transaction()
    snapshot = txn.snapshot
    if snapshot is None or CLUSTERING in snapshot.domains:
        return None  # files of a clustered table are ordered, which compaction would lose
    bins = plan_auto_compaction(
        snapshot.adds,
        snapshot.metadata,
        _auto_sizes(snapshot.metadata, conf),
        added=[file.path for file in added],
        least_files=AUTO_COMPACT_MIN_FILES.by(conf),
        most_partitions=AUTO_COMPACT_MAX_PARTITIONS.by(conf),
    )
    if not bins:
        return None
    with StagedFiles(txn) as staged:
        done = compact(JvmSession(spark), txn, bins, staged)
        touched = _touched_partitions(snapshot.metadata, done.added)
        staged.offer()
        committed = txn.commit(
            done.actions(log.now_ms()),
            optimize(partition_predicates(touched), auto=True),
            tags=preserved_tags(txn),
            metrics=done.metrics,
        )
    return committed.version


def _retried(
    log: DeltaLog, txn: OptimisticTransaction, removed: Sequence[AddFile]
) -> OptimisticTransaction | None:
    """A transaction on the newest version for the same commit; None when that is not possible."""
    before, now = txn.snapshot, log.update()
    assert before is not None
    if now.version == before.version or not _fits(before, now) or not _has_all(now, removed):
        return None
    newer = log.transaction_on(now)
    newer.read_files(file.path for file in removed)
    return newer


def _fits(before: Snapshot, now: Snapshot) -> bool:
    """Whether files written for one version of the table are valid in the other."""
    old, new = before.metadata, now.metadata
    tracked = has_row_tracking(before.protocol, old)
    return (
        old.id == new.id
        and old.partition_columns == new.partition_columns
        and enabled_version(old) == enabled_version(new)
        and tracked == has_row_tracking(now.protocol, new)
        and (not tracked or _id_columns(before) == _id_columns(now))
    )


def _id_columns(snapshot: Snapshot) -> tuple[str | None, ...]:
    configuration = snapshot.metadata.configuration
    return tuple(configuration.get(row.key) for row in (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN))


def _has_all(now: Snapshot, removed: Sequence[AddFile]) -> bool:
    """Whether each file is live, with the vector that it had when it was read."""
    root_uri = now.store.root_uri
    live = file_keys(now.files_with(["path", "deletionVector"]), root_uri)
    keys = file_keys(add_table(removed), root_uri)
    are_live: bool = pc.all(pc.is_in(keys, value_set=pa.array(live))).as_py()
    return are_live


def _touched_partitions(
    metadata: Metadata, files: Sequence[AddFile]
) -> list[dict[str, str | None]]:
    """The partitions of files, each once, under logical names."""
    mode = mapping_mode(metadata)
    names = {physical_name(f, mode): f.name for f in metadata.partition_schema}
    distinct = {tuple(file.partition_values.items()): file.partition_values for file in files}
    return [{names.get(k, k): v for k, v in values.items()} for values in distinct.values()]


def _auto_sizes(metadata: Metadata, conf: Conf) -> Sizes:
    target = property_value(metadata.configuration, TARGET_FILE_SIZE) or _AUTO_FILE_SIZE
    largest = AUTO_COMPACT_MAX_FILE_SIZE.by(conf) or target
    return Sizes(small=AUTO_COMPACT_MIN_FILE_SIZE.by(conf) or largest // 2, largest=largest)
