"""Times of commits, and the search for a commit by time.

A commit's time is in its content (in-commit timestamps) or is its file's modification time, raised
so that times increase.  Times are milliseconds since 1970 in UTC; text has a zone or the session's.
PROTOCOL.md, "In-Commit Timestamps".

>>> monotonic([(0, 100), (1, 90), (2, 200)])
[(0, 100), (1, 101), (2, 200)]
>>> parse_commit_time("2024-01-02 03:04:05.678")
1704164645678
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark_delta.errors import VersionNotFoundError
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMP_TIME,
    IN_COMMIT_TIMESTAMP_VERSION,
    property_value,
)

# A version and its time.
Commit = tuple[int, int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
    r"(?:\.(?P<fraction>[0-9]{0,9}))?)?\s*(?P<zone>\S.*)?)?)?)?)?"
)
_PATH_TEXT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{3})")
_PATH_FORMAT = "yyyyMMddHHmmssSSS"
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<h>[0-9]{1,2})(?::?(?P<m>[0-9]{2}))?"
    r"(?::(?P<s>[0-9]{2}))?"
)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWindow:
    """The versions among which a time is searched, and the source of their times."""

    first: int
    last: int
    in_commit: bool


def next_in_commit_timestamp(now_ms: int, previous_ms: int | None) -> int:
    """The time of the next commit: now, but always after the previous one."""
    return now_ms if previous_ms is None else max(now_ms, previous_ms + 1)


def enablement_properties(version: int, timestamp_ms: int) -> dict[str, str]:
    """The properties to set when a table with older commits enables in-commit timestamps."""
    return {
        IN_COMMIT_TIMESTAMP_VERSION.key: str(version),
        IN_COMMIT_TIMESTAMP_TIME.key: str(timestamp_ms),
    }


def search_window(
    configuration: Mapping[str, str | None], timestamp_ms: int, *, earliest: int, latest: int
) -> CommitWindow:
    """The versions to search for a time when the log holds `earliest` to `latest`.

    In-commit timestamps and file times are never compared: a table that changed from one to the
    other is searched on one side of the change alone.
    """
    if not property_value(configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return CommitWindow(first=earliest, last=latest, in_commit=False)
    version = property_value(configuration, IN_COMMIT_TIMESTAMP_VERSION)
    time = property_value(configuration, IN_COMMIT_TIMESTAMP_TIME)
    if version is None or time is None or version <= earliest:
        return CommitWindow(first=earliest, last=latest, in_commit=True)
    if timestamp_ms >= time:
        return CommitWindow(first=version, last=latest, in_commit=True)
    return CommitWindow(first=earliest, last=min(version - 1, latest), in_commit=False)


def monotonic(commits: Iterable[Commit]) -> list[Commit]:
    """Commits, oldest first, with each time at least a millisecond after the one before."""
    adjusted: list[Commit] = []
    for version, time in commits:
        if adjusted and time <= adjusted[-1][1]:
            time = adjusted[-1][1] + 1
        adjusted.append((version, time))
    return adjusted


def version_at(
    commits: Sequence[Commit],
    timestamp_ms: int,
    *,
    can_return_last: bool = False,
    can_return_earliest: bool = False,
    latest: int | None = None,
    zone: str = "UTC",
) -> int:
    """The version that was the newest at a time.

    `commits` have increasing versions and times (see `monotonic`).  A time after the last commit
    raises unless `can_return_last`, one before the first unless `can_return_earliest`.
    `latest` is the table's newest version when `commits` end before it; `zone` is for messages.
    """
    if not commits:
        raise VersionNotFoundError("DELTA_NO_COMMITS_FOUND", logPath="_delta_log")
    position = bisect_right(commits, timestamp_ms, key=lambda commit: commit[1])
    version, time = commits[max(position - 1, 0)]
    commit_time = format_commit_time(time, zone)
    requested_time = format_commit_time(timestamp_ms, zone)
    if position == 0 and not can_return_earliest:
        raise VersionNotFoundError(
            "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
            userTimestamp=requested_time,
            commitTs=commit_time,
            timestampString=commit_time,
        )
    is_last = version == (commits[-1][0] if latest is None else latest)
    if is_last and time < timestamp_ms and not can_return_last:
        raise VersionNotFoundError(
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            providedTimestamp=requested_time,
            lastCommitTimestamp=commit_time,
            maximumTimestamp=commit_time,
        )
    return version


def version_from(
    commits: Sequence[Commit],
    timestamp_ms: int,
    *,
    can_exceed_latest: bool = False,
    latest: int | None = None,
    zone: str = "UTC",
) -> int:
    """The first version that was made at a time or after it.

    A time after the last commit raises, or means the next version if `can_exceed_latest`.
    The rest is as for `version_at`.
    """
    version = version_at(
        commits,
        timestamp_ms,
        can_return_last=can_exceed_latest,
        can_return_earliest=True,
        latest=latest,
        zone=zone,
    )
    _, time = commits[bisect_left(commits, version, key=lambda commit: commit[0])]
    return version if time >= timestamp_ms else version + 1


def parse_commit_time(text: str, zone: str = "UTC") -> int:
    """The time in a user's text; text without a zone is in `zone`.

    As Spark's cast: a date, or a date and a time with up to nine digits after the second, a `T` or
    a space between them, and a zone as an offset, `Z` or a region.  Truncated to milliseconds.
    """
    match = _TEXT.fullmatch(text.strip()) if len(text) <= 200 else None
    if match is None:
        raise _invalid(text)
    fraction = (match["fraction"] or "").ljust(3, "0")[:3]
    parts = [int(match[name] or "1") for name in ("year", "month", "day")]
    parts += [int(match[name] or "0") for name in ("hour", "minute", "second")]
    return _milliseconds(text, parts, int(fraction), match["zone"] or zone)


def parse_path_time(text: str, zone: str = "UTC") -> int:
    """The time after the `@` of a path such as `/table@20240131120000000`."""
    match = _PATH_TEXT.fullmatch(text)
    if match is None:
        raise VersionNotFoundError(
            "DELTA_INVALID_TIMESTAMP_FORMAT", timestamp=text[:80], format=_PATH_FORMAT
        )
    *parts, fraction = map(int, match.groups())
    return _milliseconds(text, parts, fraction, zone)


def format_commit_time(timestamp_ms: int, zone: str = "UTC") -> str:
    """A time in Spark's format, without trailing zeros after the second."""
    try:
        local = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(_zone(zone))
    except (OverflowError, LookupError):
        return f"{timestamp_ms} ms"
    text = f"{local:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
    fraction = f".{local.microsecond // 1000:03d}".rstrip("0").rstrip(".")
    return text + fraction


def _milliseconds(text: str, parts: Sequence[int], fraction: int, zone: str) -> int:
    try:
        year, month, day, hour, minute, second = parts
        local = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
        seconds = (local - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError, LookupError):
        raise _invalid(text) from None
    return seconds * 1000 + fraction


def _zone(name: str) -> tzinfo:
    name = name.strip()
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := _OFFSET.fullmatch(name.upper()):
        span = timedelta(
            hours=int(match["h"]), minutes=int(match["m"] or 0), seconds=int(match["s"] or 0)
        )
        if span > timedelta(hours=18) or int(match["m"] or 0) > 59 or int(match["s"] or 0) > 59:
            raise LookupError(name)
        return timezone(-span if match["sign"] == "-" else span)
    if not _REGION.fullmatch(name):
        raise LookupError(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise LookupError(name) from None


def _invalid(text: str) -> VersionNotFoundError:
    # The parameter is a SQL expression, and so the text is quoted as a literal.
    written = text[:80].replace("\\", "\\\\").replace("'", "\\'")
    return VersionNotFoundError("DELTA_TIMESTAMP_INVALID", expr=f"'{written}'")
