"""The schema log of a stream: the table definitions that the stream has used, in order.

Each is a file with a number as its name, the first line `v1`, then JSON.  Format and place are
delta-spark's (`_schema_log_<table id>` below the given location, followed by the tracking id if
there is one), so that each engine can continue the other's log.

>>> schema_log_directory("a", "b")
'_schema_log_a_b'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark_delta.errors import DeltaError, FileAlreadyExistsError, FileMissingError, StreamError
from pyspark_delta.kernel.ops.changes.commits import CommitReader
from pyspark_delta.kernel.ops.changes.definitions import (
    StreamDefinition,
    VersionDefinition,
    check_only_widened,
    schema_changes,
)
from pyspark_delta.kernel.ops.stream.offsets import file_numbers
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.codec import MalformedRecordError
from pyspark_delta.kernel.protocol.schema_json import format_schema, parse_schema
from pyspark_delta.kernel.storage.base import LogStore

_FORMAT = "v1"
_OPTIONS = {
    "rename": "allowSourceColumnRename",
    "drop": "allowSourceColumnDrop",
    "type change": "allowSourceColumnTypeChange",
}
_OPERATIONS = {"rename": "RENAME COLUMN", "drop": "DROP COLUMN", "type change": "TYPE WIDENING"}
_RENAME_AND_DROP = "allowSourceColumnRenameAndDrop"
CONF_PREFIX = "spark.databricks.delta.streaming."
"""The prefix of the settings that let a stream continue over a change of the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDefinition(VersionDefinition):
    """An entry: the table's definition at a version, and the source and query that it is for."""

    table_id: str
    source_path: str
    previous_number: int | None = None

    def to_json(self) -> str:
        fields: dict[str, Any] = {
            "tableId": self.table_id,
            "deltaCommitVersion": self.version,
            "dataSchemaJson": format_schema(self.metadata.schema),
            "partitionSchemaJson": format_schema(self.metadata.partition_schema),
            "sourceMetadataPath": self.source_path,
            "tableConfigurations": dict(self.metadata.configuration),
            "protocolJson": json.dumps({"protocol": self.protocol.to_json_value()}),
        }
        if self.previous_number is not None:
            fields["previousMetadataSeqNum"] = self.previous_number
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)

    def definition(self, *, is_lenient: bool, has_starting_options: bool) -> StreamDefinition:
        return StreamDefinition(
            metadata=self.metadata,
            protocol=self.protocol,
            version=self.version,
            is_tracked=True,
            is_lenient=is_lenient,
            has_starting_options=has_starting_options,
        )


def schema_log_directory(table_id: str, tracking_id: str | None = None) -> str:
    """The directory of a table's log below the location that the user gave."""
    return f"_schema_log_{table_id}" + (f"_{tracking_id}" if tracking_id else "")


def checkpoint_hash(source_path: str) -> int:
    """The id of a source in the keys of settings: Java's hash of its path."""
    units = source_path.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return total - 2**32 if total >= 2**31 else total


class SchemaLog:
    """The entries below one location; `store` is rooted there."""

    def __init__(self, store: LogStore, base: StreamDefinition, tracking_id: str | None) -> None:
        self._store = store
        self._base = base
        self._directory = schema_log_directory(base.metadata.id, tracking_id)
        numbers = file_numbers(store, self._directory)
        self._number = numbers[-1] if numbers else -1
        self.current = self._read(self._number) if numbers else None
        if self.current is not None and self.current.table_id != base.metadata.id:
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
                persistedId=self.current.table_id,
                tableId=base.metadata.id,
            )

    @property
    def previous(self) -> TrackedDefinition | None:
        number = self._previous_number()
        return self._read(number) if number >= 0 else None

    def write(self, entry: TrackedDefinition, *, replaces: bool = False) -> None:
        """Make an entry the current one; it follows the present one, or replaces it."""
        if replaces and self.current is not None:
            entry = replace(entry, previous_number=self._previous_number())
        path = f"{self._directory}/{self._number + 1}"
        try:
            self._store.create(path, f"{_FORMAT}\n{entry.to_json()}".encode())
        except FileAlreadyExistsError:
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
                loc=self._store.address(self._directory),
                table=entry.table_id,
            ) from None
        self._number += 1
        self.current = entry

    def merge_changes(self, commits: CommitReader) -> None:
        """Advance to the last of several successive definitions with no data between them."""
        current = self.current
        if current is None:
            return
        merged = current
        for commit in commits.commits(current.version):
            if commit.has_adds or commit.removed is not None:
                break
            if commit.metadata is None and commit.protocol is None:
                break
            merged = merged.after(commit.version, commit.metadata, commit.protocol)
        if merged.version > current.version:
            self.write(merged, replaces=True)

    def check_source(self, source_path: str) -> None:
        if self.current is not None and self.current.source_path != source_path:
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
                loc=self._store.address(self._directory),
                table=self.current.table_id,
            )

    def check_allowed(
        self, source_path: str, options: Mapping[str, str], settings: Mapping[str, str]
    ) -> None:
        """Raise for renamed, dropped or retyped columns that the user has not confirmed."""
        current, previous = self.current, self.previous
        if current is None or previous is None:
            return
        check_only_widened(previous.metadata, current.metadata, current.version)
        changes = schema_changes(previous.metadata, current.metadata)
        before, after = previous.metadata.schema, current.metadata.schema
        number = checkpoint_hash(source_path)
        blocked = [
            change
            for change in _OPERATIONS
            if change in changes
            and not _is_allowed(change, current.version, number, options, settings)
        ]
        if blocked:
            raise StreamError(
                "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
                opType=" AND ".join(
                    name for change, name in _OPERATIONS.items() if change in changes
                ),
                previousSchemaChangeVersion=previous.version,
                currentSchemaChangeVersion=current.version,
                columnChangeDetails=f"from {before.simple_string} to {after.simple_string}",
                unblockChangeOptions=", ".join(
                    f'.option("{_OPTIONS[change]}", "{current.version}")' for change in blocked
                ),
                unblockChangeConfs=", ".join(
                    f"{CONF_PREFIX}{_OPTIONS[change]}.ckpt_{number}" for change in blocked
                ),
            )

    def _previous_number(self) -> int:
        if self.current is not None and self.current.previous_number is not None:
            return self.current.previous_number
        return self._number - 1

    def _read(self, number: int) -> TrackedDefinition | None:
        try:
            data = self._store.read(f"{self._directory}/{number}")
        except FileMissingError:
            return None
        try:
            head, _, text = data.decode().partition("\n")
            if head.strip() != _FORMAT:
                raise ValueError(head)
            return _parsed(json.loads(text), self._base)
        except (ValueError, KeyError, TypeError, RecursionError, MalformedRecordError):
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED",
                location=self._store.address(self._directory),
            ) from None


def _parsed(fields: dict[str, Any], base: StreamDefinition) -> TrackedDefinition:
    configuration, protocol = fields.get("tableConfigurations"), fields.get("protocolJson")
    try:
        partitions = parse_schema(fields["partitionSchemaJson"]).names
        parse_schema(fields["dataSchemaJson"])
    except DeltaError:
        raise StreamError("DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED") from None
    metadata = replace(
        base.metadata,
        schema_string=fields["dataSchemaJson"],
        partition_columns=tuple(partitions),
        configuration=base.metadata.configuration if configuration is None else configuration,
    )
    return TrackedDefinition(
        table_id=str(fields["tableId"]),
        version=int(fields["deltaCommitVersion"]),
        metadata=metadata,
        protocol=base.protocol
        if protocol is None
        else Protocol.from_json_value(json.loads(protocol)["protocol"]),
        source_path=str(fields["sourceMetadataPath"]),
        previous_number=fields.get("previousMetadataSeqNum"),
    )


def _is_allowed(
    change: str, version: int, number: int, options: Mapping[str, str], settings: Mapping[str, str]
) -> bool:
    option = options.get(_OPTIONS[change], "").lower()
    if option in ("always", "true", str(version)):
        return True
    keys = [_OPTIONS[change]]
    if change != "type change":
        keys.append(_RENAME_AND_DROP)
    return any(
        settings.get(f"{CONF_PREFIX}{key}.ckpt_{number}", "").lower() in ("always", str(version))
        or settings.get(f"{CONF_PREFIX}{key}", "").lower() == "always"
        for key in keys
    )
