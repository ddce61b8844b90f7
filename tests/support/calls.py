"""How often a function is called, told by the interpreter: nothing is replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def num_calls(function: Callable[..., object], run: Callable[[], object]) -> int:
    """How often `run` calls `function`, in this thread."""
    wanted = function.__code__
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is wanted

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
