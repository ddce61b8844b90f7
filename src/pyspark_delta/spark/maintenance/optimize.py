"""OPTIMIZE: small files rewritten into large ones, or rows laid along a curve; no row changes.

Three ways: compaction, Z-order by columns of the command, and clustering by columns of the table.
`kernel.ops.layout` plans from the log which files are rewritten together, and `compact` writes
them.  Other writers do not wait: a commit conflicts only if it deletes rows of the files that are
rewritten, or removes these files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from threading import Lock

import pyarrow as pa
from pyspark.sql import Column, SparkSession

from pyspark_delta.errors import InvalidPredicateError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.machine import random_uuid
from pyspark_delta.kernel.ops.layout.bins import (
    ClusteringPlan,
    CubeSizes,
    Sizes,
    ZCube,
    batches,
    partition_numbers,
    plan_clustering,
    plan_compaction,
    plan_rewrite,
)
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.operations import Operation, operation, optimize
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    TARGET_FILE_SIZE,
    property_value,
)
from pyspark_delta.kernel.protocol.stats import table_stats_columns
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.scan.skipping.files import partition_columns_table
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.progress import Progress, progress
from pyspark_delta.spark.conf.setting_table import (
    CUBE_SEALED_SIZE,
    CUBE_TARGET_SIZE,
    OPTIMIZE_BATCH_SIZE,
    OPTIMIZE_MAX_DELETED,
    OPTIMIZE_MAX_FILE_SIZE,
    OPTIMIZE_MAX_THREADS,
    OPTIMIZE_MIN_FILE_SIZE,
    OPTIMIZE_REPARTITION,
    USER_METADATA,
    ZORDER_CHECK_STATS,
    ZORDER_NOISE,
    ZORDER_RANGES,
)
from pyspark_delta.spark.conf.settings import Conf, conf_of
from pyspark_delta.spark.dml.rows import dml_condition, files_by_partition
from pyspark_delta.spark.files.stage import StagedFiles
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.tables import ParsedPredicate, parse_spark_predicate
from pyspark_delta.spark.maintenance.compaction import Compacted, Layout, commit_rewrite, compact
from pyspark_delta.spark.maintenance.curve_keys import Curve, CurveColumn
from pyspark_delta.spark.results.optimize import OptimizeReport
from pyspark_delta.spark.scan.versions import transaction_on
from pyspark_delta.spark.tables.locations import hadoop_location
from pyspark_delta.spark.tables.names import logical_clustering

_CLUSTERING_FEATURE = "clustering"
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeRequest:
    """The options of OPTIMIZE: partitions, an order, and whether to rewrite all ZCubes.

    `choose` is REORG's: it chooses the files, all of which are rewritten, however large.
    """

    where: tuple[str, ...] = ()
    z_order_by: tuple[Path, ...] = ()
    is_full: bool = False
    choose: Callable[[pa.Table], pa.Table] | None = None

    @property
    def verb(self) -> str:
        """The name of the command for messages."""
        return "OPTIMIZE" if self.choose is None else "REORG"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """The session's settings for one command, or else the table's.

    `batch_size` is how many bytes are committed together, None for all; `threads` how many jobs may
    run at a time.  `shuffles` collects the rows of a file by a shuffle.

    >>> settings = OptimizeSettings.of({OPTIMIZE_MAX_THREADS.key: "4"}.get, {})
    >>> settings.threads, settings.sizes.small
    (4, 1073741824)
    """

    sizes: Sizes
    cubes: CubeSizes
    batch_size: int | None
    threads: int
    shuffles: bool
    num_ranges: int
    can_be_noisy: bool
    checks_stats: bool

    @classmethod
    def of(cls, conf: Conf, configuration: Mapping[str, str | None]) -> OptimizeSettings:
        """The session's settings, or else the table's; PropertyError for an invalid value."""
        target = property_value(configuration, TARGET_FILE_SIZE) or Sizes().largest
        small = OPTIMIZE_MIN_FILE_SIZE.by(conf)
        sealed = CUBE_SEALED_SIZE.by(conf)
        return cls(
            sizes=Sizes(
                small=target if small is None else small,
                largest=OPTIMIZE_MAX_FILE_SIZE.by(conf) or target,
                deleted=OPTIMIZE_MAX_DELETED.by(conf),
            ),
            cubes=CubeSizes(
                sealed=sealed, target=CUBE_TARGET_SIZE.by(conf) or max(CubeSizes().target, sealed)
            ),
            batch_size=OPTIMIZE_BATCH_SIZE.by(conf),
            threads=OPTIMIZE_MAX_THREADS.by(conf),
            shuffles=OPTIMIZE_REPARTITION.by(conf),
            num_ranges=ZORDER_RANGES.by(conf),
            can_be_noisy=ZORDER_NOISE.by(conf),
            checks_stats=ZORDER_CHECK_STATS.by(conf),
        )


@typed_jobs
def run_optimize(spark: SparkSession, log: DeltaLog, request: OptimizeRequest) -> OptimizeReport:
    """Rewrite files and commit them; nothing is committed when no file needs it."""
    started_ms = log.now_ms()
    jvm = JvmSession(spark)
    snapshot = log.update()
    settings = OptimizeSettings.of(conf_of(spark), snapshot.metadata.configuration)
    clustered_by = logical_clustering(snapshot)
    _check_request(request, snapshot, clustered_by, settings)
    reading = transaction_on(spark, log, snapshot)
    files, predicates = _files_of_partitions(jvm, reading, request)
    plan = _optimize_plan(request, snapshot, files, clustered_by, settings)
    operation = _operation(request, predicates, clustered_by)
    done: list[Compacted] = []
    versions: list[int] = []
    groups = batches(plan.bins, settings.batch_size)
    with progress() as bar:
        report = _file_counter(bar, sum(each.num_rows for each in plan.bins))
        for group in filter(None, groups):
            txn = log.transaction_on(snapshot)
            with StagedFiles(txn) as staged:
                compacted = compact(jvm, txn, group, staged, plan.layout, report=report)
                user_metadata = USER_METADATA.of(spark)
                version = commit_rewrite(log, txn, staged, compacted, operation, user_metadata)
            done.append(compacted)
            versions.append(version)
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
        considered=files.num_rows,
        is_z_order=bool(request.z_order_by),
        clustering=plan.clustering,
        started_ms=started_ms,
        parallelism=spark.sparkContext.defaultParallelism,
        num_columns=num_columns,
        num_columns_with_stats=min(
            property_value(metadata.configuration, NUM_INDEXED_COLUMNS), num_columns
        ),
    )


def _files_of_partitions(
    jvm: JvmSession, txn: OptimisticTransaction, request: OptimizeRequest
) -> tuple[pa.Table, list[str]]:
    """The live files of the partitions for which all predicates are true, and these as text.

    The predicates may name partition columns only.
    """
    assert txn.snapshot is not None
    if not request.where:
        return txn.snapshot.adds, []
    names = txn.metadata.partition_columns
    parsed = [_partition_predicate(jvm, text, names) for text in request.where]
    whole = reduce(Column.__and__, (each.column for each in parsed))
    condition = dml_condition(jvm, txn, whole, request.verb, None)
    # Not recorded as a read: other writers may change files that this command does not rewrite.
    candidates = select_files(txn.snapshot, condition.bound)
    files = files_by_partition(jvm, txn, condition, candidates)
    assert files is not None  # it uses partition columns only
    return files, [each.text for each in parsed]


def _partition_predicate(
    jvm: JvmSession, text: str, partition_columns: Sequence[str]
) -> ParsedPredicate:
    parsed = parse_spark_predicate(jvm, text)
    if parsed is None:
        raise InvalidPredicateError("DELTA_FAILED_RECOGNIZE_PREDICATE", predicate=text)
    if parsed.has_subquery:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES")
    known = {name.lower() for name in partition_columns}
    for path in parsed.columns:
        if len(path) != 1 or path[0].lower() not in known:
            raise InvalidPredicateError(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                columnName=column_name(path),
                columnList=", ".join(partition_columns),
            )
    return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Bins of files, their layout, and the `clustering` of a clustered table."""

    bins: tuple[pa.Table, ...] = field(hash=False)
    layout: Layout
    clustering: ClusteringPlan | None = None


def _optimize_plan(
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
        clustering = plan_clustering(files, names, settings.cubes, is_full=request.is_full)
        # A purge rewrites every file that it chose, whatever ZCube that is in.
        bins = (files,) if request.choose is not None and files.num_rows else clustering.bins
        return _Plan(bins=bins, layout=layout, clustering=clustering)
    if request.choose is not None:
        bins = tuple(plan_rewrite(files, metadata, settings.sizes.largest))
    elif request.z_order_by:
        bins = tuple(plan_rewrite(files, metadata))
    else:
        bins = tuple(plan_compaction(files, metadata, settings.sizes))
    return _Plan(bins=bins, layout=layout)


def _curve(
    metadata: Metadata, columns: Sequence[Path], settings: OptimizeSettings, *, is_hilbert: bool
) -> Curve | None:
    """The curve through the columns; None without columns."""
    if not columns:
        return None
    curved = []
    for path in columns:
        f = metadata.schema.find(path)
        if f is None:
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                columnName=column_name(path),
                tableSchema=metadata.schema.simple_string,
            )
        curved.append(CurveColumn(path=path, data_type=f.data_type))
    return Curve(
        columns=tuple(curved),
        is_hilbert=is_hilbert,
        num_ranges=settings.num_ranges,
        can_be_noisy=settings.can_be_noisy,
    )


def _operation(
    request: OptimizeRequest, predicates: Sequence[str], clustered_by: Sequence[Path]
) -> Operation:
    if request.choose is not None:
        return operation("REORG", predicate=predicates, applyPurge=True)
    return optimize(
        predicates,
        z_order_by=[column_name(path) for path in request.z_order_by],
        cluster_by=[column_name(path) for path in clustered_by],
        is_full=request.is_full if clustered_by else None,
    )


def _check_request(
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
    """Check that the columns are data columns with statistics, by which files can be skipped."""
    if not columns:
        return
    partitions = {name.lower() for name in metadata.partition_columns}
    leaves = [[part.lower() for part in each.path] for each in table_stats_columns(metadata)]
    without: list[str] = []
    for path in columns:
        if len(path) == 1 and path[0].lower() in partitions:
            raise SchemaError("DELTA_ZORDERING_ON_PARTITION_COLUMN", colName=column_name(path))
        if metadata.schema.find(path) is None:
            raise SchemaError("DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST", columnName=column_name(path))
        lower = [part.lower() for part in path]
        if not any(leaf[: len(path)] == lower for leaf in leaves):
            without.append(column_name(path))
    if without and checks_stats:
        raise SchemaError(
            "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            cols=f"[{', '.join(without)}]",
            zorderColStatKey=ZORDER_CHECK_STATS.key,
        )


def _num_partitions(bins: Sequence[pa.Table], metadata: Metadata) -> int:
    if not bins:
        return 0
    first = pa.concat_tables([each.slice(0, 1) for each in bins])
    return len(partition_numbers(partition_columns_table(first, metadata)).unique())


def _file_counter(bar: Progress, total: int) -> Callable[[int], None]:
    """A function that counts files for the progress bar; jobs of several threads call it."""
    lock = Lock()
    done = 0

    def count(num_files: int) -> None:
        nonlocal done
        with lock:
            done += num_files
            bar("rewriting", done, total)

    return count
