"""How the rows of a MERGE are spread: what is sent to whom for its join, and into how many files.

A MERGE of a few rows makes one file and not one for each task; a large one keeps its tasks busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.spark.commands.dml_files import FileChanges
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.rebalance import rebalanced

_REPARTITION = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
# So much is one task's work: less is written before a second one has started.
_TASK_BYTES = 16 << 20
_PARTITION_BYTES = 128 << 20
# So many rows one task puts into their partitions without help.
_FEW_ROWS = 50_000
_ROW_BYTES = 64
_FEW_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLayout:
    """The layout of one MERGE."""

    jvm: JvmSession
    metadata: Metadata
    target_bytes: int
    num_files: int
    asked: WriteOptions = field(hash=False)

    def gathered(self, rows: DataFrame, *, scans: bool) -> DataFrame:
        """Rows to be counted by where they are: a few by one task, which spares a shuffle.

        `scans` says that the task would read the files of the target, too.
        """
        is_few = self.target_bytes <= _TASK_BYTES // 2
        if scans:
            is_few = is_few and self.num_files <= _FEW_FILES
        return rows.coalesce(1) if is_few else rows

    def arranged(
        self, rows: DataFrame, num_rows: int | None, changes: FileChanges | None = None
    ) -> DataFrame:
        """Rows as they go to the writer; `num_rows` is None when nobody knows how many."""
        partitions = self.metadata.partition_columns
        if partitions and (self.asked.conf(_REPARTITION) or "true").lower() != "true":
            return rows
        if num_rows is not None and (not partitions or num_rows <= _FEW_ROWS):
            size = num_rows * _bytes_of_row(changes)
            return rows.coalesce(max(1, -(-size // _TASK_BYTES)))
        return rebalanced(self.jvm, rows, partitions, _PARTITION_BYTES) if partitions else rows


def _bytes_of_row(changes: FileChanges | None) -> int:
    """About how large a row is in a file: as in those that it comes from."""
    files = () if changes is None else changes.files
    records = sum(each.file.num_records or 0 for each in files)
    if not records:
        return _ROW_BYTES
    return max(1, sum(each.file.size for each in files) // records)
