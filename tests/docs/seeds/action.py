"""The first document: what an action is, its line, its envelope, and the schema of a log."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import pytest

from pyspark_delta import ConcurrentDeleteDeleteException, DeltaLog
from pyspark_delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    FileAction,
    Metadata,
    Protocol,
    SetTransaction,
    SingleAction,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol import actions as inner
from pyspark_delta.kernel.protocol.types import StructType
from tests.docs.seeds.claims import Claims
from tests.support.clock import START_MS, FrozenClock
from tests.support.tree_string import tree_string

CLAIMS = Claims()
FILE = AddFile(path="a.parquet", size=9, modification_time=START_MS, data_change=True)
OTHER = AddFile(path="b.parquet", size=8, modification_time=START_MS, data_change=True)


@dataclass
class Table:
    """A table without Spark: version 0 defines it, 1 adds a file, 2 adds another at large."""

    path: Path

    @cached_property
    def log(self) -> DeltaLog:
        log = DeltaLog.for_table(self.path, now_ms=FrozenClock())
        txn = log.start_transaction()
        txn.update_metadata(Metadata(id="t"))
        txn.commit([], "CREATE TABLE")
        log.start_transaction().commit([FILE, SetTransaction(app_id="a", version=1)], "WRITE")
        log.start_transaction().commit_large(iter([OTHER]), "WRITE")
        return log

    def lines(self, version: int) -> list[str]:
        """A commit's lines."""
        return self.log.store.read(f"_delta_log/{version:020}.json").decode().splitlines()


@CLAIMS.of("actions.Action", 3)
def an_action_changes_the_state_of_a_table(table: Table) -> None:
    assert table.log.snapshot_at(0).num_files == 0
    assert list(add_files(table.log.snapshot_at(1).files)) == [FILE]


@CLAIMS.of("actions.Action.json", 10, 13)
def json_is_text_and_says_the_wrapped_action(table: Table) -> None:
    assert FILE.json == FILE.wrap.json
    assert json.loads(FILE.json).keys() == {"add"}


@CLAIMS.of("kernel.protocol.codec.dumps", 15)
def one_json_writer_spells_all_actions_as_jackson_does(table: Table) -> None:
    assert SetTransaction(app_id="é\x1f", version=1).json == (
        '{"txn":{"appId":"é\\u001F","version":1}}'
    )


@CLAIMS.of("OptimisticTransaction.commit", 17, 19)
def a_commit_writes_the_json_of_its_actions(table: Table) -> None:
    assert table.lines(1)[1:] == [FILE.json, SetTransaction(app_id="a", version=1).json]


@CLAIMS.of("OptimisticTransaction.commit_large", 20)
def a_large_commit_writes_it_too(table: Table) -> None:
    assert table.lines(2)[-1] == OTHER.json


@CLAIMS.of("actions.Action.wrap", 25, 28, 30, 33)
def an_action_is_wrapped_to_be_serialized(table: Table) -> None:
    assert isinstance(FILE.wrap, SingleAction)
    assert FILE.wrap == SingleAction(add=FILE)
    assert SingleAction.from_json(FILE.json) == FILE.wrap


@CLAIMS.of("Snapshot.files", 32)
def a_snapshot_reconstructs_the_state_from_such_lines(table: Table) -> None:
    newest = table.log.snapshot
    assert {file.path for file in add_files(newest.files)} == {"a.parquet", "b.parquet"}
    assert newest.transactions["a"].version == 1


@CLAIMS.of("kernel.protocol.actions", 38)
def the_family_is_closed_and_lives_in_one_file(table: Table) -> None:
    def family(kind: type) -> set[type]:
        return {kind}.union(*(family(one) for one in kind.__subclasses__()))

    # Programs, and tests before this one, may derive from ours.
    modules = {kind.__module__ for kind in family(Action)}
    ours = {name for name in modules if name.partition(".")[0] == "pyspark_delta"}
    assert ours == {inner.__name__}, modules


@CLAIMS.of("actions.FileAction", range(42, 47))
def these_are_its_members(table: Table) -> None:
    assert {CommitInfo, FileAction, Metadata, Protocol, SetTransaction} <= set(
        Action.__subclasses__()
    )


@CLAIMS.of("actions.Action.log_schema", 51, 54)
def the_log_schema_is_that_of_an_envelope(table: Table) -> None:
    assert isinstance(Action.log_schema, StructType)
    spelt = ["".join(part.capitalize() for part in f.name.split("_")) for f in fields(SingleAction)]
    assert [name[0].lower() + name[1:] for name in spelt] == list(Action.log_schema.names)


# Each kind with its fields, * for those that are never null; { } holds the fields of one.
_FIRST_FIELDS = {
    "txn": "appId version* lastUpdated",
    "add": "path partitionValues size* modificationTime* dataChange* stats tags",
    "remove": "path deletionTimestamp dataChange* extendedFileMetadata* partitionValues size* tags",
    "metaData": "id name description format schemaString partitionColumns configuration "
    "createdTime",
    "protocol": "minReaderVersion* minWriterVersion*",
    "cdc": "path partitionValues size* tags",
    "commitInfo": "version timestamp userId userName operation operationParameters job notebook "
    "clusterId readVersion isolationLevel isBlindAppend operationMetrics userMetadata",
}
_FIRST_TYPES = {
    "long": "version lastUpdated size modificationTime deletionTimestamp createdTime readVersion",
    "boolean": "dataChange extendedFileMetadata isBlindAppend",
    "integer": "minReaderVersion minWriterVersion",
    "timestamp": "timestamp",
    "map": "partitionValues tags configuration operationParameters operationMetrics",
    "struct": "format job notebook",
    "array": "partitionColumns",
}
_FIRST_NESTED = {
    ("metaData", "format"): ("provider", "options"),
    ("commitInfo", "job"): ("jobId", "jobName", "runId", "jobOwnerId", "triggerType"),
    ("commitInfo", "notebook"): ("notebookId",),
}


@CLAIMS.of("kernel.protocol.log_schema.log_schema", 57, 58, range(62, 144))
def the_tree_of_the_log_schema_has_these_fields_in_this_order(table: Table) -> None:
    types = {name: kind for kind, names in _FIRST_TYPES.items() for name in names.split()}
    printed = tree_string(Action.log_schema)
    assert list(Action.log_schema.names)[: len(_FIRST_FIELDS)] == list(_FIRST_FIELDS)
    for action, names in _FIRST_FIELDS.items():
        assert f"\n |-- {action}: struct (nullable = true)\n" in printed
        struct = Action.log_schema[action].data_type
        assert isinstance(struct, StructType)
        tree = tree_string(struct)
        known = [name for name in struct.names if name in names.replace("*", "").split()]
        assert known == names.replace("*", "").split()
        for name in names.split():
            bare, nullable = name.rstrip("*"), "false" if name.endswith("*") else "true"
            assert f" |-- {bare}: {types.get(bare, 'string')} (nullable = {nullable})\n" in tree
    assert " |    |    |-- value: string (valueContainsNull = true)\n" in printed
    assert " |    |    |-- element: string (containsNull = true)\n" in printed
    for path, nested in _FIRST_NESTED.items():
        found = Action.log_schema.find(path)
        assert found is not None
        assert isinstance(found.data_type, StructType)
        assert found.data_type.names[: len(nested)] == nested


@CLAIMS.of("actions.Action.from_json", 149, 150, 153, 155)
def from_json_takes_a_line_and_gives_an_action(table: Table) -> None:
    assert Action.from_json(FILE.json) == FILE


@CLAIMS.of("DeltaLog.history", 157)
def the_history_reads_the_commit_info_of_each_commit(table: Table) -> None:
    infos = table.log.history()
    assert [(info.version, info.operation) for info in infos] == [
        (2, "WRITE"),
        (1, "WRITE"),
        (0, "CREATE TABLE"),
    ]
    assert all(isinstance(info, CommitInfo) for info in infos)


@CLAIMS.of("DeltaLog.get_changes", 158)
def a_log_gives_the_changes_of_a_version_and_of_later_ones(table: Table) -> None:
    changes = {version: actions[1:] for version, actions in table.log.get_changes(1)}
    assert changes == {1: [FILE, SetTransaction(app_id="a", version=1)], 2: [OTHER]}


@CLAIMS.of("OptimisticTransaction.commit", 159)
def a_commit_checks_the_actions_of_those_that_came_first(table: Table) -> None:
    # A table of its own, so that the others see what they expect.
    log = DeltaLog.for_table(f"memory://seed/{id(table)}", now_ms=FrozenClock())
    txn = log.start_transaction()
    txn.update_metadata(Metadata(id="t"))
    txn.commit([FILE], "WRITE")
    first, second = log.start_transaction(), log.start_transaction()
    first.commit([FILE.remove(START_MS)], "DELETE")
    with pytest.raises(ConcurrentDeleteDeleteException):
        second.commit([FILE.remove(START_MS)], "DELETE")


@CLAIMS.of("OptimisticTransaction.commit_large", 160)
def a_large_commit_is_read_back_line_by_line(table: Table) -> None:
    read = [Action.from_json(line) for line in table.lines(2)]
    assert isinstance(read[0], CommitInfo)
    assert read[-1] == OTHER
