"""Compaction: bins of files written together, one new file each, and no row changed.

Which files go into a bin is planned by `kernel.ops.bin_packing`.  Deleted rows stay behind, row ids
come along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import chosen_rows
from pyspark_delta.spark.commands.replaced_rows import hidden_columns, tracked
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.staged_files import StagedFiles
from pyspark_delta.spark.writer import stage


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


def compact(
    jvm: JvmSession, txn: OptimisticTransaction, bins: Sequence[pa.Table], staged: StagedFiles
) -> Compacted:
    """Write each bin, a table of add actions of one partition, into a file of its own.

    The transaction depends on the files from here on.
    """
    removed = [file for each in bins for file in add_files(each)]
    txn.read_files(file.path for file in removed)

    added: list[AddFile] = []
    # A job each: a union of scans may bring the parts of all bins together, and write one file.
    for each in bins:
        files = stage(
            jvm,
            txn.log,
            _rows(jvm, txn, each),
            txn.metadata,
            txn.protocol,
            hidden=hidden_columns(txn),
            data_change=False,
        )
        staged.add(files)
        added += files
    return Compacted(added=tuple(added), removed=tuple(removed))


def _rows(jvm: JvmSession, txn: OptimisticTransaction, files: pa.Table) -> DataFrame:
    store = txn.log.store
    rows = chosen_rows(jvm, store, files, protocol=txn.protocol, metadata=txn.metadata)
    return tracked(txn, rows).coalesce(1)


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
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
