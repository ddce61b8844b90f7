"""Commits in order: who made them, and when.

A commit's time is its in-commit timestamp from the version on that enabled them, else its file's
time, pushed up where needed so that times rise with versions.  PROTOCOL.md, "In-Commit Timestamps"
and "Recommendations for Readers of Tables with In-Commit Timestamps".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import lt

from pyspark_delta.errors.table import CorruptLogError, VersionNotFoundError
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.log.segment import LogFile, LogListing, earliest_version, list_log
from pyspark_delta.kernel.protocol.actions import CommitInfo
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMP_VERSION,
    property_value,
)
from pyspark_delta.kernel.protocol.timestamps import (
    Commit,
    monotonic,
    search_window,
    version_at,
    version_from,
)
from pyspark_delta.kernel.storage.base import LogStore

COMMITS_BEFORE = 100
"""So many commits before a range have a say in the times of its own, which rise from there on."""

_BATCH = 256
# So many commits with rising times, and those behind them have times of their own.
_SETTLED = 64


def first_in_commit_timestamp_version(configuration: Mapping[str, str | None]) -> int | None:
    """From which version on commits carry their own time; None when they do not."""
    if not property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    # A table that had them from its creation records no version.
    return property_value(configuration, IN_COMMIT_TIMESTAMP_VERSION) or 0


def file_times(commits: Sequence[LogFile]) -> dict[int, int]:
    """The time of each commit by its file, each at least a millisecond after the one before."""
    pairs = [(file.version, file.info.modified_ms) for file in commits]
    return dict(monotonic(pairs))


def commits_to_tell(store: LogStore, latest: int, limit: int | None) -> tuple[LogFile, ...]:
    """The commits in the log, of which all may be needed for the times of the last `limit`.

    A log of very many commits is not listed whole for a few of them, unless the times of those
    before them must be pushed up, and with them perhaps theirs.
    """
    start = 0 if limit is None else latest + 1 - max(limit, 0) - _SETTLED
    if start > 0:
        commits = list_log(store, start).commits
        times = [file.info.modified_ms for file in commits[:_SETTLED]]
        if len(times) == _SETTLED and all(map(lt, times, times[1:])):
            return commits
    return list_log(store).commits


def read_history(
    store: LogStore,
    commits: Sequence[LogFile],
    limit: int | None,
    configuration: Mapping[str, str | None],
) -> list[CommitInfo]:
    """The provenance of the newest `limit` commits, newest first."""
    times = file_times(commits)
    own_times_from = first_in_commit_timestamp_version(configuration)
    chosen = list(reversed(commits))[: len(commits) if limit is None else max(limit, 0)]
    infos: list[CommitInfo] = []
    for start in range(0, len(chosen), _BATCH):
        batch = chosen[start : start + _BATCH]
        contents = store.read_many([file.info.path for file in batch])
        for file, data in zip(batch, contents, strict=True):
            info = commit_info_of(file.info.path, data) or CommitInfo()
            time = times[file.version]
            if own_times_from is not None and file.version >= own_times_from:
                time = info.in_commit_timestamp or time
            infos.append(replace(info, version=file.version, timestamp=time))
    return infos


def version_at_time(
    store: LogStore,
    listing: LogListing,
    configuration: Mapping[str, str | None],
    timestamp_ms: int,
    *,
    can_return_last: bool = False,
    zone: str = "UTC",
) -> int:
    """The version that was the newest at a time, among those that can still be put together."""
    earliest = max(earliest_version(listing), 0)
    times, latest = _times(store, listing, configuration, timestamp_ms, earliest)
    return version_at(
        times, timestamp_ms, can_return_last=can_return_last, latest=latest, zone=zone
    )


def version_from_time(
    store: LogStore,
    listing: LogListing,
    configuration: Mapping[str, str | None],
    timestamp_ms: int,
    *,
    can_exceed_latest: bool = False,
    zone: str = "UTC",
) -> int:
    """The first version that was made at a time or after it, among all commits in the log.

    Who reads commits needs no more than those: a version need not be one that can be put together.
    """
    times, latest = _times(store, listing, configuration, timestamp_ms, 0)
    return version_from(
        times, timestamp_ms, can_exceed_latest=can_exceed_latest, latest=latest, zone=zone
    )


def _times(
    store: LogStore,
    listing: LogListing,
    configuration: Mapping[str, str | None],
    timestamp_ms: int,
    earliest: int,
) -> tuple[list[Commit], int]:
    """The commits from `earliest` on among which to look for a time, and the newest version."""
    versions = [file for file in listing.commits if file.version >= earliest]
    if not versions:
        raise VersionNotFoundError("DELTA_NO_COMMITS_FOUND", logPath=store.address(LOG_DIRECTORY))
    latest = versions[-1].version
    window = search_window(configuration, timestamp_ms, earliest=versions[0].version, latest=latest)
    if window.in_commit:
        chosen = [file for file in versions if window.first <= file.version <= window.last]
        return _own_times(store, chosen), latest
    times = [
        (version, time)
        for version, time in file_times(listing.commits).items()
        if max(earliest, window.first) <= version <= window.last
    ]
    return times, latest


def _own_times(store: LogStore, commits: Sequence[LogFile]) -> list[Commit]:
    times: list[Commit] = []
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        contents = store.read_many([file.info.path for file in batch])
        for file, data in zip(batch, contents, strict=True):
            times.append((file.version, _own_time(file, data)))
    return times


def _own_time(file: LogFile, data: bytes) -> int:
    info = commit_info_of(file.info.path, data)
    if info is None or info.in_commit_timestamp is None:
        raise CorruptLogError(
            "DELTA_MISSING_COMMIT_INFO" if info is None else "DELTA_MISSING_COMMIT_TIMESTAMP",
            featureName="inCommitTimestamp",
            version=file.version,
        )
    return info.in_commit_timestamp
