"""The third document: the envelope, and what each action in it has."""

from __future__ import annotations

import time
from dataclasses import fields
from uuid import UUID

from pyspark_delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SingleAction,
)
from pyspark_delta.kernel.protocol.types import DATE, LONG, StructField, StructType
from tests.docs.seeds.claims import Claims

CLAIMS = Claims()
SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)
FILE = AddFile(
    path="day=2024-01-01/a.parquet",
    partition_values={"day": "2024-01-01"},
    size=9,
    modification_time=1,
    data_change=True,
    stats='{"numRecords":2}',
    tags={"k": "v"},
)
TABLE = Metadata(
    id="t",
    name="events",
    description="what happened",
    schema_string=SCHEMA,
    format=Format(options={"compression": "zstd"}),
    partition_columns=("day",),
    created_time=5,
    configuration={"delta.appendOnly": "true"},
)
# The kinds of action by the envelope's field for them.
MEMBERS: dict[str, Action] = {
    "protocol": Protocol(),
    "commit_info": CommitInfo(operation="WRITE"),
    "add": FILE,
    "remove": FILE.remove(7),
    "meta_data": TABLE,
    "txn": SetTransaction(app_id="a", version=3, last_updated=4),
}


def _check_wrapped(name: str) -> None:
    action = MEMBERS[name]
    assert getattr(action.wrap, name) is action
    others = [f.name for f in fields(SingleAction) if f.name != name]
    assert [getattr(action.wrap, other) for other in others] == [None] * len(others)


@CLAIMS.of("actions.Action", 1, 4)
def an_action_has_an_envelope_and_a_way_to_json(_: None) -> None:
    assert all(isinstance(action.wrap, SingleAction) for action in MEMBERS.values())


@CLAIMS.of("actions.Action.wrap", 5)
def wrap_holds_the_action(_: None) -> None:
    assert FILE.wrap.unwrap() is FILE


@CLAIMS.of("actions.SingleAction.json", 6)
def an_envelope_becomes_a_line(_: None) -> None:
    assert all(action.wrap.json == action.json for action in MEMBERS.values())


@CLAIMS.of("actions.Action.from_json", 7)
def a_line_becomes_the_action_of_its_kind(_: None) -> None:
    for action in MEMBERS.values():
        read = Action.from_json(action.json)
        assert type(read) is type(action)
        assert read == action


@CLAIMS.of("actions.SingleAction", 10)
def an_envelope_has_a_field_for_every_kind_that_can_be_given_and_one_is_set(_: None) -> None:
    for name, action in MEMBERS.items():
        assert SingleAction(**{name: action}) == action.wrap  # type: ignore[arg-type]
        _check_wrapped(name)


@CLAIMS.of("actions.SingleAction", range(11, 17))
def its_fields_are_these_and_none_unless_given(_: None) -> None:
    empty = SingleAction()
    assert [getattr(empty, name) for name in MEMBERS] == [None] * 6


@CLAIMS.of("actions.SingleAction.unwrap", 18)
def unwrap_gives_the_one_that_is_set(_: None) -> None:
    assert all(action.wrap.unwrap() is action for action in MEMBERS.values())


@CLAIMS.of("actions.Protocol.wrap", 20, 21, 22)
def a_protocol_is_an_action(_: None) -> None:
    assert issubclass(Protocol, Action)
    _check_wrapped("protocol")


@CLAIMS.of("actions.Action.reader_version", 23, 24)
def the_least_reader_version_has_a_default(_: None) -> None:
    assert Protocol().min_reader_version == Action.reader_version


@CLAIMS.of("actions.Action.writer_version", 25)
def the_least_writer_version_has_a_default(_: None) -> None:
    assert Protocol().min_writer_version == Action.writer_version


@CLAIMS.of("actions.AddFile", 27, 38, 39)
def an_added_file_is_an_action_and_may_be_of_a_partition(_: None) -> None:
    assert issubclass(AddFile, Action)
    assert FILE.partition_values == {"day": "2024-01-01"}
    _check_wrapped("add")


@CLAIMS.of("actions.AddFile.path", 28, 29)
def it_has_a_path(_: None) -> None:
    assert FILE.path == "day=2024-01-01/a.parquet"


@CLAIMS.of("actions.AddFile.data_change", 30)
def it_says_whether_data_changed(_: None) -> None:
    assert FILE.data_change is True


@CLAIMS.of("actions.AddFile.size", 31)
def it_has_a_size(_: None) -> None:
    assert FILE.size == 9


@CLAIMS.of("actions.AddFile.modification_time", 32)
def it_has_the_time_of_its_last_change(_: None) -> None:
    assert FILE.modification_time == 1


@CLAIMS.of("actions.AddFile.partition_values", 33)
def it_has_its_partition_values(_: None) -> None:
    assert AddFile(path="a", size=1, modification_time=1, data_change=True).partition_values == {}


@CLAIMS.of("actions.AddFile.stats", 34)
def it_has_statistics_as_text(_: None) -> None:
    assert (FILE.stats, FILE.num_records) == ('{"numRecords":2}', 2)


@CLAIMS.of("actions.AddFile.tags", 35)
def it_has_tags(_: None) -> None:
    assert FILE.tags == {"k": "v"}


@CLAIMS.of("actions.AddFile.remove", 41, 42)
def remove_takes_no_arguments_and_means_now_and_a_change_of_data(_: None) -> None:
    before = time.time_ns() // 1_000_000
    gone = FILE.remove()
    assert isinstance(gone, RemoveFile)
    assert (gone.path, gone.data_change) == (FILE.path, True)
    assert before <= (gone.deletion_timestamp or 0) <= time.time_ns() // 1_000_000


@CLAIMS.of("actions.RemoveFile", 45, 51, 52)
def a_removed_file_is_an_action(_: None) -> None:
    assert issubclass(RemoveFile, Action)
    _check_wrapped("remove")


@CLAIMS.of("actions.RemoveFile.path", 46, 47)
def it_has_the_path_of_the_file(_: None) -> None:
    assert FILE.remove(7).path == FILE.path


@CLAIMS.of("actions.RemoveFile.data_change", 48)
def its_data_change_is_true_unless_given(_: None) -> None:
    assert RemoveFile(path="a").data_change is True


@CLAIMS.of("actions.RemoveFile.deletion_timestamp", 49)
def it_has_the_time_of_the_removal(_: None) -> None:
    assert FILE.remove(7).deletion_timestamp == 7


@CLAIMS.of("actions.SetTransaction", 54, 59, 60)
def a_transaction_of_an_application_is_an_action(_: None) -> None:
    assert issubclass(SetTransaction, Action)
    _check_wrapped("txn")


@CLAIMS.of("actions.SetTransaction.app_id", range(55, 59))
def it_has_an_application_a_version_and_a_time(_: None) -> None:
    txn = MEMBERS["txn"]
    assert isinstance(txn, SetTransaction)
    assert (txn.app_id, txn.version, txn.last_updated) == ("a", 3, 4)


@CLAIMS.of("actions.CommitInfo", 62, 63, 64)
def the_note_of_a_commit_is_an_action(_: None) -> None:
    assert issubclass(CommitInfo, Action)
    _check_wrapped("commit_info")


@CLAIMS.of("actions.Metadata", 66, 67, 68)
def metadata_is_an_action(_: None) -> None:
    assert issubclass(Metadata, Action)
    _check_wrapped("meta_data")


@CLAIMS.of("actions.Metadata.id", 70, 71)
def its_id_is_a_fresh_one_unless_given(_: None) -> None:
    assert UUID(Metadata().id) != UUID(Metadata().id)


@CLAIMS.of("actions.Metadata.name", 72, 73)
def it_has_a_name_and_a_description(_: None) -> None:
    assert (TABLE.name, TABLE.description) == ("events", "what happened")


@CLAIMS.of("actions.Metadata.schema_string", 74, 81)
def its_schema_is_json_and_becomes_a_struct(_: None) -> None:
    assert TABLE.schema_string == SCHEMA
    assert TABLE.schema == StructType((StructField("id", LONG), StructField("day", DATE)))


@CLAIMS.of("actions.Metadata.format", 75)
def it_has_a_format(_: None) -> None:
    assert Metadata().format == Format()


@CLAIMS.of("actions.Metadata.partition_columns", 76)
def its_partition_columns_are_columns_of_the_schema(_: None) -> None:
    assert set(TABLE.partition_columns) <= set(TABLE.schema.names)


@CLAIMS.of("actions.Metadata.created_time", 77)
def it_has_the_time_of_the_creation(_: None) -> None:
    assert TABLE.created_time == 5


@CLAIMS.of("actions.Metadata.configuration", 78)
def it_has_properties(_: None) -> None:
    assert TABLE.configuration == {"delta.appendOnly": "true"}


@CLAIMS.of("actions.Metadata.partition_schema", 80, 82)
def its_partition_schema_takes_types_from_the_schema(_: None) -> None:
    assert TABLE.partition_schema == StructType((StructField("day", DATE),))


@CLAIMS.of("actions.Metadata.data_schema", 83)
def its_data_schema_is_the_rest(_: None) -> None:
    assert TABLE.data_schema == StructType((StructField("id", LONG),))


@CLAIMS.of("actions.Format.provider", 85, 86)
def a_format_is_parquet_unless_given(_: None) -> None:
    assert Format().provider == "parquet"


@CLAIMS.of("actions.Format.options", 87)
def a_format_has_options(_: None) -> None:
    assert TABLE.format.options == {"compression": "zstd"}
