"""Features that DROP FEATURE can take away: when a table is free of one, and what it leaves behind.

One row per feature, as delta-spark has them.  Rows look and never write; the steps of the
statement are in `drop_feature`, those that free a table of a feature in `feature_cleanup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyspark_delta.kernel.log.checkpoint_reader import is_v2
from pyspark_delta.kernel.log.json_frames import frames_from_commits
from pyspark_delta.kernel.log.segment import LogListing, list_log, load_segment
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.row_tracking_backfill import is_suspended, with_ids
from pyspark_delta.kernel.protocol.actions import Action, Metadata
from pyspark_delta.kernel.protocol.column_mapping import has_mapping
from pyspark_delta.kernel.protocol.constraints import check_constraints
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING, tombstone
from pyspark_delta.kernel.protocol.features import FEATURES, is_supported
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_VERSION,
    COLUMN_MAPPING_MODE,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_MATERIALIZE_PARTITION_COLUMNS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    IN_COMMIT_TIMESTAMP_TIME,
    IN_COMMIT_TIMESTAMP_VERSION,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    ROW_TRACKING_SUSPENDED,
    property_value,
)
from pyspark_delta.kernel.protocol.type_widening import all_type_changes
from pyspark_delta.kernel.storage.base import LogStore

CHECKPOINT_PROTECTION = "checkpointProtection"
PROVENANCE = (IN_COMMIT_TIMESTAMP_TIME.key, IN_COMMIT_TIMESTAMP_VERSION.key)
"""Properties that tell since when commits hold their time."""

_COMMITS_AT_ONCE = 500


def _nothing(snapshot: Snapshot) -> tuple[Action, ...]:
    return ()


def _never(what: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One row: a feature, and what must hold before it goes.

    `is_clean` looks whether a version is free of it.  `in_metadata` and `in_files` find traces of
    it in a commit, the latter in a table of add or of remove actions; `in_checkpoints` says that
    checkpoints can hold traces too.  `properties` go together with it, and `last_actions` are in
    the commit that drops it.
    """

    feature: str
    is_clean: Callable[[Snapshot], bool]
    in_metadata: Callable[[Metadata], bool] = _never
    in_files: Callable[[pa.Table], bool] = _never
    in_checkpoints: bool = False
    properties: tuple[str, ...] = ()
    last_actions: Callable[[Snapshot], tuple[Action, ...]] = _nothing

    @property
    def protects_history(self) -> bool:
        """Whether clients without it must be kept from reading older versions."""
        return FEATURES[self.feature].readers


def _vectors_in_files(files: pa.Table) -> bool:
    column = files.column("deletionVector")
    return bool(column.null_count < len(column))


def _makes_vectors(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, ENABLE_DELETION_VECTORS)


def _has_no_vectors(snapshot: Snapshot) -> bool:
    makes = _makes_vectors(snapshot.metadata) and is_supported(snapshot.protocol, "deletionVectors")
    return not makes and not _vectors_in_files(snapshot.files_with(["deletionVector"]))


def _is_mapped(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, COLUMN_MAPPING_MODE) != "none"


def _has_no_mapping(snapshot: Snapshot) -> bool:
    return not _is_mapped(snapshot.metadata) and not has_mapping(snapshot.schema)


def _has_type_changes(metadata: Metadata) -> bool:
    return any(True for _ in all_type_changes(metadata.schema))


def _is_not_widened(snapshot: Snapshot) -> bool:
    metadata = snapshot.metadata
    enabled = property_value(metadata.configuration, ENABLE_TYPE_WIDENING)
    return not enabled and not _has_type_changes(metadata)


def _asks_for_v2(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, CHECKPOINT_POLICY) == "v2"


def _is_without_v2(snapshot: Snapshot) -> bool:
    if _asks_for_v2(snapshot.metadata):
        return False
    checkpoint = load_segment(snapshot.store, snapshot.version).checkpoint
    return checkpoint is None or not is_v2(snapshot.store, checkpoint)


def _has_no_own_times(snapshot: Snapshot) -> bool:
    configuration = snapshot.metadata.configuration
    if property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return False
    return not any(key in configuration for key in PROVENANCE)


def _has_no_row_ids(snapshot: Snapshot) -> bool:
    return is_suspended(snapshot.metadata) and not with_ids(snapshot).num_rows


def _end_of_row_ids(snapshot: Snapshot) -> tuple[Action, ...]:
    domain = snapshot.domains.get(ROW_TRACKING)
    return () if domain is None else (tombstone(domain),)


_WIDENING = {
    name: Removal(feature=name, is_clean=_is_not_widened, in_metadata=_has_type_changes)
    for name in ("typeWidening", "typeWidening-preview")
}
REMOVALS: Mapping[str, Removal] = _WIDENING | {
    row.feature: row
    for row in (
        Removal(
            feature="checkConstraints",
            is_clean=lambda snapshot: not check_constraints(snapshot.metadata.configuration),
        ),
        Removal(feature="columnMapping", is_clean=_has_no_mapping, in_metadata=_is_mapped),
        Removal(
            feature="deletionVectors",
            is_clean=_has_no_vectors,
            in_metadata=_makes_vectors,
            in_files=_vectors_in_files,
        ),
        Removal(
            feature="v2Checkpoint",
            is_clean=_is_without_v2,
            in_metadata=_asks_for_v2,
            in_checkpoints=True,
        ),
        Removal(feature="domainMetadata", is_clean=lambda snapshot: not snapshot.domains),
        Removal(
            feature="rowTracking",
            is_clean=_has_no_row_ids,
            properties=(
                ENABLE_ROW_TRACKING.key,
                ROW_TRACKING_SUSPENDED.key,
                ROW_ID_COLUMN.key,
                ROW_COMMIT_VERSION_COLUMN.key,
            ),
            last_actions=_end_of_row_ids,
        ),
        Removal(feature="inCommitTimestamp", is_clean=_has_no_own_times),
        Removal(feature="vacuumProtocolCheck", is_clean=lambda snapshot: True),
        Removal(
            feature=CHECKPOINT_PROTECTION,
            is_clean=lambda snapshot: (
                CHECKPOINT_PROTECTION_VERSION.key not in snapshot.metadata.configuration
            ),
        ),
        Removal(
            feature="materializePartitionColumns",
            is_clean=lambda snapshot: True,
            properties=(ENABLE_MATERIALIZE_PARTITION_COLUMNS.key,),
        ),
    )
}
"""Every feature that can be removed from a table that we can write."""


def has_traces_in_history(removal: Removal, snapshot: Snapshot) -> bool:
    """Whether any version that can still be read, up to that of `snapshot`, uses the feature.

    Tombstones of the oldest checkpoint do not count: nobody reads what they tell of.
    """
    store = snapshot.store
    listing = list_log(store)
    if removal.in_checkpoints and any(is_v2(store, each) for each in listing.checkpoints):
        return True
    if listing.checkpoints and listing.checkpoints[0].version <= snapshot.version:
        first = type(snapshot).load(store, listing.checkpoints[0].version, now_ms=lambda: 0)
        if removal.in_metadata(first.metadata) or removal.in_files(first.files):
            return True
    return any(_traces(removal, store, listing, 0, snapshot.version))


def has_traces_in_commit(removal: Removal, store: LogStore, version: int) -> bool:
    """Whether one commit uses the feature, in what it says or takes back."""
    return any(_traces(removal, store, list_log(store, version), version, version))


def is_truncated_before(store: LogStore, version: int) -> bool:
    """Whether the log begins at `version` or later."""
    if version <= 0:
        return True
    listing = list_log(store)
    if any(file.version < version for file in listing.commits):
        return False
    return bool(listing.checkpoints) and listing.checkpoints[0].version >= version


def _traces(
    removal: Removal, store: LogStore, listing: LogListing, first: int, last: int
) -> Iterator[bool]:
    paths = [file.info.path for file in listing.commits if first <= file.version <= last]
    for start in range(0, len(paths), _COMMITS_AT_ONCE):
        some = paths[start : start + _COMMITS_AT_ONCE]
        commits = zip(some, store.read_many(some), strict=True)
        for frame in frames_from_commits(commits, store.root_uri):
            found = (action for action in frame.others if isinstance(action, Metadata))
            yield any(removal.in_metadata(metadata) for metadata in found)
            yield removal.in_files(frame.adds) or removal.in_files(frame.removes)
