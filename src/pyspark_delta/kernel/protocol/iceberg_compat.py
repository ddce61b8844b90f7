"""Iceberg compatibility: what a table must be so that its files also make an Iceberg table.

The rules of versions 1 and 2 on protocol, metadata and files.  Converting the metadata is not done
here, and version 3 is refused where its feature is.  PROTOCOL.md, "Iceberg Compatibility V1" and
"Iceberg Compatibility V2".

>>> enabled_version(Metadata(id="t", configuration={"delta.enableIcebergCompatV2": "true"}))
2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyspark_delta.errors.table import InvalidActionsError, ProtocolError
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import FEATURES, is_supported
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MODE,
    ENABLE_DELETION_VECTORS,
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_ICEBERG_COMPAT_V3,
    WRITE_PARTITION_COLUMNS,
    Property,
    property_value,
)
from pyspark_delta.kernel.protocol.type_widening import all_type_changes, can_widen
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    column_name,
)

_VIOLATION = "DELTA_ICEBERG_COMPAT_VIOLATION."
_SWITCHES: Mapping[int, Property[bool | None]] = {
    1: ENABLE_ICEBERG_COMPAT_V1,
    2: ENABLE_ICEBERG_COMPAT_V2,
    3: ENABLE_ICEBERG_COMPAT_V3,
}
_ATOMIC_TYPES = frozenset(
    (
        *(BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, STRING, BINARY, BOOLEAN),
        *(DATE, TIMESTAMP, TIMESTAMP_NTZ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """A table as one commit would leave it."""

    version: int  # of the compatibility
    protocol: Protocol
    metadata: Metadata
    previous: Metadata | None


def enabled_version(metadata: Metadata) -> int | None:
    """The compatibility version that is switched on; None without one, the first of several."""
    return next(iter(_enabled_versions(metadata)), None)


def default_properties(configuration: Mapping[str, str | None]) -> dict[str, str]:
    """What a new table must have beside what it asked for: column mapping, unless it says so."""
    wanted = any(property_value(configuration, switch) for switch in _SWITCHES.values())
    if wanted and COLUMN_MAPPING_MODE.key not in configuration:
        return {COLUMN_MAPPING_MODE.key: "name"}
    return {}


def requires_partition_columns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether data files must hold the partition columns too, behind the others."""
    return enabled_version(metadata) is not None or is_supported(
        protocol, "materializePartitionColumns"
    )


def keeps_partition_columns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether data files get the partition columns: always, unless the table says no and may."""
    said = property_value(metadata.configuration, WRITE_PARTITION_COLUMNS)
    return said is not False or requires_partition_columns(protocol, metadata)


def check_iceberg_compat(
    protocol: Protocol,
    metadata: Metadata,
    *,
    previous: Metadata | None = None,
    files: Iterable[AddFile] = (),
) -> None:
    """Refuse a table that is switched to compatibility and breaks a rule of it.

    `previous` is the metadata that a commit replaces, `files` are what it adds.
    """
    enabled = _enabled_versions(metadata)
    if len(enabled) > 1:
        raise ProtocolError(_VIOLATION + "VERSION_MUTUAL_EXCLUSIVE", version=enabled[0])
    for version in enabled:
        table = _Table(version=version, protocol=protocol, metadata=metadata, previous=previous)
        for rule in _RULES.get(version, ()):
            rule(table)
        for file in files:
            _check_file(version, file)


def _enabled_versions(metadata: Metadata) -> tuple[int, ...]:
    return tuple(
        version
        for version, switch in _SWITCHES.items()
        if property_value(metadata.configuration, switch)
    )


def _check_features(table: _Table) -> None:
    for feature in FEATURES[f"icebergCompatV{table.version}"].requires:
        if not is_supported(table.protocol, feature):
            raise ProtocolError(
                _VIOLATION + "MISSING_REQUIRED_TABLE_FEATURE",
                version=table.version,
                feature=feature,
            )


def _check_column_mapping(table: _Table) -> None:
    mode = property_value(table.metadata.configuration, COLUMN_MAPPING_MODE)
    if mode == "none":
        raise ProtocolError(
            _VIOLATION + "WRONG_REQUIRED_TABLE_PROPERTY",
            version=table.version,
            key=COLUMN_MAPPING_MODE.key,
            requiredValue="name",
            actualValue=mode,
        )


def _check_no_deletion_vectors_feature(table: _Table) -> None:
    if is_supported(table.protocol, "deletionVectors"):
        raise ProtocolError(
            _VIOLATION + "INCOMPATIBLE_TABLE_FEATURE",
            version=table.version,
            feature="deletionVectors",
        )


def _check_deletion_vectors_off(table: _Table) -> None:
    if property_value(table.metadata.configuration, ENABLE_DELETION_VECTORS):
        raise ProtocolError(
            _VIOLATION + "DELETION_VECTORS_SHOULD_BE_DISABLED", version=table.version
        )


def _check_partitions_stay(table: _Table) -> None:
    previous = table.previous
    if previous is None or not previous.partition_columns:
        return
    if previous.partition_columns != table.metadata.partition_columns:
        raise ProtocolError(
            _VIOLATION + "REPLACE_TABLE_CHANGE_PARTITION_NAMES",
            version=table.version,
            prevPartitionSpec=", ".join(previous.partition_columns),
            newPartitionSpec=", ".join(table.metadata.partition_columns),
        )


def _check_types(is_allowed: Callable[[DataType], bool]) -> Callable[[_Table], None]:
    def check(table: _Table) -> None:
        for data_type in _types_within(table.metadata.schema):
            if not is_allowed(data_type):
                raise ProtocolError(
                    _VIOLATION + "UNSUPPORTED_DATA_TYPE",
                    version=table.version,
                    dataType=data_type.simple_string,
                    schema=table.metadata.schema.simple_string,
                )

    return check


def _check_type_changes(table: _Table) -> None:
    for path, change in all_type_changes(table.metadata.schema):
        if not can_widen(change.from_type, change.to_type, iceberg=True):
            raise ProtocolError(
                _VIOLATION + "UNSUPPORTED_TYPE_WIDENING",
                version=table.version,
                fieldPath=column_name(path),
                prevType=change.from_type.simple_string,
                newType=change.to_type.simple_string,
            )


def _check_file(version: int, file: AddFile) -> None:
    if file.num_records is None:
        raise InvalidActionsError(
            _VIOLATION + "MISSING_NUM_RECORDS", version=version, path=file.path
        )
    if file.deletion_vector is not None:
        raise InvalidActionsError(_VIOLATION + "DELETION_VECTORS_NOT_PURGED", version=version)


def _is_allowed_in_v1(data_type: DataType) -> bool:
    return data_type != VOID and not isinstance(data_type, ArrayType | MapType)


def _is_allowed_in_v2(data_type: DataType) -> bool:
    nested = isinstance(data_type, StructType | ArrayType | MapType | DecimalType)
    return nested or data_type in _ATOMIC_TYPES


def _types_within(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    match data_type:
        case StructType(fields=fields):
            for f in fields:
                yield from _types_within(f.data_type)
        case ArrayType(element_type=element):
            yield from _types_within(element)
        case MapType(key_type=key, value_type=value):
            yield from _types_within(key)
            yield from _types_within(value)


_RULES: Mapping[int, tuple[Callable[[_Table], None], ...]] = {
    1: (
        _check_features,
        _check_column_mapping,
        _check_partitions_stay,
        _check_types(_is_allowed_in_v1),
        _check_no_deletion_vectors_feature,
        _check_type_changes,
    ),
    2: (
        _check_features,
        _check_column_mapping,
        _check_partitions_stay,
        _check_types(_is_allowed_in_v2),
        _check_deletion_vectors_off,
        _check_type_changes,
    ),
}
