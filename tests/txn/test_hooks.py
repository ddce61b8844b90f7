"""After a commit: checkpoints and checksums come by themselves and never get in its way."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyspark_delta.kernel.log.checksum import VersionChecksum, read_checksum, write_checksum
from pyspark_delta.kernel.log.last_checkpoint import read_last_checkpoint
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import (
    CommitEvent,
    Hook,
    HookRunner,
    compaction_hook,
    default_hooks,
)
from tests.support.clock import START_MS, FrozenClock
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.hooks import InlineRunner
from tests.support.transactions import (
    TABLE,
    add,
    live_paths,
    memory_log,
    metadata,
    new_table,
    remove,
)

LOG = "_delta_log"


def names(log: DeltaLog, suffix: str) -> list[int]:
    """The versions that have a file of that kind."""
    return [
        int(info.path.removeprefix(f"{LOG}/")[:20])
        for info in log.store.list_from(f"{LOG}/0")
        if info.path.endswith(suffix)
    ]


def append(log: DeltaLog, count: int) -> None:
    start = log.update().version
    for number in range(start, start + count):
        log.start_transaction().commit([add(f"file-{number}")], "WRITE")


def test_a_checkpoint_follows_every_tenth_commit() -> None:
    log = new_table(log=memory_log(hooks=InlineRunner()))
    append(log, 25)
    assert names(log, ".checkpoint.parquet") == [10, 20]
    hint = read_last_checkpoint(log.store)
    assert hint is not None
    assert hint.version == 20
    fresh = memory_log(log.store)
    assert fresh.snapshot.num_files == 25
    assert fresh.snapshot.segment.checkpoint is not None
    assert fresh.snapshot.segment.checkpoint.version == 20


def test_the_interval_between_checkpoints_is_the_tables_own() -> None:
    log = new_table(
        configuration={"delta.checkpointInterval": "3"}, log=memory_log(hooks=InlineRunner())
    )
    append(log, 7)
    assert names(log, ".checkpoint.parquet") == [3, 6]


def test_every_version_has_a_checksum_that_agrees_with_the_log() -> None:
    log = new_table(log=memory_log(hooks=InlineRunner()))
    append(log, 12)
    log.start_transaction().commit([remove("file-3"), add("new", size=7)], "DELETE")
    assert names(log, ".crc") == list(range(14))
    checksum = read_checksum(log.store, 13)
    assert checksum is not None
    assert checksum.num_files == log.snapshot.num_files == 12
    assert checksum.table_size_bytes == log.snapshot.size_in_bytes
    assert checksum.metadata == log.snapshot.metadata


def test_a_checksum_goes_on_from_an_older_one_over_the_commits_of_others() -> None:
    store = MemoryStore(None, TABLE)
    log = new_table(log=memory_log(store, hooks=InlineRunner()))
    append(memory_log(store), 5)  # no hooks
    append(log, 1)
    assert names(log, ".crc") == [0, 6]
    checksum = read_checksum(store, 6)
    assert checksum is not None
    assert checksum.num_files == 6


def test_a_checkpoint_brings_back_a_checksum_that_was_lost() -> None:
    store = MemoryStore(None, TABLE)
    new_table(log=memory_log(store))
    append(memory_log(store), 9)
    append(memory_log(store, hooks=InlineRunner()), 2)
    assert names(memory_log(store), ".crc") == [10, 11]


def test_an_operation_that_adds_files_again_does_not_spoil_the_checksum() -> None:
    log = new_table(actions=[add("a")], log=memory_log(hooks=InlineRunner()))
    log.start_transaction().commit([add("a", data_change=False)], "COMPUTE STATS")
    assert names(log, ".crc") == [0, 1]
    append(log, 10)
    checksum = read_checksum(log.store, 10)
    assert checksum is not None
    assert checksum.num_files == log.snapshot_at(10).num_files


def test_a_checksum_that_is_wrong_holds_up_one_checkpoint_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore(None, TABLE)
    new_table(log=memory_log(store))
    append(memory_log(store), 4)
    true = memory_log(store, hooks=InlineRunner())
    wrong = VersionChecksum(
        table_size_bytes=400,
        num_files=5,
        metadata=true.snapshot.metadata,
        protocol=true.snapshot.protocol,
        set_transactions=(),
        domain_metadata=(),
    )
    write_checksum(store, 4, wrong)
    with caplog.at_level(logging.WARNING):
        append(true, 20)
    assert "the checkpoint" in caplog.text
    assert names(true, ".checkpoint.parquet") == [20]
    checksum = read_checksum(store, 24)
    assert checksum is not None
    assert checksum.num_files == true.snapshot.num_files == 24


@pytest.mark.parametrize("pattern", ["*.crc", "*checkpoint*", "*_last_checkpoint"])
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER])
def test_a_hook_that_fails_does_not_fail_the_commit(
    pattern: str, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [FaultRule(operation="*", path=pattern, fault=fault, times=1000)]
    store = FaultStore(MemoryStore(None, TABLE), rules)
    log = new_table(log=memory_log(store, hooks=InlineRunner()))
    with caplog.at_level(logging.WARNING):
        append(log, 11)
    assert log.snapshot.version == 11
    assert "DELTA_POST_COMMIT_HOOK_FAILED" in caplog.text
    fresh = memory_log(store.inner)
    assert len(live_paths(fresh)) == 11


def test_a_runner_that_fails_does_not_fail_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(InlineRunner):
        def submit(self, event: CommitEvent) -> None:
            raise RuntimeError("no thread to be had")

    with caplog.at_level(logging.WARNING):
        log = new_table(actions=[add("a")], log=memory_log(hooks=Broken()))
    assert live_paths(log) == ["a"]
    assert "no thread to be had" in caplog.text


def test_a_hook_that_fails_says_which_version_stands(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: CommitEvent) -> None:
        raise RuntimeError("no luck")

    hooks = InlineRunner((Hook("trial", lambda event: True, fail),))
    with caplog.at_level(logging.WARNING):
        new_table(log=memory_log(hooks=hooks))
    assert "Version 0 is committed, but the trial" in caplog.text
    assert "no luck" in caplog.text


def test_expired_log_files_go_after_a_checkpoint() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock, hooks=InlineRunner()))
    append(log, 15)
    clock.advance(days=40)
    append(log, 5)
    assert names(log, ".json")[0] == 10
    assert names(log, ".checkpoint.parquet") == [10, 20]
    assert log.snapshot.num_files == memory_log(log.store, clock=clock).snapshot.num_files == 20


def test_expired_log_files_stay_where_the_table_wants_them() -> None:
    clock = FrozenClock()
    log = new_table(
        configuration={"delta.enableExpiredLogCleanup": "false"},
        log=memory_log(clock=clock, hooks=InlineRunner()),
    )
    append(log, 15)
    clock.advance(days=40)
    append(log, 5)
    assert names(log, ".json")[0] == 0


def test_log_compaction_is_there_for_those_who_ask() -> None:
    log = new_table(log=memory_log(hooks=InlineRunner((*default_hooks(), compaction_hook(4)))))
    append(log, 8)
    found = [info.path for info in log.store.list_from(f"{LOG}/0") if "compacted" in info.path]
    assert [path.split("/")[1][:41] for path in found] == [
        f"{0:020d}.{3:020d}",
        f"{4:020d}.{7:020d}",
    ]
    assert memory_log(log.store).snapshot.num_files == 8


def test_a_checkpoint_keeps_the_files_that_were_removed_lately() -> None:
    log = new_table(log=memory_log(hooks=InlineRunner()))
    append(log, 8)
    gone = [add(f"file-{n}").remove(deletion_timestamp=START_MS) for n in range(2)]
    log.start_transaction().commit([*gone, remove("file-2")], "DELETE")
    append(log, 1)
    fresh = memory_log(log.store)
    assert fresh.snapshot.segment.checkpoint is not None
    assert live_paths(fresh) == live_paths(log)
    assert sorted(fresh.snapshot.tombstones(["path"]).column("path").to_pylist()) == [
        "file-0",
        "file-1",
    ]


# In the background.


def test_hooks_in_the_background_do_the_same() -> None:
    log = new_table(log=memory_log(hooks=HookRunner()))
    append(log, 25)
    assert log.wait_for_hooks(30)
    assert names(log, ".crc") == list(range(26))
    assert 20 in names(log, ".checkpoint.parquet")
    assert memory_log(log.store).snapshot.num_files == 25


def test_a_commit_does_not_wait_for_its_hooks() -> None:
    release = threading.Event()
    seen: list[int] = []

    def wait(event: CommitEvent) -> None:
        release.wait(30)
        seen.append(event.version)

    runner = HookRunner((Hook("slow", lambda event: True, wait),))
    log = new_table(log=memory_log(hooks=runner))
    append(log, 5)
    assert seen == []
    assert not log.wait_for_hooks(0.01)
    release.set()
    assert log.wait_for_hooks(30)
    assert seen == list(range(6))


def test_a_commit_waits_for_its_own_hooks_where_the_log_says_so() -> None:
    release = threading.Event()
    seen: list[int] = []

    def wait(event: CommitEvent) -> None:
        if event.version > 1:
            release.wait(30)
        seen.append(event.version)

    runner = HookRunner((Hook("slow", lambda event: True, wait),))
    log = memory_log(hooks=runner)
    log.hook_seconds = 30
    new_table(log=log)
    assert seen == [0]
    append(log, 1)
    assert seen == [0, 1]
    log.hook_seconds = 0.01  # but not for ever
    append(log, 2)
    assert seen == [0, 1]
    release.set()
    assert log.wait_for_hooks(30)
    assert seen == [0, 1, 2, 3]


def test_a_hook_that_commits_does_not_wait_for_itself() -> None:
    def commit(event: CommitEvent) -> None:
        if event.version == 1:
            append(log, 1)

    runner = HookRunner((Hook("committing", lambda event: True, commit),))
    log = memory_log(hooks=runner)
    log.hook_seconds = 3600
    new_table(log=log)
    append(log, 1)
    assert log.update().version == 2


def test_only_the_newest_of_several_waiting_checkpoints_is_written() -> None:
    release, started = threading.Event(), threading.Event()
    seen: list[int] = []

    def wait(event: CommitEvent) -> None:
        started.set()
        release.wait(30)

    def note(event: CommitEvent) -> None:
        seen.append(event.version)

    runner = HookRunner(
        (
            Hook("slow", lambda event: event.version == 0, wait),
            Hook("checkpoint", lambda event: event.version % 2 == 0, note, newest_only=True),
        )
    )
    log = new_table(log=memory_log(hooks=runner))
    assert started.wait(30)
    append(log, 5)
    release.set()
    assert log.wait_for_hooks(30)
    assert seen == [4]


def test_what_follows_a_checkpoint_does_not_wait_for_a_quiet_moment() -> None:
    # With commits faster than checkpoints, each found a newer one due when it was the turn of its
    # clean-up: the log of a busy table only grew.
    seen: list[tuple[str, int]] = []

    def checkpoint(event: CommitEvent) -> None:
        seen.append(("checkpoint", event.version))
        if event.version < 4:
            append(log, 1)  # due before this one is done

    def clean(event: CommitEvent) -> None:
        seen.append(("clean-up", event.version))

    runner = HookRunner(
        (
            Hook("checkpoint", lambda event: event.version > 0, checkpoint, newest_only=True),
            Hook("log clean-up", lambda event: event.version > 0, clean, newest_only=True),
        )
    )
    log = new_table(log=memory_log(hooks=runner))
    append(log, 1)
    assert log.wait_for_hooks(30)
    assert seen == [
        (name, version) for version in range(1, 5) for name in ("checkpoint", "clean-up")
    ]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_hooks_of_its_own(table_path: Path) -> None:
    runner = HookRunner()
    log = new_table(log=memory_log(LocalStore(table_path, fsync=False), hooks=runner))
    append(log, 3)
    assert log.wait_for_hooks(30)
    child = multiprocessing.get_context("fork").Process(target=_append_and_wait, args=(log,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert log.update().version == 7
    assert names(log, ".crc") == list(range(8))


def _append_and_wait(log: DeltaLog) -> None:
    append(log, 4)
    assert log.wait_for_hooks(30)


_SCRIPT = """
import sys
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.txn.delta_log import DeltaLog

log = DeltaLog.for_table(sys.argv[1], fsync=False)
txn = log.start_transaction()
txn.update_metadata(Metadata(id="t"))
txn.commit([], "CREATE TABLE")
for _ in range(10):
    log.start_transaction().commit([], "WRITE")
"""


def test_a_process_that_ends_finishes_its_hooks(table_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT, os.fspath(table_path)], check=True, timeout=60)
    found = {path.name for path in (table_path / LOG).iterdir()}
    assert f"{10:020d}.checkpoint.parquet" in found
    assert f"{10:020d}.crc" in found


def test_a_version_that_was_overtaken_still_gets_its_checkpoint() -> None:
    store = MemoryStore(None, TABLE)
    log = new_table(log=memory_log(store, hooks=InlineRunner()))
    append(log, 9)

    class Overtaken(DeltaLog):
        """A log that sees another commit before it sees its own."""

        def advance(self, version: int, data: bytes):  # type: ignore[no-untyped-def]
            memory_log(store).start_transaction().commit([add("theirs")], "WRITE")
            return super().update()

    late = Overtaken(store, now_ms=log.now_ms, hooks=InlineRunner())
    late.start_transaction().commit([add("mine")], "WRITE")
    assert names(log, ".checkpoint.parquet") == [10]
    assert memory_log(store).snapshot_at(10).num_files == 10
    assert memory_log(store).snapshot.num_files == 11


def test_a_metadata_only_table_has_checkpoints_too() -> None:
    log = new_table(log=memory_log(hooks=InlineRunner()))
    for number in range(10):
        log.start_transaction().commit([metadata(description=str(number))], "WRITE")
    assert memory_log(log.store).snapshot.metadata.description == "9"
    assert names(log, ".checkpoint.parquet") == [10]
