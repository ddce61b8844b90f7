"""How far a commit must be independent of those that overtook it.

A table is Serializable unless its property `delta.isolationLevel` says otherwise.  A commit that
only rearranges files runs at SnapshotIsolation on any table: rows that others add meanwhile do
not matter to it.

>>> level_for(IsolationLevel.SERIALIZABLE, (), changes_data=False)
<IsolationLevel.SNAPSHOT_ISOLATION: 'SnapshotIsolation'>
"""

from __future__ import annotations

from collections.abc import Iterable
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
from pyspark_delta.kernel.protocol.properties import ISOLATION_LEVEL, property_value


class IsolationLevel(Enum):
    """Spelled as `commitInfo` spells them, strictest first."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT_ISOLATION = "SnapshotIsolation"


_BY_TEXT = {level.value.lower(): level for level in IsolationLevel}


def table_level(metadata: Metadata) -> IsolationLevel:
    """The level that a table asks for."""
    return _BY_TEXT[property_value(metadata.configuration, ISOLATION_LEVEL).lower()]


def level_for(
    table: IsolationLevel, actions: Iterable[Action], *, changes_data: bool
) -> IsolationLevel:
    """The level of one commit, from its prepared actions without `commitInfo`.

    `changes_data` is the operation's trait: on a WriteSerializable table an empty DELETE must
    still be put in order with others.
    """
    if table is IsolationLevel.WRITE_SERIALIZABLE and changes_data:
        return table
    if all(_is_rearrangement(action) for action in actions):
        return IsolationLevel.SNAPSHOT_ISOLATION
    return table


def can_skip_empty(level: IsolationLevel) -> bool:
    """Whether a commit of this level need not be written when it holds nothing.

    Under WriteSerializable a commit, even an empty one, marks the place of a read in the order.
    """
    return level is not IsolationLevel.WRITE_SERIALIZABLE


def _is_rearrangement(action: Action) -> bool:
    match action:
        case AddFile() | RemoveFile() | AddCDCFile():
            return not action.data_change
        case DomainMetadata():
            # Row ids are renumbered after a lost race whatever the level.
            return action.domain == ROW_TRACKING
        case _:
            return False
