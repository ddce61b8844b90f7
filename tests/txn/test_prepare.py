"""What a commit is before it is written: refused for a reason, or complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pyspark_delta.errors import (
    AppendOnlyError,
    DeltaError,
    InvalidActionsError,
    PropertyError,
    ProtocolError,
    SchemaError,
    UnsafePathError,
    UnsupportedProtocolError,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.column_mapping import ID_KEY, PHYSICAL_NAME_KEY
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.operations import operation, write
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
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

WIDE = '{"numRecords":10,"tightBounds":false}'
TIGHT = '{"numRecords":10,"tightBounds":true}'
VECTORS = {"delta.enableDeletionVectors": "true"}
ROW_TRACKING = {"delta.enableRowTracking": "true"}


def lines_of(log: DeltaLog, version: int) -> list[dict[str, Any]]:
    data = log.store.read(f"_delta_log/{version:020d}.json").decode()
    assert data.endswith("\n")
    return [json.loads(line) for line in data.splitlines()]


def cdc(path: str, data_change: bool = False) -> AddCDCFile:
    return AddCDCFile(path=path, size=1, data_change=data_change)


REFUSED: dict[str, tuple[list[Action], str]] = {
    "two files of one path": ([add("a"), add("a")], "DELTA_DUPLICATE_ACTIONS_FOUND"),
    "two files of one path, spelled differently": (
        [add("a%20b"), add("a b")],
        "DELTA_DUPLICATE_ACTIONS_FOUND",
    ),
    "two removes of one path": ([remove("a"), remove("a")], "DELTA_DUPLICATE_ACTIONS_FOUND"),
    "a file that is added and removed": ([add("a"), remove("a")], "DELTA_DUPLICATE_ACTIONS_FOUND"),
    "two metadata": ([metadata(), metadata()], "DELTA_INVALID_COMMIT_ACTIONS"),
    "two protocols": ([Protocol(), Protocol()], "DELTA_INVALID_COMMIT_ACTIONS"),
    "provenance of the caller's": ([CommitInfo()], "DELTA_INVALID_COMMIT_ACTIONS"),
    "an action of checkpoints": ([CheckpointMetadata(version=1)], "DELTA_INVALID_COMMIT_ACTIONS"),
    "two versions of one application": (
        [SetTransaction(app_id="q", version=1), SetTransaction(app_id="q", version=2)],
        "DELTA_INVALID_COMMIT_ACTIONS",
    ),
    "a domain without its feature": (
        [DomainMetadata(domain="d", configuration="{}")],
        "DELTA_DOMAIN_METADATA_NOT_SUPPORTED",
    ),
    "partition values of another table": ([add("p=1/a")], "DELTA_INVALID_PARTITIONING_SCHEMA"),
    "a vector on a table without": (
        [add("a", stats=WIDE, deletion_vector=vector())],
        "DELTA_ADDING_DELETION_VECTORS_DISALLOWED",
    ),
    "change files alone": ([cdc("_change_data/c")], "DELTA_INVALID_COMMIT_ACTIONS"),
    "change files beside a rearrangement": (
        [add("a", data_change=False), cdc("_change_data/c")],
        "DELTA_INVALID_COMMIT_ACTIONS",
    ),
    "change files as data": (
        [add("a"), cdc("_change_data/c", data_change=True)],
        "DELTA_INVALID_COMMIT_ACTIONS",
    ),
    "a path out of the table": ([add("../a", {})], "DELTA_UNSAFE_PATH"),
    "a path on another host": ([add("http://host/a", {})], "DELTA_UNSAFE_PATH"),
    "a protocol that is lower": (
        [Protocol(min_writer_version=1)],
        "DELTA_INVALID_PROTOCOL_DOWNGRADE",
    ),
    "a protocol of the future": (
        [Protocol(min_reader_version=4, min_writer_version=8)],
        "DELTA_INVALID_PROTOCOL_VERSION",
    ),
    "a feature of the future": (
        [
            Protocol(
                min_reader_version=1,
                min_writer_version=7,
                writer_features=("appendOnly", "invariants", "fromTheFuture"),
            )
        ],
        "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_commit_is_refused_before_anything_is_written(case: str) -> None:
    actions, condition = REFUSED[case]
    log = new_table()
    with pytest.raises(DeltaError) as caught:
        log.start_transaction().commit(actions, "WRITE")
    assert caught.value.condition == condition
    assert log.update().version == 0


def test_the_refusals_have_classes_that_tell_what_to_do() -> None:
    kinds: dict[str, type[DeltaError]] = {
        "two files of one path": InvalidActionsError,
        "a path out of the table": UnsafePathError,
        "partition values of another table": SchemaError,
        "a protocol that is lower": ProtocolError,
        "a protocol of the future": UnsupportedProtocolError,
    }
    for case, kind in kinds.items():
        with pytest.raises(kind):
            new_table().start_transaction().commit(REFUSED[case][0], "WRITE")


def test_a_refused_transaction_can_be_committed_with_other_actions() -> None:
    log = new_table()
    transaction = log.start_transaction()
    with pytest.raises(InvalidActionsError):
        transaction.commit([add("a"), add("a")], "WRITE")
    assert transaction.commit([add("a")], "WRITE").version == 1


def test_a_transaction_is_committed_once() -> None:
    transaction = new_table().start_transaction()
    transaction.commit([add("a")], "WRITE")
    attempts: tuple[Callable[[], object], ...] = (
        lambda: transaction.commit([add("b")], "WRITE"),
        lambda: transaction.commit_if_needed([], "WRITE"),
        lambda: transaction.update_metadata(metadata()),
    )
    for again in attempts:
        with pytest.raises(InvalidActionsError) as caught:
            again()
        assert caught.value.condition == "DELTA_TRANSACTION_ALREADY_COMMITTED"
        assert caught.value.parameters["version"] == "1"


def test_metadata_changes_once_in_a_transaction() -> None:
    transaction = new_table().start_transaction()
    transaction.update_metadata(metadata(description="one"))
    with pytest.raises(InvalidActionsError):
        transaction.update_metadata(metadata(description="two"))
    with pytest.raises(InvalidActionsError):
        transaction.commit([metadata(description="two")], "WRITE")


# The first commit.


def test_the_first_commit_of_a_table_needs_metadata() -> None:
    with pytest.raises(InvalidActionsError) as caught:
        memory_log().start_transaction().commit([add("a")], "WRITE")
    assert caught.value.condition == "DELTA_METADATA_ABSENT"


def test_the_first_commit_holds_provenance_metadata_and_protocol_in_this_order() -> None:
    log = memory_log()
    log.start_transaction().commit([metadata(), add("a")], "CREATE TABLE AS SELECT")
    lines = lines_of(log, 0)
    assert [next(iter(line)) for line in lines] == ["commitInfo", "metaData", "protocol", "add"]
    assert lines[2]["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert "readVersion" not in lines[0]["commitInfo"]


def test_a_protocol_that_is_given_stays_unless_the_metadata_needs_more() -> None:
    log = memory_log()
    log.start_transaction().commit([metadata(), Protocol(min_writer_version=1)], "CREATE TABLE")
    assert log.snapshot.protocol == Protocol(min_writer_version=1)
    other = memory_log()
    asked = [metadata(configuration=VECTORS), Protocol(min_writer_version=1)]
    other.start_transaction().commit(asked, "CREATE TABLE")
    assert other.snapshot.protocol.reader_features == ("deletionVectors",)


def test_properties_of_the_protocol_are_not_stored() -> None:
    asked = {
        "delta.minWriterVersion": "4",
        "delta.feature.v2Checkpoint": "supported",
        "delta.appendOnly": "true",
    }
    snapshot = new_table(configuration=asked).snapshot
    assert dict(snapshot.metadata.configuration) == {"delta.appendOnly": "true"}
    assert "v2Checkpoint" in (snapshot.protocol.writer_features or ())


def test_a_property_raises_the_protocol_of_a_table_that_exists() -> None:
    log = new_table(actions=[add("a")])
    transaction = log.start_transaction()
    transaction.update_metadata(metadata(configuration=VECTORS))
    assert "deletionVectors" in (transaction.protocol.reader_features or ())
    transaction.commit([], "SET TBLPROPERTIES")
    kinds = [next(iter(line)) for line in lines_of(log, 2)]
    assert kinds == ["commitInfo", "metaData", "protocol"]
    assert log.snapshot.protocol == transaction.protocol


def test_a_property_that_needs_nothing_writes_no_protocol() -> None:
    log = new_table()
    log.start_transaction().commit([metadata(configuration={"a": "b"})], "SET TBLPROPERTIES")
    assert [next(iter(line)) for line in lines_of(log, 1)] == ["commitInfo", "metaData"]


@pytest.mark.parametrize(
    ("configuration", "kind"),
    [
        ({"delta.checkpointInterval": "none"}, PropertyError),
        ({"delta.logRetentionDuration": "interval 1 day"}, PropertyError),
        ({"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"}, PropertyError),
        ({"delta.columnMapping.mode": "id"}, SchemaError),
    ],
)
def test_properties_that_do_not_go_together_are_refused(
    configuration: dict[str, str], kind: type[DeltaError]
) -> None:
    transaction = new_table(actions=[add("a")]).start_transaction()
    with pytest.raises(kind):
        transaction.update_metadata(metadata(configuration=configuration))


def test_a_schema_with_names_that_files_cannot_have_is_refused() -> None:
    schema = format_schema(StructType((StructField("a b", LONG),)))
    with pytest.raises(SchemaError, match="a b"):
        memory_log().start_transaction().update_metadata(metadata(schema_string=schema))


def test_a_table_that_was_made_elsewhere_may_keep_what_we_would_not_make() -> None:
    log = memory_log()
    schema = format_schema(StructType((StructField("a b", LONG),)))
    odd = replace(metadata(), schema_string=schema)
    data = "".join(f"{action.json}\n" for action in (Protocol(), odd))
    log.store.create("_delta_log/00000000000000000000.json", data.encode())
    changed = replace(odd, configuration={"user.key": "1"})
    log.start_transaction().commit([changed], "SET TBLPROPERTIES")
    assert log.snapshot.metadata.configuration["user.key"] == "1"


def test_partition_columns_change_with_the_operations_that_may() -> None:
    log = new_table("part")
    other = metadata("part", partition_columns=())
    with pytest.raises(SchemaError) as caught:
        log.start_transaction().commit([other], "SET TBLPROPERTIES")
    assert caught.value.condition == "DELTA_UNSUPPORTED_PARTITION_COLUMN_CHANGE"
    log.start_transaction().commit([other], write("Overwrite"))
    assert log.snapshot.metadata.partition_columns == ()


# Column mapping.


def test_a_new_table_with_column_mapping_gets_ids_and_physical_names() -> None:
    snapshot = new_table("part", configuration={"delta.columnMapping.mode": "name"}).snapshot
    ids = [f.metadata[ID_KEY] for f in snapshot.schema]
    names = {f.metadata[PHYSICAL_NAME_KEY] for f in snapshot.schema}
    assert ids == [1, 2, 3]
    assert all(str(name).startswith("col-") for name in names)
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"


def test_partition_values_are_checked_by_physical_name() -> None:
    log = new_table("part", configuration={"delta.columnMapping.mode": "name"})
    physical = str(log.snapshot.schema["part"].metadata[PHYSICAL_NAME_KEY])
    with pytest.raises(SchemaError):
        log.start_transaction().commit([add("x/a", {"part": "1"})], "WRITE")
    log.start_transaction().commit([add("x/a", {physical: "1"})], "WRITE")
    assert log.snapshot.num_files == 1


def test_mapping_an_existing_table_keeps_its_names() -> None:
    log = new_table(actions=[add("a")])
    log.start_transaction().commit(
        [metadata(configuration={"delta.columnMapping.mode": "name"})], "SET TBLPROPERTIES"
    )
    assert [f.metadata[PHYSICAL_NAME_KEY] for f in log.snapshot.schema] == ["id", "value"]


def test_a_new_column_of_a_mapped_table_gets_the_next_id() -> None:
    log = new_table(configuration={"delta.columnMapping.mode": "name"})
    old = log.snapshot.metadata
    schema = StructType((*old.schema, StructField("late", STRING)))
    wider = replace(old, schema_string=format_schema(schema))
    log.start_transaction().commit([wider], "ADD COLUMNS")
    assert log.snapshot.schema["late"].metadata[ID_KEY] == 3
    assert log.snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"


def test_mapping_and_change_feed_do_not_start_together_with_files() -> None:
    configuration = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
    log = memory_log()
    with pytest.raises(SchemaError) as caught:
        log.start_transaction().commit([metadata(configuration=configuration), add("a")], "WRITE")
    assert caught.value.condition == "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION"
    log.start_transaction().commit([metadata(configuration=configuration)], "CREATE TABLE")
    log.start_transaction().commit([add("a")], "WRITE")


# Deletion vectors, removes.


def test_a_vector_needs_a_row_count_and_wide_bounds() -> None:
    log = new_table(configuration=VECTORS, actions=[add("a")])
    for stats, condition in (
        (None, "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS"),
        ("not JSON", "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS"),
        (TIGHT, "DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED"),
        ('{"numRecords":10}', "DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED"),
    ):
        actions = [remove("a"), add("a", stats=stats, deletion_vector=vector())]
        with pytest.raises(InvalidActionsError) as caught:
            log.start_transaction().commit(actions, "DELETE")
        assert caught.value.condition == condition
    log.start_transaction().commit(
        [remove("a"), add("a", stats=WIDE, deletion_vector=vector())], "DELETE"
    )
    assert live_paths(log) == ["a"]


def test_a_restored_file_keeps_its_tight_bounds_beside_a_vector() -> None:
    log = new_table(configuration=VECTORS)
    log.start_transaction().commit([add("a", stats=TIGHT, deletion_vector=vector())], "RESTORE")
    assert live_paths(log) == ["a"]


def test_statistics_are_collected_again_where_no_new_vectors_are_taken() -> None:
    log = new_table(configuration=VECTORS)
    file = add("a", stats=WIDE, deletion_vector=vector())
    log.start_transaction().commit([file], "WRITE")
    off = metadata(configuration={"delta.enableDeletionVectors": "false"})
    log.start_transaction().commit([off], "SET TBLPROPERTIES")
    with pytest.raises(InvalidActionsError):
        log.start_transaction().commit([file], "WRITE")
    log.start_transaction().commit([replace(file, data_change=False)], "COMPUTE STATS")


def test_an_append_only_table_takes_rearrangements_but_no_deletes() -> None:
    log = new_table(configuration={"delta.appendOnly": "true"}, actions=[add("a")])
    with pytest.raises(AppendOnlyError) as caught:
        log.start_transaction().commit([remove("a")], "DELETE")
    assert caught.value.condition == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert caught.value.parameters["config"] == "delta.appendOnly"
    log.start_transaction().commit(
        [remove("a", data_change=False), add("b", data_change=False)], "OPTIMIZE"
    )
    assert live_paths(log) == ["b"]


def test_a_table_does_not_lose_its_protection_in_the_commit_that_removes() -> None:
    log = new_table(configuration={"delta.appendOnly": "true"}, actions=[add("a")])
    with pytest.raises(AppendOnlyError):
        log.start_transaction().commit([metadata(), remove("a")], "WRITE")


def test_data_may_change_and_be_rearranged_in_one_commit() -> None:
    log = new_table(actions=[add("a")])
    log.start_transaction().commit(
        [remove("a", data_change=False), add("b", data_change=False), add("c")], "WRITE"
    )
    assert live_paths(log) == ["b", "c"]


# Row tracking.


def test_new_files_of_a_tracked_table_get_row_ids_and_a_mark() -> None:
    log = new_table(configuration=ROW_TRACKING)
    log.start_transaction().commit([add("a"), add("b")], "WRITE")
    lines = lines_of(log, 1)
    assert [line["add"]["baseRowId"] for line in lines if "add" in line] == [0, 10]
    assert [line["add"]["defaultRowCommitVersion"] for line in lines if "add" in line] == [1, 1]
    (mark,) = [line["domainMetadata"] for line in lines if "domainMetadata" in line]
    assert json.loads(mark["configuration"])["rowIdHighWaterMark"] == 19
    log.start_transaction().commit([add("c")], "WRITE")
    assert [line["add"]["baseRowId"] for line in lines_of(log, 2) if "add" in line] == [20]


def test_a_file_without_a_row_count_cannot_be_numbered() -> None:
    log = new_table(configuration=ROW_TRACKING)
    with pytest.raises(InvalidActionsError) as caught:
        log.start_transaction().commit([add("a", stats=None)], "WRITE")
    assert caught.value.condition == "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"


def test_the_mark_of_row_ids_is_not_a_callers_to_write() -> None:
    log = new_table(configuration=ROW_TRACKING)
    mark = DomainMetadata(domain="delta.rowTracking", configuration='{"rowIdHighWaterMark":5}')
    with pytest.raises(InvalidActionsError):
        log.start_transaction().commit([mark], "WRITE")


def test_a_tracked_table_names_its_hidden_columns_and_keeps_the_names() -> None:
    log = new_table(configuration=ROW_TRACKING)
    key = "delta.rowTracking.materializedRowIdColumnName"
    name = log.snapshot.metadata.configuration[key]
    assert str(name).startswith("_row-id-col-")
    log.start_transaction().commit([metadata(configuration=ROW_TRACKING)], "SET TBLPROPERTIES")
    assert log.snapshot.metadata.configuration[key] == name


def test_a_commit_that_adds_no_rows_writes_no_mark() -> None:
    log = new_table(configuration=ROW_TRACKING, actions=[add("a")])
    log.start_transaction().commit([remove("a")], "DELETE")
    assert not any("domainMetadata" in line for line in lines_of(log, 2))


# Provenance and times.


def test_provenance_is_the_first_line_and_says_what_delta_spark_says() -> None:
    clock = FrozenClock()
    log = new_table("part", log=memory_log(clock=clock))
    clock.advance(7)
    transaction = log.start_transaction()
    transaction.commit(
        [add("part=1/a")],
        write("Append", partition_by=["part"]),
        tags={"tag": "value"},
        user_metadata="mine",
        metrics={"numFiles": 1, "numOutputRows": 10, "numOutputBytes": 100, "unheardOf": 1},
    )
    first = lines_of(log, 1)[0]
    assert list(first) == ["commitInfo"]
    assert first["commitInfo"] == {
        "timestamp": START_MS + 7,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["part"]'},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "1", "numOutputRows": "10", "numOutputBytes": "100"},
        "userMetadata": "mine",
        "tags": {"tag": "value"},
        "dataChange": True,
        "engineInfo": "pyspark-delta/0.1.0",
        "txnId": transaction.txn_id,
    }


def test_an_append_that_read_is_not_blind() -> None:
    log = new_table("part", actions=[add("part=1/a")])
    for read, blind in (
        (lambda txn: None, True),
        (lambda txn: txn.txn_version("q"), True),
        (lambda txn: txn.filter_files(), False),
        (lambda txn: txn.read_files(["part=1/a"]), False),
        (lambda txn: txn.read_files(["part=1/not there"]), True),
        (lambda txn: txn.read_whole_table(), False),
    ):
        transaction = log.start_transaction()
        read(transaction)
        done = transaction.commit([add(f"part=1/{transaction.txn_id}")], "WRITE")
        assert isinstance(done.actions[0], CommitInfo)
        assert done.actions[0].is_blind_append is blind


def test_a_commit_with_removes_or_change_files_is_not_blind() -> None:
    log = new_table(actions=[add("a")])
    changes: list[list[Action]] = [[remove("a")], [add("b"), cdc("_change_data/c")]]
    for actions in changes:
        done = log.start_transaction().commit(actions, "WRITE")
        assert isinstance(done.actions[0], CommitInfo)
        assert done.actions[0].is_blind_append is False


@pytest.mark.parametrize(
    ("level", "operation", "actions", "expected"),
    [
        ("Serializable", "WRITE", [add("b")], "Serializable"),
        ("Serializable", "DELETE", [], "SnapshotIsolation"),
        ("Serializable", "OPTIMIZE", [add("b", data_change=False)], "SnapshotIsolation"),
        ("Serializable", "SET TBLPROPERTIES", [metadata()], "Serializable"),
        (
            "Serializable",
            "STREAMING UPDATE",
            [SetTransaction(app_id="q", version=1)],
            "Serializable",
        ),
        ("WriteSerializable", "WRITE", [add("b")], "WriteSerializable"),
        ("WriteSerializable", "DELETE", [], "WriteSerializable"),
        ("WriteSerializable", "OPTIMIZE", [add("b", data_change=False)], "SnapshotIsolation"),
        ("WriteSerializable", "WRITE", [add("b", data_change=False)], "WriteSerializable"),
    ],
)
def test_the_level_of_a_commit_follows_from_what_it_does(
    level: str, operation: str, actions: list[Action], expected: str
) -> None:
    configuration = {"delta.isolationLevel": level}
    log = new_table(configuration=configuration)
    given = [
        replace(action, configuration=configuration) if isinstance(action, Metadata) else action
        for action in actions
    ]
    log.start_transaction().commit(given, operation)
    assert lines_of(log, 1)[0]["commitInfo"]["isolationLevel"] == expected


def test_an_empty_commit_is_skipped_where_nothing_depends_on_it() -> None:
    log = new_table()
    transaction = log.start_transaction()
    assert transaction.commit_if_needed([], operation("DELETE", predicate=["true"])) is None
    assert log.update().version == 0
    done = transaction.commit_if_needed([add("a")], "WRITE")
    assert done is not None
    assert done.version == 1


def test_an_empty_commit_is_kept_where_it_marks_a_read() -> None:
    log = new_table(configuration={"delta.isolationLevel": "WriteSerializable"})
    done = log.start_transaction().commit_if_needed([], operation("DELETE", predicate=["true"]))
    assert done is not None
    assert done.version == 1
    assert log.start_transaction().commit_if_needed([], "OPTIMIZE") is None


def test_an_empty_commit_that_is_asked_for_is_written() -> None:
    log = new_table()
    assert log.start_transaction().commit([], "Empty Commit").version == 1


def test_in_commit_timestamps_rise_even_when_the_clock_falls() -> None:
    clock = FrozenClock()
    log = new_table(
        configuration={"delta.enableInCommitTimestamps": "true"}, log=memory_log(clock=clock)
    )
    clock.advance(-1000)
    for version in (1, 2):
        log.start_transaction().commit([add(str(version))], "WRITE")
    stamps = [lines_of(log, v)[0]["commitInfo"]["inCommitTimestamp"] for v in range(3)]
    assert stamps == [START_MS, START_MS + 1, START_MS + 2]
    assert log.snapshot.timestamp == START_MS + 2
    assert "delta.inCommitTimestampEnablementVersion" not in log.snapshot.metadata.configuration


def test_switching_in_commit_timestamps_on_records_when() -> None:
    clock = FrozenClock()
    log = new_table(log=memory_log(clock=clock))
    clock.advance(5)
    on = metadata(configuration={"delta.enableInCommitTimestamps": "true"})
    log.start_transaction().commit([on], "SET TBLPROPERTIES")
    configuration = log.snapshot.metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "1"
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(START_MS + 5)
    assert lines_of(log, 1)[0]["commitInfo"]["inCommitTimestamp"] == START_MS + 5


def test_a_repeated_application_version_is_written_once() -> None:
    log = new_table()
    txn = SetTransaction(app_id="q", version=3)
    log.start_transaction().commit([txn, add("a"), txn], "WRITE")
    assert sum("txn" in line for line in lines_of(log, 1)) == 1


def test_an_application_sees_the_version_it_committed() -> None:
    log = new_table()
    assert log.start_transaction().txn_version("q") == -1
    log.start_transaction().commit([SetTransaction(app_id="q", version=3)], "STREAMING UPDATE")
    assert log.start_transaction().txn_version("q") == 3
    assert memory_log().start_transaction().txn_version("q") == -1


def test_an_upgrade_that_is_asked_for_alone_is_committed() -> None:
    log = new_table()
    transaction = log.start_transaction()
    transaction.update_protocol(upgraded(Protocol(), ["domainMetadata"]))
    transaction.commit([DomainMetadata(domain="d", configuration="{}")], "UPGRADE PROTOCOL")
    assert set(log.snapshot.domains) == {"d"}
    assert log.snapshot.protocol.min_writer_version == 7


def test_a_feature_is_dropped_by_the_operation_of_that_name_alone() -> None:
    log = new_table(configuration={"delta.feature.domainMetadata": "supported"})
    for name, version in (("WRITE", None), ("DROP FEATURE", 1)):
        transaction = log.start_transaction()
        transaction.update_protocol(Protocol())
        if version is None:
            with pytest.raises(ProtocolError):
                transaction.commit([], name)
        else:
            assert transaction.commit([], name).version == version
    assert log.snapshot.protocol == Protocol()


def test_a_transaction_on_no_table_has_nothing_to_show() -> None:
    transaction = memory_log().start_transaction()
    assert transaction.read_version == -1
    assert transaction.filter_files().num_rows == 0
    assert transaction.read_files(["a"]).num_rows == 0
    for look in (lambda: transaction.metadata, lambda: transaction.protocol):
        with pytest.raises(InvalidActionsError):
            look()
    transaction.update_metadata(metadata())
    assert list(transaction.schema.names) == ["id", "value"]
