"""The machine's clock and fresh ids: defaults of arguments, and the only place that asks for them.

Whoever decides something takes a clock or a source of ids as an argument, so that a test can
replay it; these two stand in where a caller gives none.

>>> len(random_uuid()), system_now_ms() > 0
(36, True)
"""

from __future__ import annotations

import time
from uuid import uuid4


def system_now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_uuid() -> str:
    """A fresh id."""
    return str(uuid4())
