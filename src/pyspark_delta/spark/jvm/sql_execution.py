"""A piece of Python run as a query of Spark's: with an id, a plan in the UI, and metrics.

Spark marks the jobs of a query by its thread.  Py4J keeps a Python thread and its Java thread
together, so the jobs that a callback starts carry the mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession


def new_query(jvm: JvmSession, data: DataFrame, session: Any = None) -> Any:
    """A `QueryExecution` of the data, planned anew, with the settings of a session if one is given.

    The one that a DataFrame holds is planned once for all: it would write the time of its first
    run again, and the files that a table had then.
    """
    analyzed = data._jdf.queryExecution().analyzed()
    return (
        jvm.java_class("org.apache.spark.sql.classic.Dataset$")
        .ofRows(jvm.session if session is None else session, analyzed)
        .queryExecution()
    )


def run_as_query(
    jvm: JvmSession, query_execution: Any, name: str, body: Callable[[], object]
) -> None:
    """Run `body`, which starts jobs, so that Spark shows them as the query of that plan."""
    jvm.accept_callbacks()
    function = _Function(body)
    execution = jvm.java_class("org.apache.spark.sql.execution.SQLExecution$")
    try:
        execution.withNewExecutionId(query_execution, jvm.some(name), function)
    except (Py4JJavaError, PySparkException) as error:
        # Java saw a callback that failed; why it did is what the caller wants to know.
        raise (function.error or error) from None


class _Function:
    """Scala's function without arguments."""

    def __init__(self, body: Callable[[], object]) -> None:
        self._body = body
        self.error: BaseException | None = None

    def apply(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self.error = error
            raise

    def toString(self) -> str:
        return "pyspark_delta"

    class Java:
        """What Py4J asks for."""

        implements = ("scala.Function0",)
