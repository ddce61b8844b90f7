"""Compute a table's protocol and metadata as a commit will leave them.

New metadata may request a protocol, need features, have columns without ids, or break a rule; all
of that is resolved here before any file is written, so that a transaction commits the definition
that it shows.  PROTOCOL.md, "Requirements for Writers".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark_delta.errors import SchemaError
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
from pyspark_delta.kernel.protocol.generated_columns import check_generation
from pyspark_delta.kernel.protocol.iceberg_compat import (
    check_iceberg_compat,
    default_properties,
    enabled_version,
)
from pyspark_delta.kernel.protocol.identity_columns import check_identity_columns
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MAX_ID,
    ENABLE_CHANGE_DATA_FEED,
    PROPERTIES,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    STATS_COLUMNS,
    check_retention_periods,
    parsed_value,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import (
    ROW_TRACKING_FEATURE,
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
from pyspark_delta.kernel.scan.plan import mapping_mode

Configuration = Mapping[str, str | None]

# Set once and kept for the table's life, even if a writer leaves them out.
_KEPT_PROPERTIES = (ROW_ID_COLUMN.key, ROW_COMMIT_VERSION_COLUMN.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A table's protocol and metadata."""

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
    """The definition once `metadata` is committed; a typed error when it is not allowed.

    `old` is the present definition, None before the table exists; `protocol` is an explicitly
    requested one, which is raised as far as the metadata needs it.  `replaces_table` skips the
    rules on the compatibility of old and new columns; the other two are for the commands of that
    name.
    """
    before = None if replaces_table else old
    if before is not None:
        # A table's id never changes: streams identify the table by it.
        metadata = replace(metadata, id=before.metadata.id)
    rest, requested = take_protocol_properties(metadata.configuration, altering=old is not None)
    if before is None:
        rest = {**default_properties(rest), **rest}
    known = {} if old is None else old.metadata.configuration
    _check_property_values(known, rest)
    # A protocol without row tracking drops the feature of the kept properties.
    if protocol is None or ROW_TRACKING_FEATURE in supported_features(protocol):
        rest = {**{key: known[key] for key in _KEPT_PROPERTIES if key in known}, **rest}
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
    """Raise for a protocol that is not supported here, or that drops a feature unrequested."""
    check_writable(protocol, table)
    if old is not None and not drops_features:
        check_upgrade(old.protocol, protocol)


def check_metadata(old: Definition | None, new: Definition) -> None:
    """Raise for metadata that breaks a rule by itself.

    An unchanged schema is not checked again: another engine may have been more lenient.
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
        check_generation(metadata.schema)
        check_type_changes(metadata.schema)
        check_defaults(metadata.schema, supported_features(new.protocol), command="the commit")
    had_feed = old is not None and property_value(
        old.metadata.configuration, ENABLE_CHANGE_DATA_FEED
    )
    if feed and old is not None and not had_feed:
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
        max_id = None if text is None else parsed_value(COLUMN_MAPPING_MAX_ID, text)
        check_columns(metadata.schema, mode, max_id)
    check_retention_periods(configuration)
    check_properties(metadata)
    check_materialized_columns(metadata)
    check_iceberg_compat(new.protocol, metadata, previous=None if old is None else old.metadata)


def check_mapping_beside_feed(old: Metadata | None, new: Metadata, operation: str) -> None:
    """Raise if column mapping changes while the change feed is on, in a commit with files.

    The names of columns in its change files would be undefined.
    """
    if not property_value(new.configuration, ENABLE_CHANGE_DATA_FEED):
        return
    if mapping_mode(new) is ColumnMappingMode.NONE:
        return
    if (
        old is None
        or mapping_mode(old) is ColumnMappingMode.NONE
        or (_schema_differs(old, new) and is_rename_or_drop(old.schema, new.schema))
    ):
        raise SchemaError("DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION", opName=operation)


def _schema_differs(old: Metadata, new: Metadata) -> bool:
    if old.partition_columns != new.partition_columns:
        return True
    return old.schema_string != new.schema_string and old.schema != new.schema


def _check_property_values(old: Configuration, new: Configuration) -> None:
    """Raise for changed properties with an illegal value; unknown keys pass."""
    for key, text in new.items():
        row = PROPERTIES.get(key)
        if row is not None and text is not None and old.get(key) != text:
            parsed_value(row, text)


def _needed_protocol(
    old: Definition | None,
    metadata: Metadata,
    explicit: Protocol | None,
    requested: RequestedProtocol,
) -> Protocol:
    if old is not None:
        return protocol_for(
            metadata, explicit or old.protocol, requested.features, requested.min_versions
        )
    needed = protocol_for(
        metadata,
        None,
        requested.features,
        requested.min_versions,
        # An explicitly given protocol is not raised to the default versions.
        default_versions=requested.default_versions if explicit is None else (1, 1),
    )
    return needed if explicit is None else with_features_of(explicit, needed)


def with_features_of(protocol: Protocol, other: Protocol) -> Protocol:
    """`protocol`, raised to support the features of `other` if it lacks one."""
    if supported_features(other) <= supported_features(protocol):
        return protocol
    return merged(protocol, other)


def _mapped(
    old: Metadata | None,
    new: Metadata,
    new_uuid: Callable[[], str],
    removing: bool,
    former: Metadata | None,
) -> Metadata:
    """`new` with ids and physical names on every column, where the table maps columns."""
    # Ids are assigned once in a table's life; a replacement of `former` continues it.
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
        # Existing files were written under the present names.
        keep_names=old is not None and was is ColumnMappingMode.NONE,
        nested_ids=(enabled_version(new) or 0) >= 2,
    )
    return _with_max_id(replace(new, schema_string=format_schema(schema)), largest)


def _max_id(metadata: Metadata) -> int:
    return int(property_value(metadata.configuration, COLUMN_MAPPING_MAX_ID))


def _with_max_id(metadata: Metadata, largest: int) -> Metadata:
    configuration = {**metadata.configuration, COLUMN_MAPPING_MAX_ID.key: str(largest)}
    return replace(metadata, configuration=configuration)
