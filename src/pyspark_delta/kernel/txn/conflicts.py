"""The table of conflict rules: may my commit follow a commit that got in first?

The rules stand in the order they are applied.  Each takes my commit and one winner; it raises when
the two cannot be put in order, or gives my commit as it must be after the winner.  A new rule is a
new row.  Winners are taken oldest first, every one of them.

| rule | winner | me | outcome |
|---|---|---|---|
| protocol | a protocol | a protocol too, or it drops a feature | ProtocolChanged |
| metadata | metadata | metadata too, or not on the list of `metadata_conflicts` | MetadataChanged |
| domains | a domain | the same one, row ids apart | ConcurrentTransaction |
| application ids | an application's version | read that version | ConcurrentTransaction |
| rows of files | takes rows out of a file | depends on other rows of it | settled, vector rebased |
| added files | adds | would have read one of them | ConcurrentAppend |
| removed files read | removes | read one of them, or the whole table | ConcurrentDeleteRead |
| removed files removed | removes | removes one of them | ConcurrentDeleteDelete |

What `row_conflicts` settled is left out by the three rules that follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.conflicts import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark_delta.errors.table import ProtocolError
from pyspark_delta.kernel.log.frames import file_key
from pyspark_delta.kernel.protocol.actions import (
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING
from pyspark_delta.kernel.protocol.feature_upgrade import dropped_features
from pyspark_delta.kernel.protocol.features import check_writable
from pyspark_delta.kernel.protocol.identity_columns import is_identity_only_change
from pyspark_delta.kernel.protocol.properties import ENABLE_ROW_TRACKING
from pyspark_delta.kernel.protocol.row_tracking import FEATURE as ROW_TRACKING_FEATURE
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.txn.added_matches import first_match
from pyspark_delta.kernel.txn.definition import mapping_mode
from pyspark_delta.kernel.txn.invariants import check_change_files, check_no_duplicates
from pyspark_delta.kernel.txn.isolation import IsolationLevel
from pyspark_delta.kernel.txn.metadata_conflicts import Change, can_ride_over, turns_on
from pyspark_delta.kernel.txn.prepared import PreparedCommit, WinningCommit
from pyspark_delta.kernel.txn.rebase import (
    rebase_backfill,
    rebase_checkpoint_protection,
    rebase_domains,
    rebase_row_ids,
    rebase_timestamp,
    rebase_type_widening,
    rebase_unbackfill,
)
from pyspark_delta.kernel.txn.row_conflicts import rebase_rows
from pyspark_delta.kernel.txn.traits import BACKFILL, UNBACKFILL

DOC_LINK = "https://docs.delta.io/concurrency-control"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: what is looked at, and the function that does."""

    name: str
    apply: Callable[[PreparedCommit, WinningCommit], PreparedCommit]


def resolve(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """My commit as it can be written after `winner`, or the conflict between the two."""
    rebased = mine
    for rule in RULES:
        rebased = rule.apply(rebased, winner)
    if rebased.actions is not mine.actions:
        check_no_duplicates(rebased.actions, mine.table)
        check_change_files(rebased.actions)
    return replace(rebased, version=winner.version + 1)


def _protocol(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    theirs = winner.protocol
    if theirs is not None:
        check_writable(theirs, mine.table)
        drops = mine.read_protocol is not None and dropped_features(mine.read_protocol, theirs)
        if mine.has(Protocol) or drops:
            raise _conflict(
                ProtocolChangedException, "DELTA_PROTOCOL_CHANGED", winner, additionalInfo=""
            )
        return replace(mine, protocol=theirs)
    old = mine.read_protocol
    dropped = frozenset() if old is None else dropped_features(old, mine.protocol)
    # Whether a feature is out of use was found out at another version.
    is_valid = mine.is_removal_valid
    if dropped - {ROW_TRACKING_FEATURE} and not (is_valid and is_valid(winner.version)):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", concurrentCommit=_shown(winner)
        )
    return rebase_checkpoint_protection(mine, winner)


def _metadata(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    theirs = winner.metadata
    if theirs is None:
        return mine
    change = Change(old=mine.metadata, new=theirs, protocol=mine.protocol)
    moves_marks = is_identity_only_change(mine.metadata, theirs)
    if mine.has(Metadata) or not (moves_marks or can_ride_over(change)):
        raise _conflict(
            MetadataChangedException, "DELTA_METADATA_CHANGED", winner, tableName=mine.table
        )
    if turns_on(change, ENABLE_ROW_TRACKING):
        # Rows that I moved have no id yet: what I wrote cannot have kept it.
        tags = {**(mine.commit_info.tags or {}), PRESERVED_TAG: "false"}
        mine = replace(mine, commit_info=replace(mine.commit_info, tags=tags))
    return replace(mine, metadata=theirs)


def _domains(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    theirs = winner.domains.keys() - {ROW_TRACKING}
    if theirs and any(action.domain in theirs for action in mine.each(DomainMetadata)):
        raise _conflict(ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION", winner)
    return rebase_domains(mine, winner)


def _application_ids(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if mine.reads.app_ids and mine.reads.app_ids & winner.app_ids:
        raise _conflict(ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION", winner)
    return mine


def _added_files(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if not winner.num_adds or mine.is_blind_append:
        return mine
    if {mine.operation.name, winner.operation} & {BACKFILL, UNBACKFILL}:
        return mine  # the same files, with or without row ids
    if mine.isolation is IsolationLevel.SNAPSHOT_ISOLATION:
        return mine
    if (
        mine.isolation is IsolationLevel.WRITE_SERIALIZABLE
        and winner.is_blind_append
        and not mine.has(Metadata)
    ):
        return mine
    found = first_match(mine.reads, mine.read_metadata, winner, mine.settled)
    if found is not None and mine.reads.can_narrow:
        mine = replace(mine, reads=mine.reads.narrowed())
        found = first_match(mine.reads, mine.read_metadata, winner, mine.settled)
    if found is not None:
        raise _file_conflict(
            ConcurrentAppendException, "DELTA_CONCURRENT_APPEND", mine, winner, found
        )
    return mine


def _removed_files_read(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if not winner.num_removes:
        return mine
    condition = "DELTA_CONCURRENT_DELETE_READ"
    if mine.reads.reads:
        removed = _unsettled(mine, winner)
        hit = removed.filter(mine.reads.holds(removed))
        if len(hit):
            values = mine.reads.partition_values(hit[0].as_py())
            raise _file_conflict(ConcurrentDeleteReadException, condition, mine, winner, values)
    if mine.reads.whole_table:
        raise _file_conflict(ConcurrentDeleteReadException, condition, mine, winner, {})
    return mine


def _removed_files_removed(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if not winner.num_removes:
        return mine
    # By path alone: replay keeps files by path and vector, and two vectors for one path that
    # both came from the same older file would double its rows.
    removed = {file_key(action.path, None, mine.table): action for action in mine.each(RemoveFile)}
    if not removed:
        return mine
    theirs = _unsettled(mine, winner)
    hit = theirs.filter(pc.is_in(theirs, value_set=pa.array(removed, pa.string())))
    if len(hit):
        values = removed[hit[0].as_py()].partition_values or {}
        raise _file_conflict(
            ConcurrentDeleteDeleteException, "DELTA_CONCURRENT_DELETE_DELETE", mine, winner, values
        )
    return mine


def _unsettled(mine: PreparedCommit, winner: WinningCommit) -> pa.Array:
    """The paths that the winner removed, as far as they matter to me as files."""
    removed = winner.remove_paths
    if not mine.settled:
        return removed
    settled = pa.array(mine.settled, pa.string())
    return removed.filter(pc.invert(pc.is_in(removed, value_set=settled)))


RULES: tuple[Rule, ...] = (
    Rule("protocol", _protocol),
    Rule("metadata", _metadata),
    Rule("domains", _domains),
    Rule("application ids", _application_ids),
    Rule("row tracking backfill", rebase_backfill),
    Rule("row tracking un-backfill", rebase_unbackfill),
    Rule("row ids and row commit versions", rebase_row_ids),
    Rule("type widening versions", rebase_type_widening),
    Rule("rows of files", rebase_rows),
    Rule("added files", _added_files),
    Rule("removed files read", _removed_files_read),
    Rule("removed files removed", _removed_files_removed),
    Rule("in-commit timestamp", rebase_timestamp),
)
"""Every rule, in the order of delta-spark's checks; it has none on rows."""


def _shown(winner: WinningCommit) -> str:
    return "unknown" if winner.commit_info is None else winner.commit_info.json


def _conflict(
    kind: type[DeltaConcurrentModificationException],
    condition: str,
    winner: WinningCommit,
    **parameters: object,
) -> DeltaConcurrentModificationException:
    return kind(condition, conflictingCommit=_shown(winner), docLink=DOC_LINK, **parameters)


def _file_conflict(
    kind: type[DeltaConcurrentModificationException],
    condition: str,
    mine: PreparedCommit,
    winner: WinningCommit,
    values: Mapping[str, str | None],
) -> DeltaConcurrentModificationException:
    hint = _partition_text(mine.read_metadata, values)
    parameters: dict[str, object] = {
        "operation": winner.operation or "Another commit",
        "tableName": mine.table,
        "version": winner.version,
    }
    if hint is None:
        return _conflict(kind, f"{condition}.WITHOUT_HINT", winner, **parameters)
    parameters["partitionValues"] = hint
    return _conflict(kind, f"{condition}.WITH_PARTITION_HINT", winner, **parameters)


def _partition_text(metadata: Metadata | None, values: Mapping[str, str | None]) -> str | None:
    if metadata is None or not metadata.partition_columns or not values:
        return None
    mode = mapping_mode(metadata)
    named: Iterable[tuple[str, str | None]] = (
        (f.name, values.get(physical_name(f, mode))) for f in metadata.partition_schema
    )
    return "[" + ", ".join(f"{name}={value}" for name, value in named) + "]"
