"""Beyond delta-spark: what a conversion would do, files that came after it, a bar to look at."""

from __future__ import annotations

import os
import pty
import sys
import termios
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_delta import (
    ConcurrentAppendException,
    ConvertReport,
    ConvertToDeltaCommand,
    DeltaTable,
    enable,
)
from pyspark_delta.errors import DeltaError
from pyspark_delta.spark.conf.progress import progress
from pyspark_delta.spark.convert.target import resolve_convert_target
from tests.support.parquet_tables import parquet_file, tree
from tests.support.spark_tables import SparkTable, conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(enable(spark), table_path)


def name(table: SparkTable) -> str:
    return f"parquet.`{table.path}`"


def dry(
    table: SparkTable, schema: str | None = None, *, incremental: bool = False
) -> ConvertReport:
    before = tree(table.path.parent)
    report = DeltaTable.convertToDelta(
        table.spark, name(table), schema, dry_run=True, incremental=incremental
    )
    assert tree(table.path.parent) == before
    return report


def test_a_dry_run_tells_what_would_be_converted(table: SparkTable) -> None:
    parquet_file(table.path / "p=1" / "1.parquet", id=[1], s=["a"])
    parquet_file(table.path / "p=2" / "2.parquet", id=[2])
    report = dry(table, "p INT")
    assert (report.files, report.skipped, report.problems) == (2, 0, ())
    assert report.bytes == sum(each.stat().st_size for each in table.path.rglob("*.parquet"))
    assert report.schema is not None
    assert report.schema.simpleString() == "struct<id:bigint,s:string,p:int>"
    assert report.partition_columns == ("p",)
    assert report.paths == ("p=1/1.parquet", "p=2/2.parquet")
    assert report.can_convert
    assert not report.is_delta
    assert "files: 2" in str(report)
    assert "<th>columns</th><td>id bigint, s string, p int</td>" in report._repr_html_()
    DeltaTable.convertToDelta(table.spark, name(table), "p INT")
    assert dry(table).is_delta
    assert dry(table).files == 0


def test_a_dry_run_collects_problems(table: SparkTable) -> None:
    parquet_file(table.path / "p=1" / "1.parquet", id=[1])
    parquet_file(table.path / "p=x" / "1.parquet", id=["<b>"])
    parquet_file(table.path / "1.parquet", id=[1])
    report = dry(table, "p INT")
    assert not report.can_convert
    assert {problem.condition for problem in report.problems} == {
        "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME",
        "DELTA_FAILED_CAST_PARTITION_VALUE",
        "DELTA_FAILED_TO_MERGE_FIELDS",
    }
    assert report.files == 3
    assert report.schema is None
    assert str(report).count("problem: ") == 3
    assert "<b>" not in report._repr_html_()


def test_a_dry_run_of_nothing_says_so(table: SparkTable) -> None:
    assert [each.condition for each in dry(table).problems] == ["DELTA_PATH_DOES_NOT_EXIST"]
    table.path.mkdir()
    assert [each.condition for each in dry(table).problems] == ["DELTA_EMPTY_DIRECTORY"]
    default = {"spark__databricks__delta__properties__defaults__columnMapping__mode": "name"}
    parquet_file(table.path / "1.parquet", id=[1])
    with conf(table.spark, **default):
        problems = dry(table).problems
    assert [each.condition for each in problems] == ["DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING"]


def adopt(table: SparkTable, schema: str | None = None) -> None:
    DeltaTable.convertToDelta(table.spark, name(table), schema, incremental=True)


def test_files_that_came_later_enter_the_table(table: SparkTable) -> None:
    parquet_file(table.path / "p=1" / "1.parquet", id=[1])
    adopt(table, "p INT")  # nothing is there yet: a conversion like any other
    assert table.log.update().version == 0
    parquet_file(table.path / "p=1" / "ä 2.parquet", id=[2])
    parquet_file(table.path / "p=3" / "3.parquet", id=pa.array([3], pa.int64()))
    (table.path / "deletion_vector_1.bin").write_bytes(b"\x01none")
    report = dry(table, incremental=True)
    assert (report.files, report.is_delta, report.problems) == (2, True, ())
    assert report.paths == ("p=1/ä 2.parquet", "p=3/3.parquet")
    adopt(table)
    assert table.log.update().version == 1
    assert table.rows == [(1, 1), (2, 1), (3, 3)]
    assert table.info.operation == "CONVERT"
    assert table.parameters["numFiles"] == 2
    assert table.metrics == {"numConvertedFiles": 2}
    assert table.info.is_blind_append is False
    adopt(table)  # nothing new
    assert table.log.update().version == 1
    assert dry(table, incremental=True).files == 0


def test_removed_files_do_not_come_back(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    adopt(table)
    table.write(table.data("id long", (5,)), "overwrite")
    adopt(table)
    assert table.log.update().version == 1
    parquet_file(table.path / "2.parquet", id=[2])
    DeltaTable.convertToDelta(table.spark, f"delta.`{table.path}`", incremental=True)
    assert table.rows == [(2,), (5,)]


def test_whoever_adopts_the_same_files_meanwhile_wins(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    adopt(table)
    parquet_file(table.path / "2.parquet", id=[2])
    command = ConvertToDeltaCommand(name(table), incremental=True)
    target = resolve_convert_target(table.spark, ("parquet", str(table.path)))
    txn = table.log.start_transaction()
    adopt(table)
    with pytest.raises(ConcurrentAppendException):
        command.perform_convert(
            table.spark, txn, target, command.get_target_table(table.spark, target)
        )
    assert table.rows == [(1,), (2,)]


def test_files_that_do_not_fit_are_refused(table: SparkTable) -> None:
    parquet_file(table.path / "p=1" / "1.parquet", id=[1])
    adopt(table, "p INT")
    with table.refused("DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER"):
        adopt(table, "p STRING")
    stray = table.path / "2.parquet"
    parquet_file(stray, id=[2])
    with table.refused("DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"):
        adopt(table)
    stray.unlink()
    stray = table.path / "p=1" / "3.parquet"
    parquet_file(stray, id=["three"])
    with table.refused("DELTA_FAILED_TO_MERGE_FIELDS"):
        adopt(table)
    parquet_file(stray, id=[3], more=["m"])
    with table.refused("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        adopt(table)
    with conf(table.spark, spark__databricks__delta__schema__autoMerge__enabled="true"):
        adopt(table)
    rows = table.read().select("id", "p", "more").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, 1, None), (3, 1, "m")]


@pytest.mark.parametrize(
    ("columns", "condition"),
    [
        ("id BIGINT NOT NULL", "DELTA_OPERATION_NOT_ALLOWED"),
        ("id BIGINT, two BIGINT GENERATED ALWAYS AS (id * 2)", "DELTA_OPERATION_NOT_ALLOWED"),
        ("id BIGINT GENERATED BY DEFAULT AS IDENTITY", "DELTA_OPERATION_NOT_ALLOWED"),
        (
            "id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name'",
            "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING",
        ),
    ],
)
def test_rows_that_nobody_checked_stay_out_of_a_table_with_rules(
    table: SparkTable, columns: str, condition: str
) -> None:
    using = "" if "USING" in columns else " USING delta"
    table.spark.sql(f"CREATE TABLE delta.`{table.path}` ({columns}){using}")
    parquet_file(table.path / "1.parquet", id=[1])
    with table.refused(condition):
        adopt(table)


def test_nothing_can_be_adopted_where_no_delta_table_is(table: SparkTable) -> None:
    parquet_file(table.path / "1.parquet", id=[1])
    before = tree(table.path)
    with pytest.raises(DeltaError) as error:
        DeltaTable.convertToDelta(table.spark, f"delta.`{table.path}`", incremental=True)
    assert error.value.condition == "DELTA_TABLE_NOT_FOUND"
    assert tree(table.path) == before


def test_a_bar_shows_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with progress() as silent:
        silent("listing", 3, None)
        silent("footers", 3, 3)
    assert capfd.readouterr() == ("", "")
    terminal, end = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    shown: list[bytes] = []

    def watch() -> None:
        try:
            while part := os.read(terminal, 4096):
                shown.append(part)
        except OSError:
            return  # the other end is closed

    watcher = Thread(target=watch)
    watcher.start()
    with os.fdopen(end, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with progress() as bar:
            bar("listing", 10, None)
            bar("footers", 5, 10)
            bar("footers", 10, 10)
            bar("actions", 10, 10)
        monkeypatch.undo()
    watcher.join(10)
    os.close(terminal)
    text = b"".join(shown).decode()
    for stage in ("Listing files", "Reading footers", "Committing"):
        assert stage in text
    assert "10/10" in text
