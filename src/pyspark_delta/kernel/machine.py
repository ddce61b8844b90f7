"""The system clock, random ids, and the user's directory of caches: defaults of arguments.

Functions that need one of them take it as an argument, so that a test can replay them.  No other
module reads the clock or the environment, or makes ids.

>>> len(random_uuid()), system_now_ms() > 0
(36, True)
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4


def system_now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_uuid() -> str:
    """A new random UUID."""
    return str(uuid4())


def cache_directory() -> Path | None:
    """Where this user's caches are; None if the user has no home directory."""
    known = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(known) if known else Path.home() / ".cache") / "pyspark_delta"
    except RuntimeError:
        return None
