"""Our errors as programs for Spark catch them: `except AnalysisException` is for ours too.

Python looks for real base classes in an `except`, and our errors have none of PySpark's: the kernel
knows no PySpark.  So an error that leaves through a method that people call becomes of a class that
is both: ours, and the one that delta-spark's error of this condition has in PySpark.  The error
stays the same object, and inside nothing looks different.

>>> from pyspark.errors import AnalysisException
>>> from pyspark_delta.errors import TableNotFoundError
>>> error = TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName="t")
>>> isinstance(as_spark_raises(error), AnalysisException), isinstance(error, TableNotFoundError)
(True, True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.errors import PySparkException

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.spark.spark_classes import SPARK_CLASSES

Kind = TypeVar("Kind", bound=type)


def as_spark_raises(error: DeltaError) -> DeltaError:
    """The error itself, which from now on is one of PySpark's as well."""
    if not isinstance(error, PySparkException):
        spark = SPARK_CLASSES.get(error.condition.partition(".")[0], PySparkException)
        kinds: tuple[Any, Any] = type(error), spark
        error.__class__ = _kind(*kinds)
    return error


def spark_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose errors programs for Spark can catch."""

    @functools.wraps(call)
    def raising(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except DeltaError as error:
            as_spark_raises(error)
            raise

    return raising


def raises_spark_errors(owner: Kind) -> Kind:
    """A class whose public methods raise such errors."""
    for name, member in list(vars(owner).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(owner, name, classmethod(spark_errors(member.__func__)))
        elif callable(member):
            setattr(owner, name, spark_errors(member))
    return owner


class _Both:
    """What stands before PySpark's methods, which need what its constructor sets."""

    __slots__ = ()

    def __str__(self) -> str:
        assert isinstance(self, BaseException)
        return BaseException.__str__(self)

    def getQueryContext(self) -> list[Any]:
        """Nothing: conditions of ours are not about a place in a text."""
        return []

    def getBreakingChangeInfo(self) -> None:
        """Nothing, as for every condition that no release of Spark brought."""


@functools.cache
def _kind(ours: Any, spark: Any) -> Any:
    def reduced(self: DeltaError) -> tuple[Any, ...]:
        # The class is made here and cannot be found by name: copies begin as plain errors again.
        made, (_, *given) = ours.__reduce__(self)
        return made, (ours, *given)

    return type(
        ours.__name__,
        (_Both, ours, spark),
        {
            "__module__": ours.__module__,
            "__qualname__": ours.__qualname__,
            "__doc__": ours.__doc__,
            "__reduce__": reduced,
        },
    )
