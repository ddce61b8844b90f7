"""The result of OPTIMIZE and REORG: one row, with delta-spark's columns and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.ops.layout.bins import ClusteringPlan, FileCount
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    DataType,
    StructField,
    StructType,
)
from pyspark_delta.spark.results.local_frame import columns, local_frame


def _struct(*fields: tuple[str, DataType], optional: Sequence[str] = ()) -> StructType:
    """A struct whose numbers are required, unless optional; its structs and texts may be null."""
    return StructType(
        tuple(
            StructField(name, kind, name in optional or isinstance(kind, StructType))
            for name, kind in fields
        )
    )


def _longs(*names: str) -> Iterable[tuple[str, DataType]]:
    return ((name, LONG) for name in names)


_SIZES = _struct(
    *_longs("min", "max"),
    ("avg", DOUBLE),
    *_longs("totalFiles", "totalSize"),
    optional=("min", "max"),
)
_Z_FILES = _struct(*_longs("num", "size"))
_Z_ORDER = _struct(
    ("strategyName", STRING),
    ("inputCubeFiles", _Z_FILES),
    ("inputOtherFiles", _Z_FILES),
    ("inputNumCubes", LONG),
    ("mergedFiles", _Z_FILES),
    ("numOutputCubes", LONG),
    ("mergedNumCubes", LONG),
    optional=("strategyName", "mergedNumCubes"),
)
_CUBE_FILES = _struct(*_longs("numFiles", "size"))
_CLUSTERING = _struct(
    ("inputZCubeFiles", _CUBE_FILES),
    ("inputOtherFiles", _CUBE_FILES),
    ("inputNumZCubes", LONG),
    ("mergedFiles", _CUBE_FILES),
    ("numOutputZCubes", LONG),
)
_PARALLELISM = (
    *("maxClusterActiveParallelism", "minClusterActiveParallelism"),
    *("maxSessionActiveParallelism", "minSessionActiveParallelism"),
)
_VECTORS = _struct(*_longs("numDeletionVectorsRemoved", "numDeletionVectorRowsRemoved"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """The result of a command on the table at `path`.

    `considered` is the number of files it inspected.  `versions` are its commits, oldest first.
    """

    path: str
    added: tuple[AddFile, ...]
    removed: tuple[AddFile, ...]
    versions: tuple[int, ...]
    num_partitions: int
    num_bins: int
    num_batches: int
    considered: int
    is_z_order: bool
    clustering: ClusteringPlan | None
    started_ms: int
    parallelism: int
    num_columns: int
    num_columns_with_stats: int

    def frame(self, spark: SparkSession) -> DataFrame:
        metrics = {name: value(self) for name, _, value in _METRICS}
        return local_frame(spark, OPTIMIZE_SCHEMA, [(self.path, metrics)])


def _sizes(files: Iterable[AddFile]) -> Mapping[str, object]:
    sizes = [file.size for file in files]
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": sum(sizes) / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": sum(sizes),
    }


def _z_order(report: OptimizeReport) -> Mapping[str, object] | None:
    if not report.is_z_order:
        return None
    merged = {"num": len(report.removed), "size": sum(file.size for file in report.removed)}
    return {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": merged,
        "inputNumCubes": 0,
        "mergedFiles": merged,
        "numOutputCubes": report.num_partitions,
        "mergedNumCubes": None,
    }


def _clustering(report: OptimizeReport) -> Mapping[str, object] | None:
    plan = report.clustering
    if plan is None:
        return None

    def count(files: FileCount) -> Mapping[str, object]:
        return {"numFiles": files.num_files, "size": files.num_bytes}

    return {
        "inputZCubeFiles": count(plan.in_cubes),
        "inputOtherFiles": count(plan.others),
        "inputNumZCubes": plan.num_cubes,
        "mergedFiles": count(plan.merged),
        "numOutputZCubes": report.num_bins,
    }


def _vectors(report: OptimizeReport) -> Mapping[str, object] | None:
    vectors = [file.deletion_vector for file in report.removed if file.deletion_vector is not None]
    if not vectors:
        return None
    return {
        "numDeletionVectorsRemoved": len(vectors),
        "numDeletionVectorRowsRemoved": sum(vector.cardinality for vector in vectors),
    }


# Name, type, and value; those that delta-spark never fills are 0 here too.
_METRICS: tuple[tuple[str, DataType, Callable[[OptimizeReport], object]], ...] = (
    ("numFilesAdded", LONG, lambda r: len(r.added)),
    ("numFilesRemoved", LONG, lambda r: len(r.removed)),
    ("filesAdded", _SIZES, lambda r: _sizes(r.added)),
    ("filesRemoved", _SIZES, lambda r: _sizes(r.removed)),
    ("partitionsOptimized", LONG, lambda r: r.num_partitions),
    ("zOrderStats", _Z_ORDER, _z_order),
    ("clusteringStats", _CLUSTERING, _clustering),
    ("numBins", LONG, lambda r: r.num_bins),
    ("numBatches", LONG, lambda r: r.num_batches),
    ("totalConsideredFiles", LONG, lambda r: r.considered),
    ("totalFilesSkipped", LONG, lambda r: r.considered - len(r.removed)),
    ("preserveInsertionOrder", BOOLEAN, lambda _: False),
    ("numFilesSkippedToReduceWriteAmplification", LONG, lambda _: 0),
    ("numBytesSkippedToReduceWriteAmplification", LONG, lambda _: 0),
    ("startTimeMs", LONG, lambda r: r.started_ms),
    ("endTimeMs", LONG, lambda _: 0),
    ("totalClusterParallelism", LONG, lambda r: r.parallelism),
    ("totalScheduledTasks", LONG, lambda _: 0),
    (
        "autoCompactParallelismStats",
        _struct(*_longs(*_PARALLELISM), optional=_PARALLELISM),
        lambda _: None,
    ),
    ("deletionVectorStats", _VECTORS, _vectors),
    ("numTableColumns", LONG, lambda r: r.num_columns),
    ("numTableColumnsWithStats", LONG, lambda r: r.num_columns_with_stats),
)
OPTIMIZE_SCHEMA = columns(
    path=STRING, metrics=_struct(*((name, kind) for name, kind, _ in _METRICS))
)
"""The columns of the result."""
