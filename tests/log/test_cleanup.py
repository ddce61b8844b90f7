"""Expired log files go, and only they: what can be read after a cleanup, and after half of one."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import StorageError, VersionNotFoundError
from pyspark_delta.kernel.log.checksum import checksum_of, write_checksum
from pyspark_delta.kernel.log.cleanup import (
    cutoff_version,
    kept_candidates,
    midnight_utc,
    plan_cleanup,
    plan_sidecar_cleanup,
    run_cleanup,
)
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import CommitInfo, Metadata, Protocol
from pyspark_delta.kernel.protocol.paths import (
    checksum_path,
    classic_checkpoint_path,
    commit_path,
    compacted_path,
    multipart_checkpoint_path,
    uuid_checkpoint_path,
)
from pyspark_delta.kernel.storage.base import FileInfo, LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.checkpoints import checkpoint, counted_uuids, read_parquet, rows_of, state_of
from tests.support.clock import START_MS, FrozenClock
from tests.support.faulty import Crashed, Fault, FaultRule, FaultStore
from tests.support.log_builder import LogBuilder, add, metadata

DAY_MS = 86_400_000
SHORT = {"delta.logRetentionDuration": "interval 3 days"}
V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint",),
    writer_features=("v2Checkpoint",),
)


def table(**more: str) -> Metadata:
    return metadata(configuration={**SHORT, **more})


def daily_log(
    store: LogStore, clock: FrozenClock, versions: int, description: Metadata, *actions: Any
) -> LogBuilder:
    """A commit a day, an hour after midnight."""
    clock.advance(hours=1)
    protocol = V2 if "delta.checkpointPolicy" in description.configuration else Protocol()
    builder = LogBuilder(store).create(*actions, protocol=protocol, metadata_action=description)
    for version in range(1, versions):
        clock.advance(days=1)
        builder.commit(add(f"f{version}"))
    return builder


def clean(store: LogStore, clock: FrozenClock, description: Metadata, **more: Any) -> list[str]:
    protocol = more.pop("protocol", Protocol())
    paths = run_cleanup(store, protocol, description, now_ms=clock())
    return [path.removeprefix("_delta_log/") for path in paths]


def names(store: LogStore) -> list[str]:
    return [info.path.removeprefix("_delta_log/") for info in store.list_from("_delta_log/0")]


def commits(store: LogStore) -> list[int]:
    return [file.version for file in list_log(store).commits]


@pytest.fixture
def store(clock: FrozenClock) -> MemoryStore:
    return MemoryStore(now_ms=clock)


def test_the_newest_old_checkpoint_and_all_after_it_stay(
    store: MemoryStore, clock: FrozenClock
) -> None:
    description = table()
    daily_log(store, clock, 12, description)
    for version in (2, 5, 8, 10):
        checkpoint(store, version)
    for version in (3, 8):
        write_checksum(store, version, checksum_at(store, version, description))
    before = {version: state_of(store, version) for version in range(8, 12)}
    # Day 11, 3 days back at midnight is day 8: version 7 is the newest not newer.
    gone = clean(store, clock, description)
    assert commits(store) == list(range(5, 12))
    assert gone == [
        *(f"{v:020d}.json" for v in range(5)),
        f"{3:020d}.crc",
        f"{2:020d}.checkpoint.parquet",
    ]
    assert store.exists(classic_checkpoint_path(5))
    assert {version: state_of(store, version) for version in range(8, 12)} == before
    with pytest.raises(VersionNotFoundError):
        state_of(store, 4)
    assert clean(store, clock, description) == []


def checksum_at(store: MemoryStore, version: int, description: Metadata) -> Any:
    return checksum_of(
        Snapshot.load(store, version, now_ms=lambda: 0).files,
        protocol=Protocol(),
        metadata=description,
        transactions=(),
        domains=(),
    )


def test_commits_of_the_last_hours_stay_whatever_the_retention(
    store: MemoryStore, clock: FrozenClock
) -> None:
    # A transaction that read version 0 an hour ago takes the name of version 1 without a look.
    description = metadata(configuration={"delta.logRetentionDuration": "interval 0 days"})
    clock.advance(hours=23)
    builder = LogBuilder(store).create(metadata_action=description)
    clock.advance(minutes=59)
    for version in range(1, 5):
        builder.commit(add(f"f{version}"))
    checkpoint(store, 4)
    clock.advance(minutes=2)  # another day
    assert clean(store, clock, description) == []
    clock.advance(hours=2)
    assert clean(store, clock, description) == [f"{v:020d}.json" for v in range(4)]


def test_without_a_checkpoint_nothing_goes(store: MemoryStore, clock: FrozenClock) -> None:
    # delta-rs#2016: versions 0 to 99 were deleted, and nothing stood for them.
    description = table()
    daily_log(store, clock, 12, description)
    assert clean(store, clock, description) == []
    checkpoint(store, 11)  # younger than the retention
    assert clean(store, clock, description) == []
    assert commits(store) == list(range(12))


def test_the_newest_checkpoint_never_goes(store: MemoryStore, clock: FrozenClock) -> None:
    # delta-rs#2174: a table at rest lost its only checkpoint.
    description = table()
    daily_log(store, clock, 6, description)
    checkpoint(store, 3)
    clock.advance(days=400)
    assert clean(store, clock, description)
    assert commits(store) == [3, 4, 5]
    assert store.exists(classic_checkpoint_path(3))
    assert len(state_of(store)["files"]) == 5


@pytest.mark.parametrize("damage", ["truncated", "empty", "no state", "garbage"])
def test_a_checkpoint_that_cannot_be_read_covers_nothing(
    store: MemoryStore, clock: FrozenClock, damage: str
) -> None:
    description = table()
    daily_log(store, clock, 12, description)
    checkpoint(store, 3)
    checkpoint(store, 6)
    path = classic_checkpoint_path(6)
    data = store.read(path)
    broken = {
        "truncated": data[: len(data) // 2],
        "empty": b"",
        "garbage": b"PAR1" + b"x" * 100 + b"PAR1",
        "no state": parquet_without_state(store, path),
    }[damage]
    store.overwrite(path, broken)
    clean(store, clock, description)
    assert commits(store) == list(range(3, 12))
    store.delete(path)
    assert len(state_of(store)["files"]) == 11


def parquet_without_state(store: MemoryStore, path: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(read_parquet(store, path).slice(2), sink)
    return sink.getvalue()


def test_a_table_can_keep_its_log(store: MemoryStore, clock: FrozenClock) -> None:
    description = table(**{"delta.enableExpiredLogCleanup": "false"})
    daily_log(store, clock, 12, description)
    checkpoint(store, 6)
    assert clean(store, clock, description) == []


def test_the_cutoff_is_midnight(store: MemoryStore, clock: FrozenClock) -> None:
    description = table()
    builder = LogBuilder(store).create(metadata_action=description)  # at midnight, exactly
    builder.commit(add("a"))
    checkpoint(store, 1)
    clock.advance(days=4, ms=-1)
    assert midnight_utc(clock() - 3 * DAY_MS) == START_MS
    builder.commit(add("b"))
    # Version 1 has the same file time as version 0: it counts as made a millisecond later.
    assert clean(store, clock, description) == []
    clock.advance(ms=1)
    assert clean(store, clock, description) == [f"{0:020d}.json"]


def test_old_commits_with_one_file_time_go(store: MemoryStore, clock: FrozenClock) -> None:
    # A copied table: delta-spark deletes nothing of it.
    description = table()
    builder = LogBuilder(store).create(metadata_action=description)
    for version in range(1, 8):
        builder.commit(add(f"f{version}"))
    checkpoint(store, 5)
    clock.advance(days=10)
    builder.commit(add("new"))
    clean(store, clock, description)
    assert commits(store) == [5, 6, 7, 8]


def test_commits_that_give_later_ones_their_time_stay(
    store: MemoryStore, clock: FrozenClock
) -> None:
    # Version 2's clock was two hours ahead.  Without it version 4 would seem two hours older.
    description = table()
    builder = LogBuilder(store).create(metadata_action=description)
    hours = {1: 1, 2: 4, 3: 2, 4: 3, 5: 5, 6: 6}
    start = clock()
    for version, hour in hours.items():
        clock.advance(start + hour * 3_600_000 - clock())
        builder.commit(add(f"f{version}"))
        checkpoint(store, version)
    store.delete(classic_checkpoint_path(5))
    store.delete(classic_checkpoint_path(6))
    clock.advance(days=10)
    clean(store, clock, description)
    assert commits(store) == [2, 3, 4, 5, 6]


def test_times_inside_of_commits_decide_when_a_table_has_them(
    store: MemoryStore, clock: FrozenClock
) -> None:
    description = table(**{"delta.enableInCommitTimestamps": "true"})
    times = [START_MS + n * DAY_MS + 1 for n in range(8)]
    builder = LogBuilder(store).commit(
        CommitInfo(in_commit_timestamp=times[0]), Protocol(), description
    )
    for version in range(1, 8):
        builder.commit(CommitInfo(in_commit_timestamp=times[version]), add(f"f{version}"))
        checkpoint(store, version)
    # All files were copied today; the commits know better.
    clock.advance(days=8)
    for version in range(8):
        path = commit_path(version)
        store.overwrite(path, store.read(path))
    clean(store, clock, description)
    assert commits(store) == [4, 5, 6, 7]


def test_a_commit_without_its_time_counts_as_new(store: MemoryStore, clock: FrozenClock) -> None:
    description = table(**{"delta.enableInCommitTimestamps": "true"})
    daily_log(store, clock, 8, description)
    assert (
        cutoff_version(list_log(store).commits, clock(), own_times_from=0, own_time=lambda _: None)
        == -1
    )
    assert clean(store, clock, description) == []


def test_file_times_decide_before_in_commit_timestamps_were_enabled(
    store: MemoryStore, clock: FrozenClock
) -> None:
    daily_log(store, clock, 8, table())
    files = list_log(store).commits
    never = cutoff_version(files, START_MS + 3 * DAY_MS, own_times_from=6, own_time=lambda _: None)
    assert never == 2
    own = cutoff_version(
        files, START_MS + 30 * DAY_MS, own_times_from=6, own_time=lambda file: file.info.modified_ms
    )
    assert own == 7


@pytest.mark.parametrize(("before_version", "kept"), [(0, 6), (6, 6), (7, 0)])
def test_protected_history_goes_in_one_piece_or_stays(
    store: MemoryStore, clock: FrozenClock, before_version: int, kept: int
) -> None:
    protocol = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("checkpointProtection",)
    )
    key = "delta.requireCheckpointProtectionBeforeVersion"
    description = table(**{key: str(before_version)})
    daily_log(store, clock, 12, description)
    checkpoint(store, 4)
    checkpoint(store, 6)
    clean(store, clock, description, protocol=protocol)
    assert commits(store)[0] == kept
    # Without the feature the property means nothing.
    clean(store, clock, description)
    assert commits(store)[0] == 6


def test_compactions_and_unfinished_parts_go_too(store: MemoryStore, clock: FrozenClock) -> None:
    description = table()
    daily_log(store, clock, 12, description)
    for start, end in ((0, 3), (4, 8), (5, 7), (6, 9), (7, 9)):
        write_compaction(store, start, end)
    store.create(multipart_checkpoint_path(2, 1, 2), b"half")
    store.create(uuid_checkpoint_path(3, "80a083e8-7026-4e79-81be-64bd76c43a11", "json"), b"{}")
    checkpoint(store, 6)
    store.create("_delta_log/00000000000000000001.stray", b"")
    clean(store, clock, description)
    left = names(store)
    assert [name for name in left if "compacted" in name] == [
        compacted_path(7, 9).removeprefix("_delta_log/")
    ]
    assert [name for name in left if "checkpoint" in name] == [f"{6:020d}.checkpoint.parquet"]
    assert "00000000000000000001.stray" in left
    assert len(state_of(store)["files"]) == 11


def test_commits_go_before_checkpoints_and_the_oldest_first() -> None:
    infos = [
        FileInfo(path=path, size=1, modified_ms=0)
        for path in (
            classic_checkpoint_path(1),
            commit_path(1),
            commit_path(0),
            checksum_path(1),
            commit_path(2),
            compacted_path(2, 4),
            classic_checkpoint_path(2),
        )
    ]
    plan = plan_cleanup(infos, 2)
    assert plan.paths == (
        commit_path(0),
        commit_path(1),
        checksum_path(1),
        compacted_path(2, 4),
        classic_checkpoint_path(1),
    )


def test_sidecars_go_when_no_checkpoint_names_them(store: MemoryStore, clock: FrozenClock) -> None:
    description = table(**{"delta.checkpointPolicy": "v2"})
    new_uuid = counted_uuids()
    clock.advance(hours=1)
    builder = LogBuilder(store).create(protocol=V2, metadata_action=description)
    for version in range(1, 12):
        clock.advance(days=1)
        builder.commit(add(f"f{version}"))
        if version in (2, 6):
            checkpoint(store, version, new_uuid=new_uuid)
    store.create("_delta_log/_sidecars/in-progress.parquet", b"")
    before = state_of(store)
    gone = clean(store, clock, description, protocol=V2)
    left = [info.path for info in store.list_from("_delta_log/_sidecars/")]
    assert len([name for name in gone if name.startswith("_sidecars")]) == 1
    assert len(left) == 2
    assert "_delta_log/_sidecars/in-progress.parquet" in left
    assert state_of(store) == before
    assert commits(store)[0] == 6


def test_sidecars_stay_while_a_checkpoint_cannot_be_read(
    store: MemoryStore, clock: FrozenClock
) -> None:
    description = table(**{"delta.checkpointPolicy": "v2"})
    new_uuid = counted_uuids()
    daily_log(store, clock, 12, description, add("a"))
    for version in (2, 6, 9):
        checkpoint(store, version, new_uuid=new_uuid)
    (broken,) = [
        f.info.path for c in list_log(store).checkpoints if c.version == 9 for f in c.files
    ]
    store.overwrite(broken, b"{broken")
    clean(store, clock, description, protocol=V2)
    assert len(store.list_from("_delta_log/_sidecars/")) == 3
    assert commits(store)[0] == 6


@pytest.mark.parametrize("v2_format", ["json", "parquet"])
def test_readers_without_v2_checkpoints_find_the_protocol(
    store: MemoryStore, clock: FrozenClock, v2_format: str
) -> None:
    description = table(**{"delta.checkpointPolicy": "v2"})
    daily_log(store, clock, 12, description, add("a"))
    checkpoint(store, 6, v2_format=v2_format)
    before = state_of(store)
    clean(store, clock, description, protocol=V2)
    table_rows = read_parquet(store, classic_checkpoint_path(6))
    (protocol,) = rows_of(table_rows, "protocol")
    assert protocol["readerFeatures"] == ["v2Checkpoint"]
    assert len(rows_of(table_rows, "sidecar")) == 1
    assert rows_of(table_rows, "add") == []
    # The classic name alone is enough for readers that know what is inside.
    for whole in list_log(store).checkpoints:
        if whole.files[0].name.uuid:
            store.delete(whole.files[0].info.path)
    assert state_of(store) == before


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ERROR_BEFORE])
def test_a_cleanup_that_dies_anywhere_leaves_a_readable_log(fault: Fault) -> None:
    description = table(**{"delta.checkpointPolicy": "v2"})
    for calls_before in range(100):
        clock = FrozenClock()
        inner = MemoryStore(now_ms=clock)
        new_uuid = counted_uuids()
        daily_log(inner, clock, 9, description, add("a"))
        for version in (1, 4):
            hint = checkpoint(inner, version, new_uuid=new_uuid)
        write_last_checkpoint(inner, hint)
        write_compaction(inner, 0, 2)
        before = [state_of(inner, version) for version in (4, 6, 8)]
        rule = FaultRule(operation="[!lrs]*", path="*", fault=fault, skip=calls_before)
        died = False
        try:
            run_cleanup(FaultStore(inner, [rule]), V2, description, now_ms=clock())
        except (Crashed, StorageError):
            died = True
        assert [state_of(inner, version) for version in (4, 6, 8)] == before
        run_cleanup(inner, V2, description, now_ms=clock())
        assert [state_of(inner, version) for version in (4, 6, 8)] == before
        assert commits(inner) == [4, 5, 6, 7, 8]
        if not died:
            return
    raise AssertionError("the cleanup was never left alone")


def test_a_store_that_does_not_answer_costs_nothing(store: MemoryStore, clock: FrozenClock) -> None:
    description = table()
    daily_log(store, clock, 12, description)
    checkpoint(store, 6)
    before = names(store)
    # Every read fails: the checkpoint cannot be opened, so it covers nothing.
    rule = FaultRule(operation="read*", path="*", fault=Fault.ERROR_BEFORE, times=10**6)
    stat = FaultRule(operation="stat", path="*", fault=Fault.ERROR_BEFORE, times=10**6)
    clean(FaultStore(store, [rule, stat]), clock, description)
    assert names(store) == before


def test_young_sidecars_are_never_planned_away() -> None:
    now = START_MS + 10 * DAY_MS + 5
    infos = [
        FileInfo(path=f"{age}", size=1, modified_ms=START_MS + (10 - age) * DAY_MS)
        for age in range(4)
    ]
    assert plan_sidecar_cleanup(infos, {"3"}, now_ms=now) == ("2",)


def test_a_checkpoint_without_its_commit_is_no_place_to_begin(
    store: MemoryStore, clock: FrozenClock
) -> None:
    daily_log(store, clock, 8, table())
    checkpoint(store, 2)
    checkpoint(store, 5)
    store.delete(commit_path(5))
    found = [files.version for files in kept_candidates(list_log(store), 7)]
    assert found == [2]


def test_deltalake_reads_a_cleaned_table(table_path: Path) -> None:
    store = LocalStore(table_path, fsync=False)
    description = table()
    builder = LogBuilder(store).create(metadata_action=description)
    for version in range(1, 8):
        builder.commit(add(f"f{version}"))
    write_last_checkpoint(store, checkpoint(store, 5))
    for version in range(8):
        seconds = (START_MS + version * DAY_MS) / 1000
        os.utime(table_path / commit_path(version), (seconds, seconds))
    run_cleanup(store, Protocol(), description, now_ms=START_MS + 30 * DAY_MS)
    assert commits(store) == [5, 6, 7]
    found = deltalake.DeltaTable(table_path)
    assert found.version() == 7
    assert len(found.file_uris()) == 7
