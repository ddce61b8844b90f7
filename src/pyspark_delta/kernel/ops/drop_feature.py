"""DROP FEATURE: the one lawful way to lower a table's protocol.

First the newest version is freed of the feature (`feature_cleanup`), then one commit takes it out
of the protocol.  Older versions still use a feature that readers must know; they are either cut
off, once they are old enough (TRUNCATE HISTORY), or kept behind three checkpoints that no
clean-up may delete without them (`checkpointProtection`).  PROTOCOL.md, "Checkpoint Protection".
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import ProtocolError
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.ops.feature_cleanup import (
    Cleaned,
    Cleaning,
    clean_up,
    commit_and_checkpoint,
    truncate_log,
)
from pyspark_delta.kernel.ops.feature_removal import (
    CHECKPOINT_PROTECTION,
    REMOVALS,
    Removal,
    has_traces_in_commit,
    has_traces_in_history,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded, without_feature
from pyspark_delta.kernel.protocol.features import (
    check_writable,
    feature_named,
    supported_features,
)
from pyspark_delta.kernel.protocol.operations import drop_feature, empty_commit
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_PROTECTION_VERSION,
    LOG_RETENTION,
    PROPERTIES,
    TRUNCATE_HISTORY_RETENTION,
    property_value,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

logger = logging.getLogger(__name__)

BARRIERS = 3
"""How many checkpoints stand between a dropped feature and the versions that used it.

A reader that cannot open a checkpoint tries an older one, and gives up at the third.
"""

_ATTEMPTS = 3
_PROPERTY_NAMES = frozenset(key.lower() for key in PROPERTIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRequest:
    """What a user asks for; `is_fast` is what the session says of features that readers know."""

    feature: str
    truncate_history: bool = False
    is_fast: bool = True


def run_drop_feature(cleaning: Cleaning, request: DropRequest) -> int:
    """Drop a feature; the version that did."""
    log = cleaning.log
    snapshot = log.update()
    removal = checked_removal(snapshot.protocol, request, log.store.root_uri)
    cleaned = clean_up(removal.feature, cleaning)
    if removal.protects_history:
        if request.is_fast and not request.truncate_history:
            _raise_barriers(log, removal.feature)
        else:
            commit_and_checkpoint(log)
            if cleaned.has_changed:
                raise ProtocolError(
                    "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD",
                    **_periods(removal, snapshot.metadata),
                )
    return _downgrade(log, removal, request, cleaned)


def checked_removal(protocol: Protocol, request: DropRequest, table: str) -> Removal:
    """How the feature is removed; a typed error when it cannot be, before anything is done."""
    asked = request.feature
    feature = feature_named(asked)
    if feature is None and asked.lower() in _PROPERTY_NAMES:
        raise ProtocolError("DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY", property=asked)
    has_it = feature is not None and feature.name in supported_features(protocol)
    if feature is not None and has_it and feature.removable:
        is_protection = feature.name == CHECKPOINT_PROTECTION
        if request.truncate_history and not (feature.readers or is_protection):
            raise ProtocolError("DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED")
        if is_protection and not request.truncate_history:
            raise ProtocolError(
                "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"
            )
    without_feature(protocol, asked)
    check_writable(protocol, table)
    assert feature is not None  # or there was nothing to do without
    return REMOVALS[feature.name]


def _downgrade(log: DeltaLog, removal: Removal, request: DropRequest, cleaned: Cleaned) -> int:
    """The commit that drops the feature, if nobody has brought it back meanwhile."""
    if cleaned.version is None:
        txn = log.start_transaction()
    else:
        # What others committed since the clean-up is a conflict to be settled, not news.
        txn = log.transaction_on(log.snapshot_at(cleaned.version))
    snapshot = txn.snapshot
    assert snapshot is not None
    if not removal.is_clean(snapshot):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", concurrentCommit="unknown"
        )
    protocol = txn.protocol
    is_fast = removal.protects_history and request.is_fast and not request.truncate_history
    if is_fast:
        protocol = upgraded(protocol, [CHECKPOINT_PROTECTION])
    elif removal.protects_history:
        _truncate(log, removal, txn, request)
    _change_definition(log, txn, removal, protocol, is_fast=is_fast)
    told = drop_feature(removal.feature, truncate_history=request.truncate_history)
    version = txn.commit(removal.last_actions(snapshot), told).version
    if is_fast:
        _has_checkpoint(log, version)  # for clients that look at each protocol on their way
    return version


def _change_definition(
    log: DeltaLog,
    txn: OptimisticTransaction,
    removal: Removal,
    protocol: Protocol,
    *,
    is_fast: bool,
) -> None:
    def is_removal_valid(version: int) -> bool:
        if not removal.is_clean(log.snapshot_at(version)):
            return False
        # History that was found free of the feature must not get traces of it by a winner.
        return is_fast or not has_traces_in_commit(removal, log.store, version)

    metadata = txn.metadata
    configuration = {k: v for k, v in metadata.configuration.items() if k not in removal.properties}
    if is_fast:
        configuration[CHECKPOINT_PROTECTION_VERSION.key] = str(txn.read_version + 1)
    txn.update_protocol(
        without_feature(protocol, removal.feature), is_removal_valid=is_removal_valid
    )
    txn.update_metadata(replace(metadata, configuration=configuration))


def _truncate(
    log: DeltaLog, removal: Removal, txn: OptimisticTransaction, request: DropRequest
) -> None:
    """Cut off expired history; refuse when what is left uses the feature."""
    snapshot, metadata = txn.snapshot, txn.metadata
    assert snapshot is not None
    own = property_value(metadata.configuration, TRUNCATE_HISTORY_RETENTION)
    truncate_log(log, snapshot, retention_ms=own if request.truncate_history else None)
    if has_traces_in_history(removal, snapshot):
        raise ProtocolError(
            "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", **_periods(removal, metadata)
        )


def _raise_barriers(log: DeltaLog, feature: str) -> None:
    """Checkpoints of versions without the feature, each on a commit of its own."""
    for _ in range(BARRIERS):
        version = log.start_transaction().commit([], empty_commit()).version
        if not _has_checkpoint(log, version):
            raise ProtocolError("DELTA_FEATURE_DROP_CHECKPOINT_FAILED", featureName=feature)


def _has_checkpoint(log: DeltaLog, version: int) -> bool:
    """Whether a checkpoint of that version or a later one is there, made now if need be."""
    for _ in range(_ATTEMPTS):
        try:
            log.checkpoint(log.update())
            if any(each.version >= version for each in list_log(log.store, version).checkpoints):
                return True
        except DeltaError as error:
            logger.warning("no checkpoint of %s: %s", log.store.root_uri, error)
    return False


def _periods(removal: Removal, metadata: Metadata) -> dict[str, object]:
    """What a message says of a feature that must wait: how long, and by which property."""
    said = metadata.configuration
    return {
        "feature": removal.feature,
        "logRetentionPeriodKey": LOG_RETENTION.key,
        "logRetentionPeriod": said.get(LOG_RETENTION.key) or LOG_RETENTION.default,
        "truncateHistoryLogRetentionPeriod": said.get(TRUNCATE_HISTORY_RETENTION.key)
        or TRUNCATE_HISTORY_RETENTION.default,
    }
