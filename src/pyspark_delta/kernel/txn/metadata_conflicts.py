"""Metadata changes that a writer who did not expect them may ride over.

Files written before such a change are right after it as well: the feature that it switches on
allows more, or can be served by rebasing.  Everything else that changes metadata is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, without_mapping
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_POLICY,
    COLUMN_MAPPING_MAX_ID,
    COLUMN_MAPPING_MODE,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    IN_COMMIT_TIMESTAMP_TIME,
    IN_COMMIT_TIMESTAMP_VERSION,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    Property,
    property_value,
)
from pyspark_delta.kernel.txn.definition import mapping_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Metadata before and after the winner, under the protocol that holds after it."""

    old: Metadata
    new: Metadata
    protocol: Protocol


Allowed = Callable[[Change], bool]


def _turned_on(row: Property[bool], feature: str) -> Allowed:
    def allowed(change: Change) -> bool:
        return is_supported(change.protocol, feature) and property_value(
            change.new.configuration, row
        )

    return allowed


def _is_new(row: Property[int | None]) -> Allowed:
    def allowed(change: Change) -> bool:
        return row.key not in change.old.configuration

    return allowed


def _maps_by_name(change: Change) -> bool:
    return (
        is_supported(change.protocol, "columnMapping")
        and mapping_mode(change.old) is ColumnMappingMode.NONE
        and mapping_mode(change.new) is ColumnMappingMode.NAME
    )


def _v2_checkpoints(change: Change) -> bool:
    policy = property_value(change.new.configuration, CHECKPOINT_POLICY)
    return is_supported(change.protocol, "v2Checkpoint") and policy == "v2"


_row_tracking_on = _turned_on(ENABLE_ROW_TRACKING, "rowTracking")

ALLOWED: Mapping[str, Allowed] = {
    ENABLE_ROW_TRACKING.key: _row_tracking_on,
    ROW_ID_COLUMN.key: _row_tracking_on,
    ROW_COMMIT_VERSION_COLUMN.key: _row_tracking_on,
    COLUMN_MAPPING_MODE.key: _maps_by_name,
    COLUMN_MAPPING_MAX_ID.key: _maps_by_name,
    ENABLE_DELETION_VECTORS.key: _turned_on(ENABLE_DELETION_VECTORS, "deletionVectors"),
    CHECKPOINT_POLICY.key: _v2_checkpoints,
    ENABLE_IN_COMMIT_TIMESTAMPS.key: _turned_on(ENABLE_IN_COMMIT_TIMESTAMPS, "inCommitTimestamp"),
    IN_COMMIT_TIMESTAMP_VERSION.key: _is_new(IN_COMMIT_TIMESTAMP_VERSION),
    IN_COMMIT_TIMESTAMP_TIME.key: _is_new(IN_COMMIT_TIMESTAMP_TIME),
}
"""Properties that may appear or change, and when."""


def can_ride_over(change: Change) -> bool:
    """Whether a commit prepared under the old metadata is right under the new as well."""
    different = {
        f.name
        for f in fields(Metadata)
        if getattr(change.old, f.name) != getattr(change.new, f.name)
    }
    if not different <= {"configuration", "schema_string"}:
        return False
    if "configuration" in different and not _properties_allowed(change):
        return False
    return "schema_string" not in different or _schema_allowed(change)


def turns_on(change: Change, row: Property[bool]) -> bool:
    """Whether the change switches a property on."""
    return property_value(change.new.configuration, row) and not property_value(
        change.old.configuration, row
    )


def _properties_allowed(change: Change) -> bool:
    old, new = change.old.configuration, change.new.configuration
    if old.keys() - new.keys():
        return False
    changed = [key for key in new if key not in old or old[key] != new[key]]
    return all(key in ALLOWED and ALLOWED[key](change) for key in changed)


def _schema_allowed(change: Change) -> bool:
    """Equal schemas spelled differently, or the ids and names that column mapping gives."""
    old, new = change.old.schema, change.new.schema
    if old == new:
        return True
    return _maps_by_name(change) and without_mapping(old) == without_mapping(new)
