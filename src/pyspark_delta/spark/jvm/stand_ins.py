"""From what Java holds of a Python object back to the object.

Java knows a Python object by a stand-in of its own, and gives back that, never the object.  What
the stand-in prints ends in a token, which leads to it.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class StandIns(Generic[T]):
    """The objects of one kind that are alive; all of them print `prefix` first."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._tokens = count()
        self._alive: WeakValueDictionary[str, T] = WeakValueDictionary()

    def name(self, each: T, shown: str = "") -> str:
        """What the object is to print: `shown`, and a token that is its own."""
        token = str(next(self._tokens))
        self._alive[token] = each
        return f"{self._prefix}{shown}] {token}"

    def behind(self, java_object: Any) -> T | None:
        """Our object behind one of Java's; None when it is another's."""
        text = str(java_object.toString())
        return self._alive.get(_token(text)) if text.startswith(self._prefix) else None

    def named(self, name: str) -> T:
        """The object that has the name, which must be alive."""
        return self._alive[_token(name)]


def _token(name: str) -> str:
    return name.rpartition(" ")[2]
