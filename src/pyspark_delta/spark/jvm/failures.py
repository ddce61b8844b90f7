"""Java's errors in Python: chains of causes, Spark's errors made here, failed jobs as DeltaErrors.

PySpark converts some exceptions; a failed task reaches Python as a bare Py4JJavaError.  Its causes
have the reason.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import SparkSession

from pyspark_delta.errors import DataFileError, DeltaError, JobFailedError, StorageRefusedError
from pyspark_delta.kernel.storage.local import REFUSALS as ERROR_CODES
from pyspark_delta.spark.jvm.gateway import JvmSession

JAVA_FAILURES = (Py4JJavaError, PySparkException)
"""The errors of a call in which Java throws: PySpark converts only some exceptions."""
GATEWAY_FAILURES = (Py4JError, PySparkException)
"""The same, and the error of a call when the JVM has exited."""
# Java prevents cycles of causes only in some constructors.
_DEEPEST = 50
_FAQ = "https://docs.delta.io/latest/delta-intro.html#frequently-asked-questions"
_MISSING = "FAILED_READ_FILE.FILE_NOT_EXIST"
# The condition with which Spark wraps the error of a writing task.
_WRITE = "TASK_WRITE_FAILED"
_WRITER = "FileFormatWriter$.executeTask"
_CANCELLED = "SPARK_JOB_CANCELLED"
_LONGEST_REASON = 500
# Java uses one class for most errors of the operating system, and puts these into its text.
_SYSTEM_REFUSALS = tuple(os.strerror(code) for code in sorted(ERROR_CODES))

Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def typed_job_failures(spark: SparkSession) -> Iterator[None]:
    """Wraps the jobs of a command: raises our error for a failed job, with Spark's as the cause.

    An error that PySpark converts stays as it is, except for a missing file.
    """
    try:
        yield
    except DeltaError:
        raise
    except JAVA_FAILURES as error:
        jvm = JvmSession(spark)
        found = missing_file(jvm, error) or _failure(jvm, error)
        if found is None:
            raise
        raise found from error


def typed_jobs(command: Command) -> Command:
    """Decorates a command, whose first argument is the session, with `typed_job_failures`."""

    @functools.wraps(command)
    def typed(spark: SparkSession, *args: Any, **kwargs: Any) -> Any:
        with typed_job_failures(spark):
            return command(spark, *args, **kwargs)

    return cast(Command, typed)


def missing_file(jvm: JvmSession, error: BaseException) -> DeltaError | None:
    """Our error for a job that missed a file of a Delta table; None for any other."""
    for cause in causes(error):
        if _java_condition(jvm, cause) == _MISSING:
            path = unquote(str(cause.getMessageParameters().get("path")))
            if _is_in_table(jvm, path):
                return DataFileError("DELTA_FILE_NOT_FOUND_DETAILED", filePath=path, faqPath=_FAQ)
            return None
    return None


def missing_file_behind(jvm: JvmSession, thrown: Any) -> DeltaError | None:
    """As `missing_file`, for a Java exception that is not a Python error yet."""
    error = Py4JJavaError("A Spark job failed.", thrown)
    found = missing_file(jvm, error)
    if found is not None:
        found.__cause__ = error
    return found


def java_error(error: BaseException) -> Any:
    """The Java exception behind an error of Py4J or PySpark; None if there is none."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def causes(error: BaseException) -> Iterator[Any]:
    """The Java exceptions behind an error, the outermost first."""
    found = java_error(error)
    for _ in range(_DEEPEST):
        if found is None:
            return
        yield found
        found = found.getCause()


def messages(error: BaseException) -> Iterator[str]:
    """The messages of all exceptions in the chain, the outermost first."""
    yield str(error)
    for cause in causes(error):
        yield str(cause.getMessage())


def innermost(error: BaseException) -> BaseException:
    """The error that Spark wrapped because a writing task failed; else the same error."""
    if _condition(error) != _WRITE:
        return error
    for cause in causes(error):
        converted: BaseException = convert_exception(cause)
        if _condition(converted) not in (None, _WRITE):
            return converted
    return error


def analysis_error(jvm: JvmSession, condition: str, **parameters: str) -> Exception:
    """Spark's AnalysisException of that condition, with Spark's own text.

    For statements that this package rejects in Spark's place, with the condition that Spark uses.
    """
    error = jvm.java_class("org.apache.spark.sql.AnalysisException")(
        condition, jvm.scala_map(parameters)
    )
    made: Exception = convert_exception(error)
    return made


def system_refusal(message: str) -> str | None:
    """The operating system's error that refused a write, if a Java message ends in one."""
    text = message.rstrip(")")
    return next((reason for reason in _SYSTEM_REFUSALS if text.endswith(reason)), None)


def _condition(error: BaseException) -> str | None:
    if isinstance(error, Py4JJavaError):
        error = convert_exception(error.java_exception)
    return error.getCondition() if isinstance(error, PySparkException) else None


def _failure(jvm: JvmSession, error: BaseException) -> DeltaError | None:
    if not isinstance(error, Py4JJavaError):
        return None
    chain = list(causes(error))
    outer = chain[0]
    if not is_instance_of(jvm.gateway, outer, "org.apache.spark.SparkException"):
        return None
    condition = _java_condition(jvm, outer)
    parameters = dict(outer.getMessageParameters() or {}) if condition else {}
    if condition == _CANCELLED:
        job, why = parameters.get("jobId", ""), parameters.get("reason", "")
        return JobFailedError("SPARK_JOB_CANCELLED", jobId=job, reason=why)
    reasons = [str(cause.getMessage()) for cause in chain]
    refused = next((each for each in reasons if system_refusal(each)), None)
    # A file that cannot be opened fails before the writer wraps the error.
    if refused is not None and (condition == _WRITE or _WRITER in reasons[0]):
        path = parameters.get("path") or refused.rpartition(" (")[0]
        reason = system_refusal(refused) or refused
        return StorageRefusedError(operation="write", path=path, reason=reason)
    # The innermost cause is the reason; the others are its context.
    innermost_text = next((each for each in reversed(reasons) if each != "None"), "")
    first_line = "".join(innermost_text.splitlines()[:1])
    return JobFailedError("DELTA_JOB_FAILED", reason=first_line[:_LONGEST_REASON])


def _java_condition(jvm: JvmSession, cause: Any) -> str | None:
    if not is_instance_of(jvm.gateway, cause, "org.apache.spark.SparkThrowable"):
        return None
    found: str | None = cause.getCondition()
    return found


def _is_in_table(jvm: JvmSession, path: str) -> bool:
    """Whether a parent directory of a file has a Delta log."""
    try:
        place = jvm.hadoop_path(path)
        file_system = place.getFileSystem(jvm.hadoop_conf())
        while (place := place.getParent()) is not None:
            if file_system.exists(jvm.java_class("org.apache.hadoop.fs.Path")(place, "_delta_log")):
                return True
    except JAVA_FAILURES:  # a directory that cannot be read does not count as a table
        return False
    return False
