"""VACUUM: delete the files below a table's root that no version in the retention needs.

A file is deleted if it is older than the retention and neither live nor removed within it,
nor the vector or the change file of something that is kept.  Names come from a listing of the root
(or are looked up below it), so nothing outside of it can be deleted.  Concurrent commits are safe:
the log is read again before the first file is deleted.

The retention is the table's property, or the requested hours.  As in delta-spark, hours other than
0 are ignored unless a setting enables them.  PROTOCOL.md, "VACUUM Protocol Check".

>>> from pyspark_delta.kernel.protocol.actions import Metadata
>>> log = DeltaLog.for_table("memory://doctest/vacuum")
>>> txn = log.start_transaction()
>>> txn.update_metadata(Metadata(id="1"))
>>> _ = txn.commit([], "CREATE TABLE")
>>> run_vacuum(log, VacuumOptions(dry_run=True)).paths
()
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

from pyspark_delta import errors
from pyspark_delta.kernel.log.segment import LogFile, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.notes import write_last_vacuum
from pyspark_delta.kernel.ops.vacuum.candidates import (
    CHANGE,
    CHANGE_DIRECTORY,
    REMOVE,
    Candidates,
    InventoryEntry,
    Progress,
    Search,
    hidden_names,
    inventory_candidates,
    listed_candidates,
    live_paths,
    logged_candidates,
    logged_paths,
    needed_paths,
)
from pyspark_delta.kernel.protocol.features import check_writable, is_supported
from pyspark_delta.kernel.protocol.operations import Operation, operation
from pyspark_delta.kernel.protocol.properties import DELETED_FILE_RETENTION, property_value
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
_MOST_MS = 2**63 - 1
# Schemes for which delta-spark by default records a VACUUM in the history.
_RECORDED_SCHEMES = frozenset({"abfs", "abfss", "adl", "file", "gs", "hdfs", "wasbs", "wasbss"})
_CATALOG_MANAGED = ("catalogManaged", "catalogOwned-preview")
_AT_ONCE = 1000  # what S3 deletes in one request
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRules:
    """A session's settings for every VACUUM.

    `checks_retention` rejects hours below the table's retention, `ignores_hours` ignores those that
    are not 0.  `records` writes a VACUUM into the history; with None the kind of storage decides.
    Its commits carry `user_metadata`.
    """

    checks_retention: bool = True
    ignores_hours: bool = True
    records: bool | None = None
    threads: int = 16
    user_metadata: str | None = None

    def records_at(self, root_uri: str) -> bool:
        """Whether a VACUUM of the table at that URI is recorded by commits."""
        if self.records is not None:
            return self.records
        return root_uri.partition(":")[0] in _RECORDED_SCHEMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long removed files stay: the requested time if it counts, else the table's property."""

    specified_ms: int | None
    configured_ms: int

    @property
    def effective_ms(self) -> int:
        return self.configured_ms if self.specified_ms is None else self.specified_ms

    def cutoff_ms(self, now_ms: int) -> int:
        """Files that were last changed, or removed, before this time are not needed."""
        return now_ms - self.effective_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """The options of one VACUUM.

    `lite` takes the names from the log in place of a listing, `inventory` from a given list.
    Every file of `keep_versions` stays, however old the versions are.
    """

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool = False
    inventory: Iterable[InventoryEntry] | None = None
    keep_versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """The paths deleted, or to be deleted by a dry run: decoded, below the root, files first.

    `num_deleted` counts deleted files and directories; 0 in a dry run.
    """

    root_uri: str
    paths: tuple[str, ...] = ()
    size_bytes: int = 0
    num_directories: int = 1
    num_deleted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The deletions that are possible as of a version.

    `last_version` finds the newest version that was made before `cutoff_ms`, None for none: the
    plan has all files that it and earlier versions removed.
    """

    snapshot: Snapshot
    retention: Retention
    cutoff_ms: int
    candidates: Candidates
    last_version: Callable[[], int | None]

    @property
    def paths(self) -> tuple[str, ...]:
        return (*(info.path for info in self.candidates.files), *self.candidates.directories)

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.candidates.files)


def run_vacuum(
    log: DeltaLog,
    options: VacuumOptions | None = None,
    *,
    rules: VacuumRules | None = None,
    report: Progress | None = None,
) -> VacuumResult:
    """Delete files that the table no longer needs, or return them in a dry run.

    Raises StorageError when a file could not be deleted, after deleting all others; the history
    then records a failed VACUUM.
    """
    options, rules = options or VacuumOptions(), rules or VacuumRules()
    report = report or (lambda stage, done, total: None)
    plan = _plan(log, options, rules, report)
    if options.dry_run:
        return _result(log, plan, 0)
    records = rules.records_at(log.store.root_uri)
    version = plan.snapshot.version
    if records:
        start = operation(
            "VACUUM START",
            retentionCheckEnabled=rules.checks_retention,
            defaultRetentionMillis=plan.retention.configured_ms,
            specifiedRetentionMillis=plan.retention.specified_ms,
        )
        to_delete = {"numFilesToDelete": len(plan.paths), "sizeOfDataToDelete": plan.size_bytes}
        version = _record(log, rules, start, to_delete)
    try:
        if log.update().version != version or version > plan.snapshot.version + 1:
            plan = _without_new_files(log, plan)
        num_deleted = _delete(log.store, plan.candidates, rules.threads, report)
    except (Exception, KeyboardInterrupt):
        if records:
            with suppress(errors.DeltaError):  # the first failure is the one to raise
                _record(log, rules, operation("VACUUM END", status="FAILED"), {})
        raise
    if records:
        directories = plan.candidates.num_directories
        metrics = {"numDeletedFiles": num_deleted, "numVacuumedDirectories": directories}
        _record(log, rules, operation("VACUUM END", status="COMPLETED"), metrics)
    # Only a VACUUM that checked every removed file, and kept none, spares the next one the check.
    if options.inventory is None and not options.keep_versions:
        _note(log, plan)
    return _result(log, plan, num_deleted)


def _result(log: DeltaLog, plan: _Plan, num_deleted: int) -> VacuumResult:
    return VacuumResult(
        root_uri=log.store.root_uri,
        paths=plan.paths,
        size_bytes=plan.size_bytes,
        num_directories=plan.candidates.num_directories,
        num_deleted=num_deleted,
    )


def retention(hours: float | None, *, configured_ms: int, rules: VacuumRules) -> Retention:
    """The retention of a VACUUM with `hours`; OperationNotAllowedError if they are too few."""
    if hours is None:
        return Retention(specified_ms=None, configured_ms=configured_ms)
    requested_ms = _rounded_ms(hours)
    if requested_ms < 0:
        raise errors.OperationNotAllowedError("DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE")
    if rules.ignores_hours and requested_ms:
        logger.warning(
            "VACUUM keeps removed files as long as delta.deletedFileRetentionDuration requires; "
            "%s hours are ignored",
            hours,
        )
        return Retention(specified_ms=None, configured_ms=configured_ms)
    if rules.checks_retention and requested_ms < configured_ms:
        raise errors.OperationNotAllowedError(
            "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
            configuredRetentionHours=-(-configured_ms // HOUR_MS),
        )
    return Retention(specified_ms=requested_ms, configured_ms=configured_ms)


def _rounded_ms(hours: float) -> int:
    """Whole hours, as Java rounds: halves go up."""
    if math.isnan(hours):
        raise ValueError("the retention of VACUUM is not a number")
    if abs(hours) >= _MOST_MS / HOUR_MS:
        return _MOST_MS if hours > 0 else -_MOST_MS
    return math.floor(hours + 0.5) * HOUR_MS


def _plan(log: DeltaLog, options: VacuumOptions, rules: VacuumRules, report: Progress) -> _Plan:
    snapshot = log.update()
    check_writable(snapshot.protocol, log.store.root_uri)
    if any(is_supported(snapshot.protocol, name) for name in _CATALOG_MANAGED):
        raise errors.OperationNotAllowedError(
            "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION", operation="VACUUM"
        )
    configured_ms = property_value(snapshot.metadata.configuration, DELETED_FILE_RETENTION)
    kept = retention(options.retention_hours, configured_ms=configured_ms, rules=rules)
    cutoff_ms = kept.cutoff_ms(log.now_ms())
    needed = needed_paths(snapshot, cutoff_ms)
    for version in options.keep_versions:
        commits = [file for file in _commits_from(log, version) if file.version == version]
        needed |= live_paths(log.snapshot_at(version))
        needed |= logged_paths(log.store, commits, (CHANGE,))
    last_version = cache(partial(_last_version_before, log, cutoff_ms))
    if kept.effective_ms > configured_ms:
        # Checkpoints have no tombstones older than the table's own retention.
        needed |= logged_paths(log.store, _commits_after(log, last_version()), (REMOVE,))
    search = Search(
        store=log.store,
        is_hidden=hidden_names(snapshot.metadata),
        needed=needed,
        cutoff_ms=cutoff_ms,
        threads=rules.threads,
        report=report,
    )
    if options.inventory is not None:
        candidates = inventory_candidates(search, options.inventory)
    elif options.lite:
        candidates = logged_candidates(search, snapshot.version, last_version())
    else:
        candidates = listed_candidates(search)
    if any(info.path.startswith(CHANGE_DIRECTORY) for info in candidates.files):
        # Those of commits within the retention stay, however long they took to write.
        changes = logged_paths(log.store, _commits_after(log, last_version()), (CHANGE,))
        candidates = candidates.without(changes)
    return _Plan(
        snapshot=snapshot,
        retention=kept,
        cutoff_ms=cutoff_ms,
        candidates=candidates,
        last_version=last_version,
    )


def _last_version_before(log: DeltaLog, cutoff_ms: int) -> int | None:
    """The newest version that was made before a time; None when all known ones are newer."""
    if cutoff_ms <= 0:  # hours may be any number
        return None
    try:
        return log.version_at(cutoff_ms - 1, can_return_last=True)
    except errors.VersionNotFoundError:
        return None


def _commits_after(log: DeltaLog, version: int | None) -> list[LogFile]:
    return _commits_from(log, 0 if version is None else version + 1)


def _commits_from(log: DeltaLog, first: int) -> list[LogFile]:
    return [file for file in list_log(log.store, first).commits if file.version >= first]


def _without_new_files(log: DeltaLog, plan: _Plan) -> _Plan:
    """The plan without files that others committed since the search for candidates."""
    if not plan.candidates.files:
        return plan
    needed = needed_paths(log.update(), plan.cutoff_ms)
    needed |= logged_paths(log.store, _commits_after(log, plan.snapshot.version), (CHANGE,))
    return replace(plan, candidates=plan.candidates.without(needed))


def _record(
    log: DeltaLog, rules: VacuumRules, operation: Operation, metrics: Mapping[str, object]
) -> int:
    """Make an empty commit, which conflicts with no other, and return its version."""

    def commit() -> int:
        txn = log.start_transaction()
        done = txn.commit([], operation, user_metadata=rules.user_metadata, metrics=metrics)
        return done.version

    for _ in range(_ATTEMPTS - 1):
        with suppress(errors.DeltaConcurrentModificationException):
            return commit()
    return commit()


def _note(log: DeltaLog, plan: _Plan) -> None:
    try:
        version = plan.last_version()
        if version is not None:
            write_last_vacuum(log.store, version)
    except errors.DeltaError as error:  # the files are gone all the same
        logger.warning("the next VACUUM LITE will check more files than it needs to: %s", error)


def _delete(store: LogStore, candidates: Candidates, threads: int, report: Progress) -> int:
    """Delete files and directories; returns how many were deleted."""
    paths = [info.path for info in candidates.files]
    done, failures = 0, list[errors.StorageError]()
    size = max(1, min(_AT_ONCE, -(-len(paths) // threads)))
    with ThreadPoolExecutor(threads) as pool:
        shares = [paths[at : at + size] for at in range(0, len(paths), size)]
        for share, failed in zip(shares, pool.map(partial(_deleted, store), shares), strict=True):
            done += len(share) - len(failed)
            failures += failed
            report("deleting", done + len(failures), len(paths))
    for directory in candidates.directories:
        done += store.delete_directory(directory)
    if failures:
        logger.warning("%d files of %s could not be deleted", len(failures), store.root_uri)
        raise failures[0]
    return done


def _deleted(store: LogStore, paths: Sequence[str]) -> list[errors.StorageError]:
    failures: list[errors.StorageError] = []
    try:
        store.delete_many(paths)
    except errors.StorageError:
        for path in paths:
            try:
                store.delete(path)
            except errors.StorageError as error:
                failures.append(error)
    return failures
