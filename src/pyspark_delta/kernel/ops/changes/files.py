"""The files with the changed rows of a range of commits, as one set of files for a scan.

The mark of a file has the version, the time and the kind of its changes.  Where a file only got a
new deletion vector, the changed rows are those in exactly one of the two vectors.
PROTOCOL.md, "Change Data Files", "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import pyarrow as pa

from pyspark_delta.errors import ChangeFeedError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, table_from_values
from pyspark_delta.kernel.ops.changes.commits import ChangeKind, FileRun
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.scan.locations import descriptor_of

INSERT = "insert"
DELETE = "delete"

MARK = "baseRowId"
"""The column with the index of a file's mark; a scan of changes does not read its row ids."""

ReadVector = Callable[[DeletionVectorDescriptor], DeletionVector]

_NO_ROWS = DeletionVector()
_TYPES: dict[ChangeKind, str | None] = {"add": INSERT, "remove": DELETE, "cdc": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMark:
    """The facts that all changed rows of a file share.

    `change_type` is None for a change file, whose rows have their own.  With `keeps_rows` the
    file's vector names the rows that changed, and not deleted ones.  The last two are the first
    row id, and the version that inserted the rows, for rows that do not have their own.
    """

    version: int
    timestamp_ms: int
    change_type: str | None
    keeps_rows: bool = False
    base_row_id: int | None = None
    row_version: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class ChangedFiles:
    """Files of changes as tables of `ADD_SCHEMA`, in which `MARK` is a position in `marks`.

    `has_stats` keeps the statistics, by which a query can skip files.  `has_ids` keeps the values
    that row ids are computed from.  Without `pairs_vectors` a file that got a new vector counts as
    a whole, as one removed file and one added file.
    """

    read: ReadVector
    is_partitioned: bool
    has_stats: bool = True
    has_ids: bool = False
    pairs_vectors: bool = True
    marks: list[ChangeMark] = field(default_factory=list, init=False)
    _numbers: dict[ChangeMark, int] = field(default_factory=dict, init=False)
    _tables: list[pa.Table] = field(default_factory=list, init=False)
    _rows: list[dict[str, Any]] = field(default_factory=list, init=False)
    _change_rows: list[dict[str, Any]] = field(default_factory=list, init=False)
    _stats: dict[str, str | None] = field(default_factory=dict, init=False)
    # The vector that a file got in one version is the one it had in the next.
    _vectors: dict[str, tuple[DeletionVectorDescriptor, DeletionVector]] = field(
        default_factory=dict, init=False
    )

    @property
    def data_files(self) -> pa.Table:
        """Data files of which all rows, or those in a vector that keeps rows, came or went."""
        return pa.concat_tables([*self._tables, table_from_values(self._rows, ADD_SCHEMA)])

    @property
    def change_files(self) -> pa.Table:
        return table_from_values(self._change_rows, ADD_SCHEMA)

    def take(self, run: FileRun) -> None:
        if isinstance(run.rows, pa.Table):
            self._take_table(run)
            return
        kinds: Iterable[ChangeKind] = run.kinds or repeat(run.kind, len(run.rows))
        files = [
            (kind, self._with_stats(row) if kind == "remove" else row)
            for kind, row in zip(kinds, run.rows, strict=True)
        ]
        for kind, row, keeps_rows in (
            changed_rows(files, self._vector)
            if self.pairs_vectors
            else ((kind, row, False) for kind, row in files)
        ):
            mark = ChangeMark(
                version=run.version,
                timestamp_ms=run.timestamp_ms,
                change_type=_TYPES[kind],
                keeps_rows=keeps_rows,
            )
            if self.has_ids:
                first, version = row.get("baseRowId"), row.get("defaultRowCommitVersion")
                mark = replace(mark, base_row_id=first, row_version=version)
            (self._change_rows if kind == "cdc" else self._rows).append(self._marked(row, mark))
        if self.has_stats:
            self._stats |= {row["path"]: row.get("stats") for kind, row in files if kind == "add"}

    def _take_table(self, run: FileRun) -> None:
        """Add files, a table of `ADD_SCHEMA` or `REMOVE_SCHEMA`, whose vectors did not change."""
        files: pa.Table = run.rows
        count = files.num_rows
        if not count:
            return
        self._check_described(files)
        mark = ChangeMark(
            version=run.version, timestamp_ms=run.timestamp_ms, change_type=_TYPES[run.kind]
        )
        given = dict(zip(files.schema.names, files.columns, strict=True))
        # A remove action does not record when the file was written.
        given.setdefault("modificationTime", pa.repeat(pa.scalar(0, pa.int64()), count))
        given[MARK] = pa.repeat(pa.scalar(self._number(mark), pa.int64()), count)
        if not self.has_stats:
            given.pop("stats")
        arrays = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in ADD_SCHEMA]
        self._tables.append(pa.table(arrays, schema=ADD_SCHEMA))

    def _vector(self, row: dict[str, Any]) -> DeletionVector:
        descriptor = descriptor_of(row.get("deletionVector"))
        if descriptor is None:
            return _NO_ROWS
        known = self._vectors.get(row["path"])
        if known is None or known[0] != descriptor:
            known = self._vectors[row["path"]] = (descriptor, self.read(descriptor))
        return known[1]

    def _with_stats(self, row: dict[str, Any]) -> dict[str, Any]:
        """A removed file with the statistics of its add action, if the range contains that."""
        has_bounds = '"minValues"' in (row.get("stats") or "")
        if has_bounds or row["path"] not in self._stats:
            return row
        return {**row, "stats": self._stats[row["path"]]}

    def _marked(self, row: dict[str, Any], mark: ChangeMark) -> dict[str, Any]:
        is_described = row.get("partitionValues") is not None or not self.is_partitioned
        if row.get("size") is None or not is_described:
            raise _too_brief(row["path"])
        return {
            "path": row["path"],
            "partitionValues": row.get("partitionValues") or {},
            "size": row["size"],
            "modificationTime": row.get("modificationTime") or 0,
            "stats": row.get("stats") if self.has_stats else None,
            "deletionVector": row.get("deletionVector"),
            MARK: self._number(mark),
        }

    def _number(self, mark: ChangeMark) -> int:
        number = self._numbers.get(mark)
        if number is None:
            number = self._numbers[mark] = len(self.marks)
            self.marks.append(mark)
        return number

    def _check_described(self, files: pa.Table) -> None:
        for name in ("size", *(["partitionValues"] if self.is_partitioned else [])):
            column = files.column(name)
            if column.null_count:
                missing = column.is_null().index(True).as_py()
                raise _too_brief(files.column("path")[missing].as_py())


def changed_rows(
    files: list[tuple[ChangeKind, dict[str, Any]]],
    vector_of: Callable[[dict[str, Any]], DeletionVector],
) -> Iterator[tuple[ChangeKind, dict[str, Any], bool]]:
    """The files of one commit, each with its change type, and whether its vector keeps rows.

    A file that was removed and added again got a new vector: it is given once for the deleted
    rows and once for the restored ones, with a vector that names them.
    """
    removed = {row["path"]: row for kind, row in files if kind == "remove"}
    again = {row["path"] for kind, row in files if kind == "add" and row["path"] in removed}
    for kind, row in files:
        if row["path"] not in again or kind == "cdc":
            yield kind, row, False
        elif kind == "add":
            old = removed[row["path"]]
            before, after = vector_of(old), vector_of(row)
            # Statistics may cover live rows only, so each side needs its own.
            if (gone := after.difference(before)).cardinality:
                yield "remove", _keeping(row, gone, old.get("stats")), True
            if (back := before.difference(after)).cardinality:
                yield "add", _keeping(row, back, row.get("stats")), True


def _keeping(row: dict[str, Any], rows: DeletionVector, stats: str | None) -> dict[str, Any]:
    return {**row, "stats": stats, "deletionVector": inline_descriptor(rows).to_json_value()}


def _too_brief(path: str) -> ChangeFeedError:
    return ChangeFeedError("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", file=path)
