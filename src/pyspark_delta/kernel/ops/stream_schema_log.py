"""The schema log of a stream: the definitions of the table that it has read with, in order.

One file for each, named by its number, first line `v1`, then JSON; delta-spark's own form and
place (`_schema_log_<table id>` below the location given, with the tracking id behind it if there
is one), so that either of the two goes on with the other's.

>>> schema_log_directory("a", "b")
'_schema_log_a_b'
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.storage import FileAlreadyExistsError, FileMissingError
from pyspark_delta.errors.table import StreamError
from pyspark_delta.kernel.ops.stream_commits import CommitReader
from pyspark_delta.kernel.ops.stream_definitions import (
    StreamDefinition,
    check_only_widened,
    schema_changes,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.codec import MalformedRecordError
from pyspark_delta.kernel.protocol.schema_json import format_schema, parse_schema
from pyspark_delta.kernel.storage.base import LogStore

_FORMAT = "v1"
_OPTIONS = {
    "rename": "allowSourceColumnRename",
    "drop": "allowSourceColumnDrop",
    "type change": "allowSourceColumnTypeChange",
}
_WORDS = {"rename": "RENAME COLUMN", "drop": "DROP COLUMN", "type change": "TYPE WIDENING"}
_RENAME_AND_DROP = "allowSourceColumnRenameAndDrop"
_CONF_PREFIX = "spark.databricks.delta.streaming."


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDefinition:
    """An entry: what the table was at a version, and for which source of which query."""

    table_id: str
    version: int
    metadata: Metadata
    protocol: Protocol
    source_path: str
    previous_number: int | None = None

    def to_json(self) -> str:
        """The entry as the log holds it."""
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
        """What a run reads with that goes on from here."""
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
    """What names a source in the keys of settings: Java's hash of its path."""
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
        numbers = self._numbers()
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
        """The entry that the current one followed."""
        number = self._previous_number()
        return self._read(number) if number >= 0 else None

    def write(self, entry: TrackedDefinition, *, replaces: bool = False) -> None:
        """Make an entry the current one; it follows the current one, or stands in its place."""
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
        """Go to the last of several definitions in a row with no data between them."""
        current = self.current
        if current is None:
            return
        found = current
        for commit in commits.commits(current.version):
            if commit.has_adds or commit.removed is not None:
                break
            if commit.metadata is None and commit.protocol is None:
                break
            found = replace(
                found,
                version=commit.version,
                metadata=commit.metadata or found.metadata,
                protocol=commit.protocol or found.protocol,
            )
        if found.version > current.version:
            self.write(found, replaces=True)

    def check_source(self, source_path: str) -> None:
        """Refuse the log of another source."""
        if self.current is not None and self.current.source_path != source_path:
            raise StreamError(
                "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
                loc=self._store.address(self._directory),
                table=self.current.table_id,
            )

    def check_allowed(
        self, source_path: str, options: Mapping[str, str], settings: Mapping[str, str]
    ) -> None:
        """Refuse to go on with renamed, dropped or retyped columns that nobody has looked at."""
        current, previous = self.current, self.previous
        if current is None or previous is None:
            return
        check_only_widened(previous.metadata, current.metadata, current.version)
        found = schema_changes(previous.metadata, current.metadata)
        number = checkpoint_hash(source_path)
        blocked = [
            change
            for change in _WORDS
            if change in found
            and not _is_allowed(change, current.version, number, options, settings)
        ]
        if blocked:
            raise StreamError(
                "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
                opType=" AND ".join(_WORDS[change] for change in _WORDS if change in found),
                previousSchemaChangeVersion=previous.version,
                currentSchemaChangeVersion=current.version,
                columnChangeDetails=_details(previous.metadata, current.metadata),
                unblockChangeOptions=", ".join(
                    f'.option("{_OPTIONS[change]}", "{current.version}")' for change in blocked
                ),
                unblockChangeConfs=", ".join(
                    f"{_CONF_PREFIX}{_OPTIONS[change]}.ckpt_{number}" for change in blocked
                ),
            )

    def _previous_number(self) -> int:
        if self.current is not None and self.current.previous_number is not None:
            return self.current.previous_number
        return self._number - 1

    def _numbers(self) -> list[int]:
        try:
            listed = self._store.list_from(f"{self._directory}/")
        except FileMissingError:
            return []
        names = (info.path.rpartition("/")[2] for info in listed)
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

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
        protocol=base.protocol if protocol is None else _protocol(protocol),
        source_path=str(fields["sourceMetadataPath"]),
        previous_number=fields.get("previousMetadataSeqNum"),
    )


def _protocol(text: str) -> Protocol:
    found = Protocol.from_json_value(json.loads(text)["protocol"])
    assert isinstance(found, Protocol)
    return found


def _is_allowed(
    change: str,
    version: int,
    number: int,
    options: Mapping[str, str],
    settings: Mapping[str, str],
) -> bool:
    option = options.get(_OPTIONS[change], "").lower()
    if option in ("always", "true", str(version)):
        return True
    keys = [_OPTIONS[change]]
    if change != "type change":
        keys.append(_RENAME_AND_DROP)
    for key in keys:
        mine = settings.get(f"{_CONF_PREFIX}{key}.ckpt_{number}", "").lower()
        everyones = settings.get(f"{_CONF_PREFIX}{key}", "").lower()
        if mine in ("always", str(version)) or everyones == "always":
            return True
    return False


def _details(old: Metadata, new: Metadata) -> str:
    return f"from {old.schema.simple_string} to {new.schema.simple_string}"
