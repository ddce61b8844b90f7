"""File statistics as columns: counts and bounds of the leaves that a predicate needs.

Statistics come as JSON text, or as the struct that checkpoints keep.  Either way the result is a
table with one row per file and, for each leaf, how many nulls it has and two values between which
all others lie.  A bound is null when it is not known, and is widened wherever the statistics are
coarser than the data, so that it can be relied on.  What follows from bounds is in `skipping`.
PROTOCOL.md, "Per-file Statistics".

>>> leaf = Leaf(path=("n",), physical_path=("n",), data_type=LONG)
>>> text = '{"numRecords":3,"minValues":{"n":1},"maxValues":{"n":7},"nullCount":{"n":0}}'
>>> parse_stats(pa.chunked_array([[text, None, "?"]]), [leaf]).to_pylist()[0]
{'numRecords': 3, 'nullCount n': 0, 'min n': 1, 'max n': 7}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_path,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
    column_name,
)
from pyspark_delta.kernel.scan.arrow_values import comparable, comparable_type
from pyspark_delta.kernel.scan.binding import has_binary_order
from pyspark_delta.kernel.scan.literals import FRACTIONAL, INTEGRAL, MAX_LONG, MIN_LONG, cast_text
from pyspark_delta.kernel.scan.predicates import Path, Predicate, columns_of
