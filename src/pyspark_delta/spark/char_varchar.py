"""CHAR(n) and VARCHAR(n): how long a text may be.

Both are stored as strings; what was declared is Spark's own field metadata.  CHAR is not padded
when it is written: Spark pads it when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.sql_text import raw_type
from pyspark_delta.spark.table_sql import TableSql

_AS_STRING_CONF = "spark.sql.legacy.charVarcharAsString"
_LIMITED = re.compile(r"(?:var)?char\((\d+)\)")


def has_limits(f: StructField) -> bool:
    """Whether a top-level column, or something in it, is a CHAR or VARCHAR."""
    return isinstance(f.metadata.get(CHAR_VARCHAR_KEY), str)


def length_checks(jvm: JvmSession, schema: StructType) -> Iterator[TableSql]:
    """The conditions that texts fit, one for each column that has some; none when Spark is told so.

    The text is ours: names in it are quoted.
    """
    if jvm.spark.conf.get(_AS_STRING_CONF, "false") == "true":
        return
    for f in schema:
        if has_limits(f):
            declared = raw_type(jvm, str(f.metadata[CHAR_VARCHAR_KEY]))
            if condition := _fits(_quoted(f.name), declared, 0):
                yield TableSql(name=f.name, text=condition)


def _fits(value: str, declared: Any, depth: int) -> str | None:
    """The condition on `value`, which is of a type in Spark's JSON form; None for none."""
    if isinstance(declared, str):
        limit = _LIMITED.fullmatch(declared)
        return f"({value} IS NULL OR length({value}) <= {limit[1]})" if limit else None
    kind = declared.get("type")
    parts: list[str | None] = []
    if kind == "struct":
        for inner in declared["fields"]:
            parts.append(_fits(f"{value}.{_quoted(inner['name'])}", inner["type"], depth))
    elif kind == "array":
        parts.append(_all_fit(value, declared["elementType"], depth))
    elif kind == "map":
        parts.append(_all_fit(f"map_keys({value})", declared["keyType"], depth))
        parts.append(_all_fit(f"map_values({value})", declared["valueType"], depth))
    return " AND ".join(part for part in parts if part) or None


def _all_fit(values: str, declared: Any, depth: int) -> str | None:
    item = f"x{depth}"
    inner = _fits(item, declared, depth + 1)
    return f"({values} IS NULL OR forall({values}, {item} -> {inner}))" if inner else None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
