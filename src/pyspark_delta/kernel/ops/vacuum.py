"""VACUUM: delete the files below a table's root that no version in the retention needs.

A file goes when it is older than the retention and neither live, nor removed within the retention,
nor the vector or the change file of something that is kept.  Names come from a listing of the root
(or are looked up below it), so nothing outside of it can be meant.  What others commit while files
are looked for is safe: the log is asked again before the first one goes.  PROTOCOL.md, "VACUUM
Protocol Check".

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.conflicts import DeltaConcurrentModificationException
from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import OperationNotAllowedError, VersionNotFoundError
from pyspark_delta.kernel.log.segment import LogFile, list_log
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.last_vacuum import write_last_vacuum
from pyspark_delta.kernel.ops.needed_files import (
    CHANGE,
    REMOVE,
    live_paths,
    logged_paths,
    needed_paths,
)
from pyspark_delta.kernel.ops.vacuum_candidates import (
    CHANGE_DIRECTORY,
    Candidates,
    InventoryEntry,
    Tell,
    hidden_names,
    inventory_candidates,
    listed_candidates,
    logged_candidates,
)
from pyspark_delta.kernel.ops.vacuum_retention import Retention, VacuumRules, retention
from pyspark_delta.kernel.protocol.features import check_writable, is_supported
from pyspark_delta.kernel.protocol.operations import Operation, vacuum_end, vacuum_start
from pyspark_delta.kernel.protocol.properties import DELETED_FILE_RETENTION, property_value
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog

logger = logging.getLogger(__name__)

_CATALOG_MANAGED = ("catalogManaged", "catalogOwned-preview")
_AT_ONCE = 1000  # what S3 deletes in one request
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOptions:
    """What one VACUUM is asked for.

    `lite` takes the names from the log in place of a listing, `inventory` from a list that
    somebody made.  Of `keep_versions` every file stays, however long ago they were.
    """

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool = False
    inventory: Iterable[InventoryEntry] | None = None
    keep_versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """What went, or would go: decoded paths below the root, files first.

    `num_deleted` counts what is gone, files and directories; 0 in a dry run.
    """

    root_uri: str
    paths: tuple[str, ...] = ()
    size_bytes: int = 0
    num_directories: int = 1
    num_deleted: int = 0


@dataclass(slots=True, kw_only=True)
class _Plan:
    """What may go, as of a version.

    `last_version` finds the newest version that was made before `cutoff_ms`, None for none: all
    that it and those before it removed is among what may go.
    """

    snapshot: Snapshot
    retention: Retention
    cutoff_ms: int
    found: Candidates
    last_version: Callable[[], int | None]

    @property
    def paths(self) -> tuple[str, ...]:
        return (*(info.path for info in self.found.files), *self.found.directories)

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.found.files)


def run_vacuum(
    log: DeltaLog,
    options: VacuumOptions | None = None,
    *,
    rules: VacuumRules | None = None,
    tell: Tell | None = None,
) -> VacuumResult:
    """Delete what the table no longer needs, or tell it in a dry run.

    StorageError when something could not be deleted: all else is gone then, and the history says
    that the VACUUM failed.
    """
    options, rules = options or VacuumOptions(), rules or VacuumRules()
    tell = tell or (lambda stage, done, total: None)
    plan = _plan(log, options, rules, tell)
    if options.dry_run:
        return _result(log, plan, 0)
    records = rules.records_at(log.store.root_uri)
    version = plan.snapshot.version
    if records:
        start = vacuum_start(
            retention_check=rules.checks_retention,
            default_retention_ms=plan.retention.configured_ms,
            specified_retention_ms=plan.retention.specified_ms,
        )
        to_delete = {"numFilesToDelete": len(plan.paths), "sizeOfDataToDelete": plan.size_bytes}
        version = _record(log, rules, start, to_delete)
    try:
        if log.update().version != version or version > plan.snapshot.version + 1:
            _spare_what_came(log, plan)
        num_deleted = _delete(log.store, plan.found, rules.threads, tell)
    except (Exception, KeyboardInterrupt):
        if records:
            with suppress(DeltaError):  # the first failure is the one to tell
                _record(log, rules, vacuum_end("FAILED"), {})
        raise
    if records:
        directories = plan.found.num_directories
        metrics = {"numDeletedFiles": num_deleted, "numVacuumedDirectories": directories}
        _record(log, rules, vacuum_end("COMPLETED"), metrics)
    # Only who has looked at every removed file, and kept none, spares the next one the look.
    if options.inventory is None and not options.keep_versions:
        _note(log, plan)
    return _result(log, plan, num_deleted)


def _result(log: DeltaLog, plan: _Plan, num_deleted: int) -> VacuumResult:
    return VacuumResult(
        root_uri=log.store.root_uri,
        paths=plan.paths,
        size_bytes=plan.size_bytes,
        num_directories=plan.found.num_directories,
        num_deleted=num_deleted,
    )


def _plan(log: DeltaLog, options: VacuumOptions, rules: VacuumRules, tell: Tell) -> _Plan:
    snapshot = log.update()
    check_writable(snapshot.protocol, log.store.root_uri)
    if any(is_supported(snapshot.protocol, name) for name in _CATALOG_MANAGED):
        raise OperationNotAllowedError(
            "DELTA_UNSUPPORTED_CATALOG_MANAGED_TABLE_OPERATION", operation="VACUUM"
        )
    configured_ms = property_value(snapshot.metadata.configuration, DELETED_FILE_RETENTION)
    kept = retention(options.retention_hours, configured_ms=configured_ms, rules=rules)
    cutoff_ms = kept.cutoff_ms(log.now_ms())
    needed = needed_paths(snapshot, cutoff_ms)
    for version in options.keep_versions:
        needed |= _version_paths(log, version)
    last_version = cache(partial(_last_version_before, log, cutoff_ms))
    if kept.effective_ms > configured_ms:
        # Checkpoints forget what was removed before the table's own retention.
        needed |= logged_paths(log.store, _commits_after(log, last_version()), (REMOVE,))
    if options.lite and options.inventory is None:
        found = logged_candidates(
            snapshot,
            last_version(),
            hidden_names(snapshot.metadata),
            needed,
            cutoff_ms,
            rules.threads,
        )
    else:
        found = _candidates(snapshot, options, needed, cutoff_ms, rules.threads, tell)
    if any(info.path.startswith(CHANGE_DIRECTORY) for info in found.files):
        # Those of commits within the retention stay, however long they took to write.
        _spare_changes(found, log, _commits_after(log, last_version()))
    return _Plan(
        snapshot=snapshot,
        retention=kept,
        cutoff_ms=cutoff_ms,
        found=found,
        last_version=last_version,
    )


def _candidates(
    snapshot: Snapshot,
    options: VacuumOptions,
    needed: set[str],
    cutoff_ms: int,
    threads: int,
    tell: Tell,
) -> Candidates:
    store, is_hidden = snapshot.store, hidden_names(snapshot.metadata)
    if options.inventory is None:
        return listed_candidates(store, is_hidden, needed, cutoff_ms, tell)
    return inventory_candidates(store, options.inventory, is_hidden, needed, cutoff_ms, threads)


def _version_paths(log: DeltaLog, version: int) -> set[str]:
    """All that a version needs, also to tell what it changed."""
    commits = [file for file in list_log(log.store, version).commits if file.version == version]
    return live_paths(log.snapshot_at(version)) | logged_paths(log.store, commits, (CHANGE,))


def _last_version_before(log: DeltaLog, cutoff_ms: int) -> int | None:
    """The newest version that was made before a time; None when all that is known of is newer."""
    if cutoff_ms <= 0:  # hours may be any number
        return None
    try:
        return log.version_at(cutoff_ms - 1, can_return_last=True)
    except VersionNotFoundError:
        return None


def _commits_after(log: DeltaLog, version: int | None) -> list[LogFile]:
    first = 0 if version is None else version + 1
    return [file for file in list_log(log.store, first).commits if file.version >= first]


def _spare_what_came(log: DeltaLog, plan: _Plan) -> None:
    """Keep what others committed since the files were looked for."""
    if plan.found.files:
        needed = needed_paths(log.update(), plan.cutoff_ms)
        plan.found.files = [info for info in plan.found.files if info.path not in needed]
        _spare_changes(plan.found, log, _commits_after(log, plan.snapshot.version))


def _spare_changes(found: Candidates, log: DeltaLog, commits: Sequence[LogFile]) -> None:
    changes = logged_paths(log.store, commits, (CHANGE,))
    found.files = [info for info in found.files if info.path not in changes]


def _record(
    log: DeltaLog, rules: VacuumRules, operation: Operation, metrics: Mapping[str, object]
) -> int:
    """An empty commit, and its version; what others commit meanwhile has nothing to do with it."""

    def commit() -> int:
        txn = log.start_transaction()
        done = txn.commit([], operation, user_metadata=rules.user_metadata, metrics=metrics)
        return done.version

    for _ in range(_ATTEMPTS - 1):
        with suppress(DeltaConcurrentModificationException):
            return commit()
    return commit()


def _note(log: DeltaLog, plan: _Plan) -> None:
    try:
        version = plan.last_version()
    except DeltaError as error:  # the files are gone all the same
        logger.warning("the next VACUUM LITE will look at more than it must: %s", error)
        return
    if version is not None:
        write_last_vacuum(log.store, version)


def _delete(store: LogStore, found: Candidates, threads: int, tell: Tell) -> int:
    """Take files and directories away; how many are gone."""
    paths = [info.path for info in found.files]
    done, failures = 0, list[StorageError]()
    size = max(1, min(_AT_ONCE, -(-len(paths) // threads)))
    with ThreadPoolExecutor(threads) as pool:
        shares = [paths[at : at + size] for at in range(0, len(paths), size)]
        for share, failed in zip(shares, pool.map(partial(_deleted, store), shares), strict=True):
            done += len(share) - len(failed)
            failures += failed
            tell("deleting", done + len(failures), len(paths))
    for directory in found.directories:
        done += store.delete_directory(directory)
    if failures:
        logger.warning("%d files of %s could not be deleted", len(failures), store.root_uri)
        raise failures[0]
    return done


def _deleted(store: LogStore, paths: Sequence[str]) -> list[StorageError]:
    """Delete files; what went wrong with each that is still there."""
    try:
        store.delete_many(paths)
    except StorageError:
        return list(_one_by_one(store, paths))
    return []


def _one_by_one(store: LogStore, paths: Sequence[str]) -> Iterator[StorageError]:
    for path in paths:
        try:
            store.delete(path)
        except StorageError as error:
            yield error
