"""Rows judged by a predicate, in Arrow, with SQL's three values.

>>> from pyspark_delta.kernel.protocol.schema_json import parse_schema
>>> from pyspark_delta.kernel.scan.binding import bind
>>> from pyspark_delta.kernel.scan.predicates import compare
>>> schema = parse_schema('{"type":"struct","fields":[{"name":"n","type":"long"}]}')
>>> predicate = bind(compare("N", "<", 3), schema)
>>> evaluate(predicate, pa.table({"n": [1, 5, None]})).to_pylist()
[True, False, None]
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import InvalidPredicateError
from pyspark_delta.kernel.protocol.types import DOUBLE, DataType, DecimalType, StructType
from pyspark_delta.kernel.scan.arrow_values import (
    comparable,
    comparable_scalar,
    comparable_type,
    compare_arrays,
    widened,
)
from pyspark_delta.kernel.scan.binding import BoundPredicate
from pyspark_delta.kernel.scan.literals import FRACTIONAL
from pyspark_delta.kernel.scan.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operand,
    Or,
    Path,
    Predicate,
    StartsWith,
)


def evaluate(predicate: BoundPredicate, table: pa.Table) -> pa.BooleanArray:
    """Whether each row of `table` satisfies `predicate`: true, false or null.

    `table` needs the columns that the predicate names, under these names.  A predicate that is
    `Unknown` somewhere is an InvalidPredicateError.
    """
    return _Rows(table, predicate.schema).judged(predicate.predicate)


class _Rows:
    """A table whose columns are made comparable when they are first asked for."""

    def __init__(self, table: pa.Table, schema: StructType) -> None:
        self._table = table
        self._schema = schema
        self._raw: dict[Path, pa.Array] = {}
        self._comparable: dict[Path, pa.Array] = {}

    def judged(self, predicate: Predicate) -> pa.BooleanArray:
        match predicate:
            case Constant(value=value):
                return pa.repeat(pa.scalar(value, pa.bool_()), self._table.num_rows)
            case And(all_of=parts):
                return self._folded(pc.and_kleene, parts)
            case Or(any_of=parts):
                return self._folded(pc.or_kleene, parts)
            case Not(operand=operand):
                return pc.invert(self.judged(operand))
            case IsNull(column=column):
                return pc.is_null(self._column(column.path))
            case Comparison(op=op, left=left, right=right):
                return self._compared(op, left, right)
            case In(column=column, values=values):
                return self._in(column, values)
            case StartsWith(column=column, prefix=prefix):
                return pc.starts_with(self._values(column), pattern=prefix)
            case _:
                raise InvalidPredicateError(
                    "DELTA_INVALID_PREDICATE",
                    predicate=predicate.to_sql(),
                    reason="rows cannot be judged by it here",
                )

    def _folded(self, kernel: Any, parts: tuple[Predicate, ...]) -> pa.BooleanArray:
        found = self.judged(parts[0])
        for part in parts[1:]:
            found = kernel(found, self.judged(part))
        return found

    def _compared(self, op: str, left: Operand, right: Operand) -> pa.BooleanArray:
        assert isinstance(left, Column)
        if isinstance(right, Literal):
            scalar = comparable_scalar(right.value, right.data_type)
            return compare_arrays(op, widened(self._values(left), scalar.type), scalar)
        assert isinstance(right, Column)
        wanted = _common_type(self._type(left.path), self._type(right.path))
        return compare_arrays(
            op, widened(self._values(left), wanted), widened(self._values(right), wanted)
        )

    def _in(self, column: Column, values: tuple[Literal, ...]) -> pa.BooleanArray:
        kind = next(value.data_type for value in values if value.value is not None)
        wanted = [value.value for value in values if value.value is not None]
        has_null = len(wanted) < len(values)
        scalars = [comparable_scalar(value, kind) for value in wanted]
        array = widened(self._values(column), scalars[0].type)
        # Like Spark, Arrow takes one NaN for another here; zero must equal minus zero as well.
        if pa.types.is_floating(array.type):
            zero = pa.scalar(0.0)
            array = pc.if_else(pc.equal(array, zero), zero, array)
            scalars = [zero if value.as_py() == 0 else value for value in scalars]
        found = pc.is_in(array, value_set=pa.array([s.as_py() for s in scalars], array.type))
        unless = pc.is_null(array)
        if has_null:
            unless = pc.or_(unless, pc.invert(found))
        return pc.if_else(unless, pa.scalar(None, pa.bool_()), found)

    def _type(self, path: Path) -> DataType:
        found = self._schema.find(path)
        assert found is not None
        return found.data_type

    def _values(self, column: Column) -> pa.Array:
        path = column.path
        if path not in self._comparable:
            self._comparable[path] = comparable(self._column(path), self._type(path))
        return self._comparable[path]

    def _column(self, path: Path) -> pa.Array:
        if path not in self._raw:
            if len(path) == 1:
                column = self._table.column(path[0])
                array = column.combine_chunks()
                if isinstance(array, pa.ChunkedArray):
                    array = pa.concat_arrays(array.chunks)
            else:
                array = pc.struct_field(self._column(path[:-1]), path[-1])
            self._raw[path] = array
        return self._raw[path]


def _common_type(left: DataType, right: DataType) -> pa.DataType:
    kinds = (left, right)
    if any(kind in FRACTIONAL for kind in kinds):
        return comparable_type(DOUBLE)
    scales = [kind.scale for kind in kinds if isinstance(kind, DecimalType)]
    if scales:
        # Room for every digit of both.
        return pa.decimal256(76, max(scales))
    return comparable_type(left)
