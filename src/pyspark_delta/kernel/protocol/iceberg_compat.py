"""Iceberg compatibility: the rules for tables whose files also form an Iceberg table.

These are the rules of versions 1 and 2 on protocol, metadata and files.  Iceberg metadata is not
written, and version 3 is an unsupported feature (`features`).  PROTOCOL.md, "Iceberg Compatibility
V1" and "Iceberg Compatibility V2".

>>> enabled_version(Metadata(id="t", configuration={"delta.enableIcebergCompatV2": "true"}))
2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark_delta.errors import InvalidActionsError, ProtocolError
from pyspark_delta.kernel.protocol import properties, types
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import FEATURES, is_supported
from pyspark_delta.kernel.protocol.properties import Property, property_value
from pyspark_delta.kernel.protocol.type_widening import all_type_changes, can_widen

_VIOLATION = "DELTA_ICEBERG_COMPAT_VIOLATION."
_SWITCHES: Mapping[int, Property[bool | None]] = {
    1: properties.ENABLE_ICEBERG_COMPAT_V1,
    2: properties.ENABLE_ICEBERG_COMPAT_V2,
    3: properties.ENABLE_ICEBERG_COMPAT_V3,
}
_ATOMIC_TYPES = (
    types.NUMBER_TYPES | types.DATETIME_TYPES | {types.STRING, types.BINARY, types.BOOLEAN}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    version: int  # of the compatibility
    protocol: Protocol
    metadata: Metadata
    previous: Metadata | None


def enabled_version(metadata: Metadata) -> int | None:
    """The enabled compatibility version, the first of several; None without one."""
    return next(iter(_enabled_versions(metadata)), None)


def default_properties(configuration: Mapping[str, str | None]) -> dict[str, str]:
    """The properties that a new table needs in addition: column mapping, unless it has it."""
    is_enabled = any(property_value(configuration, switch) for switch in _SWITCHES.values())
    if is_enabled and properties.COLUMN_MAPPING_MODE.key not in configuration:
        return {properties.COLUMN_MAPPING_MODE.key: "name"}
    return {}


def requires_partition_columns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether data files must hold the partition columns too, after the others."""
    return enabled_version(metadata) is not None or is_supported(
        protocol, "materializePartitionColumns"
    )


def keeps_partition_columns(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether data files get the partition columns: unless a property disables optional ones."""
    optional = property_value(metadata.configuration, properties.WRITE_PARTITION_COLUMNS)
    return optional is not False or requires_partition_columns(protocol, metadata)


def check_iceberg_compat(
    protocol: Protocol,
    metadata: Metadata,
    *,
    previous: Metadata | None = None,
    files: Iterable[AddFile] = (),
) -> None:
    """Raise if a table with compatibility enabled breaks one of its rules.

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


def _violation(table: _Table, rule: str, **parameters: object) -> ProtocolError:
    return ProtocolError(_VIOLATION + rule, version=table.version, **parameters)


def _check_features(table: _Table) -> None:
    for feature in FEATURES[f"icebergCompatV{table.version}"].requires:
        if not is_supported(table.protocol, feature):
            raise _violation(table, "MISSING_REQUIRED_TABLE_FEATURE", feature=feature)


def _check_column_mapping(table: _Table) -> None:
    mode = property_value(table.metadata.configuration, properties.COLUMN_MAPPING_MODE)
    if mode == "none":
        raise _violation(
            table,
            "WRONG_REQUIRED_TABLE_PROPERTY",
            key=properties.COLUMN_MAPPING_MODE.key,
            requiredValue="name",
            actualValue=mode,
        )


def _check_no_deletion_vectors_feature(table: _Table) -> None:
    if is_supported(table.protocol, "deletionVectors"):
        raise _violation(table, "INCOMPATIBLE_TABLE_FEATURE", feature="deletionVectors")


def _check_deletion_vectors_off(table: _Table) -> None:
    if property_value(table.metadata.configuration, properties.ENABLE_DELETION_VECTORS):
        raise _violation(table, "DELETION_VECTORS_SHOULD_BE_DISABLED")


def _check_partitions_stay(table: _Table) -> None:
    before = table.previous.partition_columns if table.previous is not None else ()
    if before and before != table.metadata.partition_columns:
        raise _violation(
            table,
            "REPLACE_TABLE_CHANGE_PARTITION_NAMES",
            prevPartitionSpec=", ".join(before),
            newPartitionSpec=", ".join(table.metadata.partition_columns),
        )


def _check_types(table: _Table) -> None:
    is_allowed = _is_allowed_in_v1 if table.version == 1 else _is_allowed_in_v2
    for _, data_type in types.walk_types(table.metadata.schema):
        if not is_allowed(data_type):
            raise _violation(
                table,
                "UNSUPPORTED_DATA_TYPE",
                dataType=data_type.simple_string,
                schema=table.metadata.schema.simple_string,
            )


def _check_type_changes(table: _Table) -> None:
    for path, change in all_type_changes(table.metadata.schema):
        if not can_widen(change.from_type, change.to_type, iceberg=True):
            raise _violation(
                table,
                "UNSUPPORTED_TYPE_WIDENING",
                fieldPath=types.column_name(path),
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


def _is_allowed_in_v1(data_type: types.DataType) -> bool:
    return data_type != types.VOID and not isinstance(data_type, types.ArrayType | types.MapType)


def _is_allowed_in_v2(data_type: types.DataType) -> bool:
    nested = isinstance(
        data_type, types.StructType | types.ArrayType | types.MapType | types.DecimalType
    )
    return nested or data_type in _ATOMIC_TYPES


_RULES_OF_BOTH = (_check_features, _check_column_mapping, _check_partitions_stay, _check_types)
_RULES: Mapping[int, tuple[Callable[[_Table], None], ...]] = {
    1: (*_RULES_OF_BOTH, _check_no_deletion_vectors_feature, _check_type_changes),
    2: (*_RULES_OF_BOTH, _check_deletion_vectors_off, _check_type_changes),
}
