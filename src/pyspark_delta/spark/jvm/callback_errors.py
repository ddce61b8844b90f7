"""Errors that Python raises while Java calls it, and what their caller gets to see.

Java turns them into exceptions of its own, which only tell their text.  The callback leaves the
error here, and whoever started the call finds it by that text, on whatever thread Java called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_delta.errors.base import DeltaError

# Enough for many threads; an error that nobody asks for goes when newer ones come.
_NOTED: deque[DeltaError] = deque(maxlen=64)


def noted(error: DeltaError) -> DeltaError:
    """The error, kept for `raised_again`."""
    _NOTED.appendleft(error)
    return error


@contextmanager
def noted_errors() -> Iterator[None]:
    """Around what Java called: keep a typed error for `raised_again`."""
    try:
        yield
    except DeltaError as error:
        noted(error)
        raise


@contextmanager
def raised_again() -> Iterator[None]:
    """Around a call of Java: let the caller see the typed error of a callback."""
    try:
        yield
    except DeltaError:
        raise
    except Exception as error:
        found = _behind(error) if _NOTED else None
        if found is None:
            raise
        raise found from None


def noted_in(text: str) -> DeltaError | None:
    """The newest noted error whose whole message is in a text of Java's."""
    return next((error for error in tuple(_NOTED) if str(error) in text), None)


def _behind(error: Exception) -> DeltaError | None:
    """The newest noted error that the text of Java's exception tells of."""
    text = str(error)
    for noted in tuple(_NOTED):
        if f"{type(noted).__name__}: [{noted.condition}]" in text:
            return noted
    return None
