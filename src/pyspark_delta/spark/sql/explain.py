"""EXPLAIN of INSERT, UPDATE, DELETE and MERGE of a Delta table: plans of the rows, and no change.

EXPLAIN of anything else is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.spark.jvm.explained import ExplainMode, explain_text
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.sql.change import plan_change
from pyspark_delta.spark.sql.explained_text import below
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.heads import head
from pyspark_delta.spark.sql.insert import plan_insert
from pyspark_delta.spark.sql.requests import Request

_PLAN = StructType((StructField("plan", STRING, nullable=False),))
_MODES: dict[str, ExplainMode] = {
    "EXTENDED": "extended",
    "CODEGEN": "codegen",
    "COST": "cost",
    "FORMATTED": "formatted",
}
_PLANNERS: dict[str, Callable[[Request], tuple[str, DataFrame] | None]] = {
    "INSERT INTO": plan_insert,
    "INSERT OVERWRITE": plan_insert,
    "UPDATE": plan_change,
    "DELETE": plan_change,
    "MERGE": plan_change,
}


def run_explain(request: Request) -> DataFrame | None:
    """The plan as one row of text; None when it is Spark's to tell.

    As with Spark, what is wrong with a statement that can be read is told in place of the plan, in
    a row for each line.
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
        said = f"Error occurred during query planning: \n{error}"
        return local_frame(request.spark, _PLAN, [(line,) for line in said.split("\n")])
    return local_frame(request.spark, _PLAN, [(text,)])
