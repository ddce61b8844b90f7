"""A clock that moves only when told to."""

from __future__ import annotations

from datetime import UTC, datetime

START_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)


class FrozenClock:
    """Milliseconds since 1970, as the kernel asks for them: call it to read it.

    >>> clock = FrozenClock(start_ms=5)
    >>> clock(), clock.advance(2), clock()
    (5, 7, 7)
    """

    def __init__(self, *, start_ms: int = START_MS) -> None:
        self._now_ms = start_ms

    def __call__(self) -> int:
        return self._now_ms

    def advance(
        self, ms: int = 0, *, seconds: int = 0, minutes: int = 0, hours: int = 0, days: int = 0
    ) -> int:
        """Move on, or back when negative, and give the new time."""
        seconds += 60 * minutes + 3600 * hours + 86400 * days
        self._now_ms += ms + 1000 * seconds
        return self._now_ms
