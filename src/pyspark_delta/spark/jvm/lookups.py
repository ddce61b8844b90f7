"""Numbers looked up in arrays that a plan carries: where a value stands among bounds, what a table
has at a place.

Spark has no functions for it that compile to a look into a Java array, so the expressions that
call one are made here.  Each task gets the array once, with its code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.types import INTEGER, LONG, ArrayType
from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession

_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSIONS = f"{_CATALYST}.expressions"
_ARRAY_DATA = f"{_EXPRESSIONS}.UnsafeArrayData"

Bounds = Sequence[int] | Sequence[float] | Sequence[str]
"""Values in ascending order, each once, and all of one kind."""


def range_number(jvm: JvmSession, value: Column, bounds: Bounds) -> Column:
    """How many of the bounds are below the value; 0 for null.

    The value is a long, a double or a text, as the bounds are; NaN is above all numbers, texts
    compare as bytes.
    """
    if not bounds:
        return F.lit(0)
    # A place from 0 on where the value is a bound, else the complement of where it would be.
    place = _called(jvm, "java.util.Arrays", "binarySearch", [_java_array(jvm, bounds), value])
    number = place.bitwiseXOR(F.shiftright(place, 31))
    return F.coalesce(number, F.lit(0))


def looked_up(jvm: JvmSession, numbers: Sequence[int], place: Column) -> Column:
    """The number at a place of a table, from 0 on; the place must be in it."""
    array = _longs(jvm, numbers)
    data = jvm.static(_ARRAY_DATA, "fromPrimitiveArray")(array)
    table = jvm.java_class(f"{_EXPRESSIONS}.Literal")(
        data, jvm.data_type(ArrayType(LONG, contains_null=False))
    )
    fails_outside = False
    item = jvm.java_class(f"{_EXPRESSIONS}.GetArrayItem")(
        table, expression_of(jvm, place), fails_outside
    )
    return column_of(jvm, item)


def _called(jvm: JvmSession, owner: str, method: str, arguments: Sequence[Any]) -> Column:
    """A static method that gives an int, called with an array and a column; null for null."""
    array, value = arguments
    class_of = jvm.static("java.lang.Class", "forName")
    object_type = jvm.java_class("org.apache.spark.sql.types.ObjectType")(array.getClass())
    held = jvm.java_class(f"{_EXPRESSIONS}.Literal")(array, object_type)
    propagates_null, is_nullable, is_deterministic = True, True, True
    call = jvm.java_class(f"{_EXPRESSIONS}.objects.StaticInvoke")(
        class_of(owner),
        jvm.data_type(INTEGER),
        method,
        jvm.seq([held, expression_of(jvm, value)]),
        jvm.seq([]),
        *(propagates_null, is_nullable, is_deterministic),
        jvm.none(),
    )
    return column_of(jvm, call)


def _java_array(jvm: JvmSession, values: Bounds) -> Any:
    first = values[0]
    if isinstance(first, str):
        return _texts(jvm, [str(value) for value in values])
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


def _texts(jvm: JvmSession, values: Sequence[str]) -> Any:
    """A Java array of Catalyst's texts; a call for each."""
    convert = jvm.static(f"{_CATALYST}.CatalystTypeConverters", "convertToCatalyst")
    return convert(jvm.seq(values)).array()
