"""The files whose rows are changes, as a scan takes them: all commits together, each file marked.

A file's mark says in which version its rows changed, when, and how.  Where a file only got another
deletion vector, the rows in one of the two vectors alone are the ones that changed.
PROTOCOL.md, "Change Data Files", "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import pyarrow as pa

from pyspark_delta.errors.table import ChangeFeedError
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, table_from_values
from pyspark_delta.kernel.ops.stream_commits import ChangeKind, FileRun
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.scan.vectors import descriptor_of

INSERT = "insert"
DELETE = "delete"

MARK = "baseRowId"
"""The column that has the number of a file's mark; a scan of changes asks for no row ids."""

ReadVector = Callable[[DeletionVectorDescriptor], DeletionVector]

_NO_ROWS = DeletionVector()
_TYPES: dict[ChangeKind, str | None] = {"add": INSERT, "remove": DELETE, "cdc": None}


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """What the rows of a file have in common as changes.

    `change_type` is None for a change file, whose rows tell it themselves.  `keeps_rows` says that
    the file's vector names the rows that changed, and not those that are gone.  The last two say
    from where on rows are numbered, and in which version they came, unless rows have it themselves.
    """

    version: int
    timestamp_ms: int
    change_type: str | None
    keeps_rows: bool = False
    base_row_id: int | None = None
    row_version: int | None = None


class ChangedFiles:
    """Files of changes as tables of `ADD_SCHEMA`, in which `MARK` is a position in `marks`.

    `has_stats` keeps the statistics, by which a query can skip files.  `has_ids` keeps what rows'
    ids are made of; without `pairs_vectors` a file that got another vector is told as a whole, as
    one that went and one that came.
    """

    def __init__(
        self,
        read: ReadVector,
        *,
        is_partitioned: bool,
        has_stats: bool = True,
        has_ids: bool = False,
        pairs_vectors: bool = True,
    ) -> None:
        self._read = read
        self.has_ids = has_ids
        self._pairs_vectors = pairs_vectors
        self._is_partitioned = is_partitioned
        self._has_stats = has_stats
        self.marks: list[ChangeMark] = []
        self._numbers: dict[ChangeMark, int] = {}
        self._tables: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []
        self._told: list[dict[str, Any]] = []
        self._stats: dict[str, str | None] = {}
        # The vector that a file got in one version is the one it had in the next.
        self._vectors: dict[str, tuple[DeletionVectorDescriptor, DeletionVector]] = {}

    @property
    def inferred(self) -> pa.Table:
        """Files all of whose rows, or those that their vector leaves, came or went."""
        return pa.concat_tables([*self._tables, table_from_values(self._rows, ADD_SCHEMA)])

    @property
    def told(self) -> pa.Table:
        """Change files."""
        return table_from_values(self._told, ADD_SCHEMA)

    def take(self, run: FileRun) -> None:
        """Take the files of one version."""
        if isinstance(run.rows, pa.Table):
            self.take_table(run.rows, ChangeMark(run.version, run.timestamp_ms, INSERT))
            return
        kinds: Iterable[ChangeKind] = run.kinds or repeat("add", len(run.rows))
        files = [
            (kind, self._with_stats(row) if kind == "remove" else row)
            for kind, row in zip(kinds, run.rows, strict=True)
        ]
        changed: Iterable[tuple[ChangeKind, dict[str, Any], bool]]
        if self._pairs_vectors:
            changed = changed_rows(files, self._vector)
        else:
            changed = ((kind, row, False) for kind, row in files)
        for kind, row, keeps_rows in changed:
            mark = ChangeMark(run.version, run.timestamp_ms, _TYPES[kind], keeps_rows)
            if self.has_ids:
                first, version = row.get("baseRowId"), row.get("defaultRowCommitVersion")
                mark = replace(mark, base_row_id=first, row_version=version)
            (self._told if kind == "cdc" else self._rows).append(self._marked(row, mark))
        if self._has_stats:
            self._stats |= {row["path"]: row.get("stats") for kind, row in files if kind == "add"}

    def take_table(self, files: pa.Table, mark: ChangeMark) -> None:
        """Take files, a table of `ADD_SCHEMA` or `REMOVE_SCHEMA`, that have no other vector now."""
        if not files.num_rows:
            return
        self._check_described(files)
        count = files.num_rows
        given = dict(zip(files.schema.names, files.columns, strict=True))
        # A removed file does not tell when it was written.
        given.setdefault("modificationTime", pa.repeat(pa.scalar(0, pa.int64()), count))
        given[MARK] = pa.repeat(pa.scalar(self._number(mark), pa.int64()), count)
        if not self._has_stats:
            given.pop("stats")
        arrays = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in ADD_SCHEMA]
        self._tables.append(pa.table(arrays, schema=ADD_SCHEMA))

    def _vector(self, row: dict[str, Any]) -> DeletionVector:
        descriptor = descriptor_of(row.get("deletionVector"))
        if descriptor is None:
            return _NO_ROWS
        known = self._vectors.get(row["path"])
        if known is None or known[0] != descriptor:
            known = self._vectors[row["path"]] = (descriptor, self._read(descriptor))
        return known[1]

    def _with_stats(self, row: dict[str, Any]) -> dict[str, Any]:
        """A removed file with the statistics that it came with, if that is part of the range."""
        if _has_bounds(row.get("stats")) or row["path"] not in self._stats:
            return row
        return {**row, "stats": self._stats[row["path"]]}

    def _marked(self, row: dict[str, Any], mark: ChangeMark) -> dict[str, Any]:
        is_described = row.get("partitionValues") is not None or not self._is_partitioned
        if row.get("size") is None or not is_described:
            raise _too_brief(row["path"])
        return {
            "path": row["path"],
            "partitionValues": row.get("partitionValues") or {},
            "size": row["size"],
            "modificationTime": row.get("modificationTime") or 0,
            "stats": row.get("stats") if self._has_stats else None,
            "deletionVector": row.get("deletionVector"),
            MARK: self._number(mark),
        }

    def _number(self, mark: ChangeMark) -> int:
        found = self._numbers.get(mark)
        if found is None:
            found = self._numbers[mark] = len(self.marks)
            self.marks.append(mark)
        return found

    def _check_described(self, files: pa.Table) -> None:
        for name in ("size", *(["partitionValues"] if self._is_partitioned else [])):
            column = files.column(name)
            if column.null_count:
                missing = column.is_null().index(True).as_py()
                raise _too_brief(files.column("path")[missing].as_py())


def changed_rows(
    files: list[tuple[ChangeKind, dict[str, Any]]],
    vector_of: Callable[[dict[str, Any]], DeletionVector],
) -> Iterator[tuple[ChangeKind, dict[str, Any], bool]]:
    """The files of one commit, each as what its rows did, and whether its vector keeps rows.

    A file that was removed and added again got another vector: it comes once for the rows that
    went and once for those that came back, with a vector that names them.
    """
    removed = {row["path"]: row for kind, row in files if kind == "remove"}
    again = {row["path"] for kind, row in files if kind == "add" and row["path"] in removed}
    for kind, row in files:
        if row["path"] not in again or kind == "cdc":
            yield kind, row, False
        elif kind == "add":
            old = removed[row["path"]]
            before, after = vector_of(old), vector_of(row)
            # Statistics may be of live rows only, so each side's own are the ones that cover it.
            if (gone := after.difference(before)).cardinality:
                yield "remove", _keeping(row, gone, old.get("stats")), True
            if (back := before.difference(after)).cardinality:
                yield "add", _keeping(row, back, row.get("stats")), True


def _keeping(row: dict[str, Any], rows: DeletionVector, stats: str | None) -> dict[str, Any]:
    return {**row, "stats": stats, "deletionVector": inline_descriptor(rows).to_json_value()}


def _has_bounds(stats: str | None) -> bool:
    return stats is not None and '"minValues"' in stats


def _too_brief(path: str) -> ChangeFeedError:
    return ChangeFeedError("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", file=path)
