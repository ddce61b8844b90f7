"""Rows with their positions in files, and the positions of rows as bitmaps: for DML commands.

Besides the table's columns a row has the number of its file and its position in it, and where rows
are tracked its id and version.  Rows can be left out by position, as if they were in a deletion
vector: then the other rows of a file need no join, and no second evaluation of a condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.table_files import ChosenFiles
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import LONG, StructField
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.kernel.txn.vector_files import vector_of_bitmaps
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.plans.table import TableColumn, with_columns
from pyspark_delta.spark.scan.deletion_bits import row_bits
from pyspark_delta.spark.scan.frame import file_scan, row_id_expressions, table_columns
from pyspark_delta.spark.scan.source import BASE_ROW_ID, ROW_VERSION, ChosenSource, ScanSettings

FILE, ROW = "__delta_file", "__delta_row"
"""The columns with the number of a row's file, and the row's position in it, from 0."""
_NO_ROWS: Mapping[str, DeletionVector] = {}
_BUCKET, _BITS, _NUM_ROWS = "__delta_bucket", "__delta_bits", "__delta_num_rows"
# Spark counts positions from 1; bits after the last set one are not sent.
_POSITION = f"bitmap_bit_position({ROW} + 1)"
_BITMAP = (
    f"substring(bitmap_construct_agg({_POSITION}), 1, cast(max({_POSITION}) div 8 + 1 as int))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRows:
    """The rows of `files`, a table of add actions; a row's file is a position in that table.

    `frame` has the columns of the table, `FILE` and `ROW`, and where rows are tracked the two
    materialized columns of PROTOCOL.md, "Row Tracking", under their names in files.
    """

    files: pa.Table = field(hash=False)
    frame: DataFrame = field(hash=False)


def located_rows(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    files: pa.Table,
    *,
    without: Mapping[str, DeletionVector] = _NO_ROWS,
    metadata: Metadata | None = None,
) -> LocatedRows:
    """The live rows of `files`, except those in `without`, which has vectors by a file's path.

    The vectors of `without` hold all unwanted rows of their file, rows that are deleted already
    included.  The columns are those of `metadata`, by default the table's before the transaction.
    """
    snapshot = txn.snapshot
    assert snapshot is not None
    metadata = metadata or snapshot.metadata
    chosen = ChosenFiles(snapshot.store, files, protocol=snapshot.protocol, metadata=metadata)
    source = _LocatedSource(chosen, ScanSettings.of(jvm.spark), files.column("path"), without)
    plan, hidden = file_scan(jvm, source, reads_ids=source.tracks_rows)
    columns = [
        *table_columns(metadata),
        TableColumn(name=FILE, expression=FILE),
        TableColumn(name=ROW, expression=f"{hidden}.row_index"),
    ]
    if source.tracks_rows:
        names = materialized_columns(metadata, snapshot.store.root_uri)
        values = row_id_expressions(source, hidden, BASE_ROW_ID, ROW_VERSION)
        columns += [
            TableColumn(name=name, expression=value)
            for name, value in zip(names, values, strict=True)
        ]
    return LocatedRows(files=files, frame=plan_frame(jvm, with_columns(jvm, plan, columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFile:
    """A file and its touched rows; `num_met` counts a row as often as it was touched.

    `counts` are the numbers of rows for each counted condition, by name.
    """

    file: AddFile
    rows: DeletionVector = field(hash=False)
    num_met: int
    counts: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedRows:
    """The files with touched rows; `elsewhere` counts rows that are in no file yet."""

    files: tuple[TouchedFile, ...]
    elsewhere: Mapping[str, int] = field(hash=False)

    def total(self, name: str) -> int:
        """How many rows meet the condition of that name, in files and elsewhere."""
        return self.elsewhere.get(name, 0) + sum(file.counts[name] for file in self.files)


def touched_rows(
    rows: DataFrame, files: pa.Table, counted: Mapping[str, str] | None = None
) -> TouchedRows:
    """The touched rows of each file, by one job that returns bitmaps and no rows.

    `rows` have the columns `FILE` and `ROW` of `files`.  The job groups them by file and by ranges
    of positions, and makes a bitmap of each range in the JVM: a few kilobytes for 32,768 rows.  As
    a bitmap holds a row once, more rows than bits mean that some row was touched twice.

    `counted` are SQL conditions by name, whose rows are counted for each file.  Rows with a null
    `FILE` are in no file, and counted as elsewhere.
    """
    conditions = dict(counted or {})
    listed = [f"count_if({condition})" for condition in conditions.values()]
    grouped = rows.groupBy(F.col(FILE), F.expr(f"bitmap_bucket_number({ROW} + 1)").alias(_BUCKET))
    made = grouped.agg(
        F.expr(_BITMAP).alias(_BITS),
        F.expr("count(1)").alias(_NUM_ROWS),
        *[F.expr(each).alias(f"__delta_count_{i}") for i, each in enumerate(listed)],
    ).collect()
    by_file: dict[int | None, list[Row]] = defaultdict(list)
    for row in made:
        by_file[row[0]].append(row)
    elsewhere = _summed_counts(by_file.pop(None, []), conditions)
    numbers = sorted(number for number in by_file if number is not None)
    actions = add_files(files.take(pa.array(numbers, pa.int64())))
    found = (
        TouchedFile(
            file=file,
            rows=vector_of_bitmaps((row[1], bytes(row[2])) for row in by_file[number]),
            num_met=sum(row[3] for row in by_file[number]),
            counts=_summed_counts(by_file[number], conditions),
        )
        for number, file in zip(numbers, actions, strict=True)
    )
    return TouchedRows(files=tuple(found), elsewhere=elsewhere)


def counted_rows(rows: DataFrame, files: pa.Table) -> list[tuple[AddFile, int]]:
    """How many of `rows`, which have the column `FILE` of `files`, are in each file.

    Cheaper than `touched_rows`, for a command that needs no positions: it rewrites whole files, and
    can find the same rows again by its condition.
    """
    counted = sorted((row[0], row[1]) for row in rows.groupBy(FILE).count().collect())
    found = add_files(files.take(pa.array([number for number, _ in counted], pa.int64())))
    return list(zip(found, (count for _, count in counted), strict=True))


class _LocatedSource(ChosenSource):
    """Files with a number each, and perhaps with more deleted rows than in the log."""

    keeps_files_apart = True

    def __init__(
        self,
        files: ChosenFiles,
        settings: ScanSettings,
        paths: pa.ChunkedArray,
        without: Mapping[str, DeletionVector],
    ) -> None:
        self._without = without
        self._paths = paths.combine_chunks()
        self.snapshot = files
        super().__init__(files, settings)
        self._partition_schema = self._partition_schema.add(StructField(FILE, LONG))

    def _may_hide_rows(self) -> bool:
        return bool(self._without) or super()._may_hide_rows()

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        found = super()._bits_of_files(files)
        given = map(self._without.get, files.column("path").to_pylist())
        return [
            own if vector is None else row_bits(vector)
            for own, vector in zip(found, given, strict=True)
        ]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        numbers = pc.index_in(files.column("path"), value_set=self._paths)
        return [numbers.to_pylist()]


def _summed_counts(rows: list[Row], names: Mapping[str, str]) -> dict[str, int]:
    return {name: sum(row[4 + i] for row in rows) for i, name in enumerate(names)}
