"""Statements that Spark's parser does not know, read word by word from the left.

Pure text: what is read comes back as values, and what cannot be read is a place in the statement,
which the caller turns into Spark's own error.  Words count in any case; a quoted name is never one.

>>> read = StatementReader("convert to delta parquet.`/a``b` -- all of it")
>>> read.expect("CONVERT", "TO", "DELTA")
>>> read.name(), read.takes("NO", "STATISTICS")
(('parquet', '/a`b'), False)
>>> read.end()
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark_delta.kernel.scan.string_literals import string_value
from pyspark_delta.spark.sql.words import Word, words

_OPENS, _CLOSES = "(", ")"
_TYPE_LETTERS = "bdlsyBDLSY"
_NUMBER = re.compile(rf"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][0-9]+)?[{_TYPE_LETTERS}]{{0,2}}")


class StatementSyntaxError(Exception):
    """A statement ends to make sense at `start`; `found` is the word there, None for the end."""

    def __init__(self, start: int, found: str | None) -> None:
        self.start, self.found = start, found
        super().__init__(f"unexpected {'end' if found is None else found!r} at {start}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a statement that somebody else reads, and where in it the part begins."""

    text: str
    start: int


class StatementReader:
    """The words of one statement; each call passes those that it reads."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._words = tuple(words(sql))
        self._next = 0

    def takes(self, *wanted: str) -> bool:
        """Whether these words come next, all of them; else none is passed."""
        if not self.is_next(*wanted):
            return False
        self._next += len(wanted)
        return True

    def expect(self, *wanted: str) -> None:
        """Pass these words; a syntax error at the first that is not there."""
        for word in wanted:
            if not self.takes(word):
                raise self.error()

    def name(self) -> tuple[str, ...]:
        """A name, its parts separated by dots and perhaps in backticks."""
        parts = [self._part()]
        while self.takes("."):
            parts.append(self._part())
        return tuple(parts)

    def place(self) -> str | tuple[str, ...]:
        """A table: its path, where a text stands, else the parts of its name."""
        word = self._peek()
        return self.text() if word is not None and word.is_text else self.name()

    def text(self) -> str:
        """What a text in quotes says."""
        word = self._peek()
        if word is None or not word.is_text:
            raise self.error()
        self._next += 1
        return string_value(word.text)

    def word(self) -> str:
        """One name, perhaps in backticks."""
        return self._part()

    def is_text_next(self) -> bool:
        """Whether a text in quotes comes next."""
        word = self._peek()
        return word is not None and word.is_text

    def whole_number(self) -> int:
        """A number of digits alone."""
        word = self._peek()
        if word is None or not (word.text.isascii() and word.text.isdigit()):
            raise self.error()
        self._next += 1
        return int(word.text)

    def number(self) -> float:
        """A number as SQL writes it: a sign, a fraction and the letter of a type may be there."""
        first = self._next
        self.takes("-")
        while (word := self._peek()) and (word.is_name or word.text == "."):
            self._next += 1
            if self._next < len(self._words) and self._words[self._next].start != word.end:
                break
        start = self._words[first].start if first < len(self._words) else len(self._sql)
        text = self._sql[start : self._words[self._next - 1].end] if self._next > first else ""
        if _NUMBER.fullmatch(text) is None:
            self._next = first
            raise self.error()
        return float(text.rstrip(_TYPE_LETTERS))

    def is_next(self, *wanted: str) -> bool:
        """Whether these words come next; none is passed."""
        following = self._words[self._next : self._next + len(wanted)]
        return [word.text.upper() for word in following] == list(wanted)

    def is_at_end(self) -> bool:
        """Whether nothing follows but semicolons."""
        return all(word.text == ";" for word in self._words[self._next :])

    def bracketed(self) -> Piece:
        """What stands between a bracket and the one that closes it."""
        self.expect(_OPENS)
        depth, first = 1, self._next
        while depth:
            word = self._peek()
            if word is None:
                raise self.error()
            depth += (word.text == _OPENS) - (word.text == _CLOSES)
            self._next += 1
        start = self._words[first - 1].end
        return Piece(self._sql[start : self._words[self._next - 1].start], start)

    def until(self, *wanted: str) -> Piece:
        """What stands before these words, or before the end; words in brackets do not count."""
        depth, first = 0, self._next
        while not self.is_at_end() and (depth or not self.is_next(*wanted)):
            text = self._words[self._next].text
            depth += (text == _OPENS) - (text == _CLOSES)
            self._next += 1
        if self._next == first:
            raise self.error()
        start = self._words[first].start
        return Piece(self._sql[start : self._words[self._next - 1].end], start)

    def rest(self) -> Piece:
        """All that follows."""
        word = self._peek()
        start = len(self._sql) if word is None else word.start
        return Piece(self._sql[start:], start)

    def end(self) -> None:
        """Nothing may follow but semicolons."""
        while self.takes(";"):
            pass
        if self._peek() is not None:
            raise self.error()

    def error(self) -> StatementSyntaxError:
        """The error that says: not this word, or not yet the end."""
        word = self._peek()
        if word is None:
            return StatementSyntaxError(len(self._sql), None)
        return StatementSyntaxError(word.start, word.text)

    def _peek(self) -> Word | None:
        return self._words[self._next] if self._next < len(self._words) else None

    def _part(self) -> str:
        word = self._peek()
        if word is None or not word.is_name or not word.value:
            raise self.error()
        self._next += 1
        return word.value
