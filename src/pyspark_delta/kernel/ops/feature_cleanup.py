"""What frees a table of a feature before the feature is dropped, by commits of their own.

Each clean-up first stops writers from using the feature, then takes away what they left.  It may
fail half way: what it did so far is right, and the next try goes on.  Rows are written anew by
somebody else (`FileRewrites`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from pyspark_delta.errors.table import ConstraintError, ProtocolError
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.frames import canonical_paths
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.feature_removal import (
    CHECKPOINT_PROTECTION,
    PROVENANCE,
    REMOVALS,
    is_truncated_before,
)
from pyspark_delta.kernel.ops.row_tracking_backfill import FILES_PER_COMMIT, take_row_ids_away
from pyspark_delta.kernel.protocol.actions import RemoveFile
from pyspark_delta.kernel.protocol.constraints import check_constraints
from pyspark_delta.kernel.protocol.deletion_vectors import locate
from pyspark_delta.kernel.protocol.domains import tombstone
from pyspark_delta.kernel.protocol.operations import (
    Operation,
    changed_columns,
    empty_commit,
    operation,
    set_table_properties,
    unset_table_properties,
)
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_VERSION,
    DELETED_FILE_RETENTION,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    ROW_TRACKING_SUSPENDED,
    TRUNCATE_HISTORY_RETENTION,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import type_changes, without_type_changes
from pyspark_delta.kernel.protocol.types import walk_fields
from pyspark_delta.kernel.scan.vectors import descriptor_of
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog


class FileRewrites(ABC):
    """Writes the rows of a table into other files, each time in a commit of its own."""

    @abstractmethod
    def purge_vectors(self, log: DeltaLog) -> None:
        """Write every file with a deletion vector anew, without the rows that are deleted."""

    @abstractmethod
    def rewrite_widened(self, log: DeltaLog) -> int:
        """Write files anew that hold a column of an older type; how many there were."""

    @abstractmethod
    def remove_mapping(self, log: DeltaLog) -> None:
        """Write every file anew under the names of its columns, and map columns no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a clean-up did.

    `has_changed` says that older versions used the feature.  `version` is that of its last
    commit, where what follows must see every commit since.
    """

    has_changed: bool = False
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A table to be freed of a feature, and what that takes."""

    log: DeltaLog
    rewrites: FileRewrites
    most_files: int = FILES_PER_COMMIT
    buries_vectors: bool = True

    def is_clean(self, feature: str) -> bool:
        """Whether the newest version does not use a feature."""
        return REMOVALS[feature].is_clean(self.log.update())


def clean_up(feature: str, cleaning: Cleaning) -> Cleaned:
    """Free the newest version of a feature."""
    return _CLEANUPS[feature](cleaning)


def commit_and_checkpoint(log: DeltaLog) -> None:
    """An empty commit, and a checkpoint of it or of a later version."""
    log.start_transaction().commit([], empty_commit())
    log.checkpoint(log.update())


def truncate_log(log: DeltaLog, snapshot: Snapshot, *, retention_ms: int | None = None) -> None:
    """Delete log files that have expired, by the table's retention or another one."""
    run_cleanup(
        log.store,
        snapshot.protocol,
        snapshot.metadata,
        now_ms=log.now_ms(),
        is_asked=True,
        retention_ms=retention_ms,
    )


def _nothing(cleaning: Cleaning) -> Cleaned:
    return Cleaned()


def _check_constraints(cleaning: Cleaning) -> Cleaned:
    """Constraints are the user's own: the feature goes when they are gone."""
    found = check_constraints(cleaning.log.update().metadata.configuration)
    if found:
        raise ConstraintError(
            "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
            constraints=", ".join(each.name for each in found),
        )
    return Cleaned()


def _deletion_vectors(cleaning: Cleaning) -> Cleaned:
    log = cleaning.log
    is_used = not cleaning.is_clean("deletionVectors")
    if is_used:
        _unset(log, [ENABLE_DELETION_VECTORS.key])
        cleaning.rewrites.purge_vectors(log)
    if cleaning.buries_vectors:
        _bury_vectors(log)
    return Cleaned(has_changed=is_used)


def _bury_vectors(log: DeltaLog) -> None:
    """Tombstones for the files of vectors, as if they were data.

    A client that knows no vectors keeps every file that a tombstone names, until it expires; older
    versions can be read as long.
    """
    txn = log.start_transaction()
    snapshot = txn.snapshot
    assert snapshot is not None
    root_uri, now_ms = log.store.root_uri, log.now_ms()
    removed = snapshot.tombstones(["path", "deletionTimestamp", "deletionVector"])
    expired_ms = now_ms - property_value(snapshot.metadata.configuration, DELETED_FILE_RETENTION)
    times = pc.fill_null(removed.column("deletionTimestamp"), 0)
    removed = removed.filter(pc.greater(times, expired_ms))
    vectors = removed.column("deletionVector")
    plain = removed.filter(pc.is_null(vectors)).column("path").combine_chunks()
    known = set(canonical_paths(plain, root_uri).to_pylist())
    paths: dict[str, None] = {}
    for value in vectors.drop_null().to_pylist():
        descriptor = descriptor_of(value)
        if descriptor is not None and descriptor.storage_type == "u":
            path = locate(descriptor).path
            if path is not None and path not in known:
                paths[path] = None
    buried = [
        RemoveFile(path=encode_path(path), deletion_timestamp=now_ms, data_change=False)
        for path in paths
    ]
    txn.commit(buried, operation("Deletion Vector Tombstones"))


def _column_mapping(cleaning: Cleaning) -> Cleaned:
    if cleaning.is_clean("columnMapping"):
        return Cleaned()
    cleaning.rewrites.remove_mapping(cleaning.log)
    return Cleaned(has_changed=True)


def _type_widening(cleaning: Cleaning) -> Cleaned:
    log = cleaning.log
    if cleaning.is_clean("typeWidening"):
        return Cleaned()
    _unset(log, [ENABLE_TYPE_WIDENING.key])
    schema = log.update().schema
    changed = [(path[:-1], f) for path, f in walk_fields(schema) if type_changes(f)]
    if not changed:
        return Cleaned()
    cleaning.rewrites.rewrite_widened(log)
    txn = log.start_transaction()
    plain = without_type_changes(txn.schema)
    txn.update_metadata(replace(txn.metadata, schema_string=format_schema(plain)))
    txn.commit([], changed_columns("DROP FEATURE", changed))
    return Cleaned(has_changed=True)


def _v2_checkpoints(cleaning: Cleaning) -> Cleaned:
    if cleaning.is_clean("v2Checkpoint"):
        return Cleaned()
    _set(cleaning.log, {CHECKPOINT_POLICY.key: "classic"})
    return Cleaned(has_changed=True)


def _domains(cleaning: Cleaning) -> Cleaned:
    txn = cleaning.log.start_transaction()
    domains = {} if txn.snapshot is None else txn.snapshot.domains
    if not domains:
        return Cleaned()
    ended = [tombstone(domain) for domain in domains.values()]
    told = operation("DOMAIN METADATA CLEANUP", {"domainMetadataRemovedCount": len(ended)})
    txn.commit(ended, told)
    return Cleaned(has_changed=True)


def _row_tracking(cleaning: Cleaning) -> Cleaned:
    log = cleaning.log
    if cleaning.is_clean("rowTracking"):
        return Cleaned()
    _set(log, {ENABLE_ROW_TRACKING.key: "false", ROW_TRACKING_SUSPENDED.key: "true"})
    version = take_row_ids_away(log, most_files=cleaning.most_files)
    return Cleaned(has_changed=True, version=version)


def _in_commit_timestamps(cleaning: Cleaning) -> Cleaned:
    """The switch stays, and says no; what tells since when it was on goes."""
    txn = cleaning.log.start_transaction()
    configuration = dict(txn.metadata.configuration)
    gone = [key for key in PROVENANCE if configuration.pop(key, None) is not None]
    if property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        configuration[ENABLE_IN_COMMIT_TIMESTAMPS.key] = "false"
        gone.append(ENABLE_IN_COMMIT_TIMESTAMPS.key)
    if not gone:
        return Cleaned()
    txn.update_metadata(replace(txn.metadata, configuration=configuration))
    txn.commit([], unset_table_properties(gone, if_exists=True))
    return Cleaned(has_changed=True)


def _checkpoint_protection(cleaning: Cleaning) -> Cleaned:
    """Delete the protected history, which must be old enough, all of it."""
    log = cleaning.log
    snapshot = log.update()
    configuration = snapshot.metadata.configuration
    protected = property_value(configuration, CHECKPOINT_PROTECTION_VERSION)
    if not is_truncated_before(log.store, protected):
        # A log is cut off at a checkpoint: let there be one above all that is protected.
        commit_and_checkpoint(log)
        retention_ms = property_value(configuration, TRUNCATE_HISTORY_RETENTION)
        truncate_log(log, snapshot, retention_ms=retention_ms)
        if not is_truncated_before(log.store, protected):
            raise ProtocolError(
                "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
                truncateHistoryLogRetentionPeriod=configuration.get(TRUNCATE_HISTORY_RETENTION.key)
                or TRUNCATE_HISTORY_RETENTION.default,
            )
    _unset(log, [CHECKPOINT_PROTECTION_VERSION.key])
    return Cleaned()


_CLEANUPS: Mapping[str, Callable[[Cleaning], Cleaned]] = {
    "checkConstraints": _check_constraints,
    "columnMapping": _column_mapping,
    "deletionVectors": _deletion_vectors,
    "v2Checkpoint": _v2_checkpoints,
    "domainMetadata": _domains,
    "rowTracking": _row_tracking,
    "inCommitTimestamp": _in_commit_timestamps,
    "vacuumProtocolCheck": _nothing,
    "typeWidening": _type_widening,
    "typeWidening-preview": _type_widening,
    "materializePartitionColumns": _nothing,
    CHECKPOINT_PROTECTION: _checkpoint_protection,
}


def _set(log: DeltaLog, changes: Mapping[str, str]) -> None:
    _commit_properties(log, (), changes, set_table_properties(changes))


def _unset(log: DeltaLog, keys: Sequence[str]) -> None:
    _commit_properties(log, keys, {}, unset_table_properties(keys, if_exists=True))


def _commit_properties(
    log: DeltaLog, gone: Iterable[str], changes: Mapping[str, str], told: Operation
) -> None:
    txn = log.start_transaction()
    left = {k: v for k, v in txn.metadata.configuration.items() if k not in gone}
    txn.update_metadata(replace(txn.metadata, configuration={**left, **changes}))
    txn.commit([], told)
