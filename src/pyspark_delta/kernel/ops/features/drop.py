"""DROP FEATURE: the one legal way to lower a table's protocol.

First its clean-up removes the feature from the newest version, then one commit takes it out of the
protocol.  Older versions still use a feature that readers must know; they are either truncated,
once they are old enough (TRUNCATE HISTORY), or kept behind three checkpoints that no clean-up may
delete without them (`checkpointProtection`).  PROTOCOL.md, "Checkpoint Protection".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark_delta.errors import DeltaError, ProtocolError
from pyspark_delta.kernel.log.checkpoints.reader import is_v2
from pyspark_delta.kernel.log.frames.json_frames import frames_from_commits
from pyspark_delta.kernel.log.segment import LogListing, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.features.removal import (
    CHECKPOINT_PROTECTION,
    REMOVALS,
    CleanupResult,
    FeatureCleanup,
    Removal,
    commit_and_checkpoint,
    truncate_log,
)
from pyspark_delta.kernel.protocol import properties
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded, without_feature
from pyspark_delta.kernel.protocol.features import check_writable, feature_named, supported_features
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import property_value
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

logger = logging.getLogger(__name__)

# Checkpoints between a dropped feature and the versions that used it: a reader that cannot open a
# checkpoint tries an older one, and gives up at the third.
_BARRIERS = 3
_ATTEMPTS = 3
_COMMITS_AT_ONCE = 500
_PROPERTY_NAMES = frozenset(key.lower() for key in properties.PROPERTIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRequest:
    """A DROP FEATURE request; `is_fast` is the session's setting for reader-writer features."""

    feature: str
    truncate_history: bool = False
    is_fast: bool = True


def run_drop_feature(cleanup: FeatureCleanup, request: DropRequest) -> int:
    """Drop a feature, and return the version of the commit that did."""
    log = cleanup.log
    snapshot = log.update()
    removal = _checked_removal(snapshot.protocol, request, log.store.root_uri)
    is_due = removal.always_cleans or not removal.is_clean(snapshot)
    done = removal.clean_up(cleanup) if is_due else CleanupResult()
    is_fast = removal.protects_history and request.is_fast and not request.truncate_history
    if is_fast:
        _raise_barriers(log, removal.feature)
    elif removal.protects_history:
        commit_and_checkpoint(log)
        if done.has_changed:
            raise ProtocolError(
                "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD",
                **_periods(removal, snapshot.metadata),
            )
    return _downgrade(log, removal, request, done, is_fast=is_fast)


def _checked_removal(protocol: Protocol, request: DropRequest, table: str) -> Removal:
    """The feature's row of removal rules; a typed error if it cannot be dropped."""
    name = request.feature
    feature = feature_named(name)
    if feature is None and name.lower() in _PROPERTY_NAMES:
        raise ProtocolError("DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY", property=name)
    has_it = feature is not None and feature.name in supported_features(protocol)
    if feature is not None and has_it and feature.removable:
        is_protection = feature.name == CHECKPOINT_PROTECTION
        if request.truncate_history and not (feature.readers or is_protection):
            raise ProtocolError("DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED")
        if is_protection and not request.truncate_history:
            raise ProtocolError(
                "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"
            )
    without_feature(protocol, name)
    check_writable(protocol, table)
    assert feature is not None  # `without_feature` raises otherwise
    return REMOVALS[feature.name]


def _downgrade(
    log: DeltaLog, removal: Removal, request: DropRequest, done: CleanupResult, *, is_fast: bool
) -> int:
    """Commit the drop of the feature, unless another writer has brought it back meanwhile."""
    if done.version is None:
        txn = log.start_transaction()
    else:
        # Commits of others since the clean-up must go through the conflict check.
        txn = log.transaction_on(log.snapshot_at(done.version))
    snapshot = txn.snapshot
    assert snapshot is not None
    if not removal.is_clean(snapshot):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", concurrentCommit="unknown"
        )

    def is_removal_valid(version: int) -> bool:
        if not removal.is_clean(log.snapshot_at(version)):
            return False
        if is_fast:
            return True
        # A winner must not add traces of the feature to the history that was checked.
        listing = list_log(log.store, version)
        return not any(_traces(removal, log.store, listing, version, version))

    protocol, metadata = txn.protocol, txn.metadata
    configuration = {k: v for k, v in metadata.configuration.items() if k not in removal.properties}
    if is_fast:
        protocol = upgraded(protocol, [CHECKPOINT_PROTECTION])
        configuration[properties.CHECKPOINT_PROTECTION_VERSION.key] = str(txn.read_version + 1)
    elif removal.protects_history:
        _truncate(log, removal, txn, request)
    lowered = without_feature(protocol, removal.feature)
    txn.update_protocol(lowered, is_removal_valid=is_removal_valid)
    txn.update_metadata(replace(metadata, configuration=configuration))
    recorded = operation(
        "DROP FEATURE", featureName=removal.feature, truncateHistory=request.truncate_history
    )
    version = txn.commit(removal.last_actions(snapshot), recorded).version
    if is_fast:
        _has_checkpoint(log, version)  # for clients that check each protocol in the log
    return version


def _truncate(
    log: DeltaLog, removal: Removal, txn: OptimisticTransaction, request: DropRequest
) -> None:
    """Truncate expired history; raises if the remaining history uses the feature."""
    snapshot, metadata = txn.snapshot, txn.metadata
    assert snapshot is not None
    own = property_value(metadata.configuration, properties.TRUNCATE_HISTORY_RETENTION)
    truncate_log(log, snapshot, retention_ms=own if request.truncate_history else None)
    if _has_traces_in_history(removal, snapshot):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", **_periods(removal, metadata)
        )


def _raise_barriers(log: DeltaLog, feature: str) -> None:
    """Write checkpoints of versions without the feature, each of a separate commit."""
    for _ in range(_BARRIERS):
        version = log.start_transaction().commit([], operation("Empty Commit")).version
        if not _has_checkpoint(log, version):
            raise ProtocolError("DELTA_FEATURE_DROP_CHECKPOINT_FAILED", featureName=feature)


def _has_checkpoint(log: DeltaLog, version: int) -> bool:
    """Write a checkpoint; returns whether there is one of that version or a later one."""
    for _ in range(_ATTEMPTS):
        try:
            log.checkpoint(log.update())
            if any(each.version >= version for each in list_log(log.store, version).checkpoints):
                return True
        except DeltaError as error:
            logger.warning("no checkpoint of %s: %s", log.store.root_uri, error)
    return False


def _periods(removal: Removal, metadata: Metadata) -> dict[str, object]:
    """Message parameters for a feature that must wait: how long, and by which property."""
    log_retention, truncation = (
        metadata.configuration.get(row.key) or row.default
        for row in (properties.LOG_RETENTION, properties.TRUNCATE_HISTORY_RETENTION)
    )
    return {
        "feature": removal.feature,
        "logRetentionPeriodKey": properties.LOG_RETENTION.key,
        "logRetentionPeriod": log_retention,
        "truncateHistoryLogRetentionPeriod": truncation,
    }


def _has_traces_in_history(removal: Removal, snapshot: Snapshot) -> bool:
    """Whether any version that can still be read, up to that of `snapshot`, uses the feature."""
    # Tombstones of the oldest checkpoint do not count: no readable version needs their files.
    store = snapshot.store
    listing = list_log(store)
    if removal.in_checkpoints and any(is_v2(store, each) for each in listing.checkpoints):
        return True
    if listing.checkpoints and listing.checkpoints[0].version <= snapshot.version:
        first = type(snapshot).load(store, listing.checkpoints[0].version, now_ms=lambda: 0)
        if removal.in_metadata(first.metadata) or removal.in_files(first.files):
            return True
    return any(_traces(removal, store, listing, 0, snapshot.version))


def _traces(
    removal: Removal, store: LogStore, listing: LogListing, first: int, last: int
) -> Iterator[bool]:
    paths = [file.info.path for file in listing.commits if first <= file.version <= last]
    for start in range(0, len(paths), _COMMITS_AT_ONCE):
        some = paths[start : start + _COMMITS_AT_ONCE]
        commits = zip(some, store.read_many(some), strict=True)
        for frame in frames_from_commits(commits, store.root_uri):
            definitions = (action for action in frame.others if isinstance(action, Metadata))
            yield any(removal.in_metadata(metadata) for metadata in definitions)
            yield removal.in_files(frame.adds) or removal.in_files(frame.removes)
