"""The actions of the log, one frozen dataclass for each.

`Action` is a closed family.  `action.json` is the line in the log, `Action.from_json(line)` parses
it, and `SingleAction` is the envelope with exactly one action set.  Users import them from
`pyspark_delta.actions`.  PROTOCOL.md, "Actions".

>>> Action.from_json('{"txn":{"appId":"q","version":3}}')
SetTransaction(app_id='q', version=3, last_updated=None)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Self, cast

from pyspark_delta.errors import CorruptLogError, SchemaError
from pyspark_delta.kernel.machine import random_uuid, system_now_ms
from pyspark_delta.kernel.protocol.action_parts import (
    DeletionVectorDescriptor,
    Format,
    JobInfo,
    NotebookInfo,
    StringMap,
)
from pyspark_delta.kernel.protocol.codec import REQUIRED, Json, MalformedRecordError, Record, dumps
from pyspark_delta.kernel.protocol.log_schema import log_schema
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.protocol.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Record):
    """A change of a table's state, or a note about one.

    `log_schema` is the shape of a line, `reader_version` and `writer_version` are the versions of
    a protocol that needs no feature.

    >>> Action.from_json('{"remove":{"path":"a.parquet","dataChange":true}}').path
    'a.parquet'
    >>> SetTransaction(app_id="q", version=3).json
    '{"txn":{"appId":"q","version":3}}'
    """

    KEY: ClassVar[str] = ""
    log_schema: ClassVar[StructType] = log_schema
    reader_version: ClassVar[int] = 1
    writer_version: ClassVar[int] = 2

    extra: Json = field(default_factory=dict, repr=False, hash=False)

    @property
    def json(self) -> str:
        """The line of the log with this action."""
        return dumps({self.KEY: self.to_json_value()})

    @property
    def wrap(self) -> SingleAction:
        """This action in its envelope."""
        return SingleAction._of({_ENVELOPE[self.KEY]: self})

    @staticmethod
    def from_json(line: str) -> Action | None:
        """The action in `line`; None for a line of unknown keys.

        CorruptLogError when the line is not a JSON object, or its action lacks a required field.
        """
        return SingleAction.from_json(line).unwrap()


class FileAction(Action):
    """An action about one file: add, remove or cdc."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile(FileAction):
    """A data file that belongs to the table from this version on.

    `partition_values` are text as the log has it, `stats` is JSON text.

    >>> file = AddFile(
    ...     path="day=1/a.parquet",
    ...     partition_values={"day": "1"},
    ...     size=900,
    ...     modification_time=1_700_000_000_000,
    ...     data_change=True,
    ...     stats='{"numRecords":3}',
    ... )
    >>> file.num_records, file.remove().path
    (3, 'day=1/a.parquet')
    """

    KEY: ClassVar[str] = "add"

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

    def __post_init__(self) -> None:
        if not self.path:
            raise MalformedRecordError("AddFile has an empty path")

    def remove(
        self,
        deletion_timestamp: int | None = None,
        data_change: bool = True,
        *,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> RemoveFile:
        """The action that removes this file, with its deletion vector, from the table.

        `deletion_timestamp` is in ms since 1970; the default is the time of the clock `now_ms`.
        """
        return RemoveFile(
            path=self.path,
            deletion_timestamp=now_ms() if deletion_timestamp is None else deletion_timestamp,
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
        """Rows in the file, deleted ones included; None when the statistics lack the number."""
        return num_records_of(self.stats)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile(FileAction):
    """A tombstone: the file left the table, but older versions may still need it.

    >>> RemoveFile(path="a.parquet", deletion_timestamp=1_700_000_000_000).data_change
    True
    """

    KEY: ClassVar[str] = "remove"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCDCFile(FileAction):
    """A file of changed rows, read by the change data feed of this version alone.

    >>> AddCDCFile(path="_change_data/c.parquet", size=700).json
    '{"cdc":{"path":"_change_data/c.parquet","partitionValues":{},"size":700,"dataChange":false}}'
    """

    KEY: ClassVar[str] = "cdc"

    path: str
    partition_values: StringMap = field(default_factory=dict, hash=False)
    size: int
    tags: StringMap | None = field(default=None, hash=False)
    data_change: bool = False


@dataclass(frozen=True, kw_only=True)
class Metadata(Action):
    """A table's identity, schema, partitioning and properties; the newest replaces all others.

    >>> table = Metadata(
    ...     schema_string='{"type":"struct","fields":['
    ...     '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    ...     '{"name":"day","type":"date","nullable":true,"metadata":{}}]}',
    ...     partition_columns=("day",),
    ... )
    >>> table.partition_schema.names, table.data_schema.names, table.format.provider
    (('day',), ('id',), 'parquet')
    >>> Metadata().id == Metadata().id
    False
    """

    KEY: ClassVar[str] = "metaData"

    id: str = field(default_factory=random_uuid, metadata=REQUIRED)
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: StringMap = field(default_factory=dict, hash=False)
    created_time: int | None = None

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
    """The versions and features that a client must support to read or write the table.

    >>> Protocol().json
    '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'
    """

    KEY: ClassVar[str] = "protocol"

    min_reader_version: int = field(default=Action.reader_version, metadata=REQUIRED)
    min_writer_version: int = field(default=Action.writer_version, metadata=REQUIRED)
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransaction(Action):
    """The last version an application wrote: what makes a streaming write idempotent.

    >>> SetTransaction(app_id="nightly load", version=7).wrap.txn.version
    7
    """

    KEY: ClassVar[str] = "txn"

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMetadata(Action):
    """A named piece of configuration; names that begin with `delta.` are the protocol's own."""

    KEY: ClassVar[str] = "domainMetadata"

    domain: str
    configuration: str
    removed: bool = field(default=False, metadata=REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata(Action):
    """The metadata of a V2 checkpoint."""

    KEY: ClassVar[str] = "checkpointMetadata"

    version: int
    tags: StringMap | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFile(Action):
    """A Parquet file that holds file actions of a V2 checkpoint."""

    KEY: ClassVar[str] = "sidecar"

    path: str
    size_in_bytes: int
    modification_time: int
    tags: StringMap | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo(Action):
    """The provenance of a commit: for people and conflict checks, never part of the table's state.

    The values of `operation_parameters` are JSON values and written as such; the values of
    `operation_metrics` are text.  `version` is filled in by the reader and never written.  A field
    of a wrong type counts as absent.

    >>> line = '{"commitInfo":{"operation":"WRITE","operationParameters":{"mode":"Append"}}}'
    >>> info = Action.from_json(line)
    >>> info.operation, info.operation_parameters["mode"]
    ('WRITE', 'Append')
    """

    KEY: ClassVar[str] = "commitInfo"
    KEEPS_MALFORMED: ClassVar[bool] = True

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleAction:
    """The envelope of a line: one field per kind of action, of which one is set.

    >>> envelope = SingleAction.from_json('{"txn":{"appId":"q","version":3}}')
    >>> envelope.txn.app_id, envelope.add is None, envelope.unwrap() is envelope.txn
    ('q', True, True)
    """

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
        """The envelope in `line`; CorruptLogError when it is malformed."""
        try:
            return cls.from_json_value(json.loads(line))
        except RecursionError:
            reason = "it is nested too deeply"
        except MalformedRecordError as error:
            reason = str(error)
        except ValueError as error:
            reason = f"it is not JSON ({error})"
        raise CorruptLogError("DELTA_INVALID_ACTION", action=line, reason=reason)

    @classmethod
    def from_json_value(cls, value: object) -> Self:
        """The envelope in a JSON object."""
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
    """`numRecords` of a statistics string; None when it is missing or malformed."""
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
