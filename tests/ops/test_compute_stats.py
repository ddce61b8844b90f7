"""Statistics collected again from footers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.features.row_tracking import prepare_row_tracking
from pyspark_delta.kernel.ops.footers.stats import run_compute_stats
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.tables import append, delete_positions, new_table, set_properties

ROWS = pa.table({"id": pa.array([3, 1, 2], pa.int64()), "v": ["a", None, "c"]})


def stats_of(log: DeltaLog) -> list[dict[str, object]]:
    """The statistics of the live files, by their paths."""
    files = sorted(add_files(log.update().files), key=lambda file: file.path)
    return [json.loads(file.stats or "{}") for file in files]


def without_stats(log: DeltaLog) -> None:
    """Take the statistics of every file away."""
    txn = log.start_transaction()
    bare = [replace(f, stats=None, data_change=False) for f in add_files(log.update().files)]
    txn.commit(bare, "COMPUTE STATS")


def test_files_without_statistics_get_them_from_their_footers(table_path: Path) -> None:
    log = new_table(table_path, ROWS)
    append(log, ROWS)
    without_stats(log)
    version = run_compute_stats(log)
    assert version == log.update().version
    expected = {
        "numRecords": 3,
        "minValues": {"id": 1, "v": "a"},
        "maxValues": {"id": 3, "v": "c"},
        "nullCount": {"id": 0, "v": 1},
    }
    assert stats_of(log) == [expected, expected]
    info = log.history(1)[0]
    assert info.operation == "COMPUTE STATS"
    assert info.data_change is False
    assert run_compute_stats(log) is None


def test_nulls_of_collections_are_counted(table_path: Path) -> None:
    a = pa.array([[None], None, []], pa.list_(pa.int64()))
    log = new_table(table_path, pa.table({"id": pa.array([1, 2, 3], pa.int64()), "a": a}))
    without_stats(log)
    run_compute_stats(log)
    assert [stats["nullCount"] for stats in stats_of(log)] == [{"id": 0, "a": 1}]


def test_other_columns_can_be_asked_for(table_path: Path) -> None:
    log = new_table(table_path, ROWS)
    set_properties(log, {"delta.dataSkippingStatsColumns": "v"})
    run_compute_stats(log)
    assert stats_of(log) == [
        {
            "numRecords": 3,
            "minValues": {"v": "a"},
            "maxValues": {"v": "c"},
            "nullCount": {"v": 1},
        }
    ]


def test_bounds_beside_a_vector_are_not_tight(table_path: Path) -> None:
    log = new_table(table_path, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    delete_positions(log, lambda file: [0])
    without = replace(next(iter(add_files(log.update().files))), stats='{"numRecords":3}')
    log.start_transaction().commit([replace(without, data_change=False)], "COMPUTE STATS")
    run_compute_stats(log)
    (found,) = stats_of(log)
    assert (found["tightBounds"], found["maxValues"]) == (False, {"id": 3, "v": "c"})


def test_a_file_that_is_gone_stops_it(table_path: Path) -> None:
    log = new_table(table_path, ROWS)
    without_stats(log)
    (file,) = add_files(log.update().files)
    (table_path / file.path).unlink()
    version = log.update().version
    with pytest.raises(DataFileError):
        run_compute_stats(log)
    assert log.update().version == version


def test_rows_are_numbered_although_the_log_does_not_count_them(table_path: Path) -> None:
    log = new_table(table_path, ROWS)
    append(log, ROWS)
    without_stats(log)
    prepare_row_tracking(log, {"delta.enableRowTracking": "true"})
    assert sorted(log.update().files.column("baseRowId").to_pylist()) == [0, 3]
    assert stats_of(log) == [{"numRecords": 3}] * 2
