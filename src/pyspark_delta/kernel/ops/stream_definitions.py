"""What a stream reads a table as, and which changes of the table it can follow.

A stream keeps the schema it began with.  A newer one that only adds columns stops it, and a
restart takes it up; one that renames, drops or retypes a column stops it for good, unless a schema
log tells it where each schema ends (`stream_schema_log`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark_delta.errors.table import StreamError
from pyspark_delta.kernel.ops.stream_commits import StreamCommit
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_paths,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import asks_the_same, supported_features
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import DataType, StructType, walk_fields

_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
# What writers keep in a column's metadata; rows read the same whatever it says.
_WRITERS_KEYS = ("delta.generationExpression", "delta.identity.", "delta.typeChanges")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    """Schema, partitioning, properties and protocol that a run of a stream reads with.

    `version` is where they are from.  `is_tracked` says that they are out of a schema log, which
    then has a say in every change; `is_lenient` that renamed and dropped columns are the user's
    affair.
    """

    metadata: Metadata
    protocol: Protocol
    version: int
    is_tracked: bool = False
    is_lenient: bool = False
    has_starting_options: bool = False

    @property
    def schema(self) -> StructType:
        """The columns, as the table names them."""
        return self.metadata.schema

    def differs(self, metadata: Metadata | None, protocol: Protocol | None, version: int) -> bool:
        """Whether a tracked stream must take up this definition before it reads on."""
        if self.is_tracked and self.version >= version:
            return False  # told already, by a definition that stands for several in a row
        if protocol is not None and not asks_the_same(protocol, self.protocol):
            return True
        if metadata is None:
            return False
        return (
            _readers_view(metadata.schema) != _readers_view(self.metadata.schema)
            or metadata.partition_columns != self.metadata.partition_columns
            or _delta_properties(metadata) != _delta_properties(self.metadata)
        )

    def is_barrier(self, commit: StreamCommit) -> bool:
        """Whether a batch must end before the commit, so that the run after it reads it anew."""
        return self.is_tracked and self.differs(commit.metadata, commit.protocol, commit.version)

    def check_followed(self, metadata: Metadata, version: int) -> None:
        """Refuse a definition whose rows cannot be read with this one."""
        if metadata.id != self.metadata.id:
            old, new = self.metadata.id, metadata.id
            raise StreamError(
                "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", oldTableId=old, newTableId=new
            )
        is_older = version < self.version
        older, newer = (metadata, self.metadata) if is_older else (self.metadata, metadata)
        if not self.is_lenient and loses_columns(older, newer):
            raise StreamError(
                "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
                readSchema=format_schema(older.schema),
                incompatibleSchema=format_schema(newer.schema),
            )
        can_widen = bool(_WIDENING & supported_features(self.protocol))
        reads = is_read_compatible(
            metadata.schema,
            self.schema,
            forbid_tighter_nullability=True,
            allow_missing_columns=self.is_lenient and is_older,
            widening=TypeWideningMode.ALWAYS if can_widen and is_older else TypeWideningMode.NEVER,
        )
        if reads and metadata.partition_columns == self.metadata.partition_columns:
            return
        condition = "DELTA_SCHEMA_CHANGED_WITH_VERSION"
        if self.has_starting_options:
            condition = "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"
        raise StreamError(
            condition,
            version=version,
            readSchema=format_schema(self.schema),
            dataSchema=format_schema(metadata.schema),
        )


def loses_columns(old: Metadata, new: Metadata) -> bool:
    """Whether column mapping let a column be renamed or dropped between the two."""
    if _mode(new) is ColumnMappingMode.NONE:
        return False
    before, after = _by_physical_path(old), _by_physical_path(new)
    return any(after.get(path, ("",))[-1] != name[-1] for path, name in before.items())


def schema_changes(old: Metadata, new: Metadata) -> frozenset[str]:
    """Which of `rename`, `drop` and `type change` turned the one schema into the other."""
    before, after = _by_physical_path(old), _by_physical_path(new)
    is_mapped = _mode(new) is not ColumnMappingMode.NONE
    types_before, types_after = _types_by_physical_path(old), _types_by_physical_path(new)
    both = types_before.keys() & types_after.keys()
    found = {
        "rename": is_mapped and any(after[p][-1] != before[p][-1] for p in before if p in after),
        "drop": any(path not in after for path in before),
        "type change": any(_is_retyped(types_before[p], types_after[p]) for p in both),
    }
    return frozenset(name for name, is_there in found.items() if is_there)


def check_only_widened(old: Metadata, new: Metadata, version: int) -> None:
    """Refuse columns whose values no longer fit; lost columns are another question."""
    if not is_read_compatible(
        physical_schema(old.schema, _mode(old)),
        physical_schema(new.schema, _mode(new)),
        forbid_tighter_nullability=True,
        allow_missing_columns=True,
        widening=TypeWideningMode.ALWAYS,
    ):
        raise StreamError(
            "DELTA_SCHEMA_CHANGED_WITH_VERSION",
            version=version,
            readSchema=format_schema(old.schema),
            dataSchema=format_schema(new.schema),
        )


def _mode(metadata: Metadata) -> ColumnMappingMode:
    return ColumnMappingMode.parse(metadata.configuration.get(MODE_KEY))


def _by_physical_path(metadata: Metadata) -> dict[tuple[str, ...], tuple[str, ...]]:
    paths = physical_paths(metadata.schema, _mode(metadata))
    return {physical: logical for logical, physical in paths.items()}


def _types_by_physical_path(metadata: Metadata) -> dict[tuple[str, ...], DataType]:
    schema = physical_schema(metadata.schema, _mode(metadata))
    return {path: f.data_type for path, f in walk_fields(schema)}


def _is_retyped(old: DataType, new: DataType) -> bool:
    # A struct, and what holds one, changes with its fields, which are looked at by themselves.
    if next(walk_fields(old), None) is not None and next(walk_fields(new), None) is not None:
        return False
    return old.simple_string != new.simple_string


def _readers_view(schema: StructType) -> list[tuple[Any, ...]]:
    return [
        (
            path,
            f.data_type.simple_string,
            f.nullable,
            sorted((k, str(v)) for k, v in f.metadata.items() if not k.startswith(_WRITERS_KEYS)),
        )
        for path, f in walk_fields(schema)
    ]


def _delta_properties(metadata: Metadata) -> dict[str, str | None]:
    return {k: v for k, v in metadata.configuration.items() if k.startswith("delta.")}
