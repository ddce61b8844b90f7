"""Numbers for identity columns, given out in the plan, and the marks they reach.

Each task gives its rows every n-th number, n being the number of partitions of its stage: no two
rows have the same, whatever the planner does, and a task that is repeated repeats its numbers.
Gaps are allowed.  PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_delta.errors.table import InvalidActionsError, SchemaError
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import PHYSICAL_NAME_KEY, physical_name
from pyspark_delta.kernel.protocol.identity_columns import (
    identity_columns,
    identity_info,
    with_high_water_marks,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import StructField
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.jvm.catalyst import num_partitions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.row_checks import raised

_OVERFLOW = "DELTA_IDENTITY_COLUMN_OVERFLOW"
# Spark's row numbers: the partition above, and below it 33 bits of the row in the partition.
_ROW_BITS = (1 << 33) - 1
_LAST_LONG = 2**63 - 1


def identity_value(jvm: JvmSession, f: StructField) -> Column:
    """The next numbers of an identity column, one for each row.

    Between this column and the writer may stand steps that keep rows where they are, and shuffles;
    not `coalesce`, which makes one task of several partitions.
    """
    info = identity_info(f)
    first = info.next_value
    if not -_LAST_LONG - 1 <= first <= _LAST_LONG:
        raise SchemaError(_OVERFLOW, colName=f.name)
    # Outside of a task, where Spark computes constant rows while it plans, there is one partition.
    partitions = F.coalesce(num_partitions(jvm), F.lit(1)).cast("bigint")
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_BITS))
    index = F.try_add(F.spark_partition_id().cast("bigint"), F.try_multiply(partitions, row))
    value = F.try_add(_long(first), F.try_multiply(_long(info.step), index))
    return F.coalesce(value, raised(_OVERFLOW, colName=f.name).cast("bigint"))


def moved_identity(
    metadata: Metadata, adds: Sequence[AddFile], *, given: Iterable[str] = ()
) -> Metadata | None:
    """The metadata with the marks that the numbers in `adds` have reached; None when none moved.

    `given` are the columns that the data had itself: a user's own numbers move no mark.
    """
    brought = {name.lower() for name in given}
    mode = mapping_mode(metadata)
    reached = {}
    for f in identity_columns(metadata.schema):
        if f.name.lower() in brought:
            continue
        furthest = max if identity_info(f).step > 0 else min
        physical = physical_name(f, mode)
        numbers = [number for file in adds for number in _bounds(file, physical, f.name)]
        if numbers:
            reached[str(f.metadata.get(PHYSICAL_NAME_KEY, f.name))] = furthest(numbers)
    schema = with_high_water_marks(metadata.schema, reached)
    if schema == metadata.schema:
        return None
    return replace(metadata, schema_string=format_schema(schema))


def _bounds(file: AddFile, physical: str, name: str) -> Iterator[int]:
    """The least and the largest number in a file; none in one that has no rows or only nulls."""
    stats: dict[str, Any] = json.loads(file.stats) if file.stats else {}
    rows = stats.get("numRecords")
    if rows == 0 or (rows is not None and stats.get("nullCount", {}).get(physical) == rows):
        return
    for kind in ("minValues", "maxValues"):
        number = stats.get(kind, {}).get(physical)
        if not isinstance(number, int):
            raise InvalidActionsError("DELTA_IDENTITY_COLUMN_WITHOUT_STATISTICS", colName=name)
        yield number


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")
