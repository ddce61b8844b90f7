"""OPTIMIZE: small files written together, or rows laid along a curve; no row changes.

Three ways: compaction, Z-order by columns that the command names, and clustering by those of the
table.  What is written together is planned from the log (`kernel.ops.bin_packing`, `zcubes`), the
writing is `compact`'s.  Others may go on meanwhile: only who takes rows out of the very files that
are written anew, or removes them, is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.ops.bin_packing import (
    batches,
    partition_numbers,
    plan_compaction,
    plan_partitions,
    plan_rewrite,
)
from pyspark_delta.kernel.ops.zcubes import ClusteringPlan, ZCube, plan_clustering
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import logical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.operations import Operation, optimize, reorg
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    property_value,
)
from pyspark_delta.kernel.protocol.stats_columns import stats_columns
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.kernel.scan.partitions import partition_columns_table
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.compact import Compacted, Layout, compact
from pyspark_delta.spark.commands.optimize_commit import commit_rewrite
from pyspark_delta.spark.commands.optimize_settings import CHECKS_STATS, OptimizeSettings
from pyspark_delta.spark.commands.partition_filter import files_of_partitions
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.curve_keys import Curve, CurveColumn
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.job_failures import typed_jobs
from pyspark_delta.spark.optimize_frame import OptimizeReport
from pyspark_delta.spark.progress import Progress, progress
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.table_access import hadoop_location
from pyspark_delta.spark.transactions import transaction_on

_CLUSTERING_FEATURE = "clustering"
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """What is asked: of which partitions, in which order, all cubes of a clustered table or new.

    `choose` is REORG's: it says which of the files are written anew, each of them, however large.
    """

    where: tuple[str, ...] = ()
    z_order_by: tuple[Path, ...] = ()
    is_full: bool = False
    choose: Callable[[pa.Table], pa.Table] | None = None

    @property
    def verb(self) -> str:
        """The command as messages name it."""
        return "OPTIMIZE" if self.choose is None else "REORG"


@typed_jobs
def run_optimize(spark: SparkSession, log: DeltaLog, request: OptimizeRequest) -> OptimizeReport:
    """Write files anew as asked, and commit that; nothing is committed where nothing is due."""
    started_ms = log.now_ms()
    jvm = JvmSession(spark)
    snapshot = log.update()
    settings = OptimizeSettings.of(
        lambda key: spark.conf.get(key, None), snapshot.metadata.configuration
    )
    clustered_by = _clustering(snapshot)
    _check(request, snapshot, clustered_by, settings)
    reading = transaction_on(spark, log, snapshot)
    chosen = files_of_partitions(jvm, reading, request.where, request.verb)
    plan = _plan(request, snapshot, chosen.files, clustered_by, settings)
    operation = _operation(request, chosen.predicates, clustered_by)
    done, versions = [], []
    groups = batches(plan.bins, settings.batch_size)
    with progress() as shown:
        tell = _teller(shown, sum(each.num_rows for each in plan.bins))
        for group in groups:
            if not group:
                continue
            made = _Batch(jvm, log, snapshot, plan.layout, operation).run(group, tell)
            done.append(made[0])
            versions.append(made[1])
    metadata = snapshot.metadata
    num_columns = len(metadata.schema.fields)
    return OptimizeReport(
        path=hadoop_location(log.store.root_uri),
        added=tuple(file for each in done for file in each.added),
        removed=tuple(file for each in done for file in each.removed),
        versions=tuple(versions),
        num_partitions=_num_partitions(plan.bins, metadata),
        num_bins=len(plan.bins),
        num_batches=len(groups),
        considered=chosen.files.num_rows,
        is_z_order=bool(request.z_order_by),
        clustering=plan.clustering,
        started_ms=started_ms,
        parallelism=spark.sparkContext.defaultParallelism,
        num_columns=num_columns,
        num_columns_with_stats=min(
            property_value(metadata.configuration, NUM_INDEXED_COLUMNS), num_columns
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Bins of files and how they are written; `clustering` of a clustered table."""

    bins: tuple[pa.Table, ...] = field(hash=False)
    layout: Layout
    clustering: ClusteringPlan | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Bins that are written and committed together."""

    jvm: JvmSession
    log: DeltaLog
    snapshot: Snapshot
    layout: Layout
    operation: Operation

    def run(self, bins: Sequence[pa.Table], tell: Callable[[int], None]) -> tuple[Compacted, int]:
        """Write the bins; what was written, and the version that says so."""
        txn = self.log.transaction_on(self.snapshot)
        with StagedFiles(txn) as staged:
            done = compact(self.jvm, txn, bins, staged, self.layout, tell=tell)
            user_metadata = session_user_metadata(self.jvm.spark)
            version = commit_rewrite(self.log, txn, staged, done, self.operation, user_metadata)
        return done, version


def _plan(
    request: OptimizeRequest,
    snapshot: Snapshot,
    files: pa.Table,
    clustered_by: Sequence[Path],
    settings: OptimizeSettings,
) -> _Plan:
    metadata = snapshot.metadata
    columns = clustered_by or request.z_order_by
    layout = Layout(
        curve=_curve(metadata, columns, settings, is_hilbert=bool(clustered_by)),
        file_size=settings.sizes.largest,
        shuffles=settings.shuffles,
        threads=settings.threads,
    )
    if request.choose is not None:
        files = request.choose(files)
    if clustered_by:
        names = tuple(column_name(path) for path in clustered_by)
        layout = replace(layout, new_cube=lambda: ZCube(id=random_uuid(), columns=names))
        found = plan_clustering(files, names, settings.cubes, is_full=request.is_full)
        # A purge is of every file that it chose, whatever cube that is in.
        bins = (files,) if request.choose is not None and files.num_rows else found.bins
        return _Plan(bins=bins, layout=layout, clustering=found)
    if request.choose is not None:
        bins = tuple(plan_rewrite(files, metadata, settings.sizes.largest))
    elif request.z_order_by:
        bins = tuple(plan_partitions(files, metadata))
    else:
        bins = tuple(plan_compaction(files, metadata, settings.sizes))
    return _Plan(bins=bins, layout=layout)


def _curve(
    metadata: Metadata, columns: Sequence[Path], settings: OptimizeSettings, *, is_hilbert: bool
) -> Curve | None:
    """How rows are laid out by columns; None without any."""
    if not columns:
        return None
    found = []
    for path in columns:
        f = metadata.schema.find(path)
        if f is None:
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                columnName=column_name(path),
                tableSchema=metadata.schema.simple_string,
            )
        found.append(CurveColumn(path=path, data_type=f.data_type))
    return Curve(
        columns=tuple(found),
        is_hilbert=is_hilbert,
        num_ranges=settings.num_ranges,
        can_be_noisy=settings.can_be_noisy,
    )


def _operation(
    request: OptimizeRequest, predicates: Sequence[str], clustered_by: Sequence[Path]
) -> Operation:
    if request.choose is not None:
        return reorg(predicates)
    return optimize(
        predicates,
        z_order_by=[column_name(path) for path in request.z_order_by],
        cluster_by=[column_name(path) for path in clustered_by],
        is_full=request.is_full if clustered_by else None,
    )


def _clustering(snapshot: Snapshot) -> tuple[Path, ...]:
    """The columns that a table is clustered by, as users name them; none for other tables."""
    schema, mode = snapshot.metadata.schema, mapping_mode(snapshot.metadata)
    paths = clustering_columns(snapshot.domains) or ()
    return tuple(tuple(logical_path(schema, path, mode)) for path in paths)


def _check(
    request: OptimizeRequest,
    snapshot: Snapshot,
    clustered_by: Sequence[Path],
    settings: OptimizeSettings,
) -> None:
    if _CLUSTERING_FEATURE in supported_features(snapshot.protocol):
        if request.where:
            raise OperationNotAllowedError(
                "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE", predicates=", ".join(request.where)
            )
        if request.z_order_by:
            raise OperationNotAllowedError(
                "DELTA_CLUSTERING_WITH_ZORDER_BY",
                zOrderBy=", ".join(column_name(path) for path in request.z_order_by),
            )
    if request.is_full and not clustered_by:
        raise OperationNotAllowedError("DELTA_OPTIMIZE_FULL_NOT_SUPPORTED")
    _check_z_order(request.z_order_by, snapshot.metadata, checks_stats=settings.checks_stats)


def _check_z_order(columns: Sequence[Path], metadata: Metadata, *, checks_stats: bool) -> None:
    """Columns to order by are data columns, and files can be skipped by them."""
    if not columns:
        return
    partitions = {name.lower() for name in metadata.partition_columns}
    without: list[str] = []
    for path in columns:
        if len(path) == 1 and path[0].lower() in partitions:
            raise SchemaError("DELTA_ZORDERING_ON_PARTITION_COLUMN", colName=column_name(path))
        if metadata.schema.find(path) is None:
            raise SchemaError("DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST", columnName=column_name(path))
        if not _has_stats(path, metadata):
            without.append(column_name(path))
    if without and checks_stats:
        raise SchemaError(
            "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            cols=f"[{', '.join(without)}]",
            zorderColStatKey=CHECKS_STATS,
        )


def _has_stats(path: Path, metadata: Metadata) -> bool:
    found = stats_columns(
        metadata.schema,
        metadata.partition_columns,
        num_indexed=property_value(metadata.configuration, NUM_INDEXED_COLUMNS),
        listed=metadata.configuration.get(STATS_COLUMNS.key),
    )
    asked = [part.lower() for part in path]
    return any([part.lower() for part in each.path[: len(path)]] == asked for each in found)


def _num_partitions(bins: Sequence[pa.Table], metadata: Metadata) -> int:
    if not bins:
        return 0
    first = pa.concat_tables([each.slice(0, 1) for each in bins])
    return len(partition_numbers(partition_columns_table(first, metadata)).unique())


def _teller(shown: Progress, total: int) -> Callable[[int], None]:
    """Counts files for the bar; jobs in several threads tell it."""
    lock = Lock()
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        with lock:
            told += count
            shown("rewriting", told, total)

    return tell
