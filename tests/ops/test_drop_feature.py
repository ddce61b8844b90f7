"""DROP FEATURE without Spark: what is cleaned up, what history is left, and who may interfere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pyspark_delta.errors import (
    ConstraintError,
    DeltaError,
    ProtocolError,
    UnsupportedProtocolError,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.ops.features.drop import DropRequest, run_drop_feature
from pyspark_delta.kernel.ops.features.removal import REMOVALS, FeatureCleanup, FileRewrites
from pyspark_delta.kernel.ops.features.row_tracking import (
    enablement_tags,
    prepare_row_tracking,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.column_mapping import without_mapping
from pyspark_delta.kernel.protocol.features import FEATURES, protocol_text
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import record_type_changes
from pyspark_delta.kernel.protocol.types import LONG, SHORT, StructField, StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from tests.support.clock import FrozenClock
from tests.support.transactions import add, memory_log, metadata, new_table, remove, vector

VECTORS = {"delta.enableDeletionVectors": "true"}
ROW_TRACKING = {"delta.enableRowTracking": "true"}
PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
DELETED = '{"numRecords":10,"tightBounds":false}'
PLAIN = "1,2"
FAILED = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"


class LogRewrites(FileRewrites):
    """Rewrites of files that are in the log alone: one new name for each."""

    def purge_vectors(self, log: DeltaLog) -> None:
        self._rewrite(log, "REORG", lambda file: file.deletion_vector is not None)

    def rewrite_widened(self, log: DeltaLog) -> int:
        return self._rewrite(log, "REORG", lambda file: True)

    def remove_mapping(self, log: DeltaLog) -> None:
        txn = log.start_transaction()
        txn.filter_files()
        left = {k: v for k, v in txn.metadata.configuration.items() if "columnMapping" not in k}
        plain = format_schema(without_mapping(txn.schema))
        txn.update_metadata(
            replace(txn.metadata, schema_string=plain, configuration=left), removes_mapping=True
        )
        txn.commit(_moved(txn, lambda file: True), "REMOVE COLUMN MAPPING")

    def _rewrite(self, log: DeltaLog, name: str, chosen: Callable[[AddFile], bool]) -> int:
        txn = log.start_transaction()
        actions = _moved(txn, chosen)
        if actions:
            txn.commit(actions, name)
        return len(actions) // 2


def _moved(txn: OptimisticTransaction, chosen: Callable[[AddFile], bool]) -> list[Action]:
    assert txn.snapshot is not None
    found = [file for file in add_files(txn.snapshot.files) if chosen(file)]
    txn.read_files(file.path for file in found)
    anew = [
        replace(file, path=f"{file.path}-anew", deletion_vector=None, data_change=False)
        for file in found
    ]
    now_ms = txn.log.now_ms()
    return [*(file.remove(now_ms, data_change=False) for file in found), *anew]


def drop(log: DeltaLog, feature: str, **request: Any) -> int:
    """Drop a feature of a table whose files are in the log alone."""
    cleaning = FeatureCleanup(log=log, rewrites=LogRewrites())
    return run_drop_feature(cleaning, DropRequest(feature=feature, **request))


def condition_of(log: DeltaLog, feature: str, **request: Any) -> str:
    """What refuses to drop a feature."""
    with pytest.raises(DeltaError) as caught:
        drop(log, feature, **request)
    return caught.value.condition


def told(log: DeltaLog) -> list[str]:
    """The operations of the table, oldest first."""
    return [info.operation or "" for info in reversed(log.history())]


def actions_of(log: DeltaLog, version: int) -> list[Action]:
    """The actions of one commit."""
    return dict(log.get_changes(version))[version]


def table_with(configuration: Mapping[str, str], *actions: Action, **settings: Any) -> DeltaLog:
    """A table with properties; a table without a log gets one that has a clock."""
    return new_table(
        configuration=configuration, actions=actions, log=settings.get("log") or memory_log()
    )


def protocol_of(log: DeltaLog) -> str:
    """The protocol of the newest version."""
    return protocol_text(log.update().protocol)


def set_properties(log: DeltaLog, **changes: str) -> None:
    """Set properties, a dot of their names being an underscore."""
    txn = log.start_transaction()
    named = {key.replace("_", "."): value for key, value in changes.items()}
    txn.update_metadata(
        replace(txn.metadata, configuration={**txn.metadata.configuration, **named})
    )
    txn.commit([], "SET TBLPROPERTIES")


# Which features, and which not.


def test_every_removable_feature_that_can_be_written_has_a_row() -> None:
    removable = {f.name for f in FEATURES.values() if f.removable and f.writable}
    assert REMOVALS.keys() == removable


def test_what_cannot_be_dropped_is_refused_before_anything_is_done() -> None:
    log = table_with({**ROW_TRACKING, "delta.feature.vacuumProtocolCheck": "supported"})
    assert condition_of(log, "nonsense") == "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"
    assert condition_of(log, "deletionVectors") == "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"
    assert condition_of(log, "appendOnly") == "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"
    assert condition_of(log, "domainMetadata") == "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"
    is_property = "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"
    assert condition_of(log, "delta.enableDeletionVectors") == is_property
    not_allowed = "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"
    assert condition_of(log, "rowTracking", truncate_history=True) == not_allowed
    assert log.update().version == 0


def test_checkpoint_protection_goes_with_the_history_alone() -> None:
    log = table_with({"delta.feature.checkpointProtection": "supported"})
    only = "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"
    assert condition_of(log, "checkpointProtection") == only
    assert log.update().version == 0


def test_a_feature_that_we_cannot_write_is_refused_as_such() -> None:
    log = memory_log()
    txn = log.start_transaction()
    txn.update_metadata(metadata())
    protocol = Protocol(
        min_writer_version=7, writer_features=("redirectWriterOnly-preview", "appendOnly")
    )
    txn.commit([], "CREATE TABLE")
    head = log.store.read("_delta_log/00000000000000000000.json").decode().splitlines()
    lines = [line for line in head if '"protocol"' not in line]
    log.store.overwrite(
        "_delta_log/00000000000000000000.json",
        "\n".join([*lines, protocol.json, ""]).encode(),
    )
    other = memory_log(log.store)
    with pytest.raises(UnsupportedProtocolError):
        drop(other, "redirectWriterOnly-preview")


# Features that only writers know.


def test_check_constraints_go_when_the_table_has_none() -> None:
    log = table_with({"delta.constraints.positive": "id > 0"})
    assert protocol_of(log) == "1,3"
    with pytest.raises(ConstraintError) as caught:
        drop(log, "checkConstraints")
    assert caught.value.condition == "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
    assert caught.value.parameters["constraints"] == "positive"
    txn = log.start_transaction()
    txn.update_metadata(replace(txn.metadata, configuration={}))
    txn.commit([], "DROP CONSTRAINT")
    assert drop(log, "CHECKCONSTRAINTS") == 2
    assert protocol_of(log) == PLAIN
    info = log.history(1)[0]
    assert dict(info.operation_parameters or {}) == {
        "featureName": "checkConstraints",
        "truncateHistory": False,
    }


def test_in_commit_timestamps_are_switched_off_and_their_origin_forgotten() -> None:
    log = table_with({})
    set_properties(log, delta_enableInCommitTimestamps="true")
    assert "delta.inCommitTimestampEnablementVersion" in log.update().metadata.configuration
    drop(log, "inCommitTimestamp")
    snapshot = log.update()
    assert snapshot.metadata.configuration == {"delta.enableInCommitTimestamps": "false"}
    assert protocol_of(log) == PLAIN
    assert told(log)[2:] == ["UNSET TBLPROPERTIES", "DROP FEATURE"]


def test_domains_end_before_their_feature_does() -> None:
    log = table_with(
        {"delta.feature.domainMetadata": "supported"},
        DomainMetadata(domain="mine", configuration="{}"),
        DomainMetadata(domain="yours", configuration="{}"),
    )
    drop(log, "domainMetadata")
    assert dict(log.update().domains) == {}
    assert protocol_of(log) == PLAIN
    cleanup = log.history(2)[1]
    assert cleanup.operation == "DOMAIN METADATA CLEANUP"
    assert dict(cleanup.operation_parameters or {}) == {"domainMetadataRemovedCount": 2}


def test_row_tracking_leaves_neither_ids_nor_properties() -> None:
    log = table_with(ROW_TRACKING, add("a"), add("b"))
    run_drop_feature(
        FeatureCleanup(log=log, rewrites=LogRewrites(), most_files=1),
        DropRequest(feature="rowTracking"),
    )
    snapshot = log.update()
    assert snapshot.metadata.configuration == {}
    assert protocol_of(log) == "1,7,None,[appendOnly,domainMetadata,invariants]"
    assert snapshot.files.column("baseRowId").null_count == 2
    assert dict(snapshot.domains) == {}
    batches = ["ROW TRACKING UNBACKFILL"] * 2
    assert told(log)[2:] == ["SET TBLPROPERTIES", *batches, "DROP FEATURE"]
    ended = [a for a in actions_of(log, 5) if isinstance(a, DomainMetadata)]
    assert [(a.domain, a.removed) for a in ended] == [("delta.rowTracking", True)]


def test_row_tracking_of_an_empty_table_goes_too() -> None:
    log = table_with(ROW_TRACKING)
    drop(log, "rowTracking")
    assert log.update().metadata.configuration == {}


def test_materialised_partition_columns_take_their_property_along() -> None:
    log = table_with({"delta.enableMaterializePartitionColumnsFeature": "true"})
    drop(log, "materializePartitionColumns")
    assert log.update().metadata.configuration == {}
    assert told(log) == ["CREATE TABLE", "DROP FEATURE"]


# Features that readers know: three checkpoints.


def test_dropping_vectors_leaves_three_checkpoints_and_their_protection() -> None:
    log = table_with(VECTORS)
    gone = add("a", stats=DELETED, deletion_vector=vector())
    log.start_transaction().commit([gone, add("b", stats=DELETED)], "WRITE")
    version = drop(log, "deletionVectors")
    assert told(log)[2:] == [
        "UNSET TBLPROPERTIES",
        "REORG",
        "Deletion Vector Tombstones",
        "Empty Commit",
        "Empty Commit",
        "Empty Commit",
        "DROP FEATURE",
    ]
    assert version == 8
    snapshot = log.update()
    assert snapshot.metadata.configuration == {PROTECTED: "8"}
    assert protocol_of(log) == "1,7,None,[appendOnly,checkpointProtection,invariants]"
    assert [each.version for each in list_log(log.store).checkpoints] == [5, 6, 7, 8]
    buried = [a for a in actions_of(log, 4) if isinstance(a, RemoveFile)]
    assert [a.path.startswith("deletion_vector_") for a in buried] == [True]
    assert log.snapshot_at(1).num_files == 2


def test_a_second_drop_buries_no_vector_twice() -> None:
    log = table_with(VECTORS)
    gone = add("a", stats=DELETED, deletion_vector=vector())
    log.start_transaction().commit([gone], "WRITE")
    assert condition_of(log, "deletionVectors", is_fast=False).endswith("WAIT_FOR_RETENTION_PERIOD")
    first = log.update().version
    drop(log, "deletionVectors")
    again = next(v for v in range(first, first + 5) if told(log)[v] == "Deletion Vector Tombstones")
    assert not [a for a in actions_of(log, again) if isinstance(a, RemoveFile)]


@pytest.mark.parametrize("feature", ["vacuumProtocolCheck", "v2Checkpoint", "columnMapping"])
def test_other_features_of_readers_go_behind_three_checkpoints_too(feature: str) -> None:
    settings = {
        "vacuumProtocolCheck": {"delta.feature.vacuumProtocolCheck": "supported"},
        "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
        "columnMapping": {"delta.columnMapping.mode": "name"},
    }
    log = table_with(settings[feature], add("a"))
    if feature == "v2Checkpoint":
        log.checkpoint()
    version = drop(log, feature)
    configuration = dict(log.update().metadata.configuration)
    assert configuration.pop(PROTECTED) == str(version)
    expected = {"delta.checkpointPolicy": "classic"} if feature == "v2Checkpoint" else {}
    assert configuration == expected
    features = {"appendOnly", "invariants", "checkpointProtection"}
    assert set(log.update().protocol.writer_features or ()) == features
    assert told(log)[-4:] == [*["Empty Commit"] * 3, "DROP FEATURE"]


def test_widened_columns_lose_their_record_after_their_files_are_written_anew() -> None:
    log = table_with({"delta.enableTypeWidening": "true"}, add("a"))
    before, after = (StructType((StructField("n", kind),)) for kind in (SHORT, LONG))
    txn = log.start_transaction()
    schema = record_type_changes(before, after)
    txn.update_metadata(replace(txn.metadata, schema_string=format_schema(schema)))
    txn.commit([], "CHANGE COLUMN")
    drop(log, "typeWidening")
    assert log.update().schema == after
    assert told(log)[3:6] == ["UNSET TBLPROPERTIES", "REORG", "DROP FEATURE"]
    assert set(log.history()[-6].operation_parameters or {}) == {"columns"}
    assert "typeWidening" not in protocol_of(log)


# Features that readers know: truncated history.


def test_history_is_cut_off_a_day_after_the_feature_went_out_of_use() -> None:
    clock = FrozenClock()
    log = table_with({"delta.checkpointPolicy": "v2"}, add("a"), log=memory_log(clock=clock))
    log.checkpoint()
    wait = "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"
    assert condition_of(log, "v2Checkpoint", truncate_history=True) == wait
    clock.advance(hours=1)
    exist = "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"
    assert condition_of(log, "v2Checkpoint", truncate_history=True) == exist
    clock.advance(hours=24)
    version = drop(log, "v2Checkpoint", truncate_history=True)
    assert protocol_of(log) == PLAIN
    assert log.history(1)[0].operation_parameters == {
        "featureName": "v2Checkpoint",
        "truncateHistory": True,
    }
    assert list_log(log.store).commits[0].version > 1
    assert log.update().version == version
    assert log.update().num_files == 1


def test_without_the_fast_way_the_log_must_expire_as_a_whole() -> None:
    clock = FrozenClock()
    log = table_with(VECTORS, log=memory_log(clock=clock))
    wait = "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"
    assert condition_of(log, "deletionVectors", is_fast=False) == wait
    clock.advance(days=2)
    exist = "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"
    assert condition_of(log, "deletionVectors", is_fast=False) == exist
    clock.advance(days=31)
    drop(log, "deletionVectors", is_fast=False)
    assert protocol_of(log) == PLAIN
    assert log.history(1)[0].operation_parameters["truncateHistory"] is False  # type: ignore[index]


def test_the_message_tells_how_long_to_wait() -> None:
    log = table_with(
        {**VECTORS, "delta.dropFeatureTruncateHistory.retentionDuration": "interval 3 days"}
    )
    with pytest.raises(ProtocolError) as caught:
        drop(log, "deletionVectors", truncate_history=True)
    assert caught.value.parameters == {
        "feature": "deletionVectors",
        "logRetentionPeriodKey": "delta.logRetentionDuration",
        "logRetentionPeriod": "interval 30 days",
        "truncateHistoryLogRetentionPeriod": "interval 3 days",
    }


def test_protection_itself_goes_once_all_that_it_protects_has_expired() -> None:
    clock = FrozenClock()
    log = table_with(VECTORS, add("a", stats=DELETED), log=memory_log(clock=clock))
    drop(log, "deletionVectors")
    wait = "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD"
    assert condition_of(log, "checkpointProtection", truncate_history=True) == wait
    clock.advance(hours=25)
    drop(log, "checkpointProtection", truncate_history=True)
    snapshot = log.update()
    assert snapshot.metadata.configuration == {}
    assert protocol_of(log) == PLAIN
    assert snapshot.num_files == 1
    assert told(log)[-2:] == ["UNSET TBLPROPERTIES", "DROP FEATURE"]


# Others at work.


class Intruder(LogRewrites):
    """Commits something while a feature is being dropped, after files were written anew."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def purge_vectors(self, log: DeltaLog) -> None:
        super().purge_vectors(log)
        self._act()


def test_a_feature_that_is_switched_on_again_meanwhile_is_not_dropped() -> None:
    log = table_with(VECTORS, add("a", stats=DELETED))
    rewrites = Intruder(lambda: set_properties(log, delta_enableDeletionVectors="true"))
    with pytest.raises(ProtocolError) as caught:
        run_drop_feature(
            FeatureCleanup(log=log, rewrites=rewrites), DropRequest(feature="deletionVectors")
        )
    assert caught.value.condition == FAILED
    assert "deletionVectors" in protocol_of(log)


class RacingLog:
    """Two handles on one table: what the other one does comes between read and commit."""

    def __init__(self, configuration: Mapping[str, str], *actions: Action) -> None:
        self.mine = table_with(configuration, *actions)
        self.other = memory_log(self.mine.store)

    def before_the_drop(self, act: Callable[[DeltaLog], None]) -> None:
        """Act once, when the commit that drops the feature is about to be written."""
        start = self.mine.transaction_on

        def transaction_on(snapshot: Any, **asked: str) -> OptimisticTransaction:
            txn = start(snapshot, **asked)
            commit = txn.commit

            def late(actions: Any, operation: Any, *rest: Any, **named: Any) -> Any:
                is_drop = getattr(operation, "name", operation) == "DROP FEATURE"
                if is_drop and "featureName" in operation.parameters:
                    act(self.other)
                return commit(actions, operation, *rest, **named)

            txn.commit = late  # type: ignore[method-assign]
            return txn

        self.mine.transaction_on = transaction_on  # type: ignore[method-assign]


def _writes(*actions: Action) -> Callable[[DeltaLog], None]:
    """Somebody who commits these."""

    def act(log: DeltaLog) -> None:
        log.start_transaction().commit(actions, "WRITE")

    return act


def test_a_harmless_commit_before_the_last_one_is_looked_at_and_let_pass() -> None:
    race = RacingLog(VECTORS, add("a", stats=DELETED))
    race.before_the_drop(_writes(add("z")))
    version = drop(race.mine, "deletionVectors")
    configuration = race.mine.update().metadata.configuration
    assert configuration[PROTECTED] == str(version)
    assert told(race.mine)[version - 1] == "WRITE"
    assert "deletionVectors" not in protocol_of(race.mine)


def test_a_commit_that_brings_traces_back_stops_the_drop() -> None:
    race = RacingLog({"delta.feature.deletionVectors": "supported"}, add("a", stats=DELETED))

    def brings_back(log: DeltaLog) -> None:
        vectored = add("a", stats=DELETED, deletion_vector=vector(), data_change=False)
        log.start_transaction().commit([remove("a"), vectored], "COMPUTE STATS")

    race.before_the_drop(brings_back)
    assert condition_of(race.mine, "deletionVectors") == FAILED
    assert "deletionVectors" in protocol_of(race.mine)


def test_truncated_history_gets_no_traces_by_a_commit_in_between() -> None:
    race = RacingLog({"delta.feature.deletionVectors": "supported"}, add("a", stats=DELETED))

    def there_and_back(log: DeltaLog) -> None:
        set_properties(log, delta_note="1")
        removed = replace(remove("a"), deletion_vector=vector())
        log.start_transaction().commit([removed], "WRITE")

    race.before_the_drop(there_and_back)
    # Other metadata stops it first; without, the vector of the tombstone does.
    with pytest.raises(DeltaError):
        drop(race.mine, "deletionVectors", truncate_history=True)
    race = RacingLog({"delta.feature.deletionVectors": "supported"}, add("a", stats=DELETED))
    race.before_the_drop(_writes(replace(remove("a"), deletion_vector=vector())))
    assert condition_of(race.mine, "deletionVectors", truncate_history=True) == FAILED


def test_files_that_come_while_row_ids_are_taken_away_lose_theirs() -> None:
    race = RacingLog(ROW_TRACKING, add("a"))

    def appends(log: DeltaLog) -> None:
        # Written by somebody who has not seen yet that row tracking is suspended.
        numbered = add("z", base_row_id=500, default_row_commit_version=3)
        log.start_transaction().commit([numbered], "WRITE")

    race.before_the_drop(appends)
    drop(race.mine, "rowTracking")
    files = race.mine.update().files
    assert sorted(files.column("path").to_pylist()) == ["a", "z"]
    assert files.column("baseRowId").null_count == 2


def test_writers_who_knew_the_feature_must_look_again() -> None:
    log = table_with(VECTORS)
    late = memory_log(log.store).start_transaction()
    drop(log, "deletionVectors")
    with pytest.raises(DeltaError):
        late.commit([add("a")], "WRITE")


def test_a_checkpoint_that_cannot_be_written_stops_the_drop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = table_with(VECTORS)
    monkeypatch.setattr(log, "checkpoint", lambda *_: None)
    assert condition_of(log, "deletionVectors") == "DELTA_FEATURE_DROP_CHECKPOINT_FAILED"
    assert "deletionVectors" in protocol_of(log)


# Row tracking on a table that exists.


def test_row_tracking_numbers_existing_files_before_it_is_enabled() -> None:
    log = table_with({}, add("a"), add("b"), add("c"))
    prepare_row_tracking(log, ROW_TRACKING, most_files=2)
    assert told(log)[2:] == ["UPGRADE PROTOCOL", *["ROW TRACKING BACKFILL"] * 2]
    parameters = [dict(info.operation_parameters or {}) for info in reversed(log.history(2))]
    assert parameters == [{"batchId": "0"}, {"batchId": "1"}]
    files = log.update().files
    assert sorted(files.column("baseRowId").to_pylist()) == [0, 10, 20]
    assert enablement_tags(ROW_TRACKING) == {"rowTrackingEnablementOnly": "true"}
    set_properties(log, delta_enableRowTracking="true")
    assert {file.path for file in add_files(log.update().files)} == {"a", "b", "c"}
    infos = [a for v in range(2, 5) for a in actions_of(log, v) if isinstance(a, CommitInfo)]
    assert [info.data_change for info in infos] == [False] * 3


def test_a_table_whose_files_have_ids_needs_no_backfill() -> None:
    log = table_with({"delta.feature.rowTracking": "supported"}, add("a"))
    prepare_row_tracking(log, ROW_TRACKING)
    assert log.update().version == 1
    prepare_row_tracking(log, {"delta.appendOnly": "true"})
    assert log.update().version == 1


def test_row_tracking_is_not_enabled_while_it_is_suspended() -> None:
    log = table_with({"delta.rowTrackingSuspended": "true"}, add("a"))
    with pytest.raises(DeltaError) as caught:
        prepare_row_tracking(log, ROW_TRACKING)
    assert caught.value.condition == "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"
    assert log.update().version == 1


def test_files_without_a_number_of_rows_cannot_be_numbered() -> None:
    log = table_with({}, add("a", stats=None))
    with pytest.raises(DeltaError) as caught:
        prepare_row_tracking(log, ROW_TRACKING)
    assert caught.value.condition == "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"
    assert log.update().version == 1


def test_a_backfill_revives_no_file_that_somebody_removed_meanwhile() -> None:
    race = RacingLog({}, add("a"), add("b"))
    start = race.mine.start_transaction
    acted: list[int] = []

    def start_transaction() -> OptimisticTransaction:
        txn = start()
        if len(acted) == 1:  # the protocol is upgraded, the first batch was read
            race.other.start_transaction().commit([remove("a"), add("c")], "WRITE")
        acted.append(txn.read_version)
        return txn

    race.mine.start_transaction = start_transaction  # type: ignore[method-assign]
    prepare_row_tracking(race.mine, ROW_TRACKING)
    files = race.mine.update().files
    assert sorted(files.column("path").to_pylist()) == ["b", "c"]
    assert files.column("baseRowId").null_count == 0
