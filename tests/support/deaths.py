"""How a process dies by SIGKILL at a moment of its own: at a step that it takes itself.

A step is a change of a file's name, a call by which the JVM changes the catalog or writes rows, or
any function of ours.  Nothing is put in the place of anything: the interpreter tells of calls.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.clientserver import ClientServerConnection

import pyspark_delta

FUNCTION = "function"
"""The step of entering a function of the package."""

_FILES = frozenset(
    getattr(os, name)
    for name in ("link", "replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync")
)
_CALLS = frozenset(
    {
        "createTable",
        "dropTable",
        "alterTable",
        "alterTableSchema",
        "renameTable",
        "sql",
        "write",
    }
)
_SEND = ClientServerConnection.send_command.__code__
_PACKAGE = str(Path(pyspark_delta.__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Before or after the step of that number among those called `step`.

    "" are all that change anything.  With `seconds` it is a time instead.
    """

    step: str = ""
    number: int = 1
    is_after: bool = False
    seconds: float | None = None


Told = Callable[[str, bool], None]


_LISTENERS: list[Told] = []


def watch(told: Told) -> None:
    """Tell of every step from here on: what it is, and whether it is done."""
    _LISTENERS[:] = [told]


def prepare_to_watch() -> None:
    """Watch the threads that are started from here on, and this one.

    Java calls Python on threads that are there before the statement that is watched.
    """
    commands: dict[int, list[str]] = {}

    def told(step: str, is_done: bool) -> None:
        for each in _LISTENERS:
            each(step, is_done)

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        if not _LISTENERS:
            return
        if event in ("c_call", "c_return"):
            if argument in _FILES:
                told(f"os.{argument.__name__}", event == "c_return")
        elif frame.f_code is _SEND:
            mine = commands.setdefault(threading.get_ident(), [])
            if event == "call":
                mine.append(_method(frame.f_locals["command"]))
            if event == "return" and not mine:
                return  # it was called before
            called = mine[-1] if event == "call" else mine.pop()
            if called in _CALLS:
                told(called, event == "return")
        elif event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            told(FUNCTION, False)

    threading.setprofile(hook)
    sys.setprofile(hook)


def stop_watching() -> None:
    """Tell of no more steps."""
    _LISTENERS.clear()


def die_at(moment: Moment, die: Callable[[], None]) -> None:
    """Die then."""
    if moment.seconds is not None:
        threading.Timer(moment.seconds, die).start()
        return
    seen = 0

    def told(step: str, is_done: bool) -> None:
        nonlocal seen
        is_meant = step == moment.step or (not moment.step and step != FUNCTION)
        if is_meant and is_done == moment.is_after:
            seen += 1
            if seen == moment.number:
                die()

    watch(told)


def die_alone() -> None:
    """Kill this process; its JVM is another's."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_together() -> None:
    """Kill this process and its JVM."""
    os.killpg(0, signal.SIGKILL)


def _method(command: str) -> str:
    """What a command calls in the JVM; "" for one that calls nothing."""
    return command.split("\n", 3)[2] if command.startswith("c\n") else ""
