"""The table of conflict rules: whether my commit may follow a winner, and how.

The rules are in the order of their application.  Each takes my commit and one winner; it raises
when the two cannot be put in order, or returns my commit as it must be after the winner.  A new
rule is a new row.  Every winner is checked, oldest first.

| rule | winner | me | outcome |
|---|---|---|---|
| protocol | a protocol | a protocol too, or it drops a feature | ProtocolChanged |
| metadata | metadata | metadata too, or not on the list `ALLOWED` | MetadataChanged |
| domains | a domain | the same one, row ids apart | ConcurrentTransaction |
| application ids | an application's version | read that version | ConcurrentTransaction |
| rows of files | takes rows out of a file | depends on other rows of it | settled, vector rebased |
| added files | adds | would have read one of them | ConcurrentAppend |
| removed files read | removes | read one of them, or the whole table | ConcurrentDeleteRead |
| removed files removed | removes | removes one of them | ConcurrentDeleteDelete |

What the rule on rows settled is left out by the three rules that follow it.  Metadata of a winner
is no conflict where files written before it are valid after it as well: the feature that it
enables is less strict, or rebasing can satisfy it.

A file that a winner added is tested as in a scan: by partition values and statistics, against the
whole condition of each read.  It conflicts unless they prove that the condition selects no row of
it; a file with missing or malformed values or statistics conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    DeltaError,
    MetadataChangedException,
    ProtocolChangedException,
    ProtocolError,
)
from pyspark_delta.kernel.log.frames.file_actions import file_key
from pyspark_delta.kernel.protocol import properties
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import DomainMetadata, Metadata, Protocol, RemoveFile
from pyspark_delta.kernel.protocol.column_mapping import (
    MODE_KEY,
    ColumnMappingMode,
    physical_name,
    without_mapping,
)
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING
from pyspark_delta.kernel.protocol.feature_upgrade import dropped_features
from pyspark_delta.kernel.protocol.features import check_writable, is_supported
from pyspark_delta.kernel.protocol.identity_columns import is_identity_only_change
from pyspark_delta.kernel.protocol.properties import Property, property_value
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG, ROW_TRACKING_FEATURE
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.scan.predicates.tree import TRUE, Predicate, split_partition_part
from pyspark_delta.kernel.scan.skipping.files import (
    partition_columns_table,
    partition_mask,
    skipping_mask,
)
from pyspark_delta.kernel.scan.skipping.stats_table import leaf_stats, stats_leaves
from pyspark_delta.kernel.txn.invariants import check_change_files, check_no_repeats
from pyspark_delta.kernel.txn.isolation import BACKFILL, UNBACKFILL, IsolationLevel
from pyspark_delta.kernel.txn.prepared import PreparedCommit, WinningCommit
from pyspark_delta.kernel.txn.reads import READ_SCHEMA, ReadSet
from pyspark_delta.kernel.txn.rebase import (
    rebase_backfill,
    rebase_checkpoint_protection,
    rebase_domains,
    rebase_row_ids,
    rebase_rows,
    rebase_timestamp,
    rebase_type_widening,
    rebase_unbackfill,
)

DOC_LINK = "https://docs.delta.io/concurrency-control"
# Up to this number partitions are tested one by one and cached: writers reuse the same few.
_FEW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Metadata before and after the winner, under the protocol that holds after it."""

    old: Metadata
    new: Metadata
    protocol: Protocol

    def turns_on(self, row: Property[bool]) -> bool:
        was = property_value(self.old.configuration, row)
        return property_value(self.new.configuration, row) and not was


def resolve_conflict(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    """My commit as it can be written after `winner`; raises if the two conflict."""
    rebased = mine
    for rule in RULES:
        rebased = rule(rebased, winner)
    if rebased.actions is not mine.actions:
        check_no_repeats(rebased.actions, mine.table)
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
    # The check that a feature is not in use was made at another version.
    is_valid = mine.is_removal_valid
    if dropped - {ROW_TRACKING_FEATURE} and not (is_valid and is_valid(winner.version)):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", concurrentCommit=_info_text(winner)
        )
    return rebase_checkpoint_protection(mine, winner)


def _metadata(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    theirs = winner.metadata
    if theirs is None:
        return mine
    change = _Change(old=mine.metadata, new=theirs, protocol=mine.protocol)
    moves_marks = is_identity_only_change(mine.metadata, theirs)
    if mine.has(Metadata) or not (moves_marks or _is_allowed(change)):
        raise _conflict(
            MetadataChangedException, "DELTA_METADATA_CHANGED", winner, tableName=mine.table
        )
    if change.turns_on(properties.ENABLE_ROW_TRACKING):
        # Rows that I moved had no id when I wrote them, so my files cannot have kept it.
        tags = {**(mine.commit_info.tags or {}), PRESERVED_TAG: "false"}
        mine = replace(mine, commit_info=replace(mine.commit_info, tags=tags))
    return replace(mine, metadata=theirs)


def _turned_on(row: Property[bool], feature: str) -> Callable[[_Change], bool]:
    return lambda change: (
        is_supported(change.protocol, feature) and property_value(change.new.configuration, row)
    )


def _is_new(row: Property[int | None]) -> Callable[[_Change], bool]:
    return lambda change: row.key not in change.old.configuration


def _maps_by_name(change: _Change) -> bool:
    return (
        is_supported(change.protocol, "columnMapping")
        and mapping_mode(change.old) is ColumnMappingMode.NONE
        and mapping_mode(change.new) is ColumnMappingMode.NAME
    )


def _v2_checkpoints(change: _Change) -> bool:
    policy = property_value(change.new.configuration, properties.CHECKPOINT_POLICY)
    return is_supported(change.protocol, "v2Checkpoint") and policy == "v2"


_row_tracking_on = _turned_on(properties.ENABLE_ROW_TRACKING, "rowTracking")

ALLOWED: Mapping[str, Callable[[_Change], bool]] = {
    properties.ENABLE_ROW_TRACKING.key: _row_tracking_on,
    properties.ROW_ID_COLUMN.key: _row_tracking_on,
    properties.ROW_COMMIT_VERSION_COLUMN.key: _row_tracking_on,
    properties.COLUMN_MAPPING_MODE.key: _maps_by_name,
    properties.COLUMN_MAPPING_MAX_ID.key: _maps_by_name,
    properties.ENABLE_DELETION_VECTORS.key: _turned_on(
        properties.ENABLE_DELETION_VECTORS, "deletionVectors"
    ),
    properties.CHECKPOINT_POLICY.key: _v2_checkpoints,
    properties.ENABLE_IN_COMMIT_TIMESTAMPS.key: _turned_on(
        properties.ENABLE_IN_COMMIT_TIMESTAMPS, "inCommitTimestamp"
    ),
    properties.IN_COMMIT_TIMESTAMP_VERSION.key: _is_new(properties.IN_COMMIT_TIMESTAMP_VERSION),
    properties.IN_COMMIT_TIMESTAMP_TIME.key: _is_new(properties.IN_COMMIT_TIMESTAMP_TIME),
}
"""Properties that may be added or changed, and the condition for each."""


def _is_allowed(change: _Change) -> bool:
    """Whether a commit prepared under the old metadata is valid under the new as well."""
    old, new = change.old, change.new
    if replace(old, configuration=new.configuration, schema_string=new.schema_string) != new:
        return False
    before, after = old.configuration, new.configuration
    changed = [key for key in after if key not in before or before[key] != after[key]]
    if before.keys() - after.keys() or not all(
        key in ALLOWED and ALLOWED[key](change) for key in changed
    ):
        return False
    # Schemas may differ in their text, and in ids and names of column mapping.
    return (
        old.schema_string == new.schema_string
        or old.schema == new.schema
        or (_maps_by_name(change) and without_mapping(old.schema) == without_mapping(new.schema))
    )


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
    if not winner.added or mine.is_blind_append:
        return mine
    if {mine.operation.name, winner.operation} & {BACKFILL, UNBACKFILL}:
        return mine  # the same files, with or without row ids
    if mine.isolation is IsolationLevel.SNAPSHOT_ISOLATION:
        return mine
    is_weak = mine.isolation is IsolationLevel.WRITE_SERIALIZABLE
    if is_weak and winner.is_blind_append and not mine.has(Metadata):
        return mine
    found = _first_match(mine.reads, mine.read_metadata, winner, mine.settled)
    if found is not None and any(read.narrow for read in mine.reads.reads):
        mine = replace(mine, reads=mine.reads.narrowed())
        found = _first_match(mine.reads, mine.read_metadata, winner, mine.settled)
    if found is not None:
        raise _file_conflict(
            ConcurrentAppendException, "DELTA_CONCURRENT_APPEND", mine, winner, found
        )
    return mine


def _removed_files_read(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if not winner.removed:
        return mine
    removed = _unsettled(mine, winner)
    hit = removed.filter(pc.is_in(removed, value_set=mine.reads.paths)).slice(0, 1).to_pylist()
    if not hit and not mine.reads.whole_table:
        return mine
    values = mine.reads.partition_values(hit[0]) if hit else {}
    raise _file_conflict(
        ConcurrentDeleteReadException, "DELTA_CONCURRENT_DELETE_READ", mine, winner, values
    )


def _removed_files_removed(mine: PreparedCommit, winner: WinningCommit) -> PreparedCommit:
    if not winner.removed:
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


RULES: tuple[Callable[[PreparedCommit, WinningCommit], PreparedCommit], ...] = (
    _protocol,
    _metadata,
    _domains,
    _application_ids,
    rebase_backfill,
    rebase_unbackfill,
    rebase_row_ids,
    rebase_type_widening,
    rebase_rows,
    _added_files,
    _removed_files_read,
    _removed_files_removed,
    rebase_timestamp,
)
"""Every rule, in the order of delta-spark's checks; it has none on rows."""


def _info_text(winner: WinningCommit) -> str:
    return "unknown" if winner.commit_info is None else winner.commit_info.json


def _conflict(
    kind: type[DeltaConcurrentModificationException],
    condition: str,
    winner: WinningCommit,
    **parameters: object,
) -> DeltaConcurrentModificationException:
    return kind(condition, conflictingCommit=_info_text(winner), docLink=DOC_LINK, **parameters)


def _file_conflict(
    kind: type[DeltaConcurrentModificationException],
    condition: str,
    mine: PreparedCommit,
    winner: WinningCommit,
    values: Mapping[str, str | None],
) -> DeltaConcurrentModificationException:
    parameters: dict[str, object] = {
        "operation": winner.operation or "Another commit",
        "tableName": mine.table,
        "version": winner.version,
    }
    metadata = mine.read_metadata
    if metadata is None or not metadata.partition_columns or not values:
        return _conflict(kind, f"{condition}.WITHOUT_HINT", winner, **parameters)
    mode = mapping_mode(metadata)
    named = ((f.name, values.get(physical_name(f, mode))) for f in metadata.partition_schema)
    hint = "[" + ", ".join(f"{name}={value}" for name, value in named) + "]"
    parameters["partitionValues"] = hint
    return _conflict(kind, f"{condition}.WITH_PARTITION_HINT", winner, **parameters)


def _first_match(
    reads: ReadSet,
    metadata: Metadata | None,
    winner: WinningCommit,
    settled: frozenset[str] = frozenset(),
) -> StringMap | None:
    """The partition values of a file of `winner` that `reads` would have selected, or None.

    `metadata` is the table's metadata when it was read, None before it existed.  Files at the
    canonical paths `settled` do not count.
    """
    if not winner.added:
        return None
    predicates = reads.predicates
    # A transaction on an unpartitioned table without any predicate counts as a read of the table.
    tells = metadata is not None and bool(metadata.partition_columns or predicates)
    if reads.whole_table or not tells or TRUE in predicates:
        if not settled:
            return winner.added.partition_values(1)[0]
        predicates = (TRUE,)
    counted = list(range(len(winner.added)))
    if settled:
        names = winner.add_paths.to_pylist()
        counted = [position for position in counted if names[position] not in settled]
    for predicate in dict.fromkeys(predicates):
        found = _first_of(predicate, metadata, winner, counted, reads.time_zone)
        if found is not None:
            return dict(winner.adds.column("partitionValues")[found].as_py() or ())
    return None


def _first_of(
    predicate: Predicate,
    metadata: Metadata | None,
    winner: WinningCommit,
    counted: list[int],
    time_zone: str,
) -> int | None:
    """The position of the first of the counted files that `predicate` may select a row of."""
    if predicate == TRUE or metadata is None:
        return counted[0] if counted else None
    partition_part, data_part = _parts(predicate, metadata.partition_columns)
    left = _of_partitions(partition_part, metadata, winner, counted, time_zone)
    if not left or data_part == TRUE:
        return left[0] if left else None
    files = winner.adds.take(pa.array(left, pa.int64()))
    mask = _stats_mask(data_part, metadata, files, time_zone)
    position = pc.index(mask, True).as_py()
    return left[position] if position >= 0 else None


_parts = lru_cache(maxsize=4096)(split_partition_part)


def _of_partitions(
    predicate: Predicate,
    metadata: Metadata,
    winner: WinningCommit,
    counted: list[int],
    time_zone: str,
) -> list[int]:
    if predicate == TRUE:
        return counted
    if len(winner.added) > _FEW:
        mask = _partition_mask(predicate, metadata, winner.adds, time_zone).to_pylist()
        return [position for position in counted if mask[position]]
    partitioning = _partitioning(metadata)
    values = winner.added.partition_values(_FEW)
    return [
        position
        for position in counted
        if _is_selected(predicate, partitioning, tuple(sorted(values[position].items())), time_zone)
    ]


def _partitioning(metadata: Metadata) -> Metadata:
    """The part of the metadata that determines the meaning of partition values."""
    mode = metadata.configuration.get(MODE_KEY)
    return Metadata(
        id="",
        schema_string=metadata.schema_string,
        partition_columns=metadata.partition_columns,
        configuration={} if mode is None else {MODE_KEY: mode},
    )


@lru_cache(maxsize=4096)
def _is_selected(
    predicate: Predicate,
    metadata: Metadata,
    values: tuple[tuple[str, str | None], ...],
    time_zone: str,
) -> bool:
    file = pa.table({"path": ["a file"], "partitionValues": [values]}, schema=READ_SCHEMA)
    return bool(_partition_mask(predicate, metadata, file, time_zone)[0].as_py())


def _partition_mask(
    predicate: Predicate, metadata: Metadata, adds: pa.Table, time_zone: str
) -> pa.BooleanArray:
    try:
        return partition_mask(predicate, adds, metadata, time_zone=time_zone)
    except DeltaError:
        return pa.repeat(pa.scalar(True), adds.num_rows)


def _stats_mask(
    predicate: Predicate, metadata: Metadata, adds: pa.Table, time_zone: str
) -> pa.BooleanArray:
    try:
        bound = bind(predicate, metadata.schema, time_zone=time_zone, lenient=True)
        leaves = stats_leaves(bound, metadata)
        stats = leaf_stats(adds.column("stats"), leaves) if leaves else adds.select(["path"])
        partitions = None
        if metadata.partition_columns:
            partitions = partition_columns_table(adds, metadata, zone=zone_named(time_zone))
        return skipping_mask(bound, stats, partitions=partitions)
    except DeltaError:
        return pa.repeat(pa.scalar(True), adds.num_rows)
