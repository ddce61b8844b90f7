"""A claim of a document: the lines it is made in, the name of ours it is about, and a check.

The check's name says the claim in our own words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any

Check = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`lines` are numbers of the document's lines, from 1; `ours` is a dotted name."""

    lines: frozenset[int]
    ours: str
    holds: Check

    @property
    def sentence(self) -> str:
        return self.holds.__name__


class Claims(list[Claim]):
    """All claims of one document, in its order."""

    def of(self, ours: str, *lines: int | range) -> Callable[[Check], Check]:
        """Note the function below as the check of a claim that is about `ours`."""
        numbers = {n for part in lines for n in ([part] if isinstance(part, int) else part)}

        def note(check: Check) -> Check:
            self.append(Claim(lines=frozenset(numbers), ours=f"pyspark_delta.{ours}", holds=check))
            return check

        return note


def check_name(dotted: str) -> None:
    """Fail unless the dotted name leads to a module, a class, a function or an attribute."""
    module, _, rest = dotted.rpartition(".")
    names = [rest]
    while True:
        try:
            found: Any = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, rest = module.rpartition(".")
            names.insert(0, rest)
    for name in names:
        if is_dataclass(found) and name in {f.name for f in fields(found)}:
            return
        found = getattr(found, name)
