"""What a call or a statement is refused with, be it by us or by Spark, here or in a server.

A client of Spark Connect gets PySpark's classes, for errors of ours too; the condition is the same
through both doors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaError, conditions
from tests.support.door import IN_CLIENT

Kinds = type[Exception] | tuple[type[Exception], ...]


class Refusal:
    """An error that was raised."""

    value: Any

    @property
    def condition(self) -> str | None:
        """Its condition."""
        return condition_of(self.value)


def condition_of(error: Exception) -> str | None:
    """The condition of an error of ours or of Spark's."""
    if isinstance(error, DeltaError):
        return error.condition
    return error.getCondition() if isinstance(error, PySparkException) else None


@contextmanager
def refused(kinds: Kinds = DeltaError, *, match: str | None = None) -> Iterator[Refusal]:
    """As `pytest.raises`; a client gets an error of PySpark's with a condition that we have."""
    found = Refusal()
    expected = kinds if isinstance(kinds, tuple) else (kinds,)
    ours = any(issubclass(kind, DeltaError) for kind in expected)
    if IN_CLIENT and ours:
        expected = (*expected, PySparkException)
    with pytest.raises(expected, match=match) as caught:
        yield found
    found.value = caught.value
    if IN_CLIENT and ours:
        assert found.condition in conditions(), found.condition


def condition(
    spark: SparkSession,
    statement: str,
    args: Any = None,
    kinds: Kinds = (DeltaError, PySparkException),
) -> str | None:
    """The condition of a statement's error; fails where there is none."""
    with pytest.raises(kinds if not IN_CLIENT else (DeltaError, PySparkException)) as found:
        spark.sql(statement, args)
    return condition_of(found.value)
