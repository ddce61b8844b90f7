"""TBLPROPERTIES of a statement that Spark's parser does not know, read by that parser."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import ParseException
from pyspark.errors.exceptions.captured import convert_exception

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import parse_table_statement

_BEFORE = "CREATE TABLE t USING delta TBLPROPERTIES ("


def parse_properties(jvm: JvmSession, text: str, *, statement: str, start: int) -> dict[str, str]:
    """The properties in `text`, which stands between brackets at `start` in a statement.

    Spark's own error when they are none; it counts in the statement, where lines allow it.
    """
    before = re.sub(r"[^\n]", " ", statement[:start])
    is_placed = len(before) >= len(_BEFORE) and "\n" not in before[-len(_BEFORE) :]
    before = before[: -len(_BEFORE)] + _BEFORE if is_placed else _BEFORE
    try:
        parsed = parse_table_statement(jvm, f"{before}{text})")
    except ParseException as error:
        if not is_placed:
            raise
        origin: Any = error._origin  # type: ignore[attr-defined]
        raise convert_exception(origin.withCommand(statement)) from None
    assert parsed is not None  # it begins like one
    return dict(parsed.properties)
