"""Actions and their lines: what the seeds say of them, and the bytes delta-spark writes."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta import actions, kernel
from pyspark_delta.errors import CorruptLogError, SchemaError
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.action_parts import (
    DeletionVectorDescriptor,
    Format,
    JobInfo,
    NotebookInfo,
)
from pyspark_delta.kernel.protocol.actions import (
    ACTIONS,
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    SingleAction,
    num_records_of,
)
from pyspark_delta.kernel.protocol.codec import MalformedRecordError
from pyspark_delta.kernel.protocol.types import LONG, STRING
from tests.support.clock import FrozenClock
from tests.support.golden import GoldenTables, each_golden_table
from tests.support.schemas import JSON_VALUES, struct

SCHEMA = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"Day","type":"string","nullable":true,"metadata":{}}]}'
)
VECTOR = DeletionVectorDescriptor(
    storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=40, cardinality=6
)
ADD = AddFile(path="a.parquet", size=1, modification_time=2, data_change=True)

# One of each kind, with the line that delta-spark writes for it.
LINES: dict[str, tuple[Action, str]] = {
    "txn": (
        SetTransaction(app_id="q", version=3, last_updated=5),
        '{"txn":{"appId":"q","version":3,"lastUpdated":5}}',
    ),
    "add with everything": (
        AddFile(
            path="d=1/a%20b.parquet",
            partition_values={"d": "1", "e": None},
            size=1,
            modification_time=2,
            data_change=True,
            stats='{"numRecords":5}',
            tags={"INSERTION_TIME": "9"},
            deletion_vector=VECTOR,
            base_row_id=0,
            default_row_commit_version=4,
            clustering_provider="liquid",
        ),
        '{"add":{"path":"d=1/a%20b.parquet","partitionValues":{"d":"1","e":null},"size":1,'
        '"modificationTime":2,"dataChange":true,"stats":"{\\"numRecords\\":5}",'
        '"tags":{"INSERTION_TIME":"9"},"deletionVector":{"storageType":"u","pathOrInlineDv":"ab",'
        '"offset":1,"sizeInBytes":40,"cardinality":6},"baseRowId":0,"defaultRowCommitVersion":4,'
        '"clusteringProvider":"liquid"}}',
    ),
    "add with nothing": (
        ADD,
        '{"add":{"path":"a.parquet","partitionValues":{},"size":1,"modificationTime":2,'
        '"dataChange":true}}',
    ),
    "remove": (
        ADD.remove(deletion_timestamp=7),
        '{"remove":{"path":"a.parquet","deletionTimestamp":7,"dataChange":true,'
        '"extendedFileMetadata":true,"partitionValues":{},"size":1}}',
    ),
    "cdc": (
        AddCDCFile(path="_change_data/c.parquet", partition_values={"d": None}, size=3),
        '{"cdc":{"path":"_change_data/c.parquet","partitionValues":{"d":null},"size":3,'
        '"dataChange":false}}',
    ),
    "metaData": (
        Metadata(
            id="u-1",
            schema_string=SCHEMA,
            partition_columns=("Day",),
            configuration={"delta.appendOnly": "true"},
            created_time=1,
        ),
        '{"metaData":{"id":"u-1","format":{"provider":"parquet","options":{}},"schemaString":'
        + json.dumps(SCHEMA)
        + ',"partitionColumns":["Day"],"configuration":{"delta.appendOnly":"true"},'
        '"createdTime":1}}',
    ),
    "protocol": (
        Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=()
        ),
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],'
        '"writerFeatures":[]}}',
    ),
    "commitInfo": (
        CommitInfo(
            in_commit_timestamp=2,
            timestamp=1,
            user_id="7",
            operation="WRITE",
            operation_parameters={"mode": "Append", "partitionBy": '["a"]', "n": 1, "b": True},
            job=JobInfo(job_id="j", job_run_id="r"),
            notebook=NotebookInfo(notebook_id="n"),
            read_version=0,
            isolation_level="Serializable",
            is_blind_append=True,
            operation_metrics={"numFiles": "1"},
            user_metadata="hi",
            tags={"a": "b"},
            engine_info="e",
            txn_id="t",
        ),
        '{"commitInfo":{"inCommitTimestamp":2,"timestamp":1,"userId":"7","operation":"WRITE",'
        '"operationParameters":{"mode":"Append","partitionBy":"[\\"a\\"]","n":1,"b":true},'
        '"job":{"jobId":"j","jobRunId":"r"},"notebook":{"notebookId":"n"},"readVersion":0,'
        '"isolationLevel":"Serializable","isBlindAppend":true,"operationMetrics":{"numFiles":"1"},'
        '"userMetadata":"hi","tags":{"a":"b"},"engineInfo":"e","txnId":"t"}}',
    ),
    "domainMetadata": (
        DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=False),
        '{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{}","removed":false}}',
    ),
    "checkpointMetadata": (
        CheckpointMetadata(version=1, tags={"a": "b"}),
        '{"checkpointMetadata":{"version":1,"tags":{"a":"b"}}}',
    ),
    "sidecar": (
        SidecarFile(path="s.parquet", size_in_bytes=1, modification_time=2),
        '{"sidecar":{"path":"s.parquet","sizeInBytes":1,"modificationTime":2}}',
    ),
}


@pytest.mark.parametrize("kind", LINES)
def test_json_is_the_line_that_delta_spark_writes(kind: str) -> None:
    action, line = LINES[kind]
    assert action.json == line


@pytest.mark.parametrize("kind", LINES)
def test_from_json_is_the_way_back(kind: str) -> None:
    action, line = LINES[kind]
    assert Action.from_json(line) == action


@pytest.mark.parametrize("kind", LINES)
def test_wrap_puts_an_action_alone_into_its_envelope_and_unwrap_takes_it_out(kind: str) -> None:
    action, line = LINES[kind]
    envelope = action.wrap
    assert envelope.unwrap() is action
    assert [f.name for f in fields(envelope) if getattr(envelope, f.name) is not None] == [
        next(name for name in _ENVELOPE_NAMES if _camel(name) == action.KEY)
    ]
    assert envelope.json == line
    assert SingleAction.from_json(line) == envelope


_ENVELOPE_NAMES = [f.name for f in fields(SingleAction)]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_the_envelope_has_a_place_for_every_kind_of_action() -> None:
    assert sorted(map(_camel, _ENVELOPE_NAMES)) == sorted(ACTIONS)
    assert {"protocol", "commitInfo", "add", "remove", "metaData", "txn"} <= set(ACTIONS)


def test_the_family_of_actions_is_closed() -> None:
    def below(kind: type) -> set[str]:
        return {one.__name__ for one in kind.__subclasses__()}

    files = {"AddFile", "RemoveFile", "AddCDCFile"}
    others = {"CommitInfo", "Metadata", "Protocol", "SetTransaction"}
    later = {"DomainMetadata", "CheckpointMetadata", "SidecarFile"}
    assert below(FileAction) == files
    assert below(Action) == {"FileAction"} | others | later
    assert {kind.__name__ for kind in ACTIONS.values()} == files | others | later


@pytest.mark.parametrize("line", ["{}", '{"future":{"a":1}}', '{"add":null,"future":[]}'])
def test_a_line_of_unknown_keys_is_no_action(line: str) -> None:
    assert SingleAction.from_json(line) == SingleAction()
    assert Action.from_json(line) is None
    assert SingleAction.from_json(line).json == "{}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "a JSON object"),
        ("5", "a JSON object"),
        ('{"add":5}', "AddFile is not an object"),
        ('{"add":{}}', "no path"),
        ('{"add":{"path":"","size":1,"modificationTime":1,"dataChange":true}}', "empty path"),
        ('{"add":{"path":"a","size":"x","modificationTime":1,"dataChange":true}}', "size"),
        ('{"add":{"path":"a","size":1,"modificationTime":1,"dataChange":"yes"}}', "dataChange"),
        (
            '{"add":{"path":"a","size":1,"modificationTime":1,"dataChange":true,'
            '"partitionValues":[]}}',
            "partitionValues",
        ),
        (
            '{"add":{"path":"a","size":1,"modificationTime":1,"dataChange":true,'
            '"deletionVector":{"storageType":"u"}}}',
            "pathOrInlineDv",
        ),
        ('{"remove":{"deletionTimestamp":1}}', "no path"),
        ('{"protocol":{"minReaderVersion":1}}', "minWriterVersion"),
        ('{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":"a"}}', "list"),
        ('{"metaData":{"id":null}}', "no id"),
        ('{"txn":{"appId":"a"}}', "version"),
        ('{"commitInfo":[]}', "CommitInfo is not an object"),
        ('{"commitInfo":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_a_malformed_line_says_what_is_wrong(line: str, reason: str) -> None:
    with pytest.raises(CorruptLogError, match=reason) as refused:
        Action.from_json(line)
    assert refused.value.condition == "DELTA_INVALID_ACTION"


@pytest.mark.parametrize("kind", LINES)
def test_unknown_fields_survive_a_round_trip_behind_the_known_ones(kind: str) -> None:
    action, line = LINES[kind]
    key, value = next(iter(json.loads(line).items()))
    value["zz"] = {"deep": [1, None, "é"]}
    strange = json.dumps({key: value}, separators=(",", ":"), ensure_ascii=False)
    read = Action.from_json(strange)
    assert read is not None
    assert read != action
    assert read.json == strange


def test_unknown_fields_survive_inside_nested_records_too() -> None:
    line = (
        '{"metaData":{"id":"u","format":{"provider":"parquet","options":{},"zz":1},'
        '"partitionColumns":[],"configuration":{}}}'
    )
    read = Action.from_json(line)
    assert read is not None
    assert read.json == line
    vector = '{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":4,"cardinality":1,"zz":null}'
    assert DeletionVectorDescriptor.from_json_value(json.loads(vector)).extra == {"zz": None}


def test_commit_info_keeps_what_it_does_not_understand_and_never_fails() -> None:
    line = '{"commitInfo":{"timestamp":"soon","operation":5,"isBlindAppend":true}}'
    read = Action.from_json(line)
    assert isinstance(read, CommitInfo)
    assert (read.timestamp, read.operation, read.is_blind_append) == (None, None, True)
    assert json.loads(read.json) == json.loads(line)


def test_null_parameters_of_an_operation_are_written_as_null() -> None:
    info = CommitInfo(operation_parameters={"version": 1, "timestamp": None})
    assert info.json == '{"commitInfo":{"operationParameters":{"version":1,"timestamp":null}}}'


# Seed 002: the actions one by one.


def test_the_protocol_of_a_new_table_has_versions_1_and_2() -> None:
    assert Protocol().json == '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'


def test_the_format_of_a_table_is_parquet_without_options() -> None:
    assert Format() == Format(provider="parquet", options={})
    assert Metadata(id="u").format == Format()


def test_removing_a_file_gives_a_tombstone_with_the_same_path_and_the_time() -> None:
    remove = ADD.remove(deletion_timestamp=9)
    assert (remove.path, remove.deletion_timestamp, remove.data_change) == ("a.parquet", 9, True)
    assert ADD.remove(deletion_timestamp=9, data_change=False).data_change is False


def test_removing_a_file_carries_over_what_tells_it_from_others() -> None:
    add = Action.from_json(LINES["add with everything"][1])
    assert isinstance(add, AddFile)
    remove = add.remove(deletion_timestamp=9)
    assert remove.extended_file_metadata is True
    assert remove.partition_values == {"d": "1", "e": None}
    assert (remove.size, remove.tags) == (1, {"INSERTION_TIME": "9"})
    assert remove.deletion_vector == VECTOR
    assert (remove.base_row_id, remove.default_row_commit_version) == (0, 4)
    assert remove.stats == '{"numRecords":5}'


def test_a_tombstone_of_an_old_writer_has_no_more_than_a_path() -> None:
    remove = Action.from_json('{"remove":{"path":"a"}}')
    assert isinstance(remove, RemoveFile)
    assert (remove.deletion_timestamp, remove.data_change, remove.size) == (None, True, None)


def test_metadata_gives_the_schema_and_its_two_parts() -> None:
    metadata = Metadata(id="u", schema_string=SCHEMA, partition_columns=("day",))
    assert metadata.schema == struct(id=LONG, Day=STRING)
    assert metadata.partition_schema == struct(Day=STRING)
    assert metadata.data_schema == struct(id=LONG)


def test_a_partition_column_that_the_schema_lacks_is_named() -> None:
    metadata = Metadata(id="u", schema_string=SCHEMA, partition_columns=("nowhere",))
    with pytest.raises(SchemaError, match=r"DELTA_PARTITION_COLUMN_NOT_FOUND.*nowhere"):
        _ = metadata.partition_schema


def test_metadata_without_a_schema_has_no_columns() -> None:
    assert len(Metadata(id="u").schema) == 0


def test_the_number_of_records_comes_from_the_statistics_when_they_can_be_read() -> None:
    assert num_records_of('{"numRecords":5}') == 5
    for stats in (None, "", "{", "[]", '{"numRecords":"5"}', '{"numRecords":true}', "[" * 10_000):
        assert num_records_of(stats) is None


def test_a_deletion_vector_is_told_from_others_by_its_place() -> None:
    assert VECTOR.unique_id == "uab@1"
    inline = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1
    )
    assert inline.unique_id == "ix"


_TEXT = st.text(max_size=8)
_LONG = st.integers(-(2**63), 2**63 - 1)
_MAPS = st.dictionaries(_TEXT, st.none() | _TEXT, max_size=3)


def _extra(kind: type[Action]) -> st.SearchStrategy[dict[str, Any]]:
    known = {f.key for f in kind.FIELDS}
    keys = _TEXT.filter(lambda key: key not in known)
    return st.dictionaries(keys, JSON_VALUES, max_size=2)


_ADDS = st.builds(
    AddFile,
    path=_TEXT.filter(bool),
    partition_values=_MAPS,
    size=_LONG,
    modification_time=_LONG,
    data_change=st.booleans(),
    stats=st.none() | _TEXT,
    tags=st.none() | _MAPS,
    base_row_id=st.none() | _LONG,
    extra=_extra(AddFile),
)
_METADATA = st.builds(
    Metadata,
    id=_TEXT,
    name=st.none() | _TEXT,
    schema_string=st.none() | _TEXT,
    partition_columns=st.lists(_TEXT, max_size=3).map(tuple),
    configuration=_MAPS,
    extra=_extra(Metadata),
)
_COMMIT_INFOS = st.builds(
    CommitInfo,
    timestamp=st.none() | _LONG,
    operation=st.none() | _TEXT,
    operation_parameters=st.none() | st.dictionaries(_TEXT, JSON_VALUES, max_size=3),
    operation_metrics=st.none() | _MAPS,
    extra=_extra(CommitInfo),
)


@settings(max_examples=60)
@given(_ADDS | _METADATA | _COMMIT_INFOS)
def test_every_action_reads_back_from_its_line(action: Action) -> None:
    assert "\n" not in action.json
    assert Action.from_json(action.json) == action


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted(ACTIONS)), JSON_VALUES, max_size=2))
def test_no_json_object_is_anything_but_an_action_or_malformed(value: dict[str, Any]) -> None:
    try:
        SingleAction.from_json_value(value)
    except MalformedRecordError:
        return


@pytest.mark.parametrize("name", each_golden_table())
def test_lines_that_other_writers_wrote_are_written_back_byte_for_byte(
    name: str, golden: GoldenTables
) -> None:
    for path in sorted(golden(name).table.glob("_delta_log/0*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            action = Action.from_json(line)
            if action is None:
                continue
            if isinstance(action, Metadata) and '"createdTime":' in line.partition("schemaStr")[0]:
                # Four tables were edited by hand: their schema stands last.
                assert json.loads(action.json) == json.loads(line)
            else:
                assert action.json == line


def test_a_file_is_removed_now_with_a_change_of_data_unless_something_else_is_given() -> None:
    add = AddFile(path="a", size=1, modification_time=1, data_change=True)
    before = system_now_ms()
    removed = add.remove()
    assert before <= (removed.deletion_timestamp or 0) <= system_now_ms()
    assert removed.data_change
    assert add.remove(now_ms=FrozenClock(start_ms=7)).deletion_timestamp == 7
    assert add.remove(0, data_change=False) == RemoveFile(
        path="a",
        deletion_timestamp=0,
        data_change=False,
        extended_file_metadata=True,
        partition_values={},
        size=1,
    )


def test_metadata_and_protocol_need_no_arguments() -> None:
    first, second = Metadata(), Metadata()
    assert len({first.id, second.id}) == 2
    assert UUID(first.id)
    assert first.format == Format(provider="parquet", options={})
    assert first.created_time is None
    protocol = Protocol()
    assert protocol.min_reader_version == Action.reader_version == 1
    assert protocol.min_writer_version == Action.writer_version == 2
    with pytest.raises(CorruptLogError, match="no id"):
        Action.from_json('{"metaData":{}}')  # a line of the log makes nothing up


def test_the_actions_are_public() -> None:
    named = set(actions.__all__)
    assert named >= {kind.__name__ for kind in (*ACTIONS.values(), SingleAction, Action)}
    assert set(kernel.__all__) <= named
    assert all(getattr(kernel, name) is getattr(actions, name) for name in kernel.__all__)
    assert all(getattr(actions, name).__doc__ for name in named)


def test_a_class_derived_from_an_action_is_read_and_written_as_the_action() -> None:
    class Marked(AddFile):
        pass

    file = Marked(path="a", size=1, modification_time=2, data_change=True)
    assert Marked.FIELDS == AddFile.FIELDS
    assert Action.from_json(file.json) == AddFile(
        path="a", size=1, modification_time=2, data_change=True
    )
