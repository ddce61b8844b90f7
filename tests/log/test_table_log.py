"""The log as readers see it: refresh, time travel, changes, history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_delta.errors import CorruptLogError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import (
    CommitInfo,
    DomainMetadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.clock import START_MS, FrozenClock
from tests.support.log_builder import LogBuilder, add, metadata, remove


class CountingStore(MemoryStore):
    """A memory store that notes what is read and listed."""

    def __init__(self, now_ms: object = None) -> None:
        super().__init__(**({} if now_ms is None else {"now_ms": now_ms}))  # type: ignore[arg-type]
        self.calls: list[tuple[str, str]] = []

    def read(self, path: str) -> bytes:
        self.calls.append(("read", path))
        return super().read(path)

    def list_from(self, start: str) -> list:  # type: ignore[type-arg]
        self.calls.append(("list", start))
        return super().list_from(start)


class ListingStore(CountingStore):
    """The same, but as an object store: asking for one absent file is no cheaper than listing."""

    probes_cheaply = False


@pytest.fixture(params=[CountingStore, ListingStore])
def store(request: pytest.FixtureRequest, clock: FrozenClock) -> CountingStore:
    return request.param(clock)  # type: ignore[no-any-return]


def paths(log: TableLog) -> set[str]:
    return set(log.snapshot.files.column("path").to_pylist())


def test_a_refresh_sees_what_others_committed(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a"))
    log = TableLog(store)
    assert paths(log) == {"a"}
    builder.commit(add("b")).commit(remove("a"))
    assert log.snapshot.version == 0
    assert log.update().version == 2
    assert paths(log) == {"b"}
    assert log.update() is log.snapshot


COLD_OPENS: dict[str, Callable[[TableLog], Snapshot | None]] = {
    "the newest": lambda log: log.snapshot,
    "a refresh": lambda log: log.update(),
    "once it is known to exist": lambda log: log.snapshot if log.table_exists else None,
    "a version": lambda log: log.snapshot_at(version=2),
    "a time": lambda log: log.snapshot_at(timestamp=START_MS + 2_000),
}


@pytest.mark.parametrize("way", COLD_OPENS)
def test_a_cold_open_lists_the_log_once(store: CountingStore, clock: FrozenClock, way: str) -> None:
    builder = LogBuilder(store).create(add("a"))
    for name in "bc":
        clock.advance(seconds=1)
        builder.commit(add(name))
    store.calls.clear()
    snapshot = COLD_OPENS[way](TableLog(store, now_ms=clock))
    assert snapshot is not None
    assert snapshot.num_files == 3
    assert [operation for operation, _ in store.calls].count("list") == 1


def test_a_table_that_cannot_be_read_exists(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a")).commit(add("b")).commit(add("c"))
    store.delete(commit_path(1))
    assert TableLog(builder.store).table_exists


def test_one_new_commit_costs_one_read(store: CountingStore) -> None:
    builder = LogBuilder(store).create(*(add(f"f{i}") for i in range(50)))
    log = TableLog(store)
    assert log.snapshot.num_files == 50
    builder.commit(add("new"))
    store.calls.clear()
    assert log.update().num_files == 51
    reads = [path for kind, path in store.calls if kind == "read" and store.exists(path)]
    assert reads == [commit_path(1)]
    assert len([1 for kind, _ in store.calls if kind == "list"]) <= 1


def test_a_snapshot_stays_what_it_was(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a"))
    log = TableLog(store)
    before = log.snapshot
    builder.commit(remove("a"), metadata(configuration={"delta.appendOnly": "true"}))
    log.update()
    assert before.num_files == 1
    assert before.metadata.configuration == {}
    assert log.snapshot.metadata.configuration == {"delta.appendOnly": "true"}


def test_a_table_made_anew_is_not_mistaken_for_the_old_one(
    store: CountingStore, clock: FrozenClock
) -> None:
    LogBuilder(store).create(add("old")).commit(add("old2"))
    log = TableLog(store)
    assert log.snapshot.num_files == 2
    for version in (0, 1):
        store.delete(commit_path(version))
    clock.advance(5000)
    LogBuilder(store).create(add("new"), metadata_action=metadata(table_id="other"))
    assert log.update().metadata.id == "other"
    assert paths(log) == {"new"}
    store.delete(commit_path(0))
    with pytest.raises(TableNotFoundError):
        log.update()


def test_many_refreshes_give_what_one_look_gives(store: CountingStore) -> None:
    builder = LogBuilder(store).create()
    log = TableLog(store)
    log.snapshot.num_files  # noqa: B018
    for i in range(200):
        builder.commit(add(f"f{i}"), *([remove(f"f{i - 3}")] if i >= 3 else []))
        if i % 7 == 0:
            log.update()
    log.update()
    assert paths(log) == paths(TableLog(store)) == {"f197", "f198", "f199"}


def test_the_newest_of_each_application_and_domain_counts(store: CountingStore) -> None:
    builder = LogBuilder(store).create(
        SetTransaction(app_id="a", version=5),
        SetTransaction(app_id="b", version=1),
        DomainMetadata(domain="x", configuration="1"),
        DomainMetadata(domain="y", configuration="1"),
        protocol=Protocol(
            min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata",)
        ),
    )
    log = TableLog(store)
    assert log.snapshot.transactions["a"].version == 5
    builder.commit(
        SetTransaction(app_id="a", version=3),
        DomainMetadata(domain="x", configuration="", removed=True),
    )
    for seen in (log.update(), TableLog(store).snapshot):
        assert {a: t.version for a, t in seen.transactions.items()} == {"a": 3, "b": 1}
        assert set(seen.domains) == {"y"}


def test_transactions_expire_when_the_table_says_so(
    store: CountingStore, clock: FrozenClock
) -> None:
    LogBuilder(store).create(
        SetTransaction(app_id="old", version=1, last_updated=clock()),
        SetTransaction(app_id="timeless", version=1),
        metadata_action=metadata(
            configuration={"delta.setTransactionRetentionDuration": "interval 1 day"}
        ),
    )
    log = TableLog(store, now_ms=clock)
    assert set(log.snapshot.transactions) == {"old", "timeless"}
    clock.advance(days=2)
    assert set(log.snapshot.transactions) == {"timeless"}


def test_time_travel_by_version_and_by_time(store: CountingStore, clock: FrozenClock) -> None:
    start = clock()
    builder = LogBuilder(store).create(add("a"))
    for name in "bc":
        clock.advance(10_000)
        builder.commit(add(name))
    log = TableLog(store, now_ms=clock)
    assert log.snapshot_at(version=1).num_files == 2
    assert log.snapshot_at(timestamp=start).version == 0
    assert log.snapshot_at(timestamp=start + 19_999).version == 1
    assert log.snapshot_at(timestamp=start + 20_000).version == 2
    for version in (-1, 3):
        with pytest.raises(VersionNotFoundError) as caught:
            log.snapshot_at(version=version)
        assert caught.value.condition == "DELTA_VERSION_NOT_FOUND"
    with pytest.raises(VersionNotFoundError) as caught:
        log.snapshot_at(timestamp=start - 1)
    assert caught.value.condition == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    with pytest.raises(VersionNotFoundError) as caught:
        log.snapshot_at(timestamp=start + 20_001)
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    with pytest.raises(ValueError, match="either"):
        log.snapshot_at()


def test_times_that_go_back_are_pushed_forward(store: CountingStore, clock: FrozenClock) -> None:
    builder = LogBuilder(store).create()
    first = clock()
    clock.advance(-5000)
    builder.commit()
    log = TableLog(store, now_ms=clock)
    assert [info.timestamp for info in log.history()] == [first + 1, first]
    assert log.snapshot_at(timestamp=first + 1).version == 1


def in_commit(ms: int) -> CommitInfo:
    return CommitInfo(in_commit_timestamp=ms, timestamp=ms, operation="WRITE")


def test_in_commit_timestamps_are_the_times_from_their_enablement_on(
    store: CountingStore, clock: FrozenClock
) -> None:
    start = clock()
    builder = LogBuilder(store).create()
    clock.advance(1000)
    builder.commit(
        in_commit(start + 500_000),
        Protocol(
            min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)
        ),
        metadata(
            configuration={
                "delta.enableInCommitTimestamps": "true",
                "delta.inCommitTimestampEnablementVersion": "1",
                "delta.inCommitTimestampEnablementTimestamp": str(start + 500_000),
            }
        ),
    )
    clock.advance(1000)
    builder.commit(in_commit(start + 600_000))
    log = TableLog(store, now_ms=clock)
    assert log.snapshot.timestamp == start + 600_000
    assert [info.timestamp for info in log.history()] == [start + 600_000, start + 500_000, start]
    assert log.version_at(start + 599_999) == 1
    assert log.version_at(start + 10_000) == 0
    builder.commit(CommitInfo(operation="WRITE"))
    with pytest.raises(CorruptLogError) as caught:
        log.update().timestamp  # noqa: B018
    assert caught.value.condition == "DELTA_MISSING_COMMIT_TIMESTAMP"


def test_changes_are_every_commit_with_all_actions(store: CountingStore) -> None:
    info = CommitInfo(operation="WRITE")
    LogBuilder(store).create().commit(info, add("a")).commit(remove("a"))
    log = TableLog(store)
    changes = list(log.get_changes(1))
    assert changes == [(1, [add("a"), info]), (2, [remove("a")])] or changes == [
        (1, [info, add("a")]),
        (2, [remove("a")]),
    ]


def test_history_is_newest_first_and_bounded(store: CountingStore) -> None:
    LogBuilder(store).create().commit(CommitInfo(operation="A")).commit(add("x"))
    log = TableLog(store)
    assert [(i.version, i.operation) for i in log.history()] == [(2, None), (1, "A"), (0, None)]
    assert [i.version for i in log.history(limit=1)] == [2]
    assert log.history(limit=0) == []


def test_a_missing_table_says_so(store: CountingStore) -> None:
    log = TableLog(store)
    assert not log.table_exists
    for ask in (lambda: log.snapshot, log.update, log.history):
        with pytest.raises(TableNotFoundError) as caught:
            ask()
        assert caught.value.condition == "DELTA_TABLE_NOT_FOUND"
    LogBuilder(store).create()
    assert log.table_exists


@pytest.mark.parametrize("missing", ["protocol", "metadata"])
def test_a_log_without_protocol_or_metadata_is_refused(store: CountingStore, missing: str) -> None:
    action = metadata() if missing == "protocol" else Protocol()
    LogBuilder(store).commit(action)
    with pytest.raises(CorruptLogError) as caught:
        TableLog(store).snapshot  # noqa: B018
    assert caught.value.condition == "DELTA_STATE_RECOVER_ERROR"
    assert caught.value.parameters["operation"] == missing


def test_a_wrong_checksum_file_is_not_trusted(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a"))
    crc = {
        "tableSizeBytes": 1,
        "numFiles": 7,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": metadata().to_json_value(),
        "protocol": Protocol().to_json_value(),
    }
    builder.write("_delta_log/00000000000000000000.crc", crc)
    with pytest.raises(CorruptLogError, match="numFiles: 7 in the checksum, 1 in the log"):
        TableLog(store).snapshot.num_files  # noqa: B018
    assert TableLog(store, verify_checksums=False).snapshot.num_files == 1
    crc["numFiles"] = 1
    crc["protocol"] = Protocol(min_writer_version=1).to_json_value()
    builder.write("_delta_log/00000000000000000000.crc", crc)
    with pytest.raises(CorruptLogError) as caught:
        TableLog(store).snapshot.num_files  # noqa: B018
    assert caught.value.condition == "DELTA_TXN_LOG_FAILED_INTEGRITY"
    builder.write("_delta_log/00000000000000000000.crc", b"garbage")
    assert TableLog(store).snapshot.num_files == 1


def test_a_checksum_file_may_list_features_in_another_order(store: CountingStore) -> None:
    def protocol(*features: str) -> Protocol:
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=features,
            writer_features=features,
        )

    builder = LogBuilder(store).create(add("a"), protocol=protocol("columnMapping", "v2Checkpoint"))
    crc = {
        "tableSizeBytes": 1,
        "numFiles": 1,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": metadata().to_json_value(),
        "protocol": protocol("v2Checkpoint", "columnMapping").to_json_value(),
    }
    builder.write("_delta_log/00000000000000000000.crc", crc)
    assert TableLog(store).snapshot.num_files == 1


def test_protocol_and_metadata_come_from_the_checksum_file_alone(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a"))
    builder.write(
        "_delta_log/00000000000000000000.crc",
        {
            "tableSizeBytes": 1,
            "numFiles": 1,
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": metadata().to_json_value(),
            "protocol": Protocol().to_json_value(),
        },
    )
    store.calls.clear()
    snapshot = TableLog(store).snapshot
    assert snapshot.protocol == Protocol()
    assert snapshot.schema.names == ("id", "v")
    assert ("read", commit_path(0)) not in store.calls


def test_a_local_table_is_read_like_any_other(table_path: Path) -> None:
    store: LogStore = LocalStore(table_path)
    builder = LogBuilder(store).create(add("a%20b"))
    log = TableLog(store)
    assert paths(log) == {"a%20b"}
    builder.commit(remove("a%20b"))
    assert log.update().num_files == 0
    assert "ä" not in repr(log.snapshot)  # a URI is ASCII
    assert "<table>" in log.snapshot._repr_html_()


def test_own_commits_are_taken_over_without_reading(store: CountingStore) -> None:
    builder = LogBuilder(store).create(add("a"))
    log = TableLog(store)
    assert log.snapshot.num_files == 1
    data = (add("b").json + "\n").encode()
    builder.raw(data)
    store.calls.clear()
    assert log.advance(1, data).num_files == 2
    assert store.calls == []
    builder.commit(add("c"))
    builder.raw(data)
    assert log.advance(3, data).version == 3
