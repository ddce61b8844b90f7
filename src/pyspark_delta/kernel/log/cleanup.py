"""Choose and delete expired log files.

The newest readable checkpoint that is no newer than the retention is kept, with its commit and all
later files.  Nothing is deleted unless that checkpoint was opened and is whole.  PROTOCOL.md,
"Metadata Cleanup" and "Checkpoint Protection".

>>> midnight_utc(86_400_000 + 5)
86400000
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from pyspark_delta.errors import DeltaError, FileAlreadyExistsError
from pyspark_delta.kernel.log.checkpoints.files import is_readable_parquet
from pyspark_delta.kernel.log.checkpoints.reader import open_checkpoint
from pyspark_delta.kernel.log.checkpoints.writer import write_compat_checkpoint
from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.history import (
    commit_info_of,
    file_times,
    first_in_commit_timestamp_version,
)
from pyspark_delta.kernel.log.segment import CheckpointFiles, LogFile, LogListing, sort_listing
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.paths import (
    LOG_DIRECTORY,
    SIDECAR_DIRECTORY,
    LogFileKind,
    classic_checkpoint_path,
    parse_log_name,
)
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_PROTECTION_VERSION,
    ENABLE_EXPIRED_LOG_CLEANUP,
    LOG_RETENTION,
    property_value,
)
from pyspark_delta.kernel.storage.base import FileInfo, LogStore

YOUNGEST_MS = 2 * 60 * 60 * 1000
"""Younger commits stay, whatever the table's retention: see `check_not_cleaned_up` of `txn`."""

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """Paths to delete, oldest first, in the order in which they must be deleted.

    Commits go before checkpoints: a checkpoint may hide commits that a reader cannot understand.
    Checksums and compactions go between them: they are of no use without commits.
    """

    commits: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.commits, *self.companions, *self.checkpoints)


def run_cleanup(
    store: LogStore,
    protocol: Protocol,
    metadata: Metadata,
    *,
    now_ms: int,
    is_requested: bool = False,
    retention_ms: int | None = None,
) -> tuple[str, ...]:
    """Delete expired log files, if the table enables that, and return the deleted paths.

    `is_requested` deletes them whatever the table's property, because a user requested it.
    `retention_ms` is the retention of a command that has its own, and counts to the minute.
    """
    configuration = metadata.configuration
    if not is_requested and not property_value(configuration, ENABLE_EXPIRED_LOG_CLEANUP):
        return ()
    if retention_ms is None:
        cutoff_ms = midnight_utc(now_ms - property_value(configuration, LOG_RETENTION))
    else:
        cutoff_ms = (now_ms - retention_ms) // _MINUTE_MS * _MINUTE_MS
    # A writer that read version N creates N+1 without listing first.  While that may happen, N+1
    # must stay: a commit under its name would be below the checkpoint, and lost.
    cutoff_ms = min(cutoff_ms, now_ms - YOUNGEST_MS)
    files = store.list_from(f"{LOG_DIRECTORY}/{0:020d}")
    listing = sort_listing(files)
    own_times_from = first_in_commit_timestamp_version(configuration)
    newest = cutoff_version(
        listing.commits,
        cutoff_ms,
        own_times_from=own_times_from,
        own_time=partial(_own_time, store),
    )
    protected = (
        property_value(configuration, CHECKPOINT_PROTECTION_VERSION)
        if is_supported(protocol, "checkpointProtection")
        else 0
    )
    for checkpoint in kept_candidates(listing, newest, own_times_from=own_times_from):
        plan = plan_cleanup(files, checkpoint.version)
        # Protected history goes in one piece or not at all; a cleanup without effect needs no I/O.
        if checkpoint.version < protected or not plan.paths:
            return ()
        if _is_whole(store, checkpoint):
            _write_compat(store, listing, checkpoint)
            for group in (plan.commits, plan.companions, plan.checkpoints):
                _delete(store, group)
            sidecars = _clean_sidecars(store, now_ms) if plan.checkpoints else ()
            return (*plan.paths, *sidecars)
    return ()


def midnight_utc(time_ms: int) -> int:
    """The beginning of the day that a time falls into, so that cleanups differ once a day."""
    return time_ms - time_ms % _DAY_MS


def cutoff_version(
    commits: Sequence[LogFile],
    cutoff_ms: int,
    *,
    own_times_from: int | None = None,
    own_time: Callable[[LogFile], int | None] = lambda file: None,
) -> int:
    """The newest version made at `cutoff_ms` or before; -1 when there is none.

    From version `own_times_from` on a commit's time is inside of it, and `own_time` reads it: None
    counts as later.  Before, it is its file's, pushed up where times do not rise.
    """
    first_own = len(commits)
    if own_times_from is not None:
        first_own = bisect_right(commits, own_times_from - 1, key=lambda file: file.version)
    low, high = first_own, len(commits)
    while low < high:
        middle = (low + high) // 2
        time = own_time(commits[middle])
        if time is None or time > cutoff_ms:
            high = middle
        else:
            low = middle + 1
    if low > first_own:
        return commits[low - 1].version
    times = list(file_times(commits[:first_own]).items())
    count = bisect_right(times, cutoff_ms, key=lambda pair: pair[1])
    return times[count - 1][0] if count else -1


def kept_candidates(
    listing: LogListing, newest: int, *, own_times_from: int | None = None
) -> Iterator[CheckpointFiles]:
    """The checkpoints up to version `newest` that could be the oldest to stay, best first.

    Each has its commit.  While times are those of files, no earlier commit may have a later time:
    without that commit, a time in between would select another version than before.
    """
    by_version = {file.version: file.info.modified_ms for file in listing.commits}
    latest_so_far = dict(zip(by_version, accumulate(by_version.values(), max), strict=True))
    for checkpoint in reversed(listing.checkpoints):
        version = checkpoint.version
        if version > newest or version not in by_version:
            continue
        has_own_time = own_times_from is not None and version >= own_times_from
        if has_own_time or by_version[version] >= latest_so_far[version]:
            yield checkpoint


def plan_cleanup(files: Iterable[FileInfo], kept_version: int) -> CleanupPlan:
    """The files to delete from the log directory when the checkpoint of `kept_version` stays."""
    groups: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for info in files:
        name = parse_log_name(info.path.rpartition("/")[2])
        if name is None:
            continue
        # Replay begins after the kept version, so that a compaction from it on is of no use.
        is_compaction = name.kind is LogFileKind.COMPACTED
        if name.version < kept_version or (is_compaction and name.version == kept_version):
            groups[_GROUPS.get(name.kind, "checkpoints")].append((name.version, info.path))
    return CleanupPlan(
        **{key: tuple(path for _, path in sorted(group)) for key, group in groups.items()}
    )


def plan_sidecar_cleanup(
    sidecars: Iterable[FileInfo], referenced: Collection[str], *, now_ms: int
) -> tuple[str, ...]:
    """The sidecars that no checkpoint names; young ones may belong to one being written."""
    before_ms = midnight_utc(now_ms) - _DAY_MS
    return tuple(
        info.path
        for info in sidecars
        if info.modified_ms < before_ms and info.path not in referenced
    )


_GROUPS = {
    LogFileKind.COMMIT: "commits",
    LogFileKind.CHECKSUM: "companions",
    LogFileKind.COMPACTED: "companions",
}


def _own_time(store: LogStore, file: LogFile) -> int | None:
    try:
        info = commit_info_of(file.info.path, store.read(file.info.path))
    except DeltaError:
        return None
    return None if info is None else info.in_commit_timestamp


def _is_whole(store: LogStore, files: CheckpointFiles) -> bool:
    """Whether a reader that had only this checkpoint could go on from it."""
    try:
        checkpoint = open_checkpoint(store, files)
    except DeltaError:
        return False
    kinds = {type(action) for action in checkpoint.state_actions}
    if not {Protocol, Metadata} <= kinds:
        return False
    return all(is_readable_parquet(store, path) for path in checkpoint.file_paths)


def _write_compat(store: LogStore, listing: LogListing, kept: CheckpointFiles) -> None:
    """Make sure that a reader without V2 checkpoints finds a protocol that rejects it."""
    version = kept.version
    has_classic = any(
        other.version == version and other.kind is LogFileKind.CLASSIC_CHECKPOINT
        for other in listing.checkpoints
    )
    if has_classic or kept.kind is not LogFileKind.UUID_CHECKPOINT:
        return
    file = kept.files[0]
    data = store.read(file.info.path)
    if file.name.format == "json":
        write_compat_checkpoint(store, version, actions_from_json(file.info.path, data))
    else:
        with suppress(FileAlreadyExistsError):
            store.create(classic_checkpoint_path(version), data)


def _delete(store: LogStore, paths: Sequence[str]) -> None:
    # In steps, because `delete_many` has no defined order: a crash leaves the newer files.
    for start in range(0, len(paths), _DELETED_AT_ONCE):
        store.delete_many(paths[start : start + _DELETED_AT_ONCE])


def _clean_sidecars(store: LogStore, now_ms: int) -> tuple[str, ...]:
    sidecars = store.list_from(f"{SIDECAR_DIRECTORY}/")
    if not plan_sidecar_cleanup(sidecars, (), now_ms=now_ms):
        return ()
    listing = sort_listing(store.list_from(f"{LOG_DIRECTORY}/{0:020d}"))
    try:
        opened = [open_checkpoint(store, files) for files in listing.checkpoints]
    except DeltaError:
        return ()  # the files that it needs are unknown, so none may be deleted
    referenced = {path for checkpoint in opened for path in checkpoint.file_paths}
    paths = plan_sidecar_cleanup(sidecars, referenced, now_ms=now_ms)
    _delete(store, paths)
    return paths
