"""Files picked out of a table are read as if they were all it has, with no log behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, add_table
from pyspark_delta.kernel.log.table_files import ChosenFiles
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import INTEGER, StructField
from pyspark_delta.kernel.scan.arrow_reader import read_planned
from pyspark_delta.kernel.scan.plan import plan_scan
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.log_builder import add
from tests.support.tables import append, create_table, delete_positions, write_files

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def rows(start: int, end: int, p: str | None) -> pa.Table:
    return pa.table({"id": list(range(start, end)), "p": [p] * (end - start)}, schema=SCHEMA)


def three_files(path: Path, **configuration: str) -> DeltaLog:
    """0-9 in partition `a b`, 10-19 in `ü%`, 20-29 in none."""
    log = create_table(path, SCHEMA, partition_by=["p"], configuration=configuration)
    for number, p in enumerate(("a b", "ü%", None)):
        append(log, rows(10 * number, 10 * number + 10, p))
    return log


def chosen(log: DeltaLog, files: pa.Table, metadata: Metadata | None = None) -> ChosenFiles:
    snapshot = log.update()
    return ChosenFiles(
        log.store, files, protocol=snapshot.protocol, metadata=metadata or snapshot.metadata
    )


def ids(files: ChosenFiles, condition: str | None = None) -> list[int]:
    return sorted(row["id"] for row in read(files, ["id"], condition))


def read(files: ChosenFiles, columns: list[str], condition: str | None) -> list[dict[str, Any]]:
    batches = read_planned(plan_scan(files, columns, condition), files.store)
    return [row for batch in batches for row in batch.to_pylist()]


def test_they_are_all_that_is_read(table_path: Path) -> None:
    log = three_files(table_path)
    files = log.update().files
    directories = pc.starts_with(files.column("path"), "p=%C3%BC%2525/")
    two = chosen(log, files.filter(pc.invert(directories)))
    assert two.num_files == 2
    assert two.size_in_bytes == sum(two.files.column("size").to_pylist())
    assert two.files_with(["path"]).column_names == ["path"]
    assert ids(two) == [*range(10), *range(20, 30)]
    assert log.update().num_files == 3


def test_partitions_and_statistics_choose_among_them(table_path: Path) -> None:
    log = three_files(table_path)
    every = chosen(log, log.update().files)
    assert ids(every, "p = 'ü%'") == list(range(10, 20))
    assert plan_scan(every, None, "id > 25").files.num_rows == 1
    assert ids(every, "id > 25") == [26, 27, 28, 29]


def test_deleted_rows_stay_deleted(table_path: Path) -> None:
    log = three_files(table_path, **{"delta.enableDeletionVectors": "true"})
    delete_positions(log, lambda file: [0, 9])
    assert ids(chosen(log, log.update().files)) == [i for i in range(30) if i % 10 not in (0, 9)]


def test_files_that_no_version_has_yet_are_read_under_a_definition_of_their_own(
    table_path: Path,
) -> None:
    log = three_files(table_path)
    before = log.update()
    wider = before.schema.add(StructField("more", INTEGER))
    metadata = replace(before.metadata, schema_string=format_schema(wider))
    data = rows(100, 102, "neu").append_column("more", pa.array([7, None], pa.int32()))
    written = write_files(log.store, metadata, data, now_ms=0)
    files = pa.concat_tables([before.files, add_table(written)])
    both = chosen(log, files, metadata)
    found = read(both, ["id", "more"], "id >= 29")
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 29, "more": None},
        {"id": 100, "more": 7},
        {"id": 101, "more": None},
    ]
    assert both.schema.names == ("id", "p", "more")
    assert log.update().version == before.version


def test_they_are_of_no_version_and_there_may_be_none(table_path: Path) -> None:
    log = three_files(table_path)
    none = chosen(log, ADD_SCHEMA.empty_table())
    assert (none.version, none.num_files, none.size_in_bytes) == (-1, 0, 0)
    assert ids(none) == []
    assert none.metadata.id == log.update().metadata.id
    lost = chosen(log, add_table([add("p=a%20b/lost.parquet", partition_values={"p": "a b"})]))
    assert lost.num_files == 1
    assert plan_scan(lost, None, "p = 'x'").files.num_rows == 0
