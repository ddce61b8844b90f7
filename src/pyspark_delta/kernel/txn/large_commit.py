"""A commit as a stream: one action in memory at a time, however many there are.

Each action is checked by itself.  That no path comes twice is the caller's to know: remembering
every path would be what the stream is there to avoid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark_delta.errors.table import InvalidActionsError
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.domains import row_tracking_domain
from pyspark_delta.kernel.protocol.row_tracking import (
    NO_MARK,
    assign_row_ids,
    assigns_row_ids,
)
from pyspark_delta.kernel.txn.definition import Definition
from pyspark_delta.kernel.txn.invariants import check_actions, check_kinds
from pyspark_delta.kernel.txn.prepared import PreparedCommit, encode_actions

_ACTIONS_PER_CHUNK = 1024


def large_commit_chunks(prepared: PreparedCommit, actions: Iterable[Action]) -> Iterator[bytes]:
    """The bytes of a commit: what `prepared` holds already, then `actions`."""
    yield encode_actions(prepared.all_actions)
    waiting: list[Action] = []
    for action in _checked(prepared, actions):
        waiting.append(action)
        if len(waiting) >= _ACTIONS_PER_CHUNK:
            yield encode_actions(tuple(waiting))
            waiting = []
    if waiting:
        yield encode_actions(tuple(waiting))


def _checked(prepared: PreparedCommit, actions: Iterable[Action]) -> Iterator[Action]:
    definition = Definition(protocol=prepared.protocol, metadata=prepared.metadata)
    gives_ids = assigns_row_ids(prepared.protocol, prepared.metadata)
    mark = NO_MARK
    for action in actions:
        check_kinds((action,))
        if isinstance(action, Metadata | Protocol):
            raise InvalidActionsError(
                "DELTA_INVALID_COMMIT_ACTIONS",
                reason="metadata and protocol of a streamed commit come before its actions",
            )
        check_actions((action,), definition, prepared.table, prepared.traits)
        if gives_ids and isinstance(action, AddFile):
            numbered = assign_row_ids((action,), high_water_mark=mark, version=prepared.version)
            (action,), mark = numbered.files, numbered.high_water_mark
        yield action
    if mark != NO_MARK:
        yield row_tracking_domain(mark)
