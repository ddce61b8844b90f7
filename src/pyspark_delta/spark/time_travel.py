"""Which version of a table a read means: by number, by time, or by a suffix of the path.

`versionAsOf` and `timestampAsOf` are options; `/table@v12` and `/table@20240131120000000` say the
same in the path, unless there is a table at that very path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark_delta.errors.table import PropertyError, TableNotFoundError
from pyspark_delta.kernel.protocol.timestamps import parse_path_timestamp
from pyspark_delta.kernel.scan.readable import ReadableSnapshot
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.options import DeltaOptions

_AT = re.compile(r"(?P<path>.*)@(?:v(?P<version>\d+)|(?P<time>\d{17}))")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A version of a table: by its number, or as the newest at a time, which is a text."""

    version: int | None = None
    timestamp: str | None = None

    def snapshot(self, log: DeltaLog, zone: str) -> ReadableSnapshot:
        """The version in that log; texts without a zone are in `zone`."""
        if self.timestamp is not None:
            return log.snapshot_at(timestamp=self.timestamp, zone=zone)
        return log.snapshot_at(version=self.version)


def asked_snapshot(
    opened: Callable[[str], DeltaLog],
    path: str,
    options: DeltaOptions,
    zone_of: Callable[[str], str],
) -> ReadableSnapshot:
    """The snapshot that `path` and `options` mean; the newest unless they say otherwise.

    `opened` gives the log of a location; `zone_of` the time zone in which a text is to be read.
    """
    version, time = options.whole_number("versionAsOf"), options.get("timestampAsOf")
    if version is not None and time is not None:
        raise PropertyError("DELTA_ONEOF_IN_TIMETRAVEL")
    log = opened(path)
    found = _AT.fullmatch(path)
    if found is not None and not log.table_exists:
        if version is not None or time is not None:
            raise PropertyError("DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS")
        log = opened(found["path"])
        if not log.table_exists:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=found["path"])
        if found["version"] is None:
            zone = zone_of(found["time"])
            at = parse_path_timestamp(found["time"], zone)
            return log.snapshot_at(timestamp=at, zone=zone)
        version = int(found["version"])
    try:
        if version is not None:
            return log.snapshot_at(version=version)
        if time is not None:
            return log.snapshot_at(timestamp=time, zone=zone_of(time))
        return log.update()
    except TableNotFoundError:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=path) from None


def names_version(path: str, options: DeltaOptions) -> bool:
    """Whether a read asks for a version of its own, and not for the newest."""
    is_asked = "versionAsOf" in options or "timestampAsOf" in options
    return is_asked or _AT.fullmatch(path) is not None
