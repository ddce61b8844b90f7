"""How long VACUUM keeps what was removed: the table's retention, or the hours that were asked for.

Nothing here touches storage.  As delta-spark does, hours other than 0 are passed over unless a
setting says otherwise: how long removed files stay is the table's property to say.

>>> retention(168.4, configured_ms=7 * 24 * HOUR_MS, rules=VacuumRules())
Retention(specified_ms=None, configured_ms=604800000)
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from pyspark_delta.errors.table import OperationNotAllowedError

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
_MOST_MS = 2**63 - 1

# Where delta-spark records a VACUUM in the history unless it is told to or not to.
_RECORDED_SCHEMES = frozenset({"abfs", "abfss", "adl", "file", "gs", "hdfs", "wasbs", "wasbss"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRules:
    """What a session decides for every VACUUM.

    `checks_retention` refuses hours below the table's retention, `ignores_hours` those that are
    not 0.  `records` puts a VACUUM into the history; None asks the kind of storage.  Its commits
    carry `user_metadata`.
    """

    checks_retention: bool = True
    ignores_hours: bool = True
    records: bool | None = None
    threads: int = 16
    user_metadata: str | None = None

    def records_at(self, root_uri: str) -> bool:
        """Whether a VACUUM of the table at that address leaves commits."""
        if self.records is not None:
            return self.records
        return root_uri.partition(":")[0] in _RECORDED_SCHEMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long removed files stay: as asked for, if that counts, else as the table says."""

    specified_ms: int | None
    configured_ms: int

    @property
    def effective_ms(self) -> int:
        """What counts."""
        return self.configured_ms if self.specified_ms is None else self.specified_ms

    def cutoff_ms(self, now_ms: int) -> int:
        """Files that were last changed, or removed, before this time are not needed."""
        return now_ms - self.effective_ms


def retention(hours: float | None, *, configured_ms: int, rules: VacuumRules) -> Retention:
    """The retention of a VACUUM that asks for `hours`; OperationNotAllowedError if it must not."""
    if hours is None:
        return Retention(specified_ms=None, configured_ms=configured_ms)
    asked_ms = _rounded_ms(hours)
    if asked_ms < 0:
        raise OperationNotAllowedError("DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE")
    if rules.ignores_hours and asked_ms:
        logger.warning(
            "VACUUM keeps removed files as long as delta.deletedFileRetentionDuration says; "
            "%s hours are not looked at",
            hours,
        )
        return Retention(specified_ms=None, configured_ms=configured_ms)
    if rules.checks_retention and asked_ms < configured_ms:
        raise OperationNotAllowedError(
            "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
            configuredRetentionHours=-(-configured_ms // HOUR_MS),
        )
    return Retention(specified_ms=asked_ms, configured_ms=configured_ms)


def _rounded_ms(hours: float) -> int:
    """Whole hours, as Java rounds: halves go up."""
    if math.isnan(hours):
        raise ValueError("the retention of VACUUM is not a number")
    if abs(hours) >= _MOST_MS / HOUR_MS:
        return _MOST_MS if hours > 0 else -_MOST_MS
    return math.floor(hours + 0.5) * HOUR_MS
