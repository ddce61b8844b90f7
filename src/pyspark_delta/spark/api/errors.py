"""Errors that `except` clauses for Spark catch: `except AnalysisException` catches ours too.

An `except` clause looks at base classes, and our errors have none of PySpark's, because the kernel
does not import PySpark.  So an error that leaves through a public method changes its class to one
that inherits from both: our class, and the PySpark class of delta-spark's error for this condition.
The error stays the same object, and code inside this package sees no difference.

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

import pyspark.errors
from pyspark.errors import PySparkException

from pyspark_delta.errors import DeltaError, conditions

_KEPT_CAUSE = "_kept_cause"
_CAUSE: Any = vars(BaseException)["__cause__"]
Kind = TypeVar("Kind", bound=type)


def as_spark_raises(error: DeltaError) -> DeltaError:
    """Change the class of the error so that it is an instance of PySpark's class too; return it.

    `conditions.json` names the class for a condition.  delta-spark raises Java errors, for which
    PySpark has five classes; any other condition arrives there as a bare Py4JJavaError, and is a
    PySparkException here.
    """
    if not isinstance(error, PySparkException):
        whole = conditions()[error.condition.partition(".")[0]]
        spark = getattr(pyspark.errors, whole.get("spark", "PySparkException"))
        ours: Any = type(error)
        error.__class__ = _combined_class(ours, spark)
    return error


def as_pyspark_raises(error: DeltaError) -> DeltaError:
    """As `as_spark_raises`, for PySpark's own code, which raises errors `from None`."""
    error.__dict__[_KEPT_CAUSE] = error.__cause__
    return as_spark_raises(error)


def spark_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its errors are instances of PySpark's classes too."""

    @functools.wraps(call)
    def raising(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except DeltaError as error:
            as_spark_raises(error)
            raise

    return raising


def raises_spark_errors(owner: Kind) -> Kind:
    """Decorate a class: errors of its public methods are instances of PySpark's classes too."""
    for name, member in list(vars(owner).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(owner, name, classmethod(spark_errors(member.__func__)))
        elif callable(member):
            setattr(owner, name, spark_errors(member))
    return owner


class _Both:
    """Overrides PySpark's methods that read attributes which PySpark's constructor sets."""

    __slots__ = ()

    def __str__(self) -> str:
        assert isinstance(self, BaseException)
        return BaseException.__str__(self)

    @property
    def __cause__(self) -> BaseException | None:
        """The cause, also after PySpark has raised the error `from None`."""
        given: BaseException | None = _CAUSE.__get__(self)
        return vars(self).get(_KEPT_CAUSE) if given is None else given

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        _CAUSE.__set__(self, cause)

    def getQueryContext(self) -> list[Any]:
        """An empty list: our conditions have no position in a SQL text."""
        return []

    def getBreakingChangeInfo(self) -> None:
        """None, as for every condition that no release of Spark introduced."""


@functools.cache
def _combined_class(ours: Any, spark: Any) -> Any:
    def reduced(self: DeltaError) -> tuple[Any, ...]:
        # The class is made at run time and has no importable name: copies begin as plain errors
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
