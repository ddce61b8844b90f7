"""Evaluate a predicate on rows in Arrow, with SQL's three-valued logic.

Values are compared in a comparable form: dates, timestamps, booleans and whole numbers as 64-bit
integers, floats as doubles, decimals with 38 digits, text and binary by their bytes.  `literals`
has the same forms for single values.

>>> from pyspark_delta.kernel.protocol.schema_json import parse_schema
>>> from pyspark_delta.kernel.scan.predicates.binding import bind
>>> from pyspark_delta.kernel.scan.predicates.tree import compare
>>> schema = parse_schema('{"type":"struct","fields":[{"name":"n","type":"long"}]}')
>>> predicate = bind(compare("N", "<", 3), schema)
>>> evaluate(predicate, pa.table({"n": [1, 5, None]})).to_pylist()
[True, False, None]
>>> comparable(pa.array([True, None]), types.BOOLEAN).to_pylist()
[1, None]
>>> nan = float("nan")
>>> compare_arrays("<", pa.array([1.0, nan]), pa.scalar(nan)).to_pylist()
[True, False]
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import InvalidPredicateError
from pyspark_delta.kernel.log.arrow_types import arrow_type, one_array
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.types import DataType, DecimalType, StructType
from pyspark_delta.kernel.scan.predicates import tree
from pyspark_delta.kernel.scan.predicates.binding import BoundPredicate
from pyspark_delta.kernel.scan.predicates.literals import FRACTIONAL, INTEGRAL, LiteralValue

_MAX_DIGITS = 38


def evaluate(predicate: BoundPredicate, table: pa.Table) -> pa.BooleanArray:
    """Whether each row of `table` satisfies `predicate`: true, false or null.

    `table` needs the columns that the predicate names, under these names.  A predicate with an
    `Unknown` part raises InvalidPredicateError.
    """
    return _Rows(table, predicate.schema).judged(predicate.predicate)


class _Rows:
    """A table whose columns are converted to comparable form on first use."""

    def __init__(self, table: pa.Table, schema: StructType) -> None:
        self._table = table
        self._schema = schema
        self._raw: dict[tree.Path, pa.Array] = {}
        self._comparable: dict[tree.Path, pa.Array] = {}

    def judged(self, predicate: tree.Predicate) -> pa.BooleanArray:
        match predicate:
            case tree.Constant(value=value):
                return pa.repeat(pa.scalar(value, pa.bool_()), self._table.num_rows)
            case tree.And(all_of=parts):
                return reduce(pc.and_kleene, map(self.judged, parts))
            case tree.Or(any_of=parts):
                return reduce(pc.or_kleene, map(self.judged, parts))
            case tree.Not(operand=operand):
                return pc.invert(self.judged(operand))
            case tree.IsNull(column=column):
                return pc.is_null(self._column(column.path))
            case tree.Comparison(op=op, left=left, right=right):
                return self._compared(op, left, right)
            case tree.In(column=column, values=values):
                return self._in(column, values)
            case tree.StartsWith(column=column, prefix=prefix):
                return pc.starts_with(self._values(column), pattern=prefix)
            case _:
                raise InvalidPredicateError(
                    "DELTA_INVALID_PREDICATE",
                    predicate=predicate.to_sql(),
                    reason="rows cannot be judged by it here",
                )

    def _compared(self, op: str, left: tree.Operand, right: tree.Operand) -> pa.BooleanArray:
        assert isinstance(left, tree.Column)
        if isinstance(right, tree.Literal):
            scalar = comparable_scalar(right.value, right.data_type)
            return compare_arrays(op, widened(self._values(left), scalar.type), scalar)
        assert isinstance(right, tree.Column)
        wanted = _common_type(self._type(left.path), self._type(right.path))
        return compare_arrays(
            op, widened(self._values(left), wanted), widened(self._values(right), wanted)
        )

    def _in(self, column: tree.Column, values: tuple[tree.Literal, ...]) -> pa.BooleanArray:
        kind = next(value.data_type for value in values if value.value is not None)
        wanted = [value.value for value in values if value.value is not None]
        has_null = len(wanted) < len(values)
        scalars = [comparable_scalar(value, kind) for value in wanted]
        array = widened(self._values(column), scalars[0].type)
        # As in Spark, NaN equals NaN here in Arrow; zero must equal minus zero as well.
        if pa.types.is_floating(array.type):
            zero = pa.scalar(0.0)
            array = pc.if_else(pc.equal(array, zero), zero, array)
            scalars = [zero if value.as_py() == 0 else value for value in scalars]
        found = pc.is_in(array, value_set=pa.array([s.as_py() for s in scalars], array.type))
        unless = pc.is_null(array)
        if has_null:
            unless = pc.or_(unless, pc.invert(found))
        return pc.if_else(unless, pa.scalar(None, pa.bool_()), found)

    def _type(self, path: tree.Path) -> DataType:
        found = self._schema.find(path)
        assert found is not None
        return found.data_type

    def _values(self, column: tree.Column) -> pa.Array:
        path = column.path
        if path not in self._comparable:
            self._comparable[path] = comparable(self._column(path), self._type(path))
        return self._comparable[path]

    def _column(self, path: tree.Path) -> pa.Array:
        if path not in self._raw:
            if len(path) == 1:
                array = one_array(self._table.column(path[0]))
            else:
                array = pc.struct_field(self._column(path[:-1]), path[-1])
            self._raw[path] = array
        return self._raw[path]


def _common_type(left: DataType, right: DataType) -> pa.DataType:
    kinds = (left, right)
    if any(kind in FRACTIONAL for kind in kinds):
        return comparable_type(types.DOUBLE)
    scales = [kind.scale for kind in kinds if isinstance(kind, DecimalType)]
    if scales:
        # Room for every digit of both.
        return pa.decimal256(76, max(scales))
    return comparable_type(left)


def comparable_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which values of a type are compared; TypeError if they are not."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(_MAX_DIGITS, data_type.scale)
    if data_type in FRACTIONAL:
        return pa.float64()
    if data_type in INTEGRAL or data_type in (
        types.BOOLEAN,
        types.DATE,
        types.TIMESTAMP,
        types.TIMESTAMP_NTZ,
    ):
        return pa.int64()
    if data_type in (types.STRING, types.BINARY, types.VOID):
        return arrow_type(data_type)
    raise TypeError(f"{data_type} is not a type that can be compared")


def comparable(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column of a type, from any file or table, in its comparable form."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        if pa.types.is_date(array.type):  # the column was widened since the file was written
            array = array.cast(pa.timestamp("us"))
        # Spark truncates to microseconds.
        array = pc.cast(array, pa.timestamp("us", array.type.tz), safe=False)
    if data_type == types.DATE:
        array = array.cast(pa.date32()).cast(pa.int32())
    if data_type in FRACTIONAL:
        return pc.cast(array, pa.float64(), safe=False)
    return array.cast(comparable_type(data_type))


def comparable_scalar(value: LiteralValue, data_type: DataType) -> pa.Scalar:
    """A literal's value in the comparable form of columns of its type."""
    kind = comparable_type(data_type)
    return pa.scalar(int(value) if isinstance(value, bool) else value, kind)


def widened(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A comparable column as `wanted`, for a comparison with another type of number."""
    return array if array.type.equals(wanted) else pc.cast(array, wanted, safe=False)


def compare_arrays(op: str, left: Any, right: Any) -> pa.BooleanArray:
    """`left op right` for comparable columns or scalars; NaN is the largest number, as in Spark."""
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
        # Each is the negation of one below; nulls stay nulls.
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
