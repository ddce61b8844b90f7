"""What a DataFrame is asked for, and Delta tables know better than Spark.

`df.alias(name)`: the two sides of a self-join each have row ids to ask for.  `df.inputFiles()`:
the files that the query opens, not all of the table's.  Actions: which file is missing.
"""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame

from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.input_files import input_files
from pyspark_delta.spark.jvm.job_failures import missing_file
from pyspark_delta.spark.jvm.table_plan import frame_with_own_struct
from pyspark_delta.spark.patches.said import Method, Wrap


def _alias(original: Method) -> Method:
    def alias(self: Any, alias: str) -> Any:
        if is_enabled(self.sparkSession):
            return original(frame_with_own_struct(JvmSession(self.sparkSession), self), alias)
        return original(self, alias)

    return alias


def _input_files(original: Method) -> Method:
    def inputFiles(self: Any) -> list[str]:
        found = input_files(self) if is_enabled(self.sparkSession) else None
        if found is None:
            return list(original(self))
        ours, others = found
        return list(dict.fromkeys([*ours, *(file for each in others for file in original(each))]))

    return inputFiles


def _action(original: Method) -> Method:
    """A call that runs a query: our error for a file of a Delta table that is missing."""

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except JAVA_FAILURES as error:
            session = self.sparkSession
            found = missing_file(JvmSession(session), error) if is_enabled(session) else None
            if found is None:
                raise
            raise found from error

    return wrapped


_ACTIONS = ("collect", "count", "isEmpty", "show", "tail", "toArrow", "toPandas")

CHANGED: dict[tuple[type, str], Wrap] = {
    (DataFrame, "alias"): _alias,
    (DataFrame, "inputFiles"): _input_files,
    **{(DataFrame, name): _action for name in _ACTIONS},
}
