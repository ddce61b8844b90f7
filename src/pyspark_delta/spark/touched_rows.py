"""Which rows of which files a command touches, found by one job that brings bits and no rows.

The job groups rows by file and by stretches of positions, and makes a bitmap of each stretch in
the JVM: a few kilobytes for 32,768 rows.  As a bitmap holds a row once, more rows than bits mean
that some row was met twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.ops.row_vectors import vector_of_bitmaps
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.spark.located_rows import FILE, ROW

_BUCKET, _BITS, _NUM_ROWS = "__delta_bucket", "__delta_bits", "__delta_num_rows"
# Spark counts positions from 1; bits after the last one that is set are not sent.
_POSITION = f"bitmap_bit_position({ROW} + 1)"
_MADE_BITS = (
    f"substring(bitmap_construct_agg({_POSITION}), 1, cast(max({_POSITION}) div 8 + 1 as int))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedFile:
    """A file and the rows of it that were met; `num_met` counts a row as often as it was.

    `counts` are sums of what was to be counted, by name.
    """

    file: AddFile
    rows: DeletionVector = field(hash=False)
    num_met: int
    counts: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedRows:
    """The files that have touched rows; `elsewhere` counts rows that are in no file yet."""

    files: tuple[TouchedFile, ...]
    elsewhere: Mapping[str, int] = field(hash=False)

    def total(self, name: str) -> int:
        """How many rows were counted under a name, in files and elsewhere."""
        return self.elsewhere.get(name, 0) + sum(file.counts[name] for file in self.files)


def touched_rows(
    rows: DataFrame, files: pa.Table, counted: Mapping[str, str] | None = None
) -> TouchedRows:
    """Run the job over `rows`, which have the columns `FILE` and `ROW` of `files`.

    `counted` are SQL conditions by a name: how many rows of a file meet each is counted too.
    Rows whose `FILE` is null are in none, and counted as elsewhere.
    """
    conditions = dict(counted or {})
    listed = [f"count_if({condition})" for condition in conditions.values()]
    grouped = rows.groupBy(F.col(FILE), F.expr(f"bitmap_bucket_number({ROW} + 1)").alias(_BUCKET))
    made = grouped.agg(
        F.expr(_MADE_BITS).alias(_BITS),
        F.expr("count(1)").alias(_NUM_ROWS),
        *[F.expr(each).alias(f"__delta_count_{i}") for i, each in enumerate(listed)],
    ).collect()
    by_file: dict[int | None, list[Row]] = defaultdict(list)
    for row in made:
        by_file[row[0]].append(row)
    elsewhere = _sums(by_file.pop(None, []), conditions)
    numbers = sorted(number for number in by_file if number is not None)
    actions = add_files(files.take(pa.array(numbers, pa.int64())))
    found = (
        TouchedFile(
            file=file,
            rows=vector_of_bitmaps((row[1], bytes(row[2])) for row in by_file[number]),
            num_met=sum(row[3] for row in by_file[number]),
            counts=_sums(by_file[number], conditions),
        )
        for number, file in zip(numbers, actions, strict=True)
    )
    return TouchedRows(files=tuple(found), elsewhere=elsewhere)


def counted_rows(rows: DataFrame, files: pa.Table) -> list[tuple[AddFile, int]]:
    """How many of `rows`, which have the column `FILE` of `files`, each file has that has some.

    As `touched_rows`, for a command that needs no positions: what chose the rows finds the same
    again, and files are written anew anyway.
    """
    counted = sorted((row[0], row[1]) for row in rows.groupBy(FILE).count().collect())
    found = add_files(files.take(pa.array([number for number, _ in counted], pa.int64())))
    return list(zip(found, (count for _, count in counted), strict=True))


def _sums(rows: list[Row], names: Mapping[str, str]) -> dict[str, int]:
    return {name: sum(row[4 + i] for row in rows) for i, name in enumerate(names)}
