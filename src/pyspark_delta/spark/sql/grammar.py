"""A reader for statements that Spark's parser does not know, from left to right.

No session is needed: the parts of a statement are returned as values, and an error is a position in
the statement, which the caller turns into Spark's own error.  Keywords are case-insensitive; a
quoted name is never a keyword.

>>> read = StatementReader("convert to delta parquet.`/a``b` -- all of it")
>>> read.expect("CONVERT", "TO", "DELTA")
>>> read.name(), read.takes("NO", "STATISTICS")
(('parquet', '/a`b'), False)
>>> read.end()
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_delta.kernel.sql.lexer import Token, TokenKind, tokens
from pyspark_delta.spark.scan.load import AsOf

_OPENS, _CLOSES = "(", ")"
_TYPE_LETTERS = "bdlsyBDLSY"
_VERSION_WORDS = ("VERSION", "SYSTEM_VERSION")
_TIME_WORDS = ("TIMESTAMP", "SYSTEM_TIME")
# A time that was bound as an argument follows the name of its type.
_TIME_TYPES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "DATE")


class StatementSyntaxError(Exception):
    """A syntax error at `start`; `found` is the word there, None for the end."""

    def __init__(self, start: int, found: str | None) -> None:
        self.start, self.found = start, found
        super().__init__(f"unexpected {'end' if found is None else found!r} at {start}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a statement for another parser, and its position in the statement."""

    text: str
    start: int


class StatementReader:
    """The words of one statement; each call consumes those that it reads."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tuple(tokens(sql))
        self._next = 0

    def takes(self, *wanted: str) -> bool:
        """Consume these words and return True, or consume none and return False."""
        if not self.is_next(*wanted):
            return False
        self._next += len(wanted)
        return True

    def expect(self, *wanted: str) -> None:
        """Consume these words; a syntax error at the first that is missing."""
        for word in wanted:
            if not self.takes(word):
                raise self.error()

    def name(self) -> tuple[str, ...]:
        """A name, with its parts separated by dots and possibly in backticks."""
        parts = [self._part()]
        while self.takes("."):
            parts.append(self._part())
        return tuple(parts)

    def place(self) -> str | tuple[str, ...]:
        """A table: its path, if it is a string literal, else the parts of its name."""
        word = self._peek()
        return self.text() if word is not None and word.is_string else self.name()

    def text(self) -> str:
        """The value of a string literal."""
        word = self._peek()
        if word is None or not word.is_string:
            raise self.error()
        self._next += 1
        return word.value

    def word(self) -> str:
        """One name, possibly in backticks."""
        return self._part()

    def is_text_next(self) -> bool:
        """Whether a string literal comes next."""
        word = self._peek()
        return word is not None and word.is_string

    def whole_number(self) -> int:
        """A number of digits only."""
        word = self._peek()
        if word is None or not (word.text.isascii() and word.text.isdigit()):
            raise self.error()
        self._next += 1
        return int(word.text)

    def number(self) -> float:
        """A number of SQL, possibly with a sign, a fraction and a type suffix."""
        first = self._next
        sign = -1 if self.takes("-") else 1
        word = self._peek()
        if word is None or word.kind is not TokenKind.NUMBER or word.text[-1] in "fF":
            self._next = first
            raise self.error()
        self._next += 1
        return sign * float(word.text.rstrip(_TYPE_LETTERS))

    def is_next(self, *wanted: str) -> bool:
        """Whether these words come next; consumes none."""
        following = self._tokens[self._next : self._next + len(wanted)]
        return [word.text.upper() for word in following] == list(wanted)

    def is_at_end(self) -> bool:
        """Whether only semicolons follow."""
        return all(word.text == ";" for word in self._tokens[self._next :])

    def bracketed(self) -> Piece:
        """The text between a parenthesis and its closing one."""
        self.expect(_OPENS)
        depth, first = 1, self._next
        while depth:
            word = self._peek()
            if word is None:
                raise self.error()
            depth += (word.text == _OPENS) - (word.text == _CLOSES)
            self._next += 1
        start = self._tokens[first - 1].end
        return Piece(text=self._sql[start : self._tokens[self._next - 1].start], start=start)

    def until(self, *wanted: str) -> Piece:
        """The text before these words, or the end; words in parentheses do not count."""
        depth, first = 0, self._next
        while not self.is_at_end() and (depth or not self.is_next(*wanted)):
            text = self._tokens[self._next].text
            depth += (text == _OPENS) - (text == _CLOSES)
            self._next += 1
        if self._next == first:
            raise self.error()
        start = self._tokens[first].start
        return Piece(text=self._sql[start : self._tokens[self._next - 1].end], start=start)

    def rest(self) -> Piece:
        """The rest of the statement."""
        word = self._peek()
        start = len(self._sql) if word is None else word.start
        return Piece(text=self._sql[start:], start=start)

    def end(self) -> None:
        """Check that only semicolons follow."""
        while self.takes(";"):
            pass
        if self._peek() is not None:
            raise self.error()

    def error(self) -> StatementSyntaxError:
        """A syntax error at the next word, or at the end."""
        word = self._peek()
        if word is None:
            return StatementSyntaxError(len(self._sql), None)
        return StatementSyntaxError(word.start, word.text)

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _part(self) -> str:
        word = self._peek()
        if word is None or not word.is_name or not word.value:
            raise self.error()
        self._next += 1
        return word.value


def read_as_of(read: StatementReader) -> AsOf | None:
    """VERSION AS OF or TIMESTAMP AS OF, if that comes next; else None.

    >>> read_as_of(StatementReader("FOR SYSTEM_VERSION AS OF 3"))
    AsOf(version=3, timestamp=None)
    >>> read_as_of(StatementReader("TIMESTAMP AS OF DATE '2024-01-31'"))
    AsOf(version=None, timestamp='2024-01-31')
    >>> read_as_of(StatementReader("TBLPROPERTIES ('a' = 'b')")) is None
    True
    """
    has_for = read.takes("FOR")
    if any(read.takes(word, "AS", "OF") for word in _VERSION_WORDS):
        return AsOf(version=_version_number(read))
    if any(read.takes(word, "AS", "OF") for word in _TIME_WORDS):
        any(read.takes(word) for word in _TIME_TYPES)
        return AsOf(timestamp=read.text())
    if has_for:
        raise read.error()
    return None


def _version_number(read: StatementReader) -> int:
    """A number, possibly in quotes."""
    if not read.is_text_next():
        return read.whole_number()
    error = read.error()
    text = read.text().strip()
    if not (text.isascii() and text.isdigit()):
        raise error
    return int(text)
