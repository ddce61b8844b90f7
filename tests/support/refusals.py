"""What a statement is refused with, be it by us or by Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaError


def condition(spark: SparkSession, statement: str, args: Any = None) -> str | None:
    """The condition of the error; fails where there is none."""
    try:
        spark.sql(statement, args)
    except DeltaError as error:
        return error.condition
    except PySparkException as error:
        return error.getCondition()
    return pytest.fail(f"{statement} was not refused")
