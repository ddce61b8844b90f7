"""Which versions a range of changes means: by number, by time, both ends included.

A range begins with the first commit at a time or after it, and ends with the last one at or before
its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_delta.errors.table import ChangeFeedError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.timestamps import parse_timestamp

OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
"""The setting that lets a range, and any stream, begin behind the newest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBounds:
    """The two ends as a user gives them, each by version or time; a version goes before a time.

    Times are texts in `time_zone` or milliseconds since 1970.  Without an end the newest version
    is meant.  `is_tolerant` takes a start behind the newest version for no changes at all, and an
    end behind it for the newest version.
    """

    start_version: int | None = None
    start_time: str | int | None = None
    end_version: int | None = None
    end_time: str | int | None = None
    time_zone: str = "UTC"
    is_tolerant: bool = False

    def versions(self, log: TableLog, newest: int) -> tuple[int, int] | None:
        """The first and the last version; None when no commit lies between the two times.

        `newest` is the newest version that a start may be at.
        """
        start, start_ms = self._start(log)
        end, end_ms = self._end(log)
        if start > newest:
            if self.is_tolerant:
                return None
            raise ChangeFeedError(
                "DELTA_CDC_START_VERSION_AFTER_LATEST", start=start, latest=newest
            )
        if end is None:
            return start, log.update().version
        if start_ms is not None and end_ms is not None:
            if start_ms > end_ms:
                raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=start, end=end)
            if end == start - 1:
                return None
        if end < start:
            raise ChangeFeedError("DELTA_INVALID_CDC_RANGE", start=start, end=end)
        return start, min(end, log.update().version)

    def _start(self, log: TableLog) -> tuple[int, int | None]:
        if self.start_version is not None:
            return self.start_version, None
        if self.start_time is None:
            raise ChangeFeedError("DELTA_NO_START_FOR_CDC_READ")
        time_ms = self._milliseconds(self.start_time)
        version = log.version_from(time_ms, can_exceed_latest=self.is_tolerant, zone=self.time_zone)
        return version, time_ms

    def _end(self, log: TableLog) -> tuple[int | None, int | None]:
        if self.end_version is not None:
            return self.end_version, None
        if self.end_time is None:
            return None, None
        time_ms = self._milliseconds(self.end_time)
        version = log.version_at(time_ms, can_return_last=self.is_tolerant, zone=self.time_zone)
        return version, time_ms

    def _milliseconds(self, time: str | int) -> int:
        return parse_timestamp(time, self.time_zone) if isinstance(time, str) else time
