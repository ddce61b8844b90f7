"""Parameter markers and IDENTIFIER(...) in a statement: where they stand, and a text without them.

For statements that Spark's parser does not know; for others Spark does this itself.

>>> sql = "RESTORE t TO VERSION AS OF :v -- not :this"
>>> [(mark.name, sql[mark.start : mark.end]) for mark in markers(sql)]
[('v', ':v')]
>>> bound = rewritten(sql, [Edit(27, 29, "12")])
>>> bound.text, bound.place(30)
('RESTORE t TO VERSION AS OF 12 -- not :this', 30)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.words import Word, words

_IDENTIFIER = re.compile(r"\bIDENTIFIER\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Marker:
    """`:name` or `?`, whose name is None."""

    start: int
    end: int
    name: str | None


@dataclass(frozen=True, slots=True)
class NameCall:
    """IDENTIFIER(...): where it stands, and the text between its brackets."""

    start: int
    end: int
    argument: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Another text for what stands from `start` up to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement after its edits."""

    text: str
    edits: tuple[Edit, ...] = ()

    def place(self, position: int) -> int:
        """Where in the statement as it was written a place in the text is."""
        moved = 0
        for edit in self.edits:
            new_start = edit.start + moved
            if position < new_start:
                break
            if position < new_start + len(edit.text):
                return edit.start
            moved += len(edit.text) - (edit.end - edit.start)
        return position - moved


def markers(sql: str) -> list[Marker]:
    """The markers of a statement, in order.

    A colon that touches the value before it asks for a field of it, and two of them cast.
    """
    found = list(words(sql))
    marks = []
    for i, word in enumerate(found):
        if word.text == "?":
            marks.append(Marker(word.start, word.end, None))
        elif word.text == ":" and i + 1 < len(found) and found[i + 1].is_name:
            before = found[i - 1] if i else None
            if before is None or before.end < word.start or not _is_value(before):
                marks.append(Marker(word.start, found[i + 1].end, found[i + 1].value))
    return marks


def name_calls(sql: str) -> list[NameCall]:
    """Where the statement has IDENTIFIER(...), in order."""
    if _IDENTIFIER.search(sql) is None:
        return []
    found = list(words(sql))
    calls = []
    for word, following in pairwise(found):
        if word.text.upper() == "IDENTIFIER" and following.text == "(":
            read = StatementReader(sql[following.start :])
            try:
                inside = read.bracketed()
            except StatementSyntaxError:
                break  # never closed: whoever reads the statement says so
            end = following.start + inside.start + len(inside.text) + 1
            calls.append(NameCall(word.start, end, inside.text))
    return calls


def rewritten(sql: str, edits: Iterable[Edit]) -> Rewritten:
    """The statement with its edits made; they do not overlap."""
    ordered = tuple(sorted(edits, key=lambda edit: edit.start))
    parts: list[str] = []
    done = 0
    for edit in ordered:
        parts += (sql[done : edit.start], edit.text)
        done = edit.end
    return Rewritten("".join((*parts, sql[done:])), ordered)


def _is_value(word: Word) -> bool:
    return word.is_name or word.is_text or word.text in (")", "]", ":")
