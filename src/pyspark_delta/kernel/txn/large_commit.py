"""A commit as a stream: a handful of actions in memory at a time, however many there are.

Each handful is checked by itself.  That no path comes twice in all of them is the caller's to
know: remembering every path would be what the stream is there to avoid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from tempfile import SpooledTemporaryFile

from pyspark_delta.errors.table import InvalidActionsError
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.domains import row_tracking_domain
from pyspark_delta.kernel.protocol.row_tracking import assign_row_ids, assigns_row_ids
from pyspark_delta.kernel.txn.commit_stats import Tally
from pyspark_delta.kernel.txn.definition import Definition
from pyspark_delta.kernel.txn.invariants import check_actions, check_kinds
from pyspark_delta.kernel.txn.isolation import IsolationLevel
from pyspark_delta.kernel.txn.prepared import PreparedCommit

ACTIONS_AT_ONCE = 1024
"""How many actions are in memory at a time."""

_IN_MEMORY_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20


def as_large(prepared: PreparedCommit) -> PreparedCommit:
    """`prepared` with what delta-spark says of a commit whose actions it did not look at."""
    info = replace(
        prepared.commit_info,
        read_version=prepared.version - 1,
        isolation_level=IsolationLevel.SERIALIZABLE.value,
        is_blind_append=False,
        data_change=None,
    )
    return replace(prepared, commit_info=info)


def large_commit_chunks(
    prepared: PreparedCommit, actions: Iterable[Action], tally: Tally
) -> Iterator[bytes]:
    """The bytes of a commit: what `prepared` holds already, then `actions`."""
    # A loop would keep a handful while the next one is made.
    return map(tally.encoded, _handfuls(prepared, actions))


@contextmanager
def written_aside(chunks: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """All of `chunks` once they are made, kept outside of the table until then.

    What makes them may read footers for minutes and fail at the last one: up to its end, not even
    a directory of the table is touched.
    """
    with SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="pyspark-delta-") as file:
        for chunk in chunks:
            file.write(chunk)
        file.seek(0)
        yield iter(lambda: file.read(_CHUNK_BYTES), b"")


def _handfuls(prepared: PreparedCommit, actions: Iterable[Action]) -> Iterator[tuple[Action, ...]]:
    yield prepared.all_actions
    definition = Definition(protocol=prepared.protocol, metadata=prepared.metadata)
    gives_ids = assigns_row_ids(prepared.protocol, prepared.metadata)
    mark = prepared.row_id_mark
    following = iter(actions)
    while some := tuple(islice(following, ACTIONS_AT_ONCE)):
        check_kinds(some)
        if any(isinstance(action, Metadata | Protocol) for action in some):
            raise InvalidActionsError(
                "DELTA_INVALID_COMMIT_ACTIONS",
                reason="metadata and protocol of a streamed commit come before its actions",
            )
        check_actions(some, definition, prepared.table, prepared.traits)
        if gives_ids:
            some, mark = _numbered(some, mark, prepared.version)
        yield some
    if mark != prepared.row_id_mark:
        yield (row_tracking_domain(mark),)


def _numbered(
    actions: tuple[Action, ...], mark: int, version: int
) -> tuple[tuple[Action, ...], int]:
    adds = [action for action in actions if isinstance(action, AddFile)]
    numbered = assign_row_ids(adds, high_water_mark=mark, version=version)
    files = iter(numbered.files)
    with_ids = tuple(next(files) if isinstance(a, AddFile) else a for a in actions)
    return with_ids, numbered.high_water_mark
