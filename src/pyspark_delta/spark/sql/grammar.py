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

from dataclasses import dataclass

from pyspark_delta.spark.sql.words import Word, words

_OPENS, _CLOSES = "(", ")"


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
        following = self._words[self._next : self._next + len(wanted)]
        if [word.text.upper() for word in following] != list(wanted):
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
