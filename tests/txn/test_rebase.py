"""A commit that lost a race, as it must look after the winner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from pyspark_delta.errors import (
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    ProtocolError,
    TooManyAttemptsError,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.identity_columns import with_high_water_marks, with_identity
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.commit import (
    Beaten,
    CommitSettings,
    Committed,
    Committer,
    FileSystemCommitter,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.clock import START_MS, FrozenClock
from tests.support.transactions import (
    add,
    live_paths,
    memory_log,
    metadata,
    new_table,
    remove,
    vector,
)

ROW_TRACKING = {"delta.enableRowTracking": "true"}
SUPPORTS_ROW_TRACKING = {"delta.feature.rowTracking": "supported"}
TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}
DOMAINS = {"delta.feature.domainMetadata": "supported"}


def adds_of(log: DeltaLog, version: int) -> list[AddFile]:
    return [action for action in actions_of(log, version) if isinstance(action, AddFile)]


def actions_of(log: DeltaLog, version: int) -> list[Action]:
    return next(actions for found, actions in log.get_changes(version) if found == version)


def mark_of(log: DeltaLog, version: int) -> int | None:
    for action in actions_of(log, version):
        if isinstance(action, DomainMetadata) and action.domain == "delta.rowTracking":
            value: int = json.loads(action.configuration)["rowIdHighWaterMark"]
            return value
    return None


def set_properties(log: DeltaLog, **configuration: str) -> None:
    changed = replace(
        log.update().metadata,
        configuration={**log.snapshot.metadata.configuration, **configuration},
    )
    log.start_transaction().commit([changed], "SET TBLPROPERTIES")


# Row ids.


def test_row_ids_move_above_those_of_every_winner() -> None:
    log = new_table(configuration=ROW_TRACKING, actions=[add("a")])
    mine = log.start_transaction()
    log.start_transaction().commit([add("b")], "WRITE")
    log.start_transaction().commit([add("c"), add("d")], "WRITE")
    assert mine.commit([add("e"), add("f")], "WRITE").version == 4
    found = {file.path: file for v in range(1, 5) for file in adds_of(log, v)}
    assert [found[path].base_row_id for path in "abcdef"] == [0, 10, 20, 30, 40, 50]
    assert [found[p].default_row_commit_version for p in "abcdef"] == [1, 2, 3, 3, 4, 4]
    assert mark_of(log, 4) == 59
    domains = [a for a in actions_of(log, 4) if isinstance(a, DomainMetadata)]
    assert len(domains) == 1
    assert actions_of(log, 4)[1] == domains[0]


def test_a_file_that_comes_back_keeps_its_row_ids() -> None:
    configuration = {**ROW_TRACKING, "delta.enableDeletionVectors": "true"}
    log = new_table("part", configuration=configuration, actions=[add("part=1/a")])
    mine = log.start_transaction()
    (file,) = adds_of(log, 1)
    log.start_transaction().commit([add("part=2/b")], "WRITE")
    stats = '{"numRecords":10,"tightBounds":false}'
    updated = replace(file, stats=stats, deletion_vector=vector())
    mine.commit([file.remove(deletion_timestamp=1), updated, add("part=1/c")], "DELETE")
    old, new = adds_of(log, 3)
    assert (old.base_row_id, old.default_row_commit_version) == (0, 1)
    assert (new.base_row_id, new.default_row_commit_version) == (20, 3)


def test_a_winner_without_new_rows_leaves_the_numbers_and_moves_the_version() -> None:
    log = new_table(configuration=ROW_TRACKING, actions=[add("a")])
    mine = log.start_transaction()
    log.start_transaction().commit([remove("a")], "DELETE")
    mine.commit([add("b")], "WRITE")
    (file,) = adds_of(log, 3)
    assert (file.base_row_id, file.default_row_commit_version) == (10, 3)


def test_a_commit_without_new_rows_writes_no_mark_after_a_winner_that_did() -> None:
    log = new_table("part", configuration=ROW_TRACKING, actions=[add("part=1/a")])
    mine = log.start_transaction()
    log.start_transaction().commit([add("part=1/b")], "WRITE")
    mine.commit([remove("part=1/a")], "DELETE")
    assert mark_of(log, 3) is None
    log.start_transaction().commit([add("part=1/c")], "WRITE")
    assert adds_of(log, 4)[0].base_row_id == 20


def test_row_tracking_that_the_winner_brought_numbers_my_files() -> None:
    log = new_table()
    mine = log.start_transaction()
    winner = log.start_transaction()
    winner.update_protocol(upgraded(winner.protocol, ["rowTracking"]))
    winner.commit([add("b")], "UPGRADE PROTOCOL")
    mine.commit([add("a")], "WRITE")
    (file,) = adds_of(log, 2)
    assert (file.base_row_id, file.default_row_commit_version) == (10, 2)
    assert mark_of(log, 2) == 19


def test_row_tracking_that_the_winner_switched_on_is_not_preserved_by_me() -> None:
    log = new_table(configuration=SUPPORTS_ROW_TRACKING)
    mine = log.start_transaction()
    set_properties(log, **ROW_TRACKING)
    mine.commit([add("a")], "WRITE", tags={"other": "1"})
    info = log.history(1)[0]
    assert info.tags == {"other": "1", "delta.rowTracking.preserved": "false"}


def test_a_backfill_leaves_alone_what_a_winner_touched() -> None:
    log = new_table(actions=[add("a"), add("b"), add("c")])
    upgrade = log.start_transaction()
    upgrade.update_protocol(upgraded(upgrade.protocol, ["rowTracking"]))
    upgrade.commit([], "UPGRADE PROTOCOL")
    backfill = log.start_transaction()
    backfill.filter_files()
    log.start_transaction().commit([remove("a"), add("d")], "WRITE")
    again = [add(path, data_change=False) for path in "abc"]
    backfill.commit(again, "ROW TRACKING BACKFILL")
    assert live_paths(log) == ["b", "c", "d"]
    assert [file.path for file in adds_of(log, 4)] == ["b", "c"]
    ids = [file.base_row_id for v in (3, 4) for file in adds_of(log, v)]
    assert ids == [0, 10, 20]


def test_a_winning_backfill_passes_its_ids_on() -> None:
    configuration = {"delta.enableDeletionVectors": "true"}
    log = new_table(configuration=configuration, actions=[add("a"), add("b")])
    upgrade = log.start_transaction()
    upgrade.update_protocol(upgraded(upgrade.protocol, ["rowTracking"]))
    upgrade.commit([], "UPGRADE PROTOCOL")
    mine = log.start_transaction()
    mine.filter_files()
    again = [add(path, data_change=False) for path in "ab"]
    log.start_transaction().commit(again, "ROW TRACKING BACKFILL")
    stats = '{"numRecords":10,"tightBounds":false}'
    changes: list[Action] = [
        remove("a"),
        add("a", stats=stats, deletion_vector=vector()),
        add("c"),
    ]
    mine.commit(changes, "DELETE")
    done = actions_of(log, 4)
    removed = next(action for action in done if isinstance(action, RemoveFile))
    found = {action.path: action for action in done if isinstance(action, AddFile)}
    assert (removed.base_row_id, removed.default_row_commit_version) == (0, 3)
    assert (found["a"].base_row_id, found["a"].default_row_commit_version) == (0, 3)
    assert (found["c"].base_row_id, found["c"].default_row_commit_version) == (20, 4)
    assert mark_of(log, 4) == 29


def test_taking_row_ids_away_takes_them_from_winners_too() -> None:
    log = new_table(configuration=SUPPORTS_ROW_TRACKING, actions=[add("a"), add("b")])
    mine = log.start_transaction()
    log.start_transaction().commit([add("c"), remove("b")], "WRITE")
    stripped = [
        replace(f, base_row_id=None, default_row_commit_version=None, data_change=False)
        for f in adds_of(log, 1)
    ]
    suspended = replace(
        mine.metadata,
        configuration={**mine.metadata.configuration, "delta.rowTrackingSuspended": "true"},
    )
    mine.commit([suspended, *stripped], "ROW TRACKING UNBACKFILL")
    assert {f.path: f.base_row_id for f in adds_of(log, 3)} == {"a": None, "c": None}
    assert live_paths(log) == ["a", "c"]


def test_row_ids_are_not_given_and_taken_at_once() -> None:
    log = new_table(configuration=SUPPORTS_ROW_TRACKING, actions=[add("a")])
    mine = log.start_transaction()
    log.start_transaction().commit([add("a", data_change=False)], "ROW TRACKING BACKFILL")
    with pytest.raises(ProtocolError) as caught:
        mine.commit([add("a", data_change=False)], "ROW TRACKING UNBACKFILL")
    assert "BACKFILL" in caught.value.condition


# Times.


def test_an_in_commit_timestamp_is_after_every_winners() -> None:
    clock = FrozenClock()
    log = new_table(configuration=TIMESTAMPS, log=memory_log(clock=clock))
    mine = log.start_transaction()
    clock.advance(5000)
    log.start_transaction().commit([add("a")], "WRITE")
    log.start_transaction().commit([add("b")], "WRITE")
    clock.advance(-5000)
    mine.commit([add("c")], "WRITE")
    stamps = [info.in_commit_timestamp for info in reversed(log.history())]
    assert stamps == [START_MS, START_MS + 5000, START_MS + 5001, START_MS + 5002]


def test_the_commit_that_switches_timestamps_on_records_the_version_it_became() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock))
    mine = log.start_transaction()
    clock.advance(10)
    log.start_transaction().commit([add("a")], "WRITE")
    clock.advance(-10)
    mine.commit([metadata(configuration=TIMESTAMPS)], "SET TBLPROPERTIES")
    configuration = log.snapshot.metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(START_MS + 11)
    assert log.history(1)[0].in_commit_timestamp == START_MS + 11


def test_timestamps_that_the_winner_switched_on_are_written_by_me() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock))
    mine = log.start_transaction()
    clock.advance(100)
    set_properties(log, **TIMESTAMPS)
    clock.advance(-100)
    mine.commit([add("a")], "WRITE")
    assert log.history(1)[0].in_commit_timestamp == START_MS + 101
    assert log.snapshot.timestamp == START_MS + 101


# Metadata that a writer may ride over.


RIDES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "deletion vectors": ({}, {"delta.enableDeletionVectors": "true"}),
    "V2 checkpoints": ({}, {"delta.checkpointPolicy": "v2"}),
    "in-commit timestamps": ({}, TIMESTAMPS),
    "row tracking": (SUPPORTS_ROW_TRACKING, ROW_TRACKING),
    "column mapping by name": ({}, {"delta.columnMapping.mode": "name"}),
}
STOPS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "append only": ({}, {"delta.appendOnly": "true"}),
    "change data feed": ({}, {"delta.enableChangeDataFeed": "true"}),
    "a constraint": ({}, {"delta.constraints.c": "id > 0"}),
    "a property of the user's": ({}, {"user.key": "1"}),
    "deletion vectors off": (
        {"delta.enableDeletionVectors": "true"},
        {"delta.enableDeletionVectors": "false"},
    ),
    "timestamps off": (TIMESTAMPS, {"delta.enableInCommitTimestamps": "false"}),
    "one that may and one that may not": (
        {},
        {"delta.enableDeletionVectors": "true", "user.key": "1"},
    ),
}


@pytest.mark.parametrize("case", RIDES)
def test_a_writer_rides_over_a_feature_that_allows_more(case: str) -> None:
    before, change = RIDES[case]
    log = new_table("part", configuration=before)
    mine = log.start_transaction()
    mine.filter_files()
    set_properties(log, **change)
    after = log.snapshot.metadata
    assert mine.commit([add("part=1/a")], "WRITE").version == 2
    assert log.snapshot.metadata == after
    assert live_paths(log) == ["part=1/a"]


@pytest.mark.parametrize("case", STOPS)
def test_a_writer_stops_at_any_other_change_of_metadata(case: str) -> None:
    before, change = STOPS[case]
    log = new_table(configuration=before)
    mine = log.start_transaction()
    set_properties(log, **change)
    with pytest.raises(MetadataChangedException):
        mine.commit([add("a")], "WRITE")


def test_a_writer_stops_at_a_new_column() -> None:
    log = new_table()
    mine = log.start_transaction()
    old = log.snapshot.metadata
    schema = StructType((*old.schema, StructField("new", STRING)))
    wider = replace(old, schema_string=format_schema(schema))
    log.start_transaction().commit([wider], "ADD COLUMNS")
    with pytest.raises(MetadataChangedException):
        mine.commit([add("a")], "WRITE")


def test_a_writer_stops_at_a_table_that_was_replaced() -> None:
    log = new_table()
    mine = log.start_transaction()
    log.start_transaction().commit([metadata(id="another-table")], "REPLACE TABLE")
    with pytest.raises(MetadataChangedException):
        mine.commit([add("a")], "WRITE")


def identity_metadata(mark: int | None) -> Metadata:
    schema = StructType((with_identity(StructField("n", LONG)), StructField("v", STRING)))
    if mark is not None:
        schema = with_high_water_marks(schema, {"n": mark})
    return metadata(schema_string=format_schema(schema))


def test_a_writer_rides_over_identity_marks_unless_it_moves_them_too() -> None:
    log = memory_log()
    log.start_transaction().commit([identity_metadata(None)], "CREATE TABLE")
    mine, rival = log.start_transaction(), log.start_transaction()
    done = log.start_transaction().commit([identity_metadata(5), add("a")], "WRITE")
    assert done.actions[0].to_json_value()["tags"] == {"delta.identity.schemaUpdate": "true"}
    assert mine.commit([add("b")], "WRITE").version == 2
    with pytest.raises(MetadataChangedException):
        rival.commit([identity_metadata(7), add("c")], "WRITE")


# Protocols and domains.


def test_a_writer_goes_on_under_the_winners_protocol() -> None:
    log = new_table()
    mine = log.start_transaction()
    winner = log.start_transaction()
    winner.update_protocol(upgraded(winner.protocol, ["domainMetadata"]))
    winner.commit([], "UPGRADE PROTOCOL")
    mine.commit([add("a")], "WRITE")
    assert "domainMetadata" in (log.snapshot.protocol.writer_features or ())


def test_a_dropped_feature_stops_every_writer() -> None:
    log = new_table(configuration=DOMAINS)
    mine = log.start_transaction()
    winner = log.start_transaction()
    winner.update_protocol(Protocol())
    winner.commit([], "DROP FEATURE")
    with pytest.raises(ProtocolChangedException):
        mine.commit([add("a")], "WRITE")


@pytest.mark.parametrize(("is_valid", "raises"), [(True, False), (False, True), (None, True)])
def test_dropping_a_feature_is_looked_at_again_after_a_winner(
    is_valid: bool | None, raises: bool
) -> None:
    log = new_table(configuration=DOMAINS)
    asked: list[int] = []

    def look(version: int) -> bool:
        asked.append(version)
        return bool(is_valid)

    mine = log.start_transaction()
    mine.update_protocol(Protocol(), is_removal_valid=None if is_valid is None else look)
    log.start_transaction().commit([add("a")], "WRITE")
    if raises:
        with pytest.raises(ProtocolError) as caught:
            mine.commit([], "DROP FEATURE")
        assert caught.value.condition == "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
    else:
        assert mine.commit([], "DROP FEATURE").version == 2
        assert asked == [1]


def test_protected_checkpoints_follow_the_version_of_the_drop() -> None:
    key = "delta.requireCheckpointProtectionBeforeVersion"
    log = new_table(configuration={**DOMAINS, "delta.feature.checkpointProtection": "supported"})
    mine = log.start_transaction()
    mine.update_protocol(
        Protocol(
            min_writer_version=7,
            writer_features=("appendOnly", "invariants", "checkpointProtection"),
        ),
        is_removal_valid=lambda version: True,
    )
    protected = replace(mine.metadata, configuration={**mine.metadata.configuration, key: "1"})
    mine.update_metadata(protected)
    log.start_transaction().commit([add("a")], "WRITE")
    mine.commit([], "DROP FEATURE")
    assert log.snapshot.metadata.configuration[key] == "2"


def test_a_replaced_table_ends_the_domains_that_the_winner_brought() -> None:
    log = new_table(configuration=DOMAINS)
    mine = log.start_transaction()
    log.start_transaction().commit([DomainMetadata(domain="d", configuration="{}")], "WRITE")
    mine.commit([metadata(id="another")], "REPLACE TABLE")
    assert dict(log.snapshot.domains) == {}
    assert not any(isinstance(a, DomainMetadata) and not a.removed for a in actions_of(log, 2))


# Giving up.


class AlwaysLate(Committer):
    """Commits behind another writer who is there first every time."""

    def __init__(self, store: LogStore) -> None:
        self.store = store

    def commit(
        self, version: int, data: bytes | Iterable[bytes], txn_id: str
    ) -> Committed | Beaten:
        line = add(f"{version}").json + "\n"
        self.store.create(commit_path(version), line.encode())
        return FileSystemCommitter(self.store).commit(version, data, txn_id)


def test_a_commit_gives_up_after_as_many_lost_races_as_it_is_allowed() -> None:
    log = new_table()
    transaction = OptimisticTransaction(
        log, log.snapshot, committer=AlwaysLate(log.store), settings=CommitSettings(attempts=3)
    )
    with pytest.raises(TooManyAttemptsError) as caught:
        transaction.commit([add("mine")], "WRITE")
    assert caught.value.condition == "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
    assert caught.value.parameters["numAttempts"] == "3"
    assert caught.value.parameters["startVersion"] == "1"
    assert caught.value.parameters["failVersion"] == "4"


def test_an_old_transaction_does_not_take_a_name_that_clean_up_freed() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock))
    mine = log.start_transaction()
    for number in range(3):
        log.start_transaction().commit([add(f"{number}")], "WRITE")
    log.checkpoint()
    for version in range(3):
        log.store.delete(f"_delta_log/{version:020d}.json")
    clock.advance(hours=2)
    with pytest.raises(ConcurrentWriteException):
        mine.commit([add("mine")], "WRITE")
    assert not log.store.exists("_delta_log/00000000000000000001.json")


def test_an_old_transaction_commits_while_the_log_is_whole() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock))
    mine = log.start_transaction()
    log.start_transaction().commit([add("a")], "WRITE")
    clock.advance(days=3)
    assert mine.commit([add("mine")], "WRITE").version == 2
