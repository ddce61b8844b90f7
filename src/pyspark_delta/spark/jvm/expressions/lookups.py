"""Looks up numbers in arrays that a plan carries: a value's range, or an entry of a table.

Spark has no functions for this that compile to a Java array access, so this module makes
expressions that call one.  Each task gets the array once, with its code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.types import INTEGER, LONG, ArrayType
from pyspark_delta.spark.jvm.expressions.catalyst import (
    column_of,
    expression_of,
    held_object,
    static_call,
)
from pyspark_delta.spark.jvm.gateway import JvmSession

_CATALYST = "org.apache.spark.sql.catalyst"

Bounds = Sequence[int] | Sequence[float] | Sequence[str]
"""Distinct values of one type in ascending order."""


def range_number(jvm: JvmSession, value: Column, bounds: Bounds) -> Column:
    """The number of bounds below the value; 0 for null.

    The value is a long, a double or a text, as the bounds are; NaN is above all numbers, and texts
    compare as bytes.
    """
    if not bounds:
        return F.lit(0)
    # A position from 0 if the value is a bound, else the complement of its insertion point.
    arguments = [held_object(jvm, _java_array(jvm, bounds)), expression_of(jvm, value)]
    returns = jvm.data_type(INTEGER)
    search = static_call(jvm, "java.util.Arrays", "binarySearch", returns, arguments)
    place = column_of(jvm, search)
    number = place.bitwiseXOR(F.shiftright(place, 31))
    return F.coalesce(number, F.lit(0))


def looked_up(jvm: JvmSession, numbers: Sequence[int], place: Column) -> Column:
    """The number at a position of a table, from 0; the position must exist."""
    make = jvm.static(f"{_CATALYST}.expressions.UnsafeArrayData", "fromPrimitiveArray")
    array_type = jvm.data_type(ArrayType(LONG, contains_null=False))
    table = jvm.expression_class("Literal")(make(_longs(jvm, numbers)), array_type)
    fails_outside = False
    item = jvm.expression_class("GetArrayItem")(table, expression_of(jvm, place), fails_outside)
    return column_of(jvm, item)


def _java_array(jvm: JvmSession, values: Bounds) -> Any:
    first = values[0]
    if isinstance(first, str):
        # With a call for each text.
        convert = jvm.static(f"{_CATALYST}.CatalystTypeConverters", "convertToCatalyst")
        return convert(jvm.seq(values)).array()
    if isinstance(first, float):
        return _numbers(jvm, "d", "asDoubleBuffer", jvm.jvm.double, values)
    return _longs(jvm, [int(value) for value in values])


def _longs(jvm: JvmSession, values: Sequence[int]) -> Any:
    return _numbers(jvm, "q", "asLongBuffer", jvm.jvm.long, values)


def _numbers(jvm: JvmSession, code: str, view: str, kind: Any, values: Sequence[Any]) -> Any:
    """A Java array of numbers, in a few calls however long it is."""
    data = struct.pack(f">{len(values)}{code}", *values)
    array = jvm.gateway.new_array(kind, len(values))
    buffer = jvm.static("java.nio.ByteBuffer", "wrap")(data)
    getattr(buffer, view)().get(array)
    return array
