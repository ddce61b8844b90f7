"""`format("delta")` of an enabled session: writes and reads go our way, all others theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, disable, enable
from pyspark_delta.errors import TableAlreadyExistsError


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(enable(spark))  # as a notebook's cell that is run twice


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_what_is_written_is_read_back(session: SparkSession, table_path: Path) -> None:
    frame = session.range(10).selectExpr("id", "concat('p ', id % 3) AS part")
    frame.write.format("delta").partitionBy("part").save(str(table_path))
    read = session.read.format("delta").load(str(table_path))
    assert rows(read) == rows(frame)
    assert rows(read.where("part = 'p 1'")) == [(1, "p 1"), (4, "p 1"), (7, "p 1")]
    theirs = DeltaTable(str(table_path)).to_pyarrow_table().column("id").to_pylist()
    assert sorted(theirs) == list(range(10))


def test_the_four_modes_do_what_spark_says(session: SparkSession, table_path: Path) -> None:
    def write(mode: str | None, first: int) -> None:
        writer = session.range(first, first + 2).write.format("delta")
        (writer if mode is None else writer.mode(mode)).save(str(table_path))

    def found() -> list[tuple[object, ...]]:
        return rows(session.read.format("delta").load(str(table_path)))

    write(None, 0)
    for mode in (None, "error", "errorifexists"):
        with pytest.raises(TableAlreadyExistsError):
            write(mode, 5)
    write("ignore", 5)
    assert found() == [(0,), (1,)]
    write("append", 5)
    assert found() == [(0,), (1,), (5,), (6,)]
    write("overwrite", 9)
    assert found() == [(9,), (10,)]
    operations = [info.operation for info in DeltaLog.for_table(table_path).history()]
    assert len(operations) == 3
    old = session.read.format("delta").option("versionAsOf", 1).load(str(table_path))
    assert rows(old) == [(0,), (1,), (5,), (6,)]


def test_parameters_of_save_and_load_count_as_options(
    session: SparkSession, table_path: Path
) -> None:
    frame = session.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.save(str(table_path), format="delta", mode="append", partitionBy="p")
    frame.write.save(format="delta", mode="append", path=str(table_path))
    assert session.read.load(str(table_path), format="delta", versionAsOf=0).count() == 4
    assert session.read.option("path", str(table_path)).format("delta").load().count() == 8


def test_a_new_session_is_not_enabled_by_another(session: SparkSession, table_path: Path) -> None:
    session.range(1).write.format("delta").save(str(table_path))
    other = session.newSession()
    enable(other)
    assert other.read.format("delta").load(str(table_path)).count() == 1
    disable(other)
    assert session.read.format("delta").load(str(table_path)).count() == 1
