"""Time zones by name, where the machine has them."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest


def zone(name: str) -> ZoneInfo:
    """The zone, or a skipped test on a machine without time zone data."""
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        pytest.skip(f"this machine has no time zone data for {name}")
