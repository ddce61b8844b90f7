"""The table of features that DROP FEATURE can remove: the checks for their traces, and clean-ups.

One row per feature, as delta-spark has them.  A clean-up removes a feature's traces from the newest
version, by commits of its own, before the feature is dropped.  It first stops writers from using
the feature, then removes what they left.  It may fail half way: the table is valid after each
commit, and the next attempt continues.  The caller supplies the rewriting of rows (`FileRewrites`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import ConstraintError, ProtocolError
from pyspark_delta.kernel.log.checkpoints.reader import is_v2
from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.frames.file_actions import canonical_paths
from pyspark_delta.kernel.log.segment import list_log, load_segment
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.features.row_tracking import (
    FILES_PER_COMMIT,
    is_suspended,
    take_row_ids_away,
    with_ids,
)
from pyspark_delta.kernel.protocol.actions import Action, Metadata, RemoveFile
from pyspark_delta.kernel.protocol.column_mapping import has_mapping
from pyspark_delta.kernel.protocol.constraints import table_checks
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING, tombstone
from pyspark_delta.kernel.protocol.features import FEATURES, is_supported
from pyspark_delta.kernel.protocol.operations import Operation, changed_columns, operation
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_POLICY,
    CHECKPOINT_PROTECTION_VERSION,
    COLUMN_MAPPING_MODE,
    DELETED_FILE_RETENTION,
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
    TRUNCATE_HISTORY_RETENTION,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import (
    all_type_changes,
    type_changes,
    without_type_changes,
)
from pyspark_delta.kernel.protocol.types import walk_fields
from pyspark_delta.kernel.scan.locations import descriptor_of
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.vector_files import path_in_table

CHECKPOINT_PROTECTION = "checkpointProtection"
# Properties that record since when commits have in-commit timestamps.
_PROVENANCE = (IN_COMMIT_TIMESTAMP_TIME.key, IN_COMMIT_TIMESTAMP_VERSION.key)


class FileRewrites(ABC):
    """Rewrites data files of a table, each call in a separate commit."""

    @abstractmethod
    def purge_vectors(self, log: DeltaLog) -> None:
        """Rewrite every file with a deletion vector, without the deleted rows."""

    @abstractmethod
    def rewrite_widened(self, log: DeltaLog) -> int:
        """Rewrite the files that hold a column of an older type, and return how many there were."""

    @abstractmethod
    def remove_mapping(self, log: DeltaLog) -> None:
        """Rewrite every file with logical column names, and turn column mapping off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupResult:
    """The result of a clean-up.

    `has_changed` is true if older versions used the feature.  `version` is that of its last
    commit: the commit that drops the feature is checked against every commit since.
    """

    has_changed: bool = False
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureCleanup:
    """The inputs of a clean-up: a table, and the means to rewrite its files."""

    log: DeltaLog
    rewrites: FileRewrites
    most_files: int = FILES_PER_COMMIT
    buries_vectors: bool = True


@dataclass(frozen=True, slots=True)
class Removal:
    """One row: a feature, and the conditions under which it may be dropped.

    `is_clean` checks that a version does not use it.  `clean_up` makes the newest version so, and
    runs for a clean one too with `always_cleans`.
    `in_metadata` and `in_files` find traces of it in a commit, the latter in a table of add or of
    remove actions; with `in_checkpoints` checkpoints can hold traces too.  `properties` are removed
    with it, and `last_actions` are in the commit that drops it.
    """

    feature: str
    is_clean: Callable[[Snapshot], bool] = lambda snapshot: True
    clean_up: Callable[[FeatureCleanup], CleanupResult] = lambda cleanup: CleanupResult()
    _: KW_ONLY
    always_cleans: bool = False
    in_metadata: Callable[[Metadata], bool] = lambda metadata: False
    in_files: Callable[[pa.Table], bool] = lambda files: False
    in_checkpoints: bool = False
    properties: tuple[str, ...] = ()
    last_actions: Callable[[Snapshot], tuple[Action, ...]] = lambda snapshot: ()

    @property
    def protects_history(self) -> bool:
        """Whether clients without the feature must not read older versions."""
        return FEATURES[self.feature].readers


def commit_and_checkpoint(log: DeltaLog) -> None:
    """An empty commit, and a checkpoint of it or of a later version."""
    log.start_transaction().commit([], operation("Empty Commit"))
    log.checkpoint(log.update())


def truncate_log(log: DeltaLog, snapshot: Snapshot, *, retention_ms: int | None = None) -> None:
    """Delete log files that have expired, by the table's retention or another one."""
    run_cleanup(
        log.store,
        snapshot.protocol,
        snapshot.metadata,
        now_ms=log.now_ms(),
        is_requested=True,
        retention_ms=retention_ms,
    )


# The features, each with its checks before its clean-up.


def _has_no_checks(snapshot: Snapshot) -> bool:
    return not table_checks(snapshot.metadata.configuration)


def _check_constraints(cleanup: FeatureCleanup) -> CleanupResult:
    """Raise for the constraints: they are the user's to drop."""
    constraints = table_checks(cleanup.log.update().metadata.configuration)
    raise ConstraintError(
        "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
        constraints=", ".join(each.name for each in constraints),
    )


def _vectors_in_files(files: pa.Table) -> bool:
    column = files.column("deletionVector")
    return bool(column.null_count < len(column))


def _makes_vectors(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, ENABLE_DELETION_VECTORS)


def _has_no_vectors(snapshot: Snapshot) -> bool:
    makes = _makes_vectors(snapshot.metadata) and is_supported(snapshot.protocol, "deletionVectors")
    return not makes and not _vectors_in_files(snapshot.files_with(["deletionVector"]))


def _deletion_vectors(cleanup: FeatureCleanup) -> CleanupResult:
    log = cleanup.log
    is_used = not _has_no_vectors(log.update())
    if is_used:
        _unset(log, ENABLE_DELETION_VECTORS.key)
        cleanup.rewrites.purge_vectors(log)
    if cleanup.buries_vectors:
        _bury_vectors(log)
    return CleanupResult(has_changed=is_used)


def _bury_vectors(log: DeltaLog) -> None:
    """Commit tombstones for the files of vectors, as if they were data files."""
    # A client without deletion vectors keeps every file that a tombstone names until it expires, so
    # that older versions stay readable as long.
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
        path = path_in_table(descriptor_of(value))
        if path is not None and path not in known:
            paths[path] = None
    buried = [
        RemoveFile(path=encode_path(path), deletion_timestamp=now_ms, data_change=False)
        for path in paths
    ]
    txn.commit(buried, operation("Deletion Vector Tombstones"))


def _has_no_mapping(snapshot: Snapshot) -> bool:
    return not _is_mapped(snapshot.metadata) and not has_mapping(snapshot.schema)


def _is_mapped(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, COLUMN_MAPPING_MODE) != "none"


def _column_mapping(cleanup: FeatureCleanup) -> CleanupResult:
    cleanup.rewrites.remove_mapping(cleanup.log)
    return CleanupResult(has_changed=True)


def _has_type_changes(metadata: Metadata) -> bool:
    return any(True for _ in all_type_changes(metadata.schema))


def _is_not_widened(snapshot: Snapshot) -> bool:
    metadata = snapshot.metadata
    enabled = property_value(metadata.configuration, ENABLE_TYPE_WIDENING)
    return not enabled and not _has_type_changes(metadata)


def _type_widening(cleanup: FeatureCleanup) -> CleanupResult:
    log = cleanup.log
    _unset(log, ENABLE_TYPE_WIDENING.key)
    schema = log.update().schema
    changed = [(path[:-1], f) for path, f in walk_fields(schema) if type_changes(f)]
    if not changed:
        return CleanupResult()
    cleanup.rewrites.rewrite_widened(log)
    txn = log.start_transaction()
    plain = without_type_changes(txn.schema)
    txn.update_metadata(replace(txn.metadata, schema_string=format_schema(plain)))
    txn.commit([], changed_columns("DROP FEATURE", changed))
    return CleanupResult(has_changed=True)


def _requires_v2(metadata: Metadata) -> bool:
    return property_value(metadata.configuration, CHECKPOINT_POLICY) == "v2"


def _is_without_v2(snapshot: Snapshot) -> bool:
    if _requires_v2(snapshot.metadata):
        return False
    checkpoint = load_segment(snapshot.store, snapshot.version).checkpoint
    return checkpoint is None or not is_v2(snapshot.store, checkpoint)


def _v2_checkpoints(cleanup: FeatureCleanup) -> CleanupResult:
    _set(cleanup.log, {CHECKPOINT_POLICY.key: "classic"})
    return CleanupResult(has_changed=True)


def _domains(cleanup: FeatureCleanup) -> CleanupResult:
    txn = cleanup.log.start_transaction()
    assert txn.snapshot is not None
    ended = [tombstone(domain) for domain in txn.snapshot.domains.values()]
    recorded = operation("DOMAIN METADATA CLEANUP", domainMetadataRemovedCount=len(ended))
    txn.commit(ended, recorded)
    return CleanupResult(has_changed=True)


def _row_tracking(cleanup: FeatureCleanup) -> CleanupResult:
    log = cleanup.log
    _set(log, {ENABLE_ROW_TRACKING.key: "false", ROW_TRACKING_SUSPENDED.key: "true"})
    version = take_row_ids_away(log, most_files=cleanup.most_files)
    return CleanupResult(has_changed=True, version=version)


def _end_of_row_ids(snapshot: Snapshot) -> tuple[Action, ...]:
    domain = snapshot.domains.get(ROW_TRACKING)
    return () if domain is None else (tombstone(domain),)


def _has_no_own_times(snapshot: Snapshot) -> bool:
    configuration = snapshot.metadata.configuration
    if property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return False
    return not any(key in configuration for key in _PROVENANCE)


def _in_commit_timestamps(cleanup: FeatureCleanup) -> CleanupResult:
    """Set the property to false, and remove those that record when it was enabled."""
    txn = cleanup.log.start_transaction()
    configuration = dict(txn.metadata.configuration)
    gone = [key for key in _PROVENANCE if configuration.pop(key, None) is not None]
    if property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        configuration[ENABLE_IN_COMMIT_TIMESTAMPS.key] = "false"
        gone.append(ENABLE_IN_COMMIT_TIMESTAMPS.key)
    txn.update_metadata(replace(txn.metadata, configuration=configuration))
    txn.commit([], operation("UNSET TBLPROPERTIES", properties=gone, ifExists=True))
    return CleanupResult(has_changed=True)


def _is_truncated_before(store: LogStore, version: int) -> bool:
    if version <= 0:
        return True
    listing = list_log(store)
    has_older = any(file.version < version for file in listing.commits)
    checkpoints = listing.checkpoints
    return not has_older and bool(checkpoints) and checkpoints[0].version >= version


def _checkpoint_protection(cleanup: FeatureCleanup) -> CleanupResult:
    """Delete the whole protected history; raises if it is not old enough."""
    log = cleanup.log
    snapshot = log.update()
    configuration = snapshot.metadata.configuration
    protected = property_value(configuration, CHECKPOINT_PROTECTION_VERSION)
    if not _is_truncated_before(log.store, protected):
        # A log is truncated at a checkpoint, so there must be one after the protected versions.
        commit_and_checkpoint(log)
        retention_ms = property_value(configuration, TRUNCATE_HISTORY_RETENTION)
        truncate_log(log, snapshot, retention_ms=retention_ms)
        if not _is_truncated_before(log.store, protected):
            raise ProtocolError(
                "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
                truncateHistoryLogRetentionPeriod=configuration.get(TRUNCATE_HISTORY_RETENTION.key)
                or TRUNCATE_HISTORY_RETENTION.default,
            )
    _unset(log, CHECKPOINT_PROTECTION_VERSION.key)
    return CleanupResult()


def _set(log: DeltaLog, changes: Mapping[str, str]) -> None:
    _commit_properties(log, (), changes, operation("SET TBLPROPERTIES", properties=changes))


def _unset(log: DeltaLog, key: str) -> None:
    recorded = operation("UNSET TBLPROPERTIES", properties=[key], ifExists=True)
    _commit_properties(log, (key,), {}, recorded)


def _commit_properties(
    log: DeltaLog, gone: Iterable[str], changes: Mapping[str, str], operation: Operation
) -> None:
    txn = log.start_transaction()
    left = {k: v for k, v in txn.metadata.configuration.items() if k not in gone}
    txn.update_metadata(replace(txn.metadata, configuration={**left, **changes}))
    txn.commit([], operation)


REMOVALS: Mapping[str, Removal] = {
    row.feature: row
    for row in (
        *(
            Removal(name, _is_not_widened, _type_widening, in_metadata=_has_type_changes)
            for name in ("typeWidening", "typeWidening-preview")
        ),
        Removal("checkConstraints", _has_no_checks, _check_constraints),
        Removal("columnMapping", _has_no_mapping, _column_mapping, in_metadata=_is_mapped),
        Removal(
            "deletionVectors",
            _has_no_vectors,
            _deletion_vectors,
            always_cleans=True,
            in_metadata=_makes_vectors,
            in_files=_vectors_in_files,
        ),
        Removal(
            "v2Checkpoint",
            _is_without_v2,
            _v2_checkpoints,
            in_metadata=_requires_v2,
            in_checkpoints=True,
        ),
        Removal("domainMetadata", lambda snapshot: not snapshot.domains, _domains),
        Removal(
            "rowTracking",
            lambda snapshot: is_suspended(snapshot.metadata) and not with_ids(snapshot).num_rows,
            _row_tracking,
            properties=(
                ENABLE_ROW_TRACKING.key,
                ROW_TRACKING_SUSPENDED.key,
                ROW_ID_COLUMN.key,
                ROW_COMMIT_VERSION_COLUMN.key,
            ),
            last_actions=_end_of_row_ids,
        ),
        Removal("inCommitTimestamp", _has_no_own_times, _in_commit_timestamps),
        Removal("vacuumProtocolCheck"),
        Removal(
            CHECKPOINT_PROTECTION,
            lambda snapshot: (
                CHECKPOINT_PROTECTION_VERSION.key not in snapshot.metadata.configuration
            ),
            _checkpoint_protection,
            always_cleans=True,
        ),
        Removal(
            "materializePartitionColumns", properties=(ENABLE_MATERIALIZE_PARTITION_COLUMNS.key,)
        ),
    )
}
"""Every removable feature of writable tables."""
