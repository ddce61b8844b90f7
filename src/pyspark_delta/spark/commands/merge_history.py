"""What a MERGE says it did: the operation, its parameters, its metrics, and the row it gives."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.actions import AddCDCFile, AddFile
from pyspark_delta.kernel.protocol.operations import Operation, merge
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.spark.commands.dml_files import FileChanges
from pyspark_delta.spark.commands.merge_clauses import ClauseKind
from pyspark_delta.spark.commands.merge_columns import ClauseValues
from pyspark_delta.spark.commands.merge_resolution import Resolution
from pyspark_delta.spark.local_frame import local_frame

_RESULT = StructType(
    tuple(
        StructField(name, LONG)
        for name in (
            "num_affected_rows",
            "num_updated_rows",
            "num_deleted_rows",
            "num_inserted_rows",
        )
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows each clause was for; `num_source` is None when nobody counted."""

    by_clause: Mapping[int, int] = field(default_factory=dict, hash=False)
    clauses: tuple[ClauseValues, ...] = ()
    num_source: int | None = 0

    def of(self, action: str, kind: ClauseKind | None = None) -> int:
        """The rows of all clauses that do one thing, or of those of one kind."""
        return sum(
            count
            for number, count in self.by_clause.items()
            if self.clauses[number].clause.action == action
            and kind in (None, self.clauses[number].clause.kind)
        )

    @property
    def num_updated(self) -> int:
        return self.of("update")

    @property
    def num_deleted(self) -> int:
        return self.of("delete")

    @property
    def num_inserted(self) -> int:
        return self.of("insert")

    def frame(self, spark: SparkSession) -> DataFrame:
        """The one row that a MERGE gives."""
        counts = (self.num_updated, self.num_deleted, self.num_inserted)
        return local_frame(spark, _RESULT, [(sum(counts), *counts)])


class MergeTimes:
    """How long the parts of a MERGE take: the source, the rows, the files."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic_ns()
        self._parts = {"materializeSourceTimeMs": 0, "scanTimeMs": 0, "rewriteTimeMs": 0}

    def done(self, part: str) -> None:
        """Everything since the last part belongs to this one."""
        now = time.monotonic_ns()
        self._parts[f"{part}TimeMs"] += (now - self._last) // 1_000_000
        self._last = now

    @property
    def metrics(self) -> dict[str, object]:
        """The times as metrics."""
        whole = (time.monotonic_ns() - self._started) // 1_000_000
        return {"executionTimeMs": whole, **self._parts}


def merge_operation(resolution: Resolution) -> Operation:
    """The operation with its conditions."""

    def listed(kind: ClauseKind) -> list[tuple[str, str | None]]:
        found = resolution.of_kind(kind).values()
        return [(each.clause.action, each.predicate) for each in found]

    return merge(
        [resolution.predicate],
        matched=listed("matched"),
        not_matched=listed("not matched"),
        not_matched_by_source=listed("not matched by source"),
    )


def merge_metrics(
    counts: RowCounts,
    changes: FileChanges,
    written: Sequence[AddFile],
    feed: Sequence[AddCDCFile],
) -> dict[str, object]:
    """Every metric of rows and files that a MERGE has."""
    files = changes.metrics(written, feed)
    by_source: ClauseKind = "not matched by source"
    return {
        "numSourceRows": counts.num_source,
        "numTargetRowsInserted": counts.num_inserted,
        "numTargetRowsUpdated": counts.num_updated,
        "numTargetRowsMatchedUpdated": counts.of("update", "matched"),
        "numTargetRowsNotMatchedBySourceUpdated": counts.of("update", by_source),
        "numTargetRowsDeleted": counts.num_deleted,
        "numTargetRowsMatchedDeleted": counts.of("delete", "matched"),
        "numTargetRowsNotMatchedBySourceDeleted": counts.of("delete", by_source),
        "numTargetRowsCopied": changes.num_copied,
        "numOutputRows": counts.num_inserted + counts.num_updated + changes.num_copied,
        "numTargetBytesAdded": files["numAddedBytes"],
        "numTargetBytesRemoved": files["numRemovedBytes"],
        "numTargetFilesAdded": files["numAddedFiles"],
        "numTargetFilesRemoved": files["numRemovedFiles"],
        "numTargetChangeFilesAdded": files["numAddedChangeFiles"],
        "numTargetDeletionVectorsAdded": files["numDeletionVectorsAdded"],
        "numTargetDeletionVectorsRemoved": files["numDeletionVectorsRemoved"],
        "numTargetDeletionVectorsUpdated": files["numDeletionVectorsUpdated"],
    }
