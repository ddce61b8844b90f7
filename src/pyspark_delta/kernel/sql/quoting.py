r"""Parse and write SQL string literals, and quote names.

The rules are those of Spark's parser with its default settings.  All code that reads SQL text uses
this module, so that a literal has the same value everywhere.

>>> string_value(r"'it''s 100\%\n'"), string_value(r"r'a\n'"), string_value(r"'\101\201'")
("it's 100\\%\n", 'a\\n', 'A201')
>>> print(string_literal("it's a\\b"))
'it\'s a\\b'
"""

from __future__ import annotations

import re
from collections.abc import Iterable

STRING_LITERAL = r"""(?:[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")"""
"""The pattern of one literal; it needs `re.DOTALL`."""

# By the enclosing quote of a literal: that quote doubled, or a backslash escape.
_ESCAPE = {
    quote: re.compile(
        rf"({quote}{quote})|\\(?:u([0-9A-Fa-f]{{4}})|U([0-9A-Fa-f]{{8}})|([01][0-7]{{2}})|(.))",
        re.DOTALL,
    )
    for quote in "'\""
}
_ESCAPED = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    # LIKE needs to see that these were escaped.
    "%": "\\%",
    "_": "\\_",
}
_UNIT = 0x10000


def string_value(literal: str) -> str:
    """The value of a literal, given with its quotes."""
    if literal[0] in "rR":
        return literal[2:-1]
    value = _ESCAPE[literal[0]].sub(_unescaped, literal[1:-1])
    return _joined(value) if "\\u" in literal or "\\U" in literal else value


def string_literal(value: str) -> str:
    """A literal with the value `value`."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted_name(name: str) -> str:
    """A name in backquotes.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def quoted_path(parts: Iterable[str]) -> str:
    """A name of several parts, each in backquotes."""
    return ".".join(map(quoted_name, parts))


def _unescaped(match: re.Match[str]) -> str:
    doubled, short, long, octal, other = match.groups()
    if doubled:
        return str(doubled[0])
    if octal:
        return chr(int(octal, 8))
    if other:
        return _ESCAPED.get(other, str(other))
    code = int(short or long, 16)
    if code < _UNIT:
        return chr(code)
    # Spark computes two UTF-16 units without checking the range: a code beyond Unicode wraps.
    high, low = divmod(code - _UNIT, 0x400)
    return chr((high + 0xD800) % _UNIT) + chr(low + 0xDC00)


def _joined(units: str) -> str:
    """The string of UTF-16 units; an unpaired surrogate becomes `?`, as in Java's UTF-8."""
    encoded = units.encode("utf-16-le", "surrogatepass")
    return encoded.decode("utf-16-le", "surrogatepass").encode("utf-8", "replace").decode()
