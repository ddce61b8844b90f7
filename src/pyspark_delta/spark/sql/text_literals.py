r"""What a text in a statement says, and how a text is written so that it says the same.

Spark's rules: a backslash escapes, two quotes are one, and behind `r` nothing is special.

>>> text_value(r"'it''s 100\%\n'"), text_value(r"r'a\n'")
("it's 100\\%\n", 'a\\n')
>>> print(text_literal("it's a\\b"))
'it\'s a\\b'
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"""\\(?: u(?P<short>[0-9a-fA-F]{4})
          | U(?P<long>[0-9a-fA-F]{8})
          | (?P<octal>[0-1][0-7]{2})
          | (?P<letter>.) )
      | (?P<quotes>''|"")""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
# What LIKE reads for itself.
_KEPT = ("%", "_")
_LARGEST = 0x10FFFF


def text_value(literal: str) -> str:
    """What a literal, its quotes included, stands for."""
    if literal[:1] in "rR":
        return literal[2:-1]
    quote = literal[0]
    return _ESCAPE.sub(lambda found: _unescaped(found, quote), literal[1:-1])


def text_literal(value: str) -> str:
    """A literal that stands for `value`."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _unescaped(found: re.Match[str], quote: str) -> str:
    if found["quotes"]:
        return quote if found["quotes"] == quote * 2 else found["quotes"]
    code = found["short"] or found["long"]
    if code is not None:
        number = int(code, 16)
        return chr(number) if number <= _LARGEST else found[0]
    if found["octal"] is not None:
        return chr(int(found["octal"], 8))
    letter = found["letter"]
    if letter in _KEPT:
        return f"\\{letter}"
    return _LETTERS.get(letter, letter)
