"""Types of columns, and for each of them values as SQL says them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

NULL = "NULL"

VALUES: dict[str, Sequence[str]] = {
    "INT": ("1", "2", "3", "4", "-7", NULL),
    "BIGINT": ("1L", "2L", "3L", "9000000000L", NULL),
    "SMALLINT": ("1S", "2S", "3S", NULL),
    "TINYINT": ("1Y", "2Y", "100Y", NULL),
    "DOUBLE": ("1.0D", "2.0D", "2.5D", "-0.0D", "0.0D", "double('NaN')", NULL),
    "FLOAT": ("1.0F", "2.0F", "2.5F", NULL),
    "DECIMAL(10,2)": ("1.00BD", "2.00BD", "2.50BD", "12345678.12BD", NULL),
    "DECIMAL(4,1)": ("1.0BD", "2.0BD", "999.9BD", NULL),
    "VARCHAR(3)": ("'a'", "'abc'", "'abc  '", "'abcd'", "''", NULL),
    "CHAR(3)": ("'a'", "'abc'", "'abc  '", "'abcd'", "''", NULL),
    "STRING": ("'1'", "'2'", "'3'", "'a'", "'A'", "'ä b'", "''", "'2024-01-01'", NULL),
    "DATE": ("DATE'2024-01-01'", "DATE'2024-01-02'", "DATE'1960-05-05'", NULL),
    "TIMESTAMP": (
        "TIMESTAMP'2024-01-01 00:00:00'",
        "TIMESTAMP'2024-01-02 03:04:05.678901'",
        "TIMESTAMP'1960-01-01 00:00:00.000001'",
        NULL,
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ'2024-01-01 00:00:00'", NULL),
    "BOOLEAN": ("true", "false", NULL),
    "BINARY": ("X'01'", "X''", "X'FF00'", NULL),
    "STRUCT<a: INT, b: STRING>": (
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', CAST(NULL AS INT), 'b', 'y')",
        NULL,
    ),
    "STRUCT<b: STRING, a: INT>": ("named_struct('b', 'u', 'a', 2)", NULL),
    "STRUCT<a: BIGINT, b: STRING, c: INT>": (
        "named_struct('a', 3L, 'b', 'z', 'c', 7)",
        NULL,
    ),
    "STRUCT<a: INT>": ("named_struct('a', 5)", NULL),
    "ARRAY<INT>": ("array(1, 2)", "array()", "array(1, NULL)", NULL),
    "ARRAY<STRUCT<a: INT, b: STRING>>": (
        "array(named_struct('a', 1, 'b', 'x'))",
        "array()",
        NULL,
    ),
    "ARRAY<STRUCT<b: STRING, a: INT, c: INT>>": (
        "array(named_struct('b', 'x', 'a', 4, 'c', 9))",
        NULL,
    ),
    "MAP<STRING, INT>": ("map('k', 1)", "map()", NULL),
}
NUMBERS = ("INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)")
TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
STRUCTS = tuple(each for each in VALUES if each.startswith("STRUCT"))
ARRAYS = tuple(each for each in VALUES if each.startswith("ARRAY<STRUCT"))
KEYS = ("INT", "INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP")
FLAT = tuple(each for each in VALUES if "<" not in each)


@dataclass(frozen=True)
class Column:
    """A column of a table or of a source."""

    name: str
    type: str

    @property
    def is_struct(self) -> bool:
        return self.type.startswith("STRUCT")

    @property
    def is_flat(self) -> bool:
        return "<" not in self.type

    def some(self, rng: random.Random) -> str:
        """A value as SQL says it, of this very type."""
        return f"CAST({rng.choice(VALUES[self.type])} AS {self.type})"
