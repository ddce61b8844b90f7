"""An overwrite of some rows in a table with deletion vectors: the rows that go are marked.

As DELETE does it: one job finds positions, and nothing of the table is written anew.  A change
feed then reads the rows that went off the vectors, and those that came off the new files.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_delta.spark.commands.dml_files import DmlFiles, FileChanges
from pyspark_delta.spark.commands.replaced_rows import Marking, Matching, Replaced
from pyspark_delta.spark.located_rows import located_rows
from pyspark_delta.spark.touched_rows import touched_rows


def marking_of(files: DmlFiles) -> Marking | None:
    """How rows are marked in the table; None where it has no vectors, or the session wants none."""
    if not files.uses_vectors("delete"):
        return None

    def mark(matching: Matching, candidates: pa.Table) -> Replaced:
        return _marked(files, matching, candidates)

    return mark


def _marked(files: DmlFiles, matching: Matching, candidates: pa.Table) -> Replaced:
    if not candidates.num_rows:
        return Replaced()
    txn = files.txn
    # The write may have given the table columns, which the condition may name.
    rows = located_rows(files.jvm, txn, candidates, metadata=txn.metadata)
    touched = touched_rows(matching(rows.frame), rows.files)
    changes = files.plan(touched.files, with_vectors=True, can_rewrite=False)
    marked = FileChanges(files=changes.of("vector"))
    return Replaced(
        files=tuple(changes.removed),
        vectors=tuple(files.actions(marked)),
        num_rows=changes.num_rows,
    )
