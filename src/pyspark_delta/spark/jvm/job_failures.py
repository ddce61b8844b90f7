"""Why a Spark job failed, as one of our errors: a missing file, a refusal of the disk, a cancel.

PySpark converts the exceptions that it knows; a failed task is not among them, and reaches Python
as a bare Py4JJavaError.  Its causes tell what happened.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.storage import StorageRefusedError
from pyspark_delta.errors.table import DataFileError, JobFailedError
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, causes
from pyspark_delta.spark.jvm.file_system_errors import system_refusal_in
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import hadoop_conf

_FAQ = "https://docs.delta.io/latest/delta-intro.html#frequently-asked-questions"
_MISSING = "FAILED_READ_FILE.FILE_NOT_EXIST"
_WRITE = "TASK_WRITE_FAILED"
_WRITER = "FileFormatWriter$.executeTask"
_CANCELLED = "SPARK_JOB_CANCELLED"
_LONGEST_REASON = 500

Command = TypeVar("Command", bound=Callable[..., Any])


@contextmanager
def typed_job_failures(spark: SparkSession) -> Iterator[None]:
    """Around the jobs of a command: raise our error for one that failed, with Spark's as the cause.

    What PySpark converts to an error of its own stays that error, a missing file apart.
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
    """A command, whose first argument is the session, with `typed_job_failures` around it."""

    @functools.wraps(command)
    def typed(spark: SparkSession, *args: Any, **kwargs: Any) -> Any:
        with typed_job_failures(spark):
            return command(spark, *args, **kwargs)

    return cast(Command, typed)


def missing_file(jvm: JvmSession, error: BaseException) -> DeltaError | None:
    """Our error for a job that did not find a file of a Delta table; None for any other."""
    for cause in causes(error):
        if _condition(jvm, cause) == _MISSING:
            path = unquote(str(cause.getMessageParameters().get("path")))
            if _is_in_table(jvm, path):
                return DataFileError("DELTA_FILE_NOT_FOUND_DETAILED", filePath=path, faqPath=_FAQ)
            return None
    return None


def _failure(jvm: JvmSession, error: BaseException) -> DeltaError | None:
    if not isinstance(error, Py4JJavaError):
        return None
    chain = list(causes(error))
    outer = chain[0]
    if not is_instance_of(jvm.gateway, outer, "org.apache.spark.SparkException"):
        return None
    condition = _condition(jvm, outer)
    told = dict(outer.getMessageParameters() or {}) if condition else {}
    if condition == _CANCELLED:
        return JobFailedError(
            "SPARK_JOB_CANCELLED", jobId=told.get("jobId", ""), reason=told.get("reason", "")
        )
    reasons = [str(cause.getMessage()) for cause in chain]
    refused = next((each for each in reasons if system_refusal_in(each)), None)
    # A file that cannot be opened fails before the writer's own words are put around it.
    if refused is not None and (condition == _WRITE or _WRITER in reasons[0]):
        path = told.get("path") or refused.rpartition(" (")[0]
        return StorageRefusedError(
            operation="write", path=path, reason=system_refusal_in(refused) or refused
        )
    # The innermost cause is the reason; the others tell where it happened.
    reason = next((each for each in reversed(reasons) if each != "None"), "").splitlines()[:1]
    return JobFailedError("DELTA_JOB_FAILED", reason="".join(reason)[:_LONGEST_REASON])


def _condition(jvm: JvmSession, cause: Any) -> str | None:
    if not is_instance_of(jvm.gateway, cause, "org.apache.spark.SparkThrowable"):
        return None
    found: str | None = cause.getCondition()
    return found


def _is_in_table(jvm: JvmSession, path: str) -> bool:
    """Whether a directory above a file has a Delta log."""
    try:
        place = jvm.hadoop_path(path)
        file_system = place.getFileSystem(hadoop_conf(jvm, {}))
        while (place := place.getParent()) is not None:
            if file_system.exists(jvm.java_class("org.apache.hadoop.fs.Path")(place, "_delta_log")):
                return True
    except JAVA_FAILURES:  # a place that cannot be asked is not known to be a table
        return False
    return False
