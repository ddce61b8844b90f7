"""VACUUM without Spark: which files go, which stay, and what the history says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from pyspark_delta.errors import (
    DeltaError,
    OperationNotAllowedError,
    StorageError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from pyspark_delta.kernel.ops.notes import LAST_VACUUM, read_last_vacuum
from pyspark_delta.kernel.ops.vacuum.candidates import InventoryEntry, hidden_names
from pyspark_delta.kernel.ops.vacuum.run import HOUR_MS, VacuumRules, retention, run_vacuum
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import CommitInfo, Protocol
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.clock import FrozenClock
from tests.support.faulty import Fault, FaultStore
from tests.support.log_builder import metadata
from tests.support.vacuum_tables import ANY_HOURS, ClockedStore, VacuumTable

WEEK_MS = 7 * 24 * HOUR_MS


@pytest.fixture
def table(table_path: Path, clock: FrozenClock) -> VacuumTable:
    return VacuumTable.at(table_path, clock)


def history(table: VacuumTable) -> list[tuple[str | None, Any, Any]]:
    """What the commits say of themselves, oldest first."""
    found: list[CommitInfo] = table.log.history()
    return [(i.operation, i.operation_parameters, i.operation_metrics) for i in reversed(found)]


def change_line(path: str) -> str:
    """A line of a commit that names a change file."""
    cdc = {"path": path, "partitionValues": {}, "size": 1, "dataChange": False}
    return json.dumps({"cdc": cdc}) + "\n"


# What goes, and what stays.


def test_files_removed_before_the_retention_go_and_others_stay(
    table: VacuumTable, clock: FrozenClock
) -> None:
    old, young, _ = table.add("old", "young", "live")
    table.remove(old)
    clock.advance(days=7)
    table.remove(young)
    table.store.create("stray", b"of a failed write")
    assert table.vacuum(dry_run=True).paths == ("old",)
    clock.advance(days=7, hours=-1)
    assert table.vacuum().paths == ("old",)
    assert table.paths == {"young", "live", "stray"}
    clock.advance(hours=2)
    assert sorted(table.vacuum().paths) == ["stray", "young"]
    assert table.paths == {"live"}
    assert table.vacuum().paths == ()


def test_a_dry_run_changes_nothing(table: VacuumTable, clock: FrozenClock) -> None:
    table.store.create("a b%20/stray é", b"12345")
    clock.advance(days=8)
    version = table.log.update().version
    found = table.vacuum(dry_run=True)
    assert (found.paths, found.size_bytes, found.num_deleted) == (("a b%20/stray é",), 5, 0)
    assert found.num_directories == 2
    assert table.paths == {"a b%20/stray é"}
    assert table.log.update().version == version
    assert not table.store.exists(LAST_VACUUM)


def test_a_file_counts_by_the_path_that_the_log_means(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    decoded = table.file("p=a%3Ab/ä 1%.parquet")
    absolute = table.file(
        "absolute é.parquet", spelled=f"{table.store.root_uri}/absolute%20é.parquet"
    )
    single = table.file(
        "single.parquet",
        spelled=f"file:{table_path}/single.parquet".replace("%", "%25").replace(" ", "%20"),
    )
    raw = table.file("raw 100% p", spelled="raw%20100%25%20p")
    table.commit(decoded, absolute, single, raw)
    clock.advance(days=30)
    assert table.vacuum().paths == ()
    assert len(table.paths) == 4


def test_paths_that_other_readers_would_follow_stay(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    """Spellings that our own reader refuses, and a root that is called by two names."""
    dotted = table.file("sub/x.parquet", spelled="./sub//x.parquet")
    unencoded = table.file("y%41.parquet", spelled="y%41.parquet")
    table.store.create("yA.parquet", b"what the log means")
    linked = table_path.parent / "a link"
    linked.symlink_to(table_path, target_is_directory=True)
    behind = table.file("z.parquet", spelled=f"file://{linked}/z.parquet".replace(" ", "%20"))
    lines = "".join(action.json + "\n" for action in (dotted, unencoded, behind))
    table.store.create(commit_path(1), lines.encode())
    clock.advance(days=30)
    assert table.vacuum().paths == ()
    through_link = DeltaLog(ClockedStore(linked, clock), now_ms=clock)
    assert run_vacuum(through_link, rules=ANY_HOURS).paths == ()
    assert table.paths == {"sub/x.parquet", "y%41.parquet", "yA.parquet", "z.parquet"}


def test_vectors_stay_as_long_as_the_files_that_they_are_on(
    table: VacuumTable, clock: FrozenClock
) -> None:
    (file,) = table.add("f")
    first = table.delete_rows(file, [1])
    before = table.paths
    second = table.delete_rows(first, [1, 2], prefix="ab")
    clock.advance(days=8)
    stays = table.paths - before | {"f"}
    table.vacuum()
    assert table.paths == stays  # the first vector went, for its tombstone is old
    table.remove(second)
    clock.advance(days=6)
    assert table.vacuum().paths == ()
    clock.advance(days=2)
    assert set(table.vacuum().paths) == stays
    assert table.paths == set()


def test_a_vector_of_an_absolute_address_below_the_root_stays(
    table: VacuumTable, clock: FrozenClock
) -> None:
    table.store.create("vectors/v.bin", b"1")
    table.store.create("vectors/w.bin", b"1")
    descriptor = DeletionVectorDescriptor(
        storage_type="p",
        path_or_inline_dv=f"{table.store.root_uri}/vectors/v.bin",
        offset=0,
        size_in_bytes=1,
        cardinality=1,
    )
    file = table.file("f")
    line = file.json.replace(
        '"dataChange"', f'"deletionVector":{json.dumps(descriptor.to_json_value())},"dataChange"'
    )
    table.store.create(commit_path(1), f"{line}\n".encode())
    clock.advance(days=8)
    assert table.vacuum().paths == ("vectors/w.bin",)


def test_a_vector_of_unknown_kind_stops_it(table: VacuumTable, clock: FrozenClock) -> None:
    vector = {"storageType": "q", "pathOrInlineDv": "?", "sizeInBytes": 1, "cardinality": 1}
    line = table.file("f").json.replace(
        '"dataChange"', f'"deletionVector":{json.dumps(vector)},"dataChange"'
    )
    table.store.create(commit_path(1), f"{line}\n".encode())
    clock.advance(days=8)
    with pytest.raises(DeltaError) as caught:
        table.vacuum(0)
    assert caught.value.condition == "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR"
    assert table.paths == {"f"}


def test_change_files_stay_as_long_as_their_commit(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    table.change("_change_data/old ä%.parquet")
    clock.advance(days=8)
    table.store.create("_change_data/slow.parquet", b"of a job that takes days")
    clock.advance(days=6)
    table.store.create("_change_data/stray.parquet", b"of a job that failed")
    os.utime(table_path / "_change_data/stray.parquet", (0, 0))
    lines = change_line("_change_data/slow.parquet")
    table.store.create(commit_path(table.log.update().version + 1), lines.encode())
    clock.advance(days=2)
    gone = {"_change_data/old ä%.parquet", "_change_data/stray.parquet"}
    assert set(table.vacuum().paths) == gone
    clock.advance(days=6)
    assert table.vacuum().paths == ("_change_data/slow.parquet",)


def test_hidden_names_stay_but_for_partitions_changes_and_indexes(
    table_path: Path, clock: FrozenClock
) -> None:
    table = VacuumTable.at(table_path, clock, partition_columns=["v"])
    kept = {"_SUCCESS", ".f.crc", "_temporary/0/f", "p=1/_hidden", ".hoodie/c", "metadata_/.x"}
    gone = {"_delta_index/i", "_delta_index_2/i", "_change_data/c", "metadata/m.json", "v=1/f"}
    for path in kept | gone:
        table.store.create(path, b"1")
    clock.advance(days=8)
    assert set(table.vacuum().paths) == gone
    assert table.paths == kept


def test_partition_columns_and_iceberg_decide_what_is_hidden() -> None:
    mapped = {"delta.columnMapping.mode": "none", "delta.universalFormat.enabledFormats": "iceberg"}
    is_hidden = hidden_names(metadata(partition_columns=["_p"], configuration=mapped))
    names = ["_p=1", "_q=1", "_p", "metadata", "metadata1", "_delta_log", "a"]
    assert [name for name in names if is_hidden(name)] == ["_q=1", "_p", "metadata", "_delta_log"]


def test_empty_directories_go_and_those_emptied_stay_once(
    table_path: Path, clock: FrozenClock
) -> None:
    table = VacuumTable.at(table_path, clock)
    (file, _) = table.add("p=1/f", "p=2/g")
    table.remove(file)
    (table_path / "empty ä/deep%/deeper").mkdir(parents=True)
    (table_path / "hidden only").mkdir()
    (table_path / "hidden only/.x").touch()
    (table_path / "p=3").mkdir()
    (table_path / "p=3/young").touch()
    os.utime(table_path / "p=3/young", (2e9, 2e9))
    clock.advance(days=8)
    first = table.vacuum()
    assert first.paths == ("p=1/f", "empty ä/deep%/deeper", "empty ä/deep%", "empty ä")
    assert (first.num_deleted, first.num_directories) == (4, 8)
    assert (table_path / "p=1").is_dir()
    assert table.vacuum().paths == ("p=1",)
    assert sorted(each.name for each in table_path.iterdir()) == [
        "_delta_log",
        "hidden only",
        "p=2",
        "p=3",
    ]


def test_a_directory_that_the_log_speaks_of_stays_even_if_it_is_empty(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    table.add("p=1/deep/f")
    (table_path / "p=1/deep/f").unlink()
    assert table.vacuum().paths == ()
    assert (table_path / "p=1/deep").is_dir()


def test_symbolic_links_are_neither_followed_nor_deleted(
    table: VacuumTable, clock: FrozenClock, table_path: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").touch()
    (table_path / "linked").symlink_to(outside, target_is_directory=True)
    (table_path / "file link").symlink_to(outside / "f")
    removed = table.file("inside")
    (table_path / "alias").symlink_to(table_path, target_is_directory=True)
    table.commit(removed)
    line = '{"remove":{"path":"%s","deletionTimestamp":1,"dataChange":true}}\n'
    lines = "".join(line % path for path in ("linked/f", "alias/inside", "file%20link"))
    table.store.create(commit_path(2), lines.encode())
    clock.advance(days=8)
    assert table.vacuum().paths == table.vacuum(lite=True).paths == ()
    assert (outside / "f").exists()
    assert (table_path / "file link").is_symlink()
    assert (table_path / "inside").exists()


def test_the_checksum_that_hadoop_keeps_beside_a_file_goes_with_it(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    (file, _) = table.add("f", "g")
    for name in "fg":
        (table_path / f".{name}.crc").touch()
    table.remove(file)
    clock.advance(days=8)
    assert table.vacuum().paths == ("f",)
    assert table.paths == {"g", ".g.crc"}


def test_kept_versions_keep_all_of_theirs(table: VacuumTable, clock: FrozenClock) -> None:
    (file,) = table.add("f")
    changed = table.delete_rows(file, [1])
    table.change("_change_data/c")
    kept = table.log.update().version
    table.remove(changed)
    clock.advance(days=8)
    everything = table.paths
    assert table.vacuum(keep_versions=(kept,)).paths == ()
    assert table.paths == everything
    assert read_last_vacuum(table.store) is None  # LITE must still find what was kept
    assert table.vacuum(keep_versions=(1,)).num_deleted == 2  # vector and change file
    assert "f" in table.paths
    with pytest.raises(VersionNotFoundError):
        table.vacuum(keep_versions=(99,))


def test_what_was_removed_within_longer_hours_stays_though_checkpoints_forgot_it(
    table: VacuumTable, clock: FrozenClock
) -> None:
    (file,) = table.add("f")
    table.remove(file)
    clock.advance(days=8)
    table.add("g")
    table.log.checkpoint()
    assert table.log.update().tombstones().num_rows == 0
    assert table.vacuum(9 * 24).paths == table.vacuum(1e300).paths == ()
    assert table.vacuum(7 * 24).paths == ("f",)


def test_a_table_of_a_store_without_directories_is_vacuumed_too(clock: FrozenClock) -> None:
    table = VacuumTable(MemoryStore("vacüum 100%", now_ms=clock), clock)
    (file, _) = table.add("p=ä b/1%", "p=2/f")
    table.remove(file)
    clock.advance(days=8)
    done = table.vacuum()
    assert (done.paths, done.num_deleted, done.num_directories) == (("p=ä b/1%",), 1, 3)
    assert table.paths == {"p=2/f"}
    assert history(table)[-1][0] == "DELETE"  # a store of that kind has no record of it


# Others at work.


def test_what_others_commit_while_it_looks_is_safe(table_path: Path, clock: FrozenClock) -> None:
    table = VacuumTable.at(table_path, clock)
    late = table.file("written long ago")
    table.store.create("_change_data/late", b"1")
    table.store.create("stray", b"1")
    clock.advance(days=8)

    class Slow(ClockedStore):
        """Between the listing and the deletion another writer commits at last."""

        def list_tree(self, is_hidden: Any, splits: Any = ()) -> Any:
            found = list(super().list_tree(is_hidden, splits))
            lines = f"{late.json}\n{change_line('_change_data/late')}"
            self.create(commit_path(1), lines.encode())
            return iter(found)

    slow = DeltaLog(Slow(table_path, clock), now_ms=clock)
    assert run_vacuum(slow, rules=ANY_HOURS).paths == ("stray",)
    assert table.paths == {"written long ago", "_change_data/late"}


def test_files_of_a_running_write_stay_as_long_as_they_are_young(
    table: VacuumTable, clock: FrozenClock
) -> None:
    waiting = table.file("waits for its commit")
    clock.advance(days=6)
    assert table.vacuum().paths == ()
    table.commit(waiting)
    clock.advance(days=30)
    assert table.vacuum().paths == ()


# Retention.


@pytest.mark.parametrize(
    ("hours", "condition"),
    [
        (-1, "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE"),
        (-0.6, "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE"),
        (0, "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"),
        (0.4, "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"),
        (-float("inf"), "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE"),
    ],
)
def test_hours_that_are_too_few_are_refused(
    table: VacuumTable, clock: FrozenClock, hours: float, condition: str
) -> None:
    table.store.create("stray", b"1")
    clock.advance(days=8)
    for dry_run in (True, False):
        with pytest.raises(OperationNotAllowedError) as caught:
            table.vacuum(hours, rules=VacuumRules(), dry_run=dry_run)
        assert caught.value.condition == condition
    assert table.paths == {"stray"}
    assert table.log.update().version == 0


def test_hours_count_only_if_they_are_zero_or_a_setting_says_so() -> None:
    configured = 10 * HOUR_MS + 1
    lax = VacuumRules(checks_retention=False)
    assert retention(5, configured_ms=configured, rules=VacuumRules()).effective_ms == configured
    assert retention(5, configured_ms=configured, rules=lax).specified_ms is None
    assert retention(0, configured_ms=configured, rules=lax).effective_ms == 0
    asked = retention(4.5, configured_ms=configured, rules=ANY_HOURS)
    assert (asked.specified_ms, asked.cutoff_ms(10 * HOUR_MS)) == (5 * HOUR_MS, 5 * HOUR_MS)
    strict = VacuumRules(ignores_hours=False)
    assert retention(11, configured_ms=configured, rules=strict).specified_ms == 11 * HOUR_MS
    with pytest.raises(OperationNotAllowedError) as caught:
        retention(10, configured_ms=configured, rules=strict)
    assert caught.value.parameters == {"configuredRetentionHours": "11"}
    assert retention(1e300, configured_ms=1, rules=strict).specified_ms == 2**63 - 1
    with pytest.raises(ValueError, match="not a number"):
        retention(float("nan"), configured_ms=1, rules=strict)


def test_the_table_says_how_long_removed_files_stay(table_path: Path, clock: FrozenClock) -> None:
    keeps = {"delta.deletedFileRetentionDuration": "interval 2 hours"}
    table = VacuumTable.at(table_path, clock, configuration=keeps)
    table.store.create("stray", b"1")
    clock.advance(hours=2)
    assert table.vacuum().paths == ()
    clock.advance(1)
    assert table.vacuum(1, rules=VacuumRules()).paths == ("stray",)


# The history.


def test_the_history_tells_of_it(table: VacuumTable, clock: FrozenClock) -> None:
    (file,) = table.add("f")
    table.remove(file)
    clock.advance(days=8)
    table.vacuum()
    table.vacuum(0)
    checked = {"retentionCheckEnabled": False, "defaultRetentionMillis": WEEK_MS}
    assert history(table)[3:] == [
        ("VACUUM START", checked, {"numFilesToDelete": "1", "sizeOfDataToDelete": "9"}),
        (
            "VACUUM END",
            {"status": "COMPLETED"},
            {"numDeletedFiles": "1", "numVacuumedDirectories": "1"},
        ),
        (
            "VACUUM START",
            checked | {"specifiedRetentionMillis": 0},
            {"numFilesToDelete": "0", "sizeOfDataToDelete": "0"},
        ),
        (
            "VACUUM END",
            {"status": "COMPLETED"},
            {"numDeletedFiles": "0", "numVacuumedDirectories": "1"},
        ),
    ]
    info = table.log.history(1)[0]
    assert (info.is_blind_append, info.isolation_level) == (True, "SnapshotIsolation")


def test_a_session_or_the_storage_decides_whether_the_history_tells_of_it() -> None:
    recorded = ["file:///t", "abfss://c@a/t", "gs://b/t", "hdfs://h/t"]
    assert all(VacuumRules().records_at(root) for root in recorded)
    assert not any(VacuumRules().records_at(root) for root in ("s3://b/t", "memory://t"))
    assert VacuumRules(records=True).records_at("s3://b/t")
    assert not VacuumRules(records=False).records_at("file:///t")


def test_what_cannot_be_deleted_fails_it_and_the_rest_is_gone(
    table_path: Path, clock: FrozenClock
) -> None:
    table = VacuumTable.at(table_path, clock)
    for name in ("a", "b", "c"):
        table.store.create(name, b"1")
    clock.advance(days=8)
    faulty = FaultStore(table.store, [("delete", "b", Fault.ERROR_BEFORE)] * 2)
    log = DeltaLog(faulty, now_ms=clock)
    with pytest.raises(StorageError):
        run_vacuum(log, rules=ANY_HOURS)
    assert table.paths == {"b"}
    assert history(table)[-1] == ("VACUUM END", {"status": "FAILED"}, {})
    assert read_last_vacuum(table.store) is None
    assert table.vacuum().num_deleted == 1


class Meeting(ClockedStore):
    """A store that deletes when so many threads ask for it at the same time."""

    def __init__(self, root: Path, clock: FrozenClock, threads: int) -> None:
        super().__init__(root, clock)
        self._barrier = Barrier(threads)

    def delete_many(self, paths: Sequence[str]) -> None:
        self._barrier.wait(timeout=30)  # BrokenBarrierError when one comes alone
        super().delete_many(paths)


def test_as_many_threads_as_the_rules_say_delete_at_the_same_time(
    table_path: Path, clock: FrozenClock
) -> None:
    table = VacuumTable.at(table_path, clock)
    for number in range(6):
        table.store.create(f"stray {number}", b"1")
    clock.advance(days=8)
    log = DeltaLog(Meeting(table_path, clock, threads=3), now_ms=clock)
    done = run_vacuum(log, rules=replace(ANY_HOURS, threads=3))
    assert (done.num_deleted, table.paths) == (6, set())


def test_a_listing_that_fails_deletes_nothing(table_path: Path, clock: FrozenClock) -> None:
    table = VacuumTable.at(table_path, clock)
    table.store.create("stray", b"1")
    clock.advance(days=8)
    log = DeltaLog(FaultStore(table.store, [("list_tree", "*", Fault.ERROR_BEFORE)]), now_ms=clock)
    with pytest.raises(StorageError):
        run_vacuum(log, rules=ANY_HOURS)
    assert table.paths == {"stray"}
    assert table.log.update().version == 0


# LITE.


def test_lite_deletes_what_commits_removed_and_nothing_else(
    table_path: Path, clock: FrozenClock
) -> None:
    table = VacuumTable.at(table_path, clock)
    first, second, _ = table.add("a b%/1", "2", "3")
    changed = table.delete_rows(first, [1])
    vector = (table.paths - {"a b%/1", "2", "3"}).pop()
    table.change("_change_data/c")
    table.remove(changed)
    clock.advance(days=4)
    table.remove(second)
    table.store.create("stray", b"1")
    clock.advance(days=4)
    gone = {"a b%/1", vector, "_change_data/c"}
    found = table.vacuum(lite=True, dry_run=True)
    assert set(found.paths) == gone
    assert set(table.vacuum(lite=True).paths) == gone
    assert read_last_vacuum(table.store) == 4
    assert table.vacuum(lite=True).paths == ()
    clock.advance(days=4)
    assert table.vacuum(lite=True).paths == ("2",)
    assert {"stray", "3"} <= table.paths


def test_lite_never_believes_the_log_about_names(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    (table_path.parent / "victim").touch()
    (table_path / "_private").touch()
    bad = [
        "../victim",
        f"file:{table_path.parent}/victim",
        "_delta_log/00000000000000000000.json",
        "_private",
        "x/../_private",
        "%2e%2e/victim",
        "/victim",
        "s3://b/x",
    ]
    lines = "".join(
        json.dumps({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}) + "\n"
        for path in bad
    )
    table.store.create(commit_path(1), lines.encode())
    clock.advance(days=8)
    assert table.vacuum(lite=True).paths == ()
    assert (table_path.parent / "victim").exists()
    assert (table_path / "_private").exists()


def test_lite_needs_the_commits_since_the_last_vacuum(
    table: VacuumTable, clock: FrozenClock
) -> None:
    for round_ in range(3):
        (file,) = table.add(f"f{round_}")
        table.remove(file)
    table.log.checkpoint()
    clock.advance(days=8)
    table.store.delete(commit_path(0))
    with pytest.raises(OperationNotAllowedError) as caught:
        table.vacuum(lite=True)
    assert caught.value.condition == "DELTA_CANNOT_VACUUM_LITE"
    assert len(table.paths) == 3
    assert table.vacuum().num_deleted == 3  # a full one seeds the next LITE
    assert read_last_vacuum(table.store) == 6
    assert table.vacuum(lite=True).paths == ()
    (file,) = table.add("g")
    table.remove(file)
    clock.advance(days=8)
    assert table.vacuum(lite=True).paths == ("g",)


def test_lite_finds_nothing_while_all_commits_are_young(table: VacuumTable) -> None:
    (file,) = table.add("f")
    table.remove(file)
    assert table.vacuum(lite=True).paths == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"x"',
        "{}",
        '{"latestCommitVersionOutsideOfRetentionWindow":"1"}',
        "[" * 70_000,
    ],
)
def test_a_broken_note_of_the_last_vacuum_is_none(table: VacuumTable, text: str) -> None:
    table.store.overwrite(LAST_VACUUM, text.encode())
    assert read_last_vacuum(table.store) is None
    assert table.vacuum(lite=True).paths == ()


# Inventories.


def test_an_inventory_names_what_is_looked_at(
    table: VacuumTable, clock: FrozenClock, table_path: Path
) -> None:
    (live,) = table.add("p=1/live")
    assert live.path == "p=1/live"
    for name in ("a ä%", "p=1/b", "not in it"):
        table.store.create(name, b"12")
    (table_path / "empty").mkdir()
    clock.advance(days=8)
    table.store.create("young", b"1")
    entries = [
        InventoryEntry(path=path, size=2, is_directory=is_directory, modified_ms=0)
        for path, is_directory in [
            ("a ä%", False),
            ("p=1/b", False),
            ("p=1/live", False),
            ("gone", False),
            ("young", False),
            ("../outside", False),
            ("_delta_log/00000000000000000000.json", False),
            ("p=1", True),
            ("empty/", True),
            ("_delta_log", True),
            ("", True),
        ]
    ]
    found = table.vacuum(inventory=entries, dry_run=True)
    assert found.paths == ("a ä%", "p=1/b", "empty")
    assert (found.num_directories, found.size_bytes) == (3, 4)
    assert table.vacuum(inventory=entries).num_deleted == 3
    assert table.paths == {"p=1/live", "not in it", "young"}
    assert read_last_vacuum(table.store) is None


# Protocol.


def test_a_table_that_asks_more_of_writers_is_left_alone(
    table: VacuumTable, clock: FrozenClock
) -> None:
    table.store.create("stray", b"1")
    clock.advance(days=8)
    future = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("vacuumProtocolCheck",),
        writer_features=("vacuumProtocolCheck", "somethingNew"),
    )
    table.store.create(commit_path(1), f"{future.json}\n".encode())
    for lite in (True, False):
        with pytest.raises(UnsupportedProtocolError):
            table.vacuum(lite=lite, dry_run=True)
    assert table.paths == {"stray"}
