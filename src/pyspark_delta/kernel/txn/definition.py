"""A table's protocol and metadata as a commit will leave them.

New metadata may ask for a protocol, need features, bring columns without ids, or break a rule; all
of that is settled here before any file is written, so that what a transaction shows is what it
commits.  PROTOCOL.md, "Requirements for Writers".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import check_defaults
from pyspark_delta.kernel.protocol.column_mapping import (
    ColumnMappingMode,
    assign_columns,
    check_columns,
    check_mode_change,
    is_rename_or_drop,
    reuse_columns,
)
from pyspark_delta.kernel.protocol.feature_upgrade import (
    RequestedProtocol,
    check_upgrade,
    merged,
    protocol_for,
    take_protocol_properties,
)
from pyspark_delta.kernel.protocol.features import check_writable, supported_features
from pyspark_delta.kernel.protocol.generated_columns import check_generated_columns
from pyspark_delta.kernel.protocol.iceberg_compat import (
    check_iceberg_compat,
    default_properties,
    enabled_version,
)
from pyspark_delta.kernel.protocol.identity_columns import check_identity_columns
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    ENABLE_CHANGE_DATA_FEED,
    PROPERTIES,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    STATS_COLUMNS,
    check_retention,
    parsed_value,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import (
    FEATURE as ROW_TRACKING_FEATURE,
)
from pyspark_delta.kernel.protocol.row_tracking import (
    check_materialized_columns,
    check_properties,
    with_materialized_columns,
)
from pyspark_delta.kernel.protocol.schema_checks import (
    check_nested_not_null,
    check_no_cdf_columns,
    check_schema,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.stats_columns import check_stats_columns
from pyspark_delta.kernel.protocol.type_widening import check_type_changes

Configuration = Mapping[str, str | None]

# Given once and kept for the table's life, whatever a writer leaves out.
_KEPT_PROPERTIES = (ROW_ID_COLUMN.key, ROW_COMMIT_VERSION_COLUMN.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a table is besides its files."""

    protocol: Protocol
    metadata: Metadata


def defined(
    old: Definition | None,
    metadata: Metadata,
    *,
    protocol: Protocol | None,
    table: str,
    new_uuid: Callable[[], str],
    replaces_table: bool = False,
    removes_mapping: bool = False,
    drops_features: bool = False,
) -> Definition:
    """The definition once `metadata` is committed; a typed error when it cannot be.

    `old` is what the table is now, None before it exists; `protocol` one that was asked for by
    itself, which is raised as far as the metadata needs it.  `replaces_table` drops the rules on
    how old and new columns go together; the other two are for the commands of that name.
    """
    before = None if replaces_table else old
    if before is not None:
        # A table's id stays for its life: streams know the table by it.
        metadata = replace(metadata, id=before.metadata.id)
    rest, requested = take_protocol_properties(metadata.configuration, altering=old is not None)
    if before is None:
        rest = {**default_properties(rest), **rest}
    _check_property_values({} if old is None else old.metadata.configuration, rest)
    rest = {**_kept(old, protocol), **rest}
    mapped = _mapped(
        None if before is None else before.metadata,
        replace(metadata, configuration=rest),
        new_uuid,
        removes_mapping,
        former=None if old is None else old.metadata,
    )
    needed = _needed_protocol(old, mapped, protocol, requested)
    if ROW_TRACKING_FEATURE in supported_features(needed):
        mapped = with_materialized_columns(mapped, new_uuid)
    result = Definition(protocol=needed, metadata=mapped)
    check_protocol_change(old, needed, table, drops_features=drops_features)
    check_metadata(old, result)
    return result


def check_protocol_change(
    old: Definition | None, protocol: Protocol, table: str, *, drops_features: bool
) -> None:
    """Refuse a protocol that we cannot write, or that takes a feature away unasked."""
    check_writable(protocol, table)
    if old is not None and not drops_features:
        check_upgrade(old.protocol, protocol)


def check_metadata(old: Definition | None, new: Definition) -> None:
    """Refuse metadata that breaks a rule of its own.

    A schema that stays as it was is not judged again: another engine may have been more lenient.
    """
    metadata = new.metadata
    configuration = metadata.configuration
    mode = mapping_mode(metadata)
    feed = property_value(configuration, ENABLE_CHANGE_DATA_FEED)
    if old is None or _schema_differs(old.metadata, metadata):
        columns = metadata.partition_columns
        is_same_layout = old is not None and len(old.metadata.partition_columns) == len(columns)
        check_schema(
            metadata.schema,
            columns,
            mode=mode,
            change_data_feed=feed,
            needs_data=not is_same_layout,
        )
        check_nested_not_null(metadata.schema)
        check_identity_columns(metadata.schema, columns)
        check_generated_columns(metadata.schema)
        check_type_changes(metadata.schema)
        check_defaults(metadata.schema, supported_features(new.protocol), command="the commit")
    if feed and old is not None and not _has_feed(old.metadata):
        check_no_cdf_columns(metadata.schema, enabling=True)
    listed = configuration.get(STATS_COLUMNS.key)
    if listed is not None and (
        old is None
        or old.metadata.configuration.get(STATS_COLUMNS.key) != listed
        or _schema_differs(old.metadata, metadata)
    ):
        check_stats_columns(metadata.schema, metadata.partition_columns, listed)
    if mode is not ColumnMappingMode.NONE:
        text = configuration.get(COLUMN_MAPPING_MAX_ID.key)
        check_columns(
            metadata.schema,
            mode,
            None if text is None else parsed_value(COLUMN_MAPPING_MAX_ID, text),
        )
    check_retention(configuration)
    check_properties(metadata)
    check_materialized_columns(metadata)
    check_iceberg_compat(new.protocol, metadata, previous=None if old is None else old.metadata)


def check_mapping_beside_feed(old: Metadata | None, new: Metadata, operation: str) -> None:
    """Refuse to change how columns are mapped together with files while changes are recorded.

    For a commit that holds file actions: which names its change rows have would not be defined.
    """
    if not property_value(new.configuration, ENABLE_CHANGE_DATA_FEED):
        return
    if mapping_mode(new) is ColumnMappingMode.NONE:
        return
    was = ColumnMappingMode.NONE if old is None else mapping_mode(old)
    if was is not ColumnMappingMode.NONE and old is not None:
        changes = _schema_differs(old, new) and is_rename_or_drop(old.schema, new.schema)
    else:
        changes = True
    if changes:
        raise SchemaError("DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION", opName=operation)


def mapping_mode(metadata: Metadata) -> ColumnMappingMode:
    """How the table's columns are found in its files."""
    return ColumnMappingMode.parse(metadata.configuration.get(COLUMN_MAPPING_MODE.key))


def _has_feed(metadata: Metadata) -> bool:
    return bool(property_value(metadata.configuration, ENABLE_CHANGE_DATA_FEED))


def _schema_differs(old: Metadata, new: Metadata) -> bool:
    if old.partition_columns != new.partition_columns:
        return True
    return old.schema_string != new.schema_string and old.schema != new.schema


def _kept(old: Definition | None, asked: Protocol | None) -> dict[str, str | None]:
    if old is None:
        return {}
    if asked is not None and ROW_TRACKING_FEATURE not in supported_features(asked):
        return {}  # the feature that they belong to is dropped
    configuration = old.metadata.configuration
    return {key: configuration[key] for key in _KEPT_PROPERTIES if key in configuration}


def _check_property_values(old: Configuration, new: Configuration) -> None:
    """Refuse changed properties whose text is not a legal value; unknown keys are let pass."""
    for key, text in new.items():
        row = PROPERTIES.get(key)
        if row is not None and text is not None and old.get(key) != text:
            parsed_value(row, text)


def _needed_protocol(
    old: Definition | None,
    metadata: Metadata,
    asked: Protocol | None,
    requested: RequestedProtocol,
) -> Protocol:
    if old is not None:
        return protocol_for(
            metadata, asked or old.protocol, requested.features, requested.min_versions
        )
    needed = protocol_for(
        metadata,
        None,
        requested.features,
        requested.min_versions,
        # A protocol that was given in full is not raised to what others get by default.
        default_versions=requested.default_versions if asked is None else (1, 1),
    )
    if asked is None:
        return needed
    if supported_features(needed) <= supported_features(asked):
        return asked
    return merged(asked, needed)


def _mapped(
    old: Metadata | None,
    new: Metadata,
    new_uuid: Callable[[], str],
    removing: bool,
    former: Metadata | None,
) -> Metadata:
    """`new` with ids and physical names on every column, where the table maps columns.

    Ids are given once in a table's life, which a replacement of `former` does not end.
    """
    mode = mapping_mode(new)
    was = ColumnMappingMode.NONE if old is None else mapping_mode(old)
    if old is not None:
        check_mode_change(was, mode, removing=removing)
    if mode is ColumnMappingMode.NONE:
        return new
    known = max(0 if former is None else _max_id(former), _max_id(new))
    if old is not None and was is mode and not _schema_differs(old, new):
        return _with_max_id(new, known)
    schema = new.schema
    if former is not None and mapping_mode(former) is not ColumnMappingMode.NONE:
        schema = reuse_columns(schema, former.schema)
    schema, largest = assign_columns(
        schema,
        max_id=known,
        new_uuid=new_uuid,
        # Files that exist were written under the present names.
        keep_names=old is not None and was is ColumnMappingMode.NONE,
        nested_ids=(enabled_version(new) or 0) >= 2,
    )
    return _with_max_id(replace(new, schema_string=format_schema(schema)), largest)


def _max_id(metadata: Metadata) -> int:
    return int(property_value(metadata.configuration, COLUMN_MAPPING_MAX_ID))


def _with_max_id(metadata: Metadata, largest: int) -> Metadata:
    configuration = {**metadata.configuration, COLUMN_MAPPING_MAX_ID.key: str(largest)}
    return replace(metadata, configuration=configuration)
