"""Writes `t CHANGES FROM ...` so that Spark's own parser takes it.

Spark parses the clause, but fails for a time that is more than a literal, and takes only quoted
values of options.

>>> clause("a.t CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION '3' WITH (computeUpdates = true)")
"CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION '3' WITH (computeUpdates = 'true')"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark_delta.kernel.sql.lexer import Token, tokens
from pyspark_delta.kernel.sql.quoting import string_literal

_LIKELY = re.compile(r"\bCHANGES\s+FROM\b", re.IGNORECASE)
_VERSIONS, _TIMES = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
_INCLUSION = ("INCLUSIVE", "EXCLUSIVE")
# Words that may follow a bound, and are not the table's alias.
_FOLLOWING = re.compile(
    "WHERE|JOIN|LEFT|RIGHT|INNER|FULL|CROSS|NATURAL|ON|USING|GROUP|ORDER|SORT|CLUSTER|DISTRIBUTE|"
    "HAVING|LIMIT|OFFSET|UNION|EXCEPT|MINUS|INTERSECT|LATERAL|TABLESAMPLE|PIVOT|UNPIVOT|WINDOW|"
    "WHEN|QUALIFY|SEMI|ANTI|TO|WITH"
)
# Words that may follow a number or a text inside a value.
_GOES_ON = re.compile("AND|OR|(?:YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND)S?")


def with_plain_changes(sql: str, time_of: Callable[[str], str]) -> str:
    """`sql` with clauses that Spark parses; `sql` itself if it has none.

    `time_of` evaluates the text of an expression to the text of a time.
    """
    if _LIKELY.search(sql) is None:
        return sql
    found = list(tokens(sql))
    parts: list[str] = []
    done = 0
    for i in range(1, len(found) - 3):
        is_clause = _texts(found, i, 2) == ["CHANGES", "FROM"]
        if is_clause and found[i + 2].text.upper() in (*_VERSIONS, *_TIMES):
            reader = _Reader(found, i, time_of)
            parts += (sql[done : found[i].start], reader.clause())
            done = reader.end
    return "".join((*parts, sql[done:]))


def clause(sql: str) -> str:
    """The first clause of a statement as Spark parses it; its times are literals."""
    found = list(tokens(sql))
    start = next(i for i in range(len(found)) if _texts(found, i, 2) == ["CHANGES", "FROM"])
    return _Reader(found, start, str).clause()


class _Reader:
    """Reads the words of one clause, from the word CHANGES on."""

    def __init__(self, found: Sequence[Token], at: int, time_of: Callable[[str], str]) -> None:
        self._found = found
        self._at = at
        self._time_of = time_of

    @property
    def end(self) -> int:
        """The end in the statement of what is read."""
        return self._found[self._at - 1].end

    def clause(self) -> str:
        self._at += 2
        parts = ["CHANGES FROM", self._bound()]
        if self._next() == "TO":
            self._at += 1
            parts += ["TO", self._bound()]
        return " ".join((*parts, *self._options()))

    def _bound(self) -> str:
        """The kind and the value of a bound, and whether it is part of the range."""
        kind = self._next()
        self._at += 1
        first = self._at
        depth = 0
        while self._at < len(self._found):
            text = self._next()
            depth += text == "("
            if depth == 0 and self._at > first and self._ends_value(text):
                break
            if text == ")":
                if depth == 0:
                    break
                depth -= 1
            self._at += 1
        value = " ".join(word.text for word in self._found[first : self._at])
        is_literal = self._at == first + 1 and self._found[first].is_string
        if kind in _TIMES and value and not is_literal:
            value = string_literal(self._time_of(value))
        inclusion = self._next()
        if inclusion not in _INCLUSION:
            return f"{kind} {value}"
        self._at += 1
        return f"{kind} {value} {inclusion}"

    def _ends_value(self, text: str) -> bool:
        """Whether a word cannot be a part of the preceding value."""
        if text in (",", ";", "AS", *_INCLUSION) or _FOLLOWING.fullmatch(text):
            return True
        before, word = self._found[self._at - 1], self._found[self._at]
        is_whole = before.is_string or before.text == ")" or before.text.isdigit()
        return word.is_name and is_whole and not _GOES_ON.fullmatch(text)

    def _options(self) -> list[str]:
        """WITH (key = value, ...), with its values quoted."""
        if _texts(self._found, self._at, 2) != ["WITH", "("]:
            return []
        parts: list[str] = []
        while self._at < len(self._found):
            word, before = self._found[self._at], self._found[self._at - 1].text
            is_value = before == "=" and not word.is_string
            parts.append(string_literal(word.value) if is_value else word.text)
            self._at += 1
            if word.text == ")":
                break
        return [" ".join(parts).replace("( ", "(").replace(" )", ")")]

    def _next(self) -> str:
        return self._found[self._at].text.upper() if self._at < len(self._found) else ""


def _texts(found: Sequence[Token], at: int, count: int) -> list[str]:
    return [word.text.upper() for word in found[at : at + count]]
