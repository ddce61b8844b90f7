"""A table's definition at a version, and the changes of it that a reader of commits can follow.

A stream keeps the schema it began with.  A newer schema that only adds columns stops it, and a
restart adopts it; one that renames, drops or retypes a column stops it for good, unless a schema
log records where each schema ends (`stream.schema_log`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from pyspark_delta.errors import StreamError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.changes.commits import StreamCommit
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    physical_paths,
    physical_schema,
)
from pyspark_delta.kernel.protocol.features import is_same_protocol, supported_features
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import DataType, StructType, walk_fields
from pyspark_delta.kernel.scan.plan import mapping_mode

_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
# Writers' entries in a column's metadata, which do not affect how rows are read.
_WRITERS_KEYS = ("delta.generationExpression", "delta.identity.", "delta.typeChanges")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDefinition:
    """The protocol and metadata of a table at a version."""

    version: int
    metadata: Metadata
    protocol: Protocol

    @staticmethod
    def of(snapshot: Snapshot) -> VersionDefinition:
        return VersionDefinition(
            version=snapshot.version, metadata=snapshot.metadata, protocol=snapshot.protocol
        )

    def after(self, version: int, metadata: Metadata | None, protocol: Protocol | None) -> Self:
        """The definition from a later commit on, with what that commit changes."""
        metadata, protocol = metadata or self.metadata, protocol or self.protocol
        return replace(self, version=version, metadata=metadata, protocol=protocol)

    def widening_since(self, version: int) -> TypeWideningMode:
        """Which type changes since a version this definition can read."""
        can_widen = version < self.version and _WIDENING & supported_features(self.protocol)
        return TypeWideningMode.ALWAYS if can_widen else TypeWideningMode.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition(VersionDefinition):
    """The definition that a run of a stream reads with.

    `is_tracked`: it is from a schema log, which then controls every change.  `is_lenient`: the
    user accepts renamed and dropped columns.
    """

    is_tracked: bool = False
    is_lenient: bool = False
    has_starting_options: bool = False

    @property
    def schema(self) -> StructType:
        return self.metadata.schema

    def differs(self, other: StreamCommit | Snapshot | VersionDefinition) -> bool:
        """Whether a tracked stream must adopt the definition of `other` before it reads on."""
        if self.is_tracked and self.version >= other.version:
            return False  # handled already, by a definition that replaces several in a row
        metadata, protocol = other.metadata, other.protocol
        if protocol is not None and not is_same_protocol(protocol, self.protocol):
            return True
        if metadata is None:
            return False
        return (
            _readers_view(metadata.schema) != _readers_view(self.metadata.schema)
            or metadata.partition_columns != self.metadata.partition_columns
            or _delta_properties(metadata) != _delta_properties(self.metadata)
        )

    def is_barrier(self, commit: StreamCommit) -> bool:
        """Whether a batch must end before the commit, so that the next run reads it again."""
        return self.is_tracked and self.differs(commit)

    def check_followed(self, metadata: Metadata, version: int) -> None:
        """Raise if rows of another definition cannot be read with this one."""
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
        reads = is_read_compatible(
            metadata.schema,
            self.schema,
            forbid_tighter_nullability=True,
            allow_missing_columns=self.is_lenient and is_older,
            widening=self.widening_since(version),
        )
        if reads and metadata.partition_columns == self.metadata.partition_columns:
            return
        raise StreamError(
            "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS"
            if self.has_starting_options
            else "DELTA_SCHEMA_CHANGED_WITH_VERSION",
            version=version,
            readSchema=format_schema(self.schema),
            dataSchema=format_schema(metadata.schema),
        )


def loses_columns(old: Metadata, new: Metadata) -> bool:
    """Whether column mapping let a column be renamed or dropped between the two."""
    if mapping_mode(new) is ColumnMappingMode.NONE:
        return False
    before, after = _by_physical_path(old), _by_physical_path(new)
    return any(after.get(path, ("",))[-1] != name[-1] for path, name in before.items())


def schema_changes(old: Metadata, new: Metadata) -> frozenset[str]:
    """Which of `rename`, `drop` and `type change` turned the one schema into the other."""
    before, after = _by_physical_path(old), _by_physical_path(new)
    is_mapped = mapping_mode(new) is not ColumnMappingMode.NONE
    types_before, types_after = _types_by_physical_path(old), _types_by_physical_path(new)
    both = types_before.keys() & types_after.keys()
    changes = {
        "rename": is_mapped and any(after[p][-1] != before[p][-1] for p in before if p in after),
        "drop": any(path not in after for path in before),
        "type change": any(_is_retyped(types_before[p], types_after[p]) for p in both),
    }
    return frozenset(name for name, is_there in changes.items() if is_there)


def check_only_widened(old: Metadata, new: Metadata, version: int) -> None:
    """Raise for columns whose values no longer fit; lost columns are not checked."""
    if not is_read_compatible(
        physical_schema(old.schema, mapping_mode(old)),
        physical_schema(new.schema, mapping_mode(new)),
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


def _by_physical_path(metadata: Metadata) -> dict[tuple[str, ...], tuple[str, ...]]:
    paths = physical_paths(metadata.schema, mapping_mode(metadata))
    return {physical: logical for logical, physical in paths.items()}


def _types_by_physical_path(metadata: Metadata) -> dict[tuple[str, ...], DataType]:
    schema = physical_schema(metadata.schema, mapping_mode(metadata))
    return {path: f.data_type for path, f in walk_fields(schema)}


def _is_retyped(old: DataType, new: DataType) -> bool:
    # A struct, and a type that holds one, changes with its fields, which are checked one by one.
    have_fields = all(next(walk_fields(each), None) is not None for each in (old, new))
    return not have_fields and old.simple_string != new.simple_string


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
