"""Progress bars for long work: on a terminal or in a notebook, silent elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

_STAGES: Mapping[str, str] = {
    "listing": "Listing files",
    "footers": "Reading footers",
    "actions": "Committing",
    "rewriting": "Rewriting files",
    "deleting": "Deleting files",
}


class Progress:
    """A bar for the current stage; a new stage replaces it."""

    def __init__(self) -> None:
        self._stage: str | None = None
        self._bar: Any = None

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Report how many files a stage has done, and of how many where that is known."""
        if stage != self._stage:
            self.close()
            # None: tqdm shows nothing where standard error is not a terminal.
            self._bar = _bars()(
                desc=_STAGES.get(stage, stage), total=total, unit=" files", disable=None
            )
            self._stage = stage
        if total is not None:
            self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Leave the last bar as it is."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._stage = None, None


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar that is closed on exit, with or without an error."""
    bar = Progress()
    try:
        yield bar
    finally:
        bar.close()


@cache
def _bars() -> Any:
    # Slow to import, and most programs show no bar.
    return import_module("tqdm.auto").tqdm
