"""A DataFrame as text that two engines can compare: its schema, and each row as JSON.

Spark's own `to_json` writes the rows, in the JVM: dates before 1582, times beyond Python's range
and the sign of zero keep their exact form, and both sides say them alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructField, StructType

_FORMAT = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class Contents(NamedTuple):
    """What a table holds, for a comparison by `==`."""

    schema: str
    rows: list[str]

    @property
    def values(self) -> list[dict[str, Any]]:
        """The rows as Python values, for tests that look at single ones."""
        return [json.loads(row) for row in self.rows]


def contents(data: DataFrame) -> Contents:
    """The schema and rows of a DataFrame; rows in the order of their text."""
    return Contents(_schema_text(data), json_rows(data, sort=True))


def json_rows(data: DataFrame, *, sort: bool = False) -> list[str]:
    """Each row as a JSON object, in the order of the data unless `sort`."""
    if not data.columns:
        return ["{}"] * data.count()
    found = data.select(F.to_json(F.struct(*map(_printable, data.schema)), _FORMAT)).collect()
    rows = [row[0] for row in found]
    return sorted(rows) if sort else rows


def _printable(field: StructField) -> Column:
    # Spark's `*` would read a column called `a.b` as a field of `a`.
    column = F.col("`" + field.name.replace("`", "``") + "`")
    kind = field.dataType
    if isinstance(kind, MapType) and isinstance(kind.keyType, StructType):
        # A key that is a struct is printed as the bytes it is kept in.
        column = F.map_entries(column).alias(field.name)
    return column


def _schema_text(data: DataFrame) -> str:
    return json.dumps(_without_metadata(json.loads(data.schema.json())))


def _without_metadata(node: Any) -> Any:
    """The metadata of a field is the engine's business: neither hands all of it to readers."""
    if isinstance(node, Mapping):
        return {key: _without_metadata(item) for key, item in node.items() if key != "metadata"}
    if isinstance(node, list):
        return [_without_metadata(item) for item in node]
    return node
