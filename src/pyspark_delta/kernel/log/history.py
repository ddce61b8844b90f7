"""The table's history: `commitInfo` and time of each commit, and the search for a time.

A commit's time is its in-commit timestamp from the version on that enabled them, else its file's
time, raised where needed so that times increase with versions.  PROTOCOL.md, "In-Commit Timestamps"
and "Recommendations for Readers of Tables with In-Commit Timestamps".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import lt

from pyspark_delta.errors import CorruptLogError, VersionNotFoundError
from pyspark_delta.kernel.log.segment import LogFile, LogListing, list_log
from pyspark_delta.kernel.protocol.actions import CommitInfo
from pyspark_delta.kernel.protocol.commit_times import Commit, monotonic, search_window
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMP_VERSION,
    property_value,
)
from pyspark_delta.kernel.storage.base import LogStore

_MARKER = b'"commitInfo"'
COMMITS_BEFORE = 100
"""The number of commits before a range from which on times are raised to increase."""
_BATCH = 256
# After so many commits with increasing times, later commits keep the times of their files.
_SETTLED = 64


def commit_info_of(path: str, data: bytes) -> CommitInfo | None:
    r"""The commit's provenance; None when it is missing or cannot be parsed.

    Provenance is optional: a commit without it is valid.

    >>> data = b'{"commitInfo":{"operation":"WRITE","txnId":"x"}}\n{"add":{}}\n'
    >>> commit_info_of("0.json", data).operation
    'WRITE'
    """
    at = data.find(_MARKER)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        line = data[start : len(data) if end < 0 else end]
        try:
            info = commit_info_in(json.loads(line))
        except (ValueError, RecursionError):
            info = None
        if info is not None:
            return info
        at = -1 if end < 0 else data.find(_MARKER, end)
    return None


def commit_info_in(value: object) -> CommitInfo | None:
    """The provenance in a parsed line; None when it is missing or malformed."""
    try:
        if isinstance(value, dict) and value.get("commitInfo") is not None:
            return CommitInfo.from_json_value(value["commitInfo"])
    except (ValueError, RecursionError):
        return None
    return None


def first_in_commit_timestamp_version(configuration: Mapping[str, str | None]) -> int | None:
    """The version from which on commits have in-commit timestamps; None when they do not."""
    if not property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    # A table that had them from its creation records no version.
    return property_value(configuration, IN_COMMIT_TIMESTAMP_VERSION) or 0


def file_times(commits: Sequence[LogFile]) -> dict[int, int]:
    """The time of each commit by its file, each at least a millisecond after the one before."""
    return dict(monotonic((file.version, file.info.modified_ms) for file in commits))


def commits_for_history(store: LogStore, latest: int, limit: int | None) -> tuple[LogFile, ...]:
    """The commits of the log that are needed for the times of the last `limit`.

    A long log is not listed whole for its last few commits, unless the times before them must be
    raised, which may raise theirs.
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
    for file, data in with_contents(store, chosen):
        info = commit_info_of(file.info.path, data) or CommitInfo()
        time = times[file.version]
        if own_times_from is not None and file.version >= own_times_from:
            time = info.in_commit_timestamp or time
        infos.append(replace(info, version=file.version, timestamp=time))
    return infos


def times_around(
    store: LogStore,
    listing: LogListing,
    configuration: Mapping[str, str | None],
    timestamp_ms: int,
    *,
    earliest: int = 0,
) -> tuple[list[Commit], int]:
    """The commits from `earliest` on among which to look for a time, and the newest version."""
    versions = [file for file in listing.commits if file.version >= earliest]
    if not versions:
        raise VersionNotFoundError("DELTA_NO_COMMITS_FOUND", logPath=store.address(LOG_DIRECTORY))
    latest = versions[-1].version
    window = search_window(configuration, timestamp_ms, earliest=versions[0].version, latest=latest)
    if window.in_commit:
        chosen = [file for file in versions if window.first <= file.version <= window.last]
        contents = with_contents(store, chosen)
        return [(file.version, in_commit_timestamp(file, data)) for file, data in contents], latest
    times = [
        (version, time)
        for version, time in file_times(listing.commits).items()
        if max(earliest, window.first) <= version <= window.last
    ]
    return times, latest


def with_contents(store: LogStore, commits: Sequence[LogFile]) -> Iterator[tuple[LogFile, bytes]]:
    """Each commit with its content, read in batches."""
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        yield from zip(batch, store.read_many([f.info.path for f in batch]), strict=True)


def in_commit_timestamp(file: LogFile, data: bytes) -> int:
    """The time in a commit of a table with in-commit timestamps; CorruptLogError without it."""
    info = commit_info_of(file.info.path, data)
    if info is None or info.in_commit_timestamp is None:
        raise CorruptLogError(
            "DELTA_MISSING_COMMIT_INFO" if info is None else "DELTA_MISSING_COMMIT_TIMESTAMP",
            featureName="inCommitTimestamp",
            version=file.version,
        )
    return info.in_commit_timestamp
