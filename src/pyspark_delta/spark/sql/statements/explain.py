"""EXPLAIN of statements that write rows of a Delta table: Spark's plans of these rows.

Nothing is changed.  EXPLAIN of any other statement is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import ExplainMode, explain_text
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.statement import Command, Request, head
from pyspark_delta.spark.sql.statements.change import plan_change
from pyspark_delta.spark.sql.statements.define import plan_definition
from pyspark_delta.spark.sql.statements.describe import rows_command
from pyspark_delta.spark.sql.statements.insert import plan_insert

_SECTION = re.compile(r"== (?P<name>[\w ]+) ==")
_PHYSICAL_PLAN = "Physical Plan"
_PLAN_COLUMN = StructType((StructField("plan", STRING, nullable=False),))
_MODES: dict[str, ExplainMode] = {
    "EXTENDED": "extended",
    "CODEGEN": "codegen",
    "COST": "cost",
    "FORMATTED": "formatted",
}
_PLANNERS: dict[str, Callable[[Request], tuple[str, DataFrame] | None]] = {
    "CREATE TABLE": plan_definition,
    "REPLACE TABLE": plan_definition,
    "INSERT INTO": plan_insert,
    "INSERT OVERWRITE": plan_insert,
    "UPDATE": plan_change,
    "DELETE": plan_change,
    "MERGE": plan_change,
}


def below(text: str, command: str) -> str:
    r"""`text` of Spark's EXPLAIN, with each of its plans as the only child of `command`.

    >>> plan = "== Physical Plan ==\n*(1) Filter (id#0 = 1)\n+- Scan\n\n"
    >>> print(below(plan, "DeleteCommand t").rstrip())
    == Physical Plan ==
    Execute DeleteCommand t
    +- *(1) Filter (id#0 = 1)
       +- Scan
    """
    lines: list[str] = []
    place = ""  # "name" after a heading, "tree" inside the plan that follows it
    for line in text.split("\n"):
        found = _SECTION.fullmatch(line)
        if found is not None:
            is_physical = found["name"] == _PHYSICAL_PLAN
            lines += (line, f"Execute {command}" if is_physical else command)
            place = "name"
        elif place and line:
            lines.append(f"+- {line}" if place == "name" else f"   {line}")
            place = "tree"
        else:
            lines.append(line)
            place = ""
    return "\n".join(lines)


def explain_command(request: Request) -> Command | None:
    """EXPLAIN: the plan as one row of text; None when Spark explains the statement.

    As in Spark, the error of a statement that can be parsed replaces the plan, with a row for each
    line.
    """
    read = StatementReader(request.sql)
    read.expect("EXPLAIN")
    mode: ExplainMode = "simple"
    for word, named in _MODES.items():
        mode = named if read.takes(word) else mode
    explained = read.rest().text
    found = head(explained)
    planner = None if found is None else _PLANNERS.get(found.verb)
    if found is None or planner is None:
        return None
    try:
        planned = planner(replace(request, sql=explained, head=found))
        if planned is None:
            return None
        command, rows = planned
        text = below(explain_text(JvmSession(request.spark), rows, mode), command)
    except ParseException:
        return None  # Spark's error shows the whole statement
    except (DeltaError, PySparkException) as error:
        message = f"Error occurred during query planning: \n{error}"
        lines = [(line,) for line in message.split("\n")]
        return rows_command(request.spark, _PLAN_COLUMN, lines)
    return rows_command(request.spark, _PLAN_COLUMN, [(text,)])
