"""Repair: what is gone from storage leaves the table, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.kernel.ops.vacuum.missing_files import UnreadableFile, run_repair
from pyspark_delta.kernel.protocol.actions import RemoveFile
from pyspark_delta.kernel.scan.locations import Locations
from tests.support.tables import append, delete_positions
from tests.support.tables import new_table as table_with_rows
from tests.support.transactions import add, live_paths, memory_log, new_table


def test_only_files_that_are_gone_leave_the_table() -> None:
    log = new_table(actions=[add("a%20b"), add("c"), add("d")])
    for path in ("a b", "d"):
        log.store.create(path, b"x")
    places = Locations(log.store)
    (found,) = run_repair(log.start_transaction(), places, dry_run=True)
    assert (found.path, found.reason, found.is_removed) == ("c", "data file missing", False)
    assert log.update().version == 1
    (found,) = run_repair(log.start_transaction(), places)
    assert (found.path, found.is_removed) == ("c", True)
    assert live_paths(log) == ["a%20b", "d"]
    ((_, actions),) = log.get_changes(2)
    (removed,) = (action for action in actions if isinstance(action, RemoveFile))
    assert (removed.path, removed.data_change) == ("c", True)
    info = log.history(1)[0]
    assert (info.operation, info.operation_metrics) == ("FSCK", {"numRemovedFiles": "1"})
    assert run_repair(log.start_transaction(), places) == []
    assert log.update().version == 2
    assert run_repair(memory_log().start_transaction(), places) == []


def test_live_rows_are_not_dropped_for_a_missing_vector_unless_that_is_requested(
    table_path: Path,
) -> None:
    def ids(first: int, last: int) -> pa.Table:
        return pa.table({"id": pa.array(range(first, last), pa.int64())})

    vectors = {"delta.enableDeletionVectors": "true"}
    log = table_with_rows(table_path, ids(0, 1000), configuration=vectors)
    (marked,) = live_paths(log)
    delete_positions(log, lambda _: range(334))
    append(log, ids(1000, 1005))
    append(log, ids(2000, 2003), with_stats=False)
    lost = [path for path in live_paths(log) if path != marked]
    for path in (*lost, *table_path.rglob("*.bin")):
        (table_path / path).unlink()
    places = Locations(log.store)
    with pytest.raises(OperationNotAllowedError) as refused:
        run_repair(log.start_transaction(), places)
    assert refused.value.condition == "DELTA_REPAIR_WOULD_DROP_ROWS"
    assert refused.value.parameters == {"numFiles": "1", "numRows": "666", "path": marked}
    assert log.update().version == 4
    told = run_repair(log.start_transaction(), places, dry_run=True)
    assert {(each.path == marked, each.reason, each.num_rows) for each in told} == {
        (True, "deletion vector missing", 666),
        (False, "data file missing", 5),
        (False, "data file missing", None),
    }
    assert not any(each.is_removed for each in told)
    found = run_repair(log.start_transaction(), places, drop_rows_with_missing_vectors=False)
    assert {each.path: each.is_removed for each in found} == {
        marked: False,
        **dict.fromkeys(lost, True),
    }
    assert live_paths(log) == [marked]
    assert run_repair(log.start_transaction(), places, drop_rows_with_missing_vectors=True) == [
        UnreadableFile(path=marked, reason="deletion vector missing", num_rows=666, is_removed=True)
    ]
    assert live_paths(log) == []
