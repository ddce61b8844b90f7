"""ALTER TABLE in tests: what works, what is refused, and what the log says then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.spark.tables.names import table_log


def alter(spark: SparkSession, *changes: str, table: str = "t") -> None:
    """Run statements, none of which has a result."""
    for change in changes:
        assert spark.sql(f"ALTER TABLE {table} {change}").columns == []


def refused(spark: SparkSession, change: str, table: str = "t") -> str | None:
    """The condition with which a change is refused; the table is as it was."""
    before = snapshot(spark, table).version
    with pytest.raises((DeltaError, PySparkException)) as found:
        spark.sql(f"ALTER TABLE {table} {change}")
    assert snapshot(spark, table).version == before
    error = found.value
    assert isinstance(error, DeltaError | PySparkException)
    return error.getCondition()


def snapshot(spark: SparkSession, table: str = "t") -> Snapshot:
    """The newest version."""
    return table_log(spark, table).update()


def metadata(spark: SparkSession, table: str = "t") -> Metadata:
    """What the newest version is."""
    return snapshot(spark, table).metadata


def last_commit(spark: SparkSession, table: str = "t") -> tuple[str, dict[str, Any]]:
    """What the newest commit says it did; parameters that hold JSON as what it says."""
    row = DeltaTable.forName(spark, table).history(1).first()
    assert row is not None
    told = {key: _value(text) for key, text in row.operationParameters.items()}
    return row.operation, told


def _value(text: str) -> Any:
    return json.loads(text) if text.startswith(("[", "{")) else text
