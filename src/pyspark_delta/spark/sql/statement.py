"""The `Request` of a statement, the `Command` it becomes, and functions that all statements use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.parameters import parsed_plan
from pyspark_delta.spark.jvm.plans.frames import empty_frame, plan_frame
from pyspark_delta.spark.sql.heads import Head
from pyspark_delta.spark.tables.names import TableName, look_up_relation

_NO_COLUMNS = StructType()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A statement as the user passed it; `args` are by name or in order."""

    spark: SparkSession
    sql: str
    head: Head
    has_arguments: bool
    args: Any = None

    def run(self, text: str) -> DataFrame:
        """Run a text, with the same arguments, as if the session had no hooks of its parser."""
        jvm = JvmSession(self.spark)
        return plan_frame(jvm, parsed_plan(jvm, text, self.args))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A statement that is decided and has done nothing yet.

    `run` does it, and returns the result; `schema` has the result's columns.  Spark may parse a
    statement more often than it runs it.
    """

    run: Callable[[], DataFrame]
    schema: StructType = _NO_COLUMNS


def command(spark: SparkSession, run: Callable[[], object]) -> Command:
    """A command without a result."""

    def run_all() -> DataFrame:
        run()
        return empty_frame(JvmSession(spark))

    return Command(run=run_all)


def counts_schema(*names: str) -> StructType:
    """The columns of a result that is one row of numbers."""
    return StructType(tuple(StructField(name, LONG) for name in names))


def delta_target(request: Request) -> TableName | None:
    """The Delta table of the statement; None for any other."""
    if not request.head.target:
        return None
    found = look_up_relation(request.spark, request.head.target)
    return found if found is not None and found.is_delta else None
