r"""The words of a statement, one after the other: enough to tell what it is and to find names.

Comments are passed over, texts are one word.  What a statement means is Spark's parser's affair.

>>> [word.text for word in words("-- hi\nSELECT 'a b', `c``d` FROM t")]
['SELECT', "'a b'", ',', '`c``d`', 'FROM', 't']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_delta.kernel.scan.string_literals import STRING_LITERAL

_WORD = re.compile(
    rf"""(?P<blank>\s+|--(?:\\\n|[^\r\n])*)
      | (?P<text>{STRING_LITERAL})
      | (?P<name>`(?:[^`]|``)*` | \w+)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, from `start` up to `end`."""

    text: str
    start: int
    end: int
    is_name: bool

    @property
    def is_text(self) -> bool:
        """Whether it is a text in quotes."""
        return self.text[-1] in "'\"" and len(self.text) > 1

    @property
    def value(self) -> str:
        """What the name is without its quotes."""
        if self.text.startswith("`"):
            return self.text[1:-1].replace("``", "`")
        return self.text


def words(sql: str) -> Iterator[Word]:
    """The words of `sql`; lazily, for the first ones are often enough."""
    position = 0
    while position < len(sql):
        if sql.startswith("/*", position):
            position = _comment_end(sql, position)
            continue
        found = _WORD.match(sql, position)
        assert found is not None  # the last form takes any character
        position = found.end()
        if found.lastgroup != "blank":
            yield Word(found[0], found.start(), found.end(), found.lastgroup == "name")


def _comment_end(sql: str, start: int) -> int:
    """Where a comment ends; comments can hold comments."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)
