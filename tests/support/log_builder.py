"""Compose any state of a log: commits, checkpoints, hints, strays, on any store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.base import LogStore

SCHEMA = StructType((StructField("id", LONG), StructField("v", STRING)))


def metadata(
    schema: StructType = SCHEMA,
    partition_columns: Iterable[str] = (),
    configuration: Mapping[str, str] | None = None,
    table_id: str = "11111111-2222-3333-4444-555555555555",
) -> Metadata:
    return Metadata(
        id=table_id,
        schema_string=format_schema(schema),
        partition_columns=tuple(partition_columns),
        configuration=dict(configuration or {}),
        created_time=1_700_000_000_000,
    )


def add(
    path: str,
    *,
    size: int = 1,
    partition_values: Mapping[str, str | None] | None = None,
    stats: str | None = None,
    vector: str | None = None,
    data_change: bool = True,
    **more: Any,
) -> AddFile:
    return AddFile(
        path=path,
        partition_values=dict(partition_values or {}),
        size=size,
        modification_time=1_700_000_000_000,
        data_change=data_change,
        stats=stats,
        deletion_vector=None if vector is None else descriptor(vector),
        **more,
    )


def remove(
    path: str,
    *,
    vector: str | None = None,
    data_change: bool = True,
    partition_values: Mapping[str, str | None] | None = None,
) -> RemoveFile:
    return RemoveFile(
        path=path,
        deletion_timestamp=1_700_000_000_001,
        data_change=data_change,
        extended_file_metadata=True,
        partition_values=dict(partition_values or {}),
        size=1,
        deletion_vector=None if vector is None else descriptor(vector),
    )


def descriptor(name: str) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=36, cardinality=2
    )


class LogBuilder:
    """A log under construction: `commit` appends a version, `write` puts any bytes anywhere."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.version = -1

    def commit(self, *actions: Action | str) -> LogBuilder:
        lines = [action if isinstance(action, str) else action.json for action in actions]
        return self.raw("".join(line + "\n" for line in lines).encode())

    def raw(self, data: bytes) -> LogBuilder:
        self.version += 1
        self.store.create(commit_path(self.version), data)
        return self

    def create(
        self,
        *actions: Action | str,
        protocol: Protocol | None = None,
        metadata_action: Metadata | None = None,
    ) -> LogBuilder:
        return self.commit(protocol or Protocol(), metadata_action or metadata(), *actions)

    def write(self, path: str, data: bytes | str | Mapping[str, Any]) -> LogBuilder:
        if isinstance(data, Mapping):
            data = json.dumps(data)
        self.store.overwrite(path, data.encode() if isinstance(data, str) else data)
        return self
