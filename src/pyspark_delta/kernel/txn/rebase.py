"""Rebasing: the changes in a commit that let it follow a winner.

Each function takes my commit and the winner, and returns my commit as it would have been prepared
after the winner.  They raise only where row ids or times cannot be assigned.  PROTOCOL.md, "Row
Tracking" and "In-Commit Timestamps".

Rows are rebased by row-level conflict detection: commits may depend on different rows of one file.
A command that decides about each row by itself (DELETE, UPDATE, MERGE) depends, in the files that
it scanned, on the rows that it changed and on those that affected its result.  A winner that
deletes other rows of such a file is no conflict.  It may even remove a file of which the command
needs no row; where the command writes a vector itself, the vector is merged with the winner's.
Rows that a winner adds are not checked here, but by the rule on added files.

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

from pyspark_delta.errors import CorruptLogError, DeltaError, ProtocolError
from pyspark_delta.kernel.log.frames.file_actions import add_files, file_key
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.commit_times import next_in_commit_timestamp
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor
from pyspark_delta.kernel.protocol.domains import (
    ROW_TRACKING,
    row_id_high_water_mark,
    row_tracking_domain,
    tombstone,
)
from pyspark_delta.kernel.protocol.feature_upgrade import dropped_features
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_PROTECTION_VERSION,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import (
    NO_MARK,
    ROW_TRACKING_FEATURE,
    assigns_row_ids,
    reassign_row_ids,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import rebase_type_changes
from pyspark_delta.kernel.txn.isolation import BACKFILL, UNBACKFILL, IsolationLevel
from pyspark_delta.kernel.txn.prepare import enables_in_commit_timestamps, stamped
from pyspark_delta.kernel.txn.prepared import PreparedCommit, ReadVector, WinningCommit, vector_id
from pyspark_delta.kernel.txn.reads import NO_ROWS, RowsOfFile
from pyspark_delta.kernel.txn.vector_files import with_vector

_F = TypeVar("_F", AddFile, RemoveFile)
_NO_ROWS_OF_FILE = RowsOfFile()


def rebase_checkpoint_protection(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Move the checkpoint protection of a dropped feature to the commit's own version."""
    old = mine.read_protocol
    if old is None or not dropped_features(old, mine.protocol) or not mine.has(Metadata):
        return mine
    if CHECKPOINT_PROTECTION_VERSION.key not in mine.metadata.configuration:
        return mine
    changed = {CHECKPOINT_PROTECTION_VERSION.key: str(winner.version + 1)}
    return mine.with_metadata(
        replace(mine.metadata, configuration={**mine.metadata.configuration, **changed})
    )


def rebase_domains(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Remove the domains that the winner set, if my commit replaces the table."""
    if not mine.traits.replaces_table or not winner.domains:
        return mine
    own = {action.domain for action in mine.each(DomainMetadata)}
    ended = tuple(
        tombstone(action)
        for name, action in winner.domains.items()
        if name not in own and name != ROW_TRACKING and not action.removed
    )
    return replace(mine, actions=(*mine.actions, *ended)) if ended else mine


def rebase_backfill(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Let existing files keep the row ids that the first of the two commits assigned.

    My backfill omits every path that the winner touched, so that it revives none; a winner's
    backfill passes its assigned ids to my actions on the same paths.
    """
    if not is_supported(mine.protocol, ROW_TRACKING_FEATURE):
        return mine
    if mine.operation.name == BACKFILL:
        mine = _without_touched(mine, winner)
    if winner.operation == BACKFILL and winner.added:
        mine = _with_backfilled_ids(mine, winner)
    return mine


def rebase_unbackfill(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Remove the row ids that the winner assigned, if my commit removes row ids."""
    old = mine.read_protocol
    drops = old is not None and ROW_TRACKING_FEATURE in dropped_features(old, mine.protocol)
    if not drops and mine.operation.name != UNBACKFILL:
        return mine
    if winner.operation == BACKFILL:
        raise ProtocolError("DELTA_ROW_TRACKING_BACKFILL_RUNNING_CONCURRENTLY_WITH_UNBACKFILL")
    has_ids = pc.or_(
        pc.is_valid(winner.adds.column("baseRowId")),
        pc.is_valid(winner.adds.column("defaultRowCommitVersion")),
    )
    cleaned = tuple(
        replace(add, data_change=False, base_row_id=None, default_row_commit_version=None)
        for add in add_files(winner.adds.filter(has_ids))
    )
    mine = _without_touched(mine, winner)
    return replace(mine, actions=(*mine.actions, *cleaned)) if cleaned else mine


def rebase_row_ids(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Move my assigned ids above those of the winner, and my default versions to the next one."""
    if not assigns_row_ids(mine.protocol, mine.metadata):
        return mine
    mark = row_id_high_water_mark({n: d for n, d in winner.domains.items() if not d.removed})
    winner_mark = max(mine.row_id_mark, NO_MARK if mark is None else mark)
    # A file that a winning backfill numbered keeps its ids: it is the same file.
    settled = set(winner.add_paths.to_pylist()) if winner.operation == BACKFILL else set()
    adds = tuple(mine.each(AddFile))
    own = [add for add in adds if not _is_among(add, settled, mine.table)]
    if not own:
        return replace(mine, row_id_mark=winner_mark)
    numbered = reassign_row_ids(
        own, read_mark=mine.row_id_mark, winner_mark=winner_mark, winner_version=winner.version
    )
    following = iter(numbered.files)
    mine = mine.with_adds(
        tuple(add if _is_among(add, settled, mine.table) else next(following) for add in adds)
    )
    others = tuple(
        a for a in mine.actions if not (isinstance(a, DomainMetadata) and a.domain == ROW_TRACKING)
    )
    if numbered.high_water_mark != winner_mark:
        others = (row_tracking_domain(numbered.high_water_mark), *others)
    return replace(mine, actions=others, row_id_mark=winner_mark)


def rebase_type_widening(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Record my version in type changes of the preview feature."""
    if not mine.has(Metadata) or not is_supported(mine.protocol, "typeWidening-preview"):
        return mine
    schema = mine.metadata.schema
    moved = rebase_type_changes(schema, from_version=winner.version, to_version=winner.version + 1)
    if moved == schema:
        return mine
    return mine.with_metadata(replace(mine.metadata, schema_string=format_schema(moved)))


def rebase_timestamp(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Move my time after the winner's, because times increase with versions."""
    if not property_value(mine.metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return mine
    enables = enables_in_commit_timestamps(mine.read_metadata, mine.metadata) and mine.has(Metadata)
    info = winner.commit_info
    stamp = None if info is None else info.in_commit_timestamp
    if enables:
        previous = winner.modified_ms
    elif stamp is None:
        raise CorruptLogError(
            "DELTA_MISSING_COMMIT_INFO" if info is None else "DELTA_MISSING_COMMIT_TIMESTAMP",
            featureName="inCommitTimestamp",
            version=winner.version,
        )
    else:
        previous = stamp
    # If the winner enabled in-commit timestamps, my commit has no time yet.
    own = mine.commit_info.in_commit_timestamp
    time = next_in_commit_timestamp(mine.now_ms if own is None else own, previous)
    mine = replace(mine, commit_info=replace(mine.commit_info, in_commit_timestamp=time))
    return mine.with_metadata(stamped(mine.metadata, winner.version + 1, time)) if enables else mine


def _is_among(add: AddFile, paths: set[str], root_uri: str) -> bool:
    return bool(paths) and file_key(add.path, None, root_uri) in paths


def _without_touched(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    touched = pa.concat_arrays([winner.add_paths, winner.remove_paths])
    if not len(touched):
        return mine
    names = set(touched.to_pylist())
    kept = tuple(
        a for a in mine.actions if not (isinstance(a, AddFile) and _is_among(a, names, mine.table))
    )
    return replace(mine, actions=kept, reads=mine.reads.without(touched))


def _with_backfilled_ids(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    adds = winner.adds.select(["baseRowId", "defaultRowCommitVersion"]).to_pylist()
    given = dict(zip(winner.add_paths.to_pylist(), adds, strict=True))

    def changed(action: Action) -> Action:
        if not isinstance(action, AddFile | RemoveFile):
            return action
        ids = given.get(file_key(action.path, None, mine.table))
        if ids is None:
            return action
        row_id, version = ids["baseRowId"], ids["defaultRowCommitVersion"]
        return replace(action, base_row_id=row_id, default_row_commit_version=version)

    return replace(mine, actions=tuple(changed(action) for action in mine.actions))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Rows that a winner deleted from a file: its vectors before and after, and the file after."""

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
    """My commit after a winner that deleted rows of files which I read by row.

    Paths without a conflict between the two are in `settled` of the result.
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
        needed = mine.reads.touched.get(path, _NO_ROWS_OF_FILE)
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
    # At SnapshotIsolation the winner's adds are not checked, so rows that it moved would be lost.
    is_judged = mine.isolation is not IsolationLevel.SNAPSHOT_ISOLATION and not reads.whole_table
    if not winner.removed or not is_judged:
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
    """The rows that the winner deleted by a vector; None when it changed the file otherwise."""
    # A vector that cannot be read proves nothing, so its file is a conflict.
    if add is None or add.deletion_vector is None:
        return None
    if vector_id(add.deletion_vector) == vector_id(remove.deletion_vector):
        return None  # of a remove and an add of one key in a commit the remove counts
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
    """My actions on a file, rebased on the winner's; None when they cannot follow them."""
    if remove is None or add is None or add.deletion_vector is None:
        return None
    if vector_id(remove.deletion_vector) != vector_id(theirs.deletion_vector):
        return None  # the two commits started from different files
    if add.deletion_vector.cardinality != taken.before.cardinality + changed.cardinality:
        return None  # my vector has other rows than those recorded
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
    """Actions by path, without paths that a commit names twice: which one counts is unclear."""
    counts = Counter(path for path, _ in actions)
    return {path: action for path, action in actions if counts[path] == 1}


def _own(mine: PreparedCommit, kind: type[_F], paths: Iterable[str]) -> dict[str, _F]:
    wanted = set(paths)
    named = ((file_key(action.path, None, mine.table), action) for action in mine.each(kind))
    return {path: action for path, action in named if path in wanted}
