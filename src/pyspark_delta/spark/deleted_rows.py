"""Dropping deleted rows in the JVM, by a bitmap that comes with each file.

Plain SQL functions: Spark compiles them into the scan's own loop.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, functions


def without_deleted_rows(frame: DataFrame, bitmap: str) -> DataFrame:
    """The rows of `frame` whose bit in the binary column `bitmap` is not set.

    The position of a row is Spark's own `_metadata.row_index`: that of the row in its file,
    whatever was split or skipped.
    """
    index = functions.col("_metadata.row_index")
    bits = functions.col(bitmap)
    byte = functions.expr(
        f"cast(conv(hex(substring({bitmap}, cast(_metadata.row_index div 8 as int) + 1, 1)),"
        " 16, 10) as int)"
    )
    is_set = functions.getbit(byte, (index % 8).cast("int")) == 1
    in_range = index < functions.length(bits) * 8
    return frame.where(bits.isNull() | ~(in_range & is_set))
