"""Hooks that follow commits of rows: which are due, and when they run.  No JVM."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.files import stage
from pyspark_delta.spark.files.stage import WriteHook, add_write_hook, due_hooks, run_hooks
from pyspark_delta.spark.maintenance.compaction import compact_after_writes
from tests.support.transactions import TABLE, add

METADATA = Metadata(id="1", created_time=0)
SESSION = cast(SparkSession, None)


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_HOOKS", {})


def hook(name: str, ran: list[Any], *, is_due: bool = True) -> WriteHook:
    return WriteHook(
        name=name,
        is_due=lambda metadata, conf: is_due,
        run=lambda spark, log, added, conf: ran.append((name, [file.path for file in added])),
    )


def test_hooks_that_are_due_run_in_their_order_once_files_were_added() -> None:
    ran: list[Any] = []
    for name, is_due in [("b", True), ("a", True), ("c", False), ("b", True)]:
        add_write_hook(hook(name, ran, is_due=is_due))
    due = due_hooks(METADATA, {}.get)
    assert [each.name for each in due] == ["b", "a"]
    log = DeltaLog(MemoryStore(None, TABLE))
    run_hooks(due, SESSION, log, [], {}.get)
    assert ran == []
    run_hooks(due, SESSION, log, [add("x.parquet")], {}.get)
    assert ran == [("b", ["x.parquet"]), ("a", ["x.parquet"])]


def test_auto_compaction_is_one_hook_however_often_it_is_registered() -> None:
    compact_after_writes()
    compact_after_writes()
    enabled = "spark.databricks.delta.autoCompact.enabled"
    assert due_hooks(METADATA, {}.get) == ()
    assert [each.name for each in due_hooks(METADATA, {enabled: "true"}.get)] == ["auto compaction"]
    with pytest.raises(PropertyError):  # before a job, while nothing is written
        due_hooks(METADATA, {enabled: "yes"}.get)
