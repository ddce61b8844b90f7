"""What a commit changed in files that only got another deletion vector.

The log tells such a change as a remove and an add of one file.  The rows that changed are those in
one of the two vectors alone; each becomes a change of the file with a vector that leaves just
those rows.  PROTOCOL.md, "Deletion Vectors", "Change Data Files".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark_delta.errors.table import DeletionVectorError
from pyspark_delta.kernel.ops.stream_commits import ChangeKind, FileRun
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.scan.vectors import descriptor_of

ReadVector = Callable[[DeletionVectorDescriptor], DeletionVector]

_NONE = DeletionVector()


def with_changed_rows(run: FileRun, read: ReadVector) -> FileRun:
    """The run with each file that got another vector told as the rows that came and went."""
    if run.kinds is None or not isinstance(run.rows, list):
        return run
    if not any(row.get("deletionVector") is not None for row in run.rows):
        return run
    removed = {
        row["path"]: i
        for i, (row, kind) in enumerate(zip(run.rows, run.kinds, strict=True))
        if kind == "remove"
    }
    rows: list[dict[str, Any]] = []
    kinds: list[ChangeKind] = []
    paired: set[int] = set()
    for i, (row, kind) in enumerate(zip(run.rows, run.kinds, strict=True)):
        other = removed.get(row["path"]) if kind == "add" else None
        if other is None:
            continue
        paired |= {other, i}
        for changed_kind, changed in _changes(run.rows[other], row, read):
            rows.append(changed)
            kinds.append(changed_kind)
    for i, (row, kind) in enumerate(zip(run.rows, run.kinds, strict=True)):
        if i not in paired:
            rows.append(row)
            kinds.append(kind)
    return replace(run, rows=rows, kinds=tuple(kinds))


def _changes(
    old: dict[str, Any], new: dict[str, Any], read: ReadVector
) -> list[tuple[ChangeKind, dict[str, Any]]]:
    before, after = _vector(old, read), _vector(new, read)
    told: list[tuple[ChangeKind, DeletionVector]] = [
        ("remove", after.difference(before)),
        ("add", before.difference(after)),
    ]
    whole = DeletionVector(range(_num_records(old, new)))
    return [
        (
            kind,
            {
                **new,
                "deletionVector": inline_descriptor(whole.difference(vector)).to_json_value(),
            },
        )
        for kind, vector in told
        if vector.cardinality
    ]


def _vector(row: dict[str, Any], read: ReadVector) -> DeletionVector:
    descriptor = descriptor_of(row.get("deletionVector"))
    return _NONE if descriptor is None else read(descriptor)


def _num_records(*rows: dict[str, Any]) -> int:
    for row in rows:
        try:
            found = json.loads(row.get("stats") or "{}").get("numRecords")
        except (ValueError, AttributeError):
            found = None
        if isinstance(found, int):
            return found
    raise DeletionVectorError("DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS")
