"""Two commits on one file that depend on different rows of it.

A command that judges each row by itself (DELETE, UPDATE, MERGE) depends, of the files it looked
through, on the rows that it changed and on those that decided what it did.  Whoever takes other
rows out of such a file is not in its way.  A file of which it needs no row may go altogether; of
one that it puts a vector on itself, the vector is put together with the winner's.  Rows that come
with a winner are not judged here: that is the rule on added files.

| winner on a file that I read by row | me | outcome |
|---|---|---|
| removes it, or takes rows out of it by a vector | need none of its rows | settled |
| takes rows out of it by a vector | need others of its rows | settled |
| takes rows out of it by a vector | take others out by a vector | settled, my vector rebased |
| anything else | anything else | left to the rules on files |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.log.frames import file_key
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import Action, AddFile, RemoveFile
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.txn.isolation import IsolationLevel
from pyspark_delta.kernel.txn.prepared import PreparedCommit, ReadVector, WinningCommit
from pyspark_delta.kernel.txn.reads import NO_ROWS, TouchedRows
from pyspark_delta.kernel.txn.vector_files import with_vector

_F = TypeVar("_F", AddFile, RemoveFile)
_NOTHING = TouchedRows()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Rows that a winner took out of a file: its vectors before and after, and the file after."""

    before: DeletionVector
    after: DeletionVector
    add: AddFile


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rebased:
    """My actions on one file after the winner's; no add when no row is left."""

    remove: RemoveFile
    add: AddFile | None
    vector: DeletionVector


def rebase_rows(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """My commit after a winner that took rows out of files which I read row by row.

    Paths on which the two have nothing to do with each other are in `settled` of the result.
    """
    if mine.settled:
        mine = replace(mine, settled=frozenset())
    paths = _shared_paths(mine, winner)
    if not paths or mine.read_vector is None:
        return mine
    removes = _by_path(winner.removes_at(paths))
    named = winner.adds_at(paths)
    adds, added = _by_path(named), {path for path, _ in named}
    own_removes = _own(mine, RemoveFile, paths)
    own_adds = _own(mine, AddFile, paths)
    settled: set[str] = set()
    rebased: dict[str, _Rebased] = {}
    for path, remove in removes.items():
        needed = mine.reads.touched.get(path, _NOTHING)
        own = own_removes.get(path), own_adds.get(path)
        if own == (None, None) and not needed.all.cardinality and path not in added:
            settled.add(path)
            continue
        taken = _taken(remove, adds.get(path), mine.read_vector)
        if taken is None or not taken.after.is_disjoint(needed.all):
            continue
        if own == (None, None):
            settled.add(path)
        elif (made := _put_together(*own, needed.changed, remove, taken)) is not None:
            settled.add(path)
            rebased[path] = made
    if not settled:
        return mine
    return _with_rebased(replace(mine, settled=frozenset(settled)), rebased)


def _shared_paths(mine: PreparedCommit, winner: WinningCommit) -> list[str]:
    """The paths that the winner removed and that I depend on by rows alone."""
    reads = mine.reads
    # At SnapshotIsolation nobody looks at what the winner added, so what it moved would be lost.
    is_judged = mine.isolation is not IsolationLevel.SNAPSHOT_ISOLATION and not reads.whole_table
    if not winner.num_removes or not is_judged:
        return []
    by_row = reads.paths_by_row
    if reads.touched:
        by_row = pa.concat_arrays([by_row, pa.array(reads.touched, pa.string())])
    if not len(by_row):
        return []
    removed = winner.remove_paths
    shared = removed.filter(pc.is_in(removed, value_set=by_row))
    if len(shared) and len(reads.paths_by_file):
        shared = shared.filter(pc.invert(pc.is_in(shared, value_set=reads.paths_by_file)))
    found: list[str] = shared.to_pylist()
    return found


def _taken(remove: RemoveFile, add: AddFile | None, read: ReadVector) -> _Taken | None:
    """What the winner took out of a file by a vector; None when it did anything else to it.

    A vector that cannot be read proves nothing, so its file is not shared.
    """
    if add is None or add.deletion_vector is None:
        return None
    if _vector_id(add.deletion_vector) == _vector_id(remove.deletion_vector):
        return None  # of two words about one key in a commit the remove counts
    try:
        before = NO_ROWS if remove.deletion_vector is None else read(remove.deletion_vector)
        after = read(add.deletion_vector)
    except DeltaError:
        return None
    if not before.is_subset(after):
        return None
    return _Taken(before=before, after=after, add=add)


def _put_together(
    remove: RemoveFile | None,
    add: AddFile | None,
    changed: DeletionVector,
    theirs: RemoveFile,
    taken: _Taken,
) -> _Rebased | None:
    """My actions on a file as they are after the winner's; None when they cannot follow them."""
    if remove is None or add is None or add.deletion_vector is None:
        return None
    if _vector_id(remove.deletion_vector) != _vector_id(theirs.deletion_vector):
        return None  # we did not mean the same file
    if add.deletion_vector.cardinality != taken.before.cardinality + changed.cardinality:
        return None  # I took more out of the file than I said
    vector = taken.after.union(changed)
    rows = taken.add.num_records
    if rows is None or (vector.max_row or 0) >= rows:
        return None
    gone = replace(taken.add.remove(remove.deletion_timestamp or 0), data_change=remove.data_change)
    if vector.cardinality == rows:
        return _Rebased(remove=gone, add=None, vector=vector)
    ids = taken.add if taken.add.base_row_id is not None else add
    rebased = replace(
        with_vector(taken.add, inline_descriptor(vector)),
        base_row_id=ids.base_row_id,
        default_row_commit_version=ids.default_row_commit_version,
        data_change=add.data_change,
    )
    return _Rebased(remove=gone, add=rebased, vector=vector)


def _with_rebased(mine: PreparedCommit, rebased: dict[str, _Rebased]) -> PreparedCommit:
    if not rebased:
        return mine
    actions: list[Action] = []
    for action in mine.actions:
        changed: Action | None = action
        if isinstance(action, AddFile | RemoveFile):
            made = rebased.get(file_key(action.path, None, mine.table))
            if made is not None:
                changed = made.add if isinstance(action, AddFile) else made.remove
        if changed is not None:
            actions.append(changed)
    vectors = {path: vector for path, vector in mine.vectors.items() if path not in rebased}
    vectors |= {path: made.vector for path, made in rebased.items() if made.add is not None}
    return replace(mine, actions=tuple(actions), vectors=vectors)


def _by_path(actions: Sequence[tuple[str, _F]]) -> dict[str, _F]:
    """Actions by path, without paths that a commit names twice: it is not told which counts."""
    counts = Counter(path for path, _ in actions)
    return {path: action for path, action in actions if counts[path] == 1}


def _own(mine: PreparedCommit, kind: type[_F], paths: Iterable[str]) -> dict[str, _F]:
    wanted = set(paths)
    named = ((file_key(action.path, None, mine.table), action) for action in mine.each(kind))
    return {path: action for path, action in named if path in wanted}


def _vector_id(descriptor: DeletionVectorDescriptor | None) -> str | None:
    return None if descriptor is None else descriptor.unique_id
