"""A streaming query that failed: its error names ours as the cause."""

from __future__ import annotations

from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.spark.jvm.callback_errors import noted_in
from pyspark_delta.spark.jvm.thrown_errors import error_behind
from pyspark_delta.spark.patches.said import Method, Wrap


def _waits(original: Method) -> Method:
    """A call that raises what the query failed with."""

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except StreamingQueryException as error:
            found = _ours(error)
            if found is None:
                raise
            raise error from found

    return wrapped


def _exception(original: Method) -> Method:
    def exception(self: Any) -> Any:
        error = original(self)
        if error is not None:
            error.__cause__ = _ours(error) or error.__cause__
        return error

    return exception


def _ours(error: StreamingQueryException) -> DeltaError | None:
    text = str(error)
    return error_behind(text) or noted_in(text)


CHANGED: dict[tuple[type, str], Wrap] = {
    (StreamingQuery, "awaitTermination"): _waits,
    (StreamingQuery, "processAllAvailable"): _waits,
    (StreamingQuery, "exception"): _exception,
    (StreamingQueryManager, "awaitAnyTermination"): _waits,
}
