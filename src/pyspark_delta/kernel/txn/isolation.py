"""Isolation levels of commits, and the traits of operations.

A table is Serializable unless its property `delta.isolationLevel` has another level.  A commit that
only rearranges files runs at SnapshotIsolation on any table: rows that others add meanwhile do
not affect it.

>>> level_for(Metadata(), (), changes_data=False)
<IsolationLevel.SNAPSHOT_ISOLATION: 'SnapshotIsolation'>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    DomainMetadata,
    Metadata,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING
from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import ISOLATION_LEVEL, property_value


class IsolationLevel(Enum):
    """The levels by their names in `commitInfo`, strictest first."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT_ISOLATION = "SnapshotIsolation"


_BY_TEXT = {level.value.lower(): level for level in IsolationLevel}
BACKFILL = "ROW TRACKING BACKFILL"
UNBACKFILL = "ROW TRACKING UNBACKFILL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One row: the rules that are relaxed for an operation.

    `replaces_table` makes a new table in the place of the old one.  `drops_features` may lower the
    protocol, if its user requests that.  `changes_partitioning` may change the partition columns.
    `readds_files` adds files that have been in a table before, so that bounds beside a vector may
    be tight, and a table that allows no new vectors may have them.
    """

    replaces_table: bool = False
    drops_features: bool = False
    changes_partitioning: bool = False
    readds_files: bool = False


_NONE = Traits()
_REPLACE = Traits(replaces_table=True, changes_partitioning=True)
_READDS = Traits(readds_files=True)
TRAITS: Mapping[str, Traits] = {
    "WRITE": Traits(changes_partitioning=True),
    "STREAMING UPDATE": Traits(changes_partitioning=True),
    "REPLACE TABLE": _REPLACE,
    "REPLACE TABLE AS SELECT": _REPLACE,
    "CREATE OR REPLACE TABLE": _REPLACE,
    "CREATE OR REPLACE TABLE AS SELECT": _REPLACE,
    "RESTORE": Traits(changes_partitioning=True, readds_files=True, drops_features=True),
    "CLONE": Traits(changes_partitioning=True, readds_files=True, drops_features=True),
    "RENAME COLUMN": Traits(changes_partitioning=True),
    "DROP FEATURE": Traits(drops_features=True),
    "COMPUTE STATS": _READDS,
    BACKFILL: _READDS,
    UNBACKFILL: _READDS,
}


def level_for(
    metadata: Metadata, actions: Iterable[Action], *, changes_data: bool
) -> IsolationLevel:
    """The level of one commit, from its prepared actions without `commitInfo`.

    `changes_data` is the operation's trait: on a WriteSerializable table an empty DELETE must
    still be ordered with other commits.
    """
    table = _BY_TEXT[property_value(metadata.configuration, ISOLATION_LEVEL).lower()]
    if table is IsolationLevel.WRITE_SERIALIZABLE and changes_data:
        return table
    if all(_is_rearrangement(action) for action in actions):
        return IsolationLevel.SNAPSHOT_ISOLATION
    return table


def traits_of(name: str | None) -> Traits:
    """The traits of the operation called `name`; none for a name that is not listed.

    >>> traits_of("RESTORE").readds_files, traits_of("WRITE").readds_files
    (True, False)
    """
    return _NONE if name is None else TRAITS.get(name, _NONE)


def as_operation(operation: Operation | str) -> Operation:
    """The operation of that name without parameters, for a caller that records none."""
    if isinstance(operation, Operation):
        return operation
    kind = OPERATIONS.get(operation)
    if kind is None:
        return Operation(name=operation)
    return Operation(name=operation, metrics=kind.metrics, changes_data=kind.changes_data)


def _is_rearrangement(action: Action) -> bool:
    if isinstance(action, AddFile | RemoveFile | AddCDCFile):
        return not action.data_change
    # Row ids are assigned again after a lost race at any level.
    return isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING
