"""Writes into tables with rules, from the data to the commit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import ConstraintError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.identity_columns import HIGH_WATER_MARK, with_identity
from pyspark_delta.kernel.protocol.types import (
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    StructField,
    StructType,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.agreement import kernel_rows
from tests.support.tables import create_table


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


def made(path: Path, *fields: StructField, **settings: Any) -> DeltaLog:
    return create_table(path, StructType(fields), **settings)


def append(data: DataFrame, path: Path, **options: str) -> None:
    data.write.format("delta").mode("append").options(**options).save(str(path))


def values(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in kernel_rows(path))


def test_a_refused_write_leaves_the_table_as_it_was(
    session: SparkSession, table_path: Path
) -> None:
    log = made(
        table_path,
        StructField("id", LONG, nullable=False),
        StructField("s", STRING),
        configuration={"delta.constraints.small": "coalesce(id, 0) < 10"},
    )
    append(session.range(3), table_path)
    assert values(table_path, ["id", "s"]) == [(0, None), (1, None), (2, None)]
    with pytest.raises(ConstraintError) as error:
        append(session.range(5, 15, 1, 4), table_path)
    assert error.value.condition == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert error.value.parameters["constraintName"] == "small"
    with pytest.raises(ConstraintError) as missing:
        append(session.sql("SELECT nullif(id, 2) id FROM range(4)"), table_path)
    assert missing.value.condition == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    with pytest.raises(ConstraintError):
        session.range(20).write.format("delta").mode("overwrite").save(str(table_path))
    assert log.update().version == 1
    assert len(kernel_rows(table_path)) == 3


def test_a_generated_column_partitions_the_table(session: SparkSession, table_path: Path) -> None:
    made(
        table_path,
        StructField("ts", TIMESTAMP),
        StructField("day", DATE, metadata={"delta.generationExpression": "CAST(ts AS DATE)"}),
        StructField("n", INTEGER, metadata={"CURRENT_DEFAULT": "7"}),
        partition_by=["day"],
        configuration={"delta.feature.allowColumnDefaults": "supported"},
    )
    append(session.sql("SELECT TIMESTAMP'2024-01-02 23:00:00' ts"), table_path)
    assert [str(row[0]) for row in values(table_path, ["day"])] == ["2024-01-02"]
    assert values(table_path, ["n"]) == [(7,)]
    assert (table_path / "day=2024-01-02").is_dir()
    with pytest.raises(ConstraintError):
        append(
            session.sql("SELECT TIMESTAMP'2024-01-02 23:00:00' ts, DATE'2020-01-01' day"),
            table_path,
        )


def test_numbers_go_on_from_write_to_write(session: SparkSession, table_path: Path) -> None:
    log = made(
        table_path,
        StructField("v", LONG),
        with_identity(StructField("id", LONG), start=10, step=5),
        with_identity(StructField("k", LONG), allow_explicit_insert=True),
        # Without statistics of its columns a table still knows its numbers.
        configuration={"delta.dataSkippingNumIndexedCols": "0"},
    )
    data = session.range(6).withColumnRenamed("id", "v")
    append(data.coalesce(1), table_path)
    assert values(table_path, ["id", "k"]) == [(10 + 5 * i, 1 + i) for i in range(6)]
    assert marks(log) == {"id": 35, "k": 6}
    append(data.repartition(3), table_path)
    append(session.sql("SELECT 1L v, 1000L k"), table_path)
    ids = [row[0] for row in values(table_path, ["id"])]
    assert len(ids) == len(set(ids)) == 13
    assert marks(log)["id"] == max(ids)
    assert marks(log)["k"] < 1000
    with pytest.raises(OperationNotAllowedError) as error:
        append(session.sql("SELECT 1L v, 1000L id"), table_path)
    assert error.value.condition == "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"
    append(data.where("v < 0"), table_path)
    assert marks(log)["id"] == max(ids)


def marks(log: DeltaLog) -> dict[str, Any]:
    fields = log.update().metadata.schema
    return {f.name: f.metadata[HIGH_WATER_MARK] for f in fields if HIGH_WATER_MARK in f.metadata}


def test_char_is_stored_as_it_is_and_padded_for_the_reader(
    session: SparkSession, table_path: Path
) -> None:
    key = "__CHAR_VARCHAR_TYPE_STRING"
    made(
        table_path,
        StructField("c", STRING, metadata={key: "char(3)"}),
        StructField("v", STRING, metadata={key: "varchar(3)"}),
    )
    append(session.sql("SELECT 'a' c, 'b' v"), table_path)
    assert values(table_path, ["c", "v"]) == [("a", "b")]
    read = session.read.format("delta").load(str(table_path))
    assert [tuple(row) for row in read.collect()] == [("a  ", "b")]
    with pytest.raises(ConstraintError) as error:
        append(session.sql("SELECT 'abcd' v"), table_path)
    assert error.value.condition == "DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
