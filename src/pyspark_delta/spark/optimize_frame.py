"""What OPTIMIZE and REORG tell of themselves: one row, with delta-spark's columns and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.ops.zcubes import ClusteringPlan, FileCount
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
from pyspark_delta.spark.local_frame import local_frame

_Shape = Sequence[tuple[str, DataType]]


def _struct(*fields: tuple[str, DataType], optional: Sequence[str] = ()) -> StructType:
    """Numbers are always there, unless optional; structs and texts may be missing."""
    return StructType(
        tuple(
            StructField(name, kind, name in optional or isinstance(kind, StructType))
            for name, kind in fields
        )
    )


def _longs(*names: str) -> _Shape:
    return tuple((name, LONG) for name in names)


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
_METRICS = _struct(
    *_longs("numFilesAdded", "numFilesRemoved"),
    ("filesAdded", _SIZES),
    ("filesRemoved", _SIZES),
    ("partitionsOptimized", LONG),
    ("zOrderStats", _Z_ORDER),
    ("clusteringStats", _CLUSTERING),
    *_longs("numBins", "numBatches", "totalConsideredFiles", "totalFilesSkipped"),
    ("preserveInsertionOrder", BOOLEAN),
    *_longs(
        "numFilesSkippedToReduceWriteAmplification", "numBytesSkippedToReduceWriteAmplification"
    ),
    *_longs("startTimeMs", "endTimeMs", "totalClusterParallelism", "totalScheduledTasks"),
    ("autoCompactParallelismStats", _struct(*_longs(*_PARALLELISM), optional=_PARALLELISM)),
    (
        "deletionVectorStats",
        _struct(*_longs("numDeletionVectorsRemoved", "numDeletionVectorRowsRemoved")),
    ),
    *_longs("numTableColumns", "numTableColumnsWithStats"),
)
OPTIMIZE_SCHEMA = StructType((StructField("path", STRING), StructField("metrics", _METRICS)))
"""The columns of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What a command did to a table at `path`.

    `considered` files were looked at.  `versions` are those that it made, oldest first.
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
        """The row that tells of it."""
        return local_frame(spark, OPTIMIZE_SCHEMA, [(self.path, self.metrics)])

    @property
    def metrics(self) -> dict[str, object]:
        """The metrics as delta-spark names them; what it never fills is 0 here as well."""
        return {
            **dict.fromkeys((f.name for f in _METRICS if f.data_type == LONG), 0),
            "numFilesAdded": len(self.added),
            "numFilesRemoved": len(self.removed),
            "filesAdded": _sizes(self.added),
            "filesRemoved": _sizes(self.removed),
            "partitionsOptimized": self.num_partitions,
            "zOrderStats": self._z_order() if self.is_z_order else None,
            "clusteringStats": self._clustering(),
            "numBins": self.num_bins,
            "numBatches": self.num_batches,
            "totalConsideredFiles": self.considered,
            "totalFilesSkipped": self.considered - len(self.removed),
            "preserveInsertionOrder": False,
            "startTimeMs": self.started_ms,
            "totalClusterParallelism": self.parallelism,
            "autoCompactParallelismStats": None,
            "deletionVectorStats": self._vectors(),
            "numTableColumns": self.num_columns,
            "numTableColumnsWithStats": self.num_columns_with_stats,
        }

    def _z_order(self) -> Mapping[str, object]:
        merged = {"num": len(self.removed), "size": sum(file.size for file in self.removed)}
        return {
            "strategyName": "all",
            "inputCubeFiles": {"num": 0, "size": 0},
            "inputOtherFiles": merged,
            "inputNumCubes": 0,
            "mergedFiles": merged,
            "numOutputCubes": self.num_partitions,
            "mergedNumCubes": None,
        }

    def _clustering(self) -> Mapping[str, object] | None:
        plan = self.clustering
        if plan is None:
            return None
        return {
            "inputZCubeFiles": _count(plan.in_cubes),
            "inputOtherFiles": _count(plan.others),
            "inputNumZCubes": plan.num_cubes,
            "mergedFiles": _count(plan.merged),
            "numOutputZCubes": self.num_bins,
        }

    def _vectors(self) -> Mapping[str, object] | None:
        found = [file.deletion_vector for file in self.removed if file.deletion_vector is not None]
        if not found:
            return None
        return {
            "numDeletionVectorsRemoved": len(found),
            "numDeletionVectorRowsRemoved": sum(vector.cardinality for vector in found),
        }


def _sizes(files: Iterable[AddFile]) -> Mapping[str, object]:
    sizes = [file.size for file in files]
    return {
        "min": min(sizes, default=None),
        "max": max(sizes, default=None),
        "avg": sum(sizes) / len(sizes) if sizes else 0.0,
        "totalFiles": len(sizes),
        "totalSize": sum(sizes),
    }


def _count(files: FileCount) -> Mapping[str, object]:
    return {"numFiles": files.num_files, "size": files.num_bytes}
