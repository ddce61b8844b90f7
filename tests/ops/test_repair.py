"""Repair: what is gone from storage leaves the table, and nothing else."""

from __future__ import annotations

from pyspark_delta.kernel.ops.repair import run_repair
from pyspark_delta.kernel.protocol.actions import RemoveFile
from pyspark_delta.kernel.scan.locations import Locations
from tests.support.transactions import add, live_paths, memory_log, new_table


def test_only_files_that_are_gone_leave_the_table() -> None:
    log = new_table(actions=[add("a%20b"), add("c"), add("d")])
    for path in ("a b", "d"):
        log.store.create(path, b"x")
    places = Locations(log.store)
    assert run_repair(log.start_transaction(), places, dry_run=True) == ["c"]
    assert log.update().version == 1
    assert run_repair(log.start_transaction(), places) == ["c"]
    assert live_paths(log) == ["a%20b", "d"]
    ((_, actions),) = log.get_changes(2)
    (removed,) = (action for action in actions if isinstance(action, RemoveFile))
    assert (removed.path, removed.data_change) == ("c", True)
    info = log.history(1)[0]
    assert (info.operation, info.operation_metrics) == ("FSCK", {"numRemovedFiles": "1"})
    assert run_repair(log.start_transaction(), places) == []
    assert log.update().version == 2
    assert run_repair(memory_log().start_transaction(), places) == []
