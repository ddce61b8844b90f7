"""Columns of values in the form in which they are compared.

Dates, timestamps, booleans and whole numbers are compared as 64-bit integers, floats as doubles,
decimals with 38 digits, text and binary by their bytes.  `literals` has the same forms for single
values.

>>> comparable(pa.array([True, None]), BOOLEAN).to_pylist()
[1, None]
>>> nan = float("nan")
>>> compare_arrays("<", pa.array([1.0, nan]), pa.scalar(nan)).to_pylist()
[True, False]
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.scan.arrow_types import arrow_type
from pyspark_delta.kernel.scan.literals import FRACTIONAL, INTEGRAL, LiteralValue

_MAX_DIGITS = 38


def comparable_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values of a type are compared; TypeError if they are not."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(_MAX_DIGITS, data_type.scale)
    if data_type in FRACTIONAL:
        return pa.float64()
    if data_type in INTEGRAL or data_type in (BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return pa.int64()
    if data_type in (STRING, BINARY, VOID):
        return arrow_type(data_type)
    raise TypeError(f"{data_type} is not a type that can be compared")


def comparable(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column of a type, from whatever file or table, in the form in which it is compared."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        if pa.types.is_date(array.type):  # the column was widened since the file was written
            array = array.cast(pa.timestamp("us"))
        # Spark cuts what is finer than a microsecond.
        array = pc.cast(array, pa.timestamp("us", array.type.tz), safe=False)
    if data_type == DATE:
        array = array.cast(pa.date32()).cast(pa.int32())
    if data_type in FRACTIONAL:
        return pc.cast(array, pa.float64(), safe=False)
    return array.cast(comparable_type(data_type))


def comparable_scalar(value: LiteralValue, data_type: DataType) -> pa.Scalar:
    """A literal's value in the form in which columns of its type are compared."""
    kind = comparable_type(data_type)
    return pa.scalar(int(value) if isinstance(value, bool) else value, kind)


def widened(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A comparable column as `wanted`, for a comparison with another type of number."""
    return array if array.type.equals(wanted) else pc.cast(array, wanted, safe=False)


def compare_arrays(op: str, left: Any, right: Any) -> pa.BooleanArray:
    """`left op right` for comparable columns or scalars; as Spark, NaN is one large number."""
    if op == "<=>":
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both_null, pc.fill_null(compare_arrays("=", left, right), False))
    if pa.types.is_floating(left.type):
        return _compare_floats(op, left, right)
    return _KERNELS[op](left, right)


def _compare_floats(op: str, left: Any, right: Any) -> pa.BooleanArray:
    if op in (">", ">="):
        return _compare_floats("<" if op == ">" else "<=", right, left)
    if op in ("!=", "<="):
        # Each is the contrary of one below, nulls staying nulls.
        swapped = (left, right) if op == "!=" else (right, left)
        return pc.invert(_compare_floats("=" if op == "!=" else "<", *swapped))
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if op == "=":
        return pc.or_(pc.equal(left, right), pc.and_(left_nan, right_nan))
    return pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))


_KERNELS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
