"""The log as a table: the tree that delta-spark prints, and what came later."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_delta.kernel.protocol.action_parts import JobInfo, NotebookInfo
from pyspark_delta.kernel.protocol.actions import ACTIONS, CommitInfo
from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
)
from tests.support.schemas import field, struct
from tests.support.tree_string import tree_string

# What `Action.logSchema.printTreeString` printed before any table feature existed.
FIRST_TREE = """\
root
 |-- txn: struct (nullable = true)
 |    |-- appId: string (nullable = true)
 |    |-- version: long (nullable = false)
 |    |-- lastUpdated: long (nullable = true)
 |-- add: struct (nullable = true)
 |    |-- path: string (nullable = true)
 |    |-- partitionValues: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- size: long (nullable = false)
 |    |-- modificationTime: long (nullable = false)
 |    |-- dataChange: boolean (nullable = false)
 |    |-- stats: string (nullable = true)
 |    |-- tags: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |-- remove: struct (nullable = true)
 |    |-- path: string (nullable = true)
 |    |-- deletionTimestamp: long (nullable = true)
 |    |-- dataChange: boolean (nullable = false)
 |    |-- extendedFileMetadata: boolean (nullable = false)
 |    |-- partitionValues: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- size: long (nullable = false)
 |    |-- tags: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |-- metaData: struct (nullable = true)
 |    |-- id: string (nullable = true)
 |    |-- name: string (nullable = true)
 |    |-- description: string (nullable = true)
 |    |-- format: struct (nullable = true)
 |    |    |-- provider: string (nullable = true)
 |    |    |-- options: map (nullable = true)
 |    |    |    |-- key: string
 |    |    |    |-- value: string (valueContainsNull = true)
 |    |-- schemaString: string (nullable = true)
 |    |-- partitionColumns: array (nullable = true)
 |    |    |-- element: string (containsNull = true)
 |    |-- configuration: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- createdTime: long (nullable = true)
 |-- protocol: struct (nullable = true)
 |    |-- minReaderVersion: integer (nullable = false)
 |    |-- minWriterVersion: integer (nullable = false)
 |-- cdc: struct (nullable = true)
 |    |-- path: string (nullable = true)
 |    |-- partitionValues: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- size: long (nullable = false)
 |    |-- tags: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |-- commitInfo: struct (nullable = true)
 |    |-- version: long (nullable = true)
 |    |-- timestamp: timestamp (nullable = true)
 |    |-- userId: string (nullable = true)
 |    |-- userName: string (nullable = true)
 |    |-- operation: string (nullable = true)
 |    |-- operationParameters: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- job: struct (nullable = true)
 |    |    |-- jobId: string (nullable = true)
 |    |    |-- jobName: string (nullable = true)
 |    |    |-- runId: string (nullable = true)
 |    |    |-- jobOwnerId: string (nullable = true)
 |    |    |-- triggerType: string (nullable = true)
 |    |-- notebook: struct (nullable = true)
 |    |    |-- notebookId: string (nullable = true)
 |    |-- clusterId: string (nullable = true)
 |    |-- readVersion: long (nullable = true)
 |    |-- isolationLevel: string (nullable = true)
 |    |-- isBlindAppend: boolean (nullable = true)
 |    |-- operationMetrics: map (nullable = true)
 |    |    |-- key: string
 |    |    |-- value: string (valueContainsNull = true)
 |    |-- userMetadata: string (nullable = true)
"""

# What later versions of the protocol and of delta-spark put behind those fields, in order.
ADDED = {
    (): ("checkpointMetadata", "sidecar", "domainMetadata"),
    ("add",): ("deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"),
    ("remove",): ("deletionVector", "baseRowId", "defaultRowCommitVersion", "stats"),
    ("protocol",): ("readerFeatures", "writerFeatures"),
    ("commitInfo",): ("inCommitTimestamp", "tags", "engineInfo", "txnId", "dataChange"),
    ("commitInfo", "job"): ("jobRunId",),
}


def _without_added(schema: StructType, path: tuple[str, ...] = ()) -> StructType:
    added = ADDED.get(path, ())
    kept = schema.fields[: len(schema) - len(added)]
    assert tuple(f.name for f in schema.fields[len(kept) :]) == added
    return StructType(
        tuple(
            f.with_type(_without_added(f.data_type, (*path, f.name)))
            if isinstance(f.data_type, StructType)
            else f
            for f in kept
        )
    )


def test_the_log_schema_begins_with_the_tree_it_always_had() -> None:
    assert tree_string(_without_added(log_schema)) == FIRST_TREE


def test_what_later_versions_added_has_the_types_of_the_protocol() -> None:
    vector = log_schema.find(("add", "deletionVector"))
    assert vector is not None
    assert vector.data_type == StructType(
        (
            field("storageType", STRING),
            field("pathOrInlineDv", STRING),
            field("offset", INTEGER),
            field("sizeInBytes", INTEGER, False),
            field("cardinality", LONG, False),
            field("maxRowIndex", LONG),
        )
    )
    assert log_schema.find(("remove", "deletionVector")) == vector
    for path, expected in {
        ("protocol", "readerFeatures"): ArrayType(STRING),
        ("commitInfo", "inCommitTimestamp"): LONG,
        ("commitInfo", "tags"): MapType(STRING, STRING),
        ("add", "baseRowId"): LONG,
        ("domainMetadata", "removed"): BOOLEAN,
        ("sidecar", "sizeInBytes"): LONG,
    }.items():
        found = log_schema.find(path)
        assert found is not None
        assert found.data_type == expected


def test_every_field_of_every_action_has_its_column() -> None:
    def names(schema: StructType) -> set[str]:
        return set(schema.names)

    for key, kind in ACTIONS.items():
        column = log_schema[key].data_type
        assert isinstance(column, StructType)
        # `cdc.dataChange` is always false, and has no column in delta-spark either.
        assert {f.key for f in kind.FIELDS} - {"dataChange"} == names(column) - {"dataChange"}
    for name, part in (("job", JobInfo), ("notebook", NotebookInfo)):
        found = log_schema.find((CommitInfo.KEY, name))
        assert found is not None
        assert isinstance(found.data_type, StructType)
        assert {f.key for f in part.FIELDS} == names(found.data_type)


def test_a_tree_goes_through_collections_of_structs() -> None:
    schema = struct(
        l=ArrayType(struct(d=DecimalType(10, 2)), contains_null=False),
        m=MapType(struct(k=LONG), ArrayType(LONG), value_contains_null=False),
    )

    def lines() -> Iterator[str]:
        yield "root"
        yield " |-- l: array (nullable = true)"
        yield " |    |-- element: struct (containsNull = false)"
        yield " |    |    |-- d: decimal(10,2) (nullable = true)"
        yield " |-- m: map (nullable = true)"
        yield " |    |-- key: struct"
        yield " |    |    |-- k: long (nullable = true)"
        yield " |    |-- value: array (valueContainsNull = false)"
        yield " |    |    |-- element: long (containsNull = true)"

    assert tree_string(schema) == "\n".join(lines()) + "\n"
