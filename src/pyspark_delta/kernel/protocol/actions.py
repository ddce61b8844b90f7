"""One frozen dataclass per action: what a line of the log can say.

`Action` is a closed family.  `action.json` is the line, `Action.from_json(line)` the way back,
`SingleAction` the envelope with exactly one of them set.  PROTOCOL.md, "Actions".

>>> Action.from_json('{"txn":{"appId":"q","version":3}}')
SetTransaction(app_id='q', version=3, last_updated=None)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, cast

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.action_parts import (
    DeletionVectorDescriptor,
    Format,
    JobInfo,
    NotebookInfo,
    StringMap,
)
from pyspark_delta.kernel.protocol.codec import (
    Field,
    Json,
    MalformedRecordError,
    Record,
    boolean,
    dumps,
    frozen_map,
    integer,
    raw_map,
    record,
    string_map,
    string_tuple,
    text,
    write_record,
    write_tuple,
)
from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.protocol.types import StructType


class Action(Record):
    """A change of a table's state, or a note about one."""

    __slots__ = ()

    KEY: ClassVar[str] = ""
    log_schema: ClassVar[StructType] = log_schema

    @property
    def json(self) -> str:
        """The line of the log that says this action."""
        return dumps({self.KEY: self.to_json_value()})

    def wrap(self) -> SingleAction:
        """This action in its envelope."""
        return SingleAction._of({_ENVELOPE[self.KEY]: self})

    @staticmethod
    def from_json(line: str) -> Action | None:
        """The action that `line` says; None for a line of unknown keys."""
        return SingleAction.from_json(line).unwrap()


_PATH = Field("path", "path", text, required=True)
_PARTITION_VALUES = Field("partitionValues", "partition_values", string_map, frozen_map)
_TAGS = Field("tags", "tags", string_map, frozen_map)
_DELETION_VECTOR = Field(
    "deletionVector", "deletion_vector", record(DeletionVectorDescriptor), write_record
)
_ROW_IDS = (
    Field("baseRowId", "base_row_id", integer),
    Field("defaultRowCommitVersion", "default_row_commit_version", integer),
)


class FileAction(Action):
    """An action about one file: add, remove or cdc."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile(FileAction):
    """A data file that belongs to the table from this version on."""

    KEY: ClassVar[str] = "add"
    FIELDS: ClassVar = (
        _PATH,
        replace(_PARTITION_VALUES, always=True),
        Field("size", "size", integer, required=True),
        Field("modificationTime", "modification_time", integer, required=True),
        Field("dataChange", "data_change", boolean, required=True),
        Field("stats", "stats", text),
        _TAGS,
        _DELETION_VECTOR,
        *_ROW_IDS,
        Field("clusteringProvider", "clustering_provider", text),
    )

    path: str
    partition_values: StringMap = field(default_factory=dict, hash=False)
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: StringMap | None = field(default=None, hash=False)
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise MalformedRecordError("AddFile has an empty path")

    def remove(self, deletion_timestamp: int, data_change: bool = True) -> RemoveFile:
        """The action that takes this very file, with its deletion vector, out of the table."""
        return RemoveFile(
            path=self.path,
            deletion_timestamp=deletion_timestamp,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
            stats=_number_of_records_only(self.stats),
        )

    @property
    def num_records(self) -> int | None:
        """Rows in the file, deleted ones included; None when the statistics do not say."""
        return num_records_of(self.stats)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile(FileAction):
    """A tombstone: the file left the table, but older versions may still need it."""

    KEY: ClassVar[str] = "remove"
    FIELDS: ClassVar = (
        _PATH,
        Field("deletionTimestamp", "deletion_timestamp", integer),
        Field("dataChange", "data_change", boolean),
        Field("extendedFileMetadata", "extended_file_metadata", boolean),
        _PARTITION_VALUES,
        Field("size", "size", integer),
        _TAGS,
        _DELETION_VECTOR,
        *_ROW_IDS,
        Field("stats", "stats", text),
    )

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: StringMap | None = field(default=None, hash=False)
    size: int | None = None
    tags: StringMap | None = field(default=None, hash=False)
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    stats: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCDCFile(FileAction):
    """A file of changed rows, read by the change data feed of this version alone."""

    KEY: ClassVar[str] = "cdc"
    FIELDS: ClassVar = (
        _PATH,
        replace(_PARTITION_VALUES, always=True),
        Field("size", "size", integer, required=True),
        _TAGS,
        Field("dataChange", "data_change", boolean),
    )

    path: str
    partition_values: StringMap = field(default_factory=dict, hash=False)
    size: int
    tags: StringMap | None = field(default=None, hash=False)
    data_change: bool = False
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, kw_only=True)
class Metadata(Action):
    """A table's identity, schema, partitioning and properties; the newest replaces all others."""

    KEY: ClassVar[str] = "metaData"
    FIELDS: ClassVar = (
        Field("id", "id", text, required=True),
        Field("name", "name", text),
        Field("description", "description", text),
        Field("format", "format", record(Format), write_record),
        Field("schemaString", "schema_string", text),
        Field("partitionColumns", "partition_columns", string_tuple, write_tuple),
        Field("configuration", "configuration", string_map, frozen_map),
        Field("createdTime", "created_time", integer),
    )

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: StringMap = field(default_factory=dict, hash=False)
    created_time: int | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    @cached_property
    def schema(self) -> StructType:
        """The table's schema, partition columns included."""
        return parse_schema(self.schema_string) if self.schema_string else StructType()

    @cached_property
    def partition_schema(self) -> StructType:
        """The partition columns, in the order the table is partitioned by."""
        schema = self.schema
        for name in self.partition_columns:
            if name not in schema:
                raise SchemaError(
                    "DELTA_PARTITION_COLUMN_NOT_FOUND",
                    columnName=name,
                    schemaMap=", ".join(schema.names),
                )
        return StructType(tuple(schema[name] for name in self.partition_columns))

    @cached_property
    def data_schema(self) -> StructType:
        """The columns that are not partition columns."""
        partitions = {name.lower() for name in self.partition_columns}
        return StructType(tuple(f for f in self.schema if f.name.lower() not in partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(Action):
    """What a client must understand before it may read or write the table."""

    KEY: ClassVar[str] = "protocol"
    FIELDS: ClassVar = (
        Field("minReaderVersion", "min_reader_version", integer, required=True),
        Field("minWriterVersion", "min_writer_version", integer, required=True),
        Field("readerFeatures", "reader_features", string_tuple, write_tuple),
        Field("writerFeatures", "writer_features", string_tuple, write_tuple),
    )

    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransaction(Action):
    """The last version an application wrote: what makes a streaming write idempotent."""

    KEY: ClassVar[str] = "txn"
    FIELDS: ClassVar = (
        Field("appId", "app_id", text, required=True),
        Field("version", "version", integer, required=True),
        Field("lastUpdated", "last_updated", integer),
    )

    app_id: str
    version: int
    last_updated: int | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMetadata(Action):
    """A named piece of configuration; names that begin with `delta.` are the protocol's own."""

    KEY: ClassVar[str] = "domainMetadata"
    FIELDS: ClassVar = (
        Field("domain", "domain", text, required=True),
        Field("configuration", "configuration", text, required=True),
        Field("removed", "removed", boolean, required=True),
    )

    domain: str
    configuration: str
    removed: bool = False
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata(Action):
    """What a V2 checkpoint says of itself."""

    KEY: ClassVar[str] = "checkpointMetadata"
    FIELDS: ClassVar = (
        Field("version", "version", integer, required=True),
        _TAGS,
    )

    version: int
    tags: StringMap | None = field(default=None, hash=False)
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile(Action):
    """A Parquet file that holds file actions of a V2 checkpoint."""

    KEY: ClassVar[str] = "sidecar"
    FIELDS: ClassVar = (
        _PATH,
        Field("sizeInBytes", "size_in_bytes", integer, required=True),
        Field("modificationTime", "modification_time", integer, required=True),
        _TAGS,
    )

    path: str
    size_in_bytes: int
    modification_time: int
    tags: StringMap | None = field(default=None, hash=False)
    extra: Json = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo(Action):
    """Where a commit came from: for people and for conflict checks, never for the table's state.

    The values of `operation_parameters` are JSON values and written as such; the values of
    `operation_metrics` are text.  `version` is filled in by the reader and never written.
    """

    KEY: ClassVar[str] = "commitInfo"
    FIELDS: ClassVar = (
        Field("version", "version", integer),
        Field("inCommitTimestamp", "in_commit_timestamp", integer),
        Field("timestamp", "timestamp", integer),
        Field("userId", "user_id", text),
        Field("userName", "user_name", text),
        Field("operation", "operation", text),
        Field("operationParameters", "operation_parameters", raw_map),
        Field("job", "job", record(JobInfo), write_record),
        Field("notebook", "notebook", record(NotebookInfo), write_record),
        Field("clusterId", "cluster_id", text),
        Field("readVersion", "read_version", integer),
        Field("isolationLevel", "isolation_level", text),
        Field("isBlindAppend", "is_blind_append", boolean),
        Field("dataChange", "data_change", boolean),
        Field("operationMetrics", "operation_metrics", string_map, frozen_map),
        Field("userMetadata", "user_metadata", text),
        Field("tags", "tags", string_map, frozen_map),
        Field("engineInfo", "engine_info", text),
        Field("txnId", "txn_id", text),
    )

    version: int | None = None
    in_commit_timestamp: int | None = None
    timestamp: int | None = None
    user_id: str | None = None
    user_name: str | None = None
    operation: str | None = None
    operation_parameters: Json | None = field(default=None, hash=False)
    job: JobInfo | None = None
    notebook: NotebookInfo | None = None
    cluster_id: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    data_change: bool | None = None
    operation_metrics: StringMap | None = field(default=None, hash=False)
    user_metadata: str | None = None
    tags: StringMap | None = field(default=None, hash=False)
    engine_info: str | None = None
    txn_id: str | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def from_json_value(cls, value: object) -> Self:
        """The provenance in `value`.  Its fields are best effort: a wrong type counts as absent."""
        if not isinstance(value, dict):
            raise MalformedRecordError("CommitInfo is not an object")
        arguments: Json = {}
        extra: Json = {}
        by_key, _ = cls._table()
        for key, item in value.items():
            f = by_key.get(key)
            if f is None:
                extra[key] = item
            elif item is not None:
                try:
                    arguments[f.attribute] = f.read(item, key)
                except MalformedRecordError:
                    extra[key] = item
        return cls(**arguments, extra=extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleAction:
    """The envelope of a line: one field per kind of action, of which one is set."""

    txn: SetTransaction | None = None
    add: AddFile | None = None
    remove: RemoveFile | None = None
    meta_data: Metadata | None = None
    protocol: Protocol | None = None
    cdc: AddCDCFile | None = None
    commit_info: CommitInfo | None = None
    checkpoint_metadata: CheckpointMetadata | None = None
    sidecar: SidecarFile | None = None
    domain_metadata: DomainMetadata | None = None

    def unwrap(self) -> Action | None:
        """The one action that is set; None for a line of unknown keys."""
        for f in fields(self):
            if (action := getattr(self, f.name)) is not None:
                return cast("Action", action)
        return None

    @property
    def json(self) -> str:
        """The line of the log."""
        action = self.unwrap()
        return action.json if action is not None else "{}"

    @classmethod
    def from_json(cls, line: str) -> Self:
        """The envelope that `line` spells; MalformedRecordError when it is none."""
        try:
            value = json.loads(line)
        except RecursionError:
            raise MalformedRecordError("it is nested too deeply") from None
        except ValueError as error:
            raise MalformedRecordError(f"it is not JSON ({error})") from error
        return cls.from_json_value(value)

    @classmethod
    def from_json_value(cls, value: object) -> Self:
        """The envelope that a JSON object spells."""
        if not isinstance(value, dict):
            raise MalformedRecordError("a line of the log is a JSON object")
        return cls._of(
            {
                _ENVELOPE[key]: ACTIONS[key].from_json_value(value[key])
                for key in value
                if key in ACTIONS and value[key] is not None
            }
        )

    @classmethod
    def _of(cls, parts: Mapping[str, Any]) -> Self:
        return cls(**parts)


ACTIONS: Mapping[str, type[Action]] = {
    kind.KEY: kind
    for kind in (
        SetTransaction,
        AddFile,
        RemoveFile,
        Metadata,
        Protocol,
        AddCDCFile,
        CommitInfo,
        CheckpointMetadata,
        SidecarFile,
        DomainMetadata,
    )
}
_ENVELOPE = {key: name.name for key, name in zip(ACTIONS, fields(SingleAction), strict=True)}


def num_records_of(stats: str | None) -> int | None:
    """`numRecords` of a statistics string; None when it is not there or cannot be read."""
    if not stats:
        return None
    try:
        value = json.loads(stats)
    except (ValueError, RecursionError):
        return None
    count = value.get("numRecords") if isinstance(value, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _number_of_records_only(stats: str | None) -> str | None:
    # delta-spark keeps only the row count on a tombstone: bounds are of no use there.
    count = num_records_of(stats)
    return None if count is None else dumps({"numRecords": count})
