"""Values of a file as values of a table's column: which pairs of types go together, and how.

A file may be older than its column's type (type widening), or come from a writer with other
habits: unsigned or wider integers, nanoseconds, text in dictionaries.  A value that does not fit
is an error, never another value.  PROTOCOL.md, "Reader Requirements for Type Widening".

>>> caster(pa.int32(), LONG)(pa.array([7], pa.int32())).type
DataType(int64)
>>> caster(pa.string(), LONG) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
)
from pyspark_delta.kernel.scan.arrow_types import arrow_type

Convert = Callable[[pa.Array], pa.Array]
_Test = Callable[[pa.DataType], bool]


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(arrow)
        or pa.types.is_large_string(arrow)
        or pa.types.is_string_view(arrow)
        or pa.types.is_binary(arrow)
        or pa.types.is_large_binary(arrow)
        or pa.types.is_binary_view(arrow)
    )


def _is_up_to_32_bits(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) and arrow.bit_width <= 32)


# What a file may hold where the table has a column of the type.  Casts are checked, so that a
# wide integer in a narrow column is read when it fits.
_READABLE: Mapping[DataType, tuple[_Test, ...]] = {
    BOOLEAN: (pa.types.is_boolean,),
    BYTE: (pa.types.is_integer,),
    SHORT: (pa.types.is_integer,),
    INTEGER: (pa.types.is_integer,),
    LONG: (pa.types.is_integer,),
    FLOAT: (pa.types.is_float16, pa.types.is_float32),
    DOUBLE: (pa.types.is_floating, _is_up_to_32_bits),
    BINARY: (_is_bytes, pa.types.is_fixed_size_binary),
    DATE: (pa.types.is_date,),
    TIMESTAMP: (pa.types.is_timestamp,),
    TIMESTAMP_NTZ: (pa.types.is_timestamp, pa.types.is_date32),
}


def caster(file_type: pa.DataType, wanted: DataType) -> Convert | None:
    """What makes a column of a file one of type `wanted`; None when the two do not go together.

    `wanted` is atomic.  The conversion raises ArrowInvalid for a value that does not fit.
    """
    target = arrow_type(wanted)
    if pa.types.is_null(file_type) or wanted == VOID:
        return lambda array: pa.nulls(len(array), target)
    if pa.types.is_dictionary(file_type):
        decoded = caster(file_type.value_type, wanted)
        return None if decoded is None else lambda array: decoded(array.dictionary_decode())
    if file_type.equals(target):
        return _unchanged
    if not any(test(file_type) for test in _tests(wanted, target)):
        return None
    if pa.types.is_timestamp(file_type):
        return lambda array: _microseconds(array).view(target)
    return lambda array: array.cast(target)


def _tests(wanted: DataType, target: pa.DataType) -> tuple[_Test, ...]:
    if isinstance(wanted, DecimalType):
        return (pa.types.is_decimal, pa.types.is_integer)
    if pa.types.is_string(target):
        # Bytes without a mark are text to many older writers; the cast checks that they are.
        return (_is_bytes,)
    return _READABLE.get(wanted, ())


def _unchanged(array: pa.Array) -> pa.Array:
    return array


def _microseconds(array: pa.Array) -> pa.Array:
    """Timestamps in microseconds, cut towards the past as Spark does, without a zone."""
    unit = array.type.unit
    # The zone says how a value is shown; the value is the same instant in all of them.
    plain = array.view(pa.timestamp(unit))
    if unit == "ns":
        plain = pc.floor_temporal(plain, unit="microsecond")
    return plain.cast(pa.timestamp("us"))
