"""Rebasing: what must change in a commit so that it can follow another that got in first.

Each function takes my commit and the winner, and gives my commit as it would have been prepared
after the winner; none of them refuses anything but what cannot be numbered.  PROTOCOL.md, "Row
Tracking" and "In-Commit Timestamps".
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.table import CorruptLogError, ProtocolError
from pyspark_delta.kernel.log.frames import add_files, file_key
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    RemoveFile,
)
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
    FEATURE as ROW_TRACKING_FEATURE,
)
from pyspark_delta.kernel.protocol.row_tracking import (
    NO_MARK,
    assigns_row_ids,
    reassign_row_ids,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.timestamps import next_in_commit_timestamp
from pyspark_delta.kernel.protocol.type_widening import rebase_type_changes
from pyspark_delta.kernel.txn.prepare import enables_in_commit_timestamps, stamped
from pyspark_delta.kernel.txn.prepared import PreparedCommit, WinningCommit
from pyspark_delta.kernel.txn.traits import BACKFILL, UNBACKFILL


def rebase_checkpoint_protection(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """A commit that drops a feature protects the checkpoints below its own version."""
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
    """A replaced table has no domain but its own: one that the winner brought ends here."""
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
    """Row ids of files that were there before: given by whichever of the two came first.

    My backfill leaves out every path that the winner touched, so that it revives none; a winner's
    backfill passes the ids it gave to my actions on the same paths.
    """
    if not is_supported(mine.protocol, ROW_TRACKING_FEATURE):
        return mine
    if mine.operation.name == BACKFILL:
        mine = _without_touched(mine, winner)
    if winner.operation == BACKFILL and winner.num_adds:
        mine = _with_backfilled_ids(mine, winner)
    return mine


def rebase_unbackfill(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Taking row ids away takes away those that the winner gave meanwhile."""
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
    """Ids that I gave out move above those that the winner gave out, versions to the next one."""
    if not assigns_row_ids(mine.protocol, mine.metadata):
        return mine
    mark = row_id_high_water_mark({n: d for n, d in winner.domains.items() if not d.removed})
    winner_mark = max(mine.row_id_mark, NO_MARK if mark is None else mark)
    # What a winning backfill numbered keeps the number: it is the same file.
    settled = set(winner.add_paths.to_pylist()) if winner.operation == BACKFILL else set()
    adds = tuple(mine.each(AddFile))
    own = [add for add in adds if not _is_among(add, settled, mine.table)]
    if not own:
        return replace(mine, row_id_mark=winner_mark)
    numbered = reassign_row_ids(
        own,
        read_mark=mine.row_id_mark,
        winner_mark=winner_mark,
        winner_version=winner.version,
    )
    following = iter(numbered.files)
    mine = mine.with_adds(
        tuple(add if _is_among(add, settled, mine.table) else next(following) for add in adds)
    )
    others = tuple(action for action in mine.actions if not _is_row_tracking(action))
    if numbered.high_water_mark != winner_mark:
        others = (row_tracking_domain(numbered.high_water_mark), *others)
    return replace(mine, actions=others, row_id_mark=winner_mark)


def rebase_type_widening(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Type changes of the preview are stamped with the version they were made in."""
    if not mine.has(Metadata) or not is_supported(mine.protocol, "typeWidening-preview"):
        return mine
    schema = mine.metadata.schema
    moved = rebase_type_changes(schema, from_version=winner.version, to_version=winner.version + 1)
    if moved == schema:
        return mine
    return mine.with_metadata(replace(mine.metadata, schema_string=format_schema(moved)))


def rebase_timestamp(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """Times rise with versions: mine is after the winner's, by whatever that one's time is."""
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
    # A commit whose table got in-commit timestamps from the winner has no time of its own yet.
    own = mine.commit_info.in_commit_timestamp
    time = next_in_commit_timestamp(mine.now_ms if own is None else own, previous)
    mine = replace(mine, commit_info=replace(mine.commit_info, in_commit_timestamp=time))
    return mine.with_metadata(stamped(mine.metadata, winner.version + 1, time)) if enables else mine


def _is_row_tracking(action: Action) -> bool:
    return isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING


def _is_among(add: AddFile, paths: set[str], root_uri: str) -> bool:
    return bool(paths) and file_key(add.path, None, root_uri) in paths


def _without_touched(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    touched = pa.concat_arrays([winner.add_paths, winner.remove_paths])
    if not len(touched):
        return mine
    names = set(touched.to_pylist())
    kept = tuple(
        action
        for action in mine.actions
        if not (isinstance(action, AddFile) and _is_among(action, names, mine.table))
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
        return replace(
            action,
            base_row_id=ids["baseRowId"],
            default_row_commit_version=ids["defaultRowCommitVersion"],
        )

    return replace(mine, actions=tuple(changed(action) for action in mine.actions))
