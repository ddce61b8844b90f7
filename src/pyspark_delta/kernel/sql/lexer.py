r"""Split SQL text into the tokens of Spark's lexer.

One lexer for all code that reads SQL without Spark's parser: predicates, Delta's own statements,
the text of constraints.  That code interprets the tokens.

>>> [token.text for token in tokens("SELECT a.`b c` <= 'it''s' /* yes */ -- no")]
['SELECT', 'a', '.', '`b c`', '<=', "'it''s'"]
>>> [token.value for token in tokens(r"'it\'s' `c``d` x 1.5BD")]
["it's", 'c`d', 'x', '1.5BD']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pyspark_delta.kernel.sql.quoting import STRING_LITERAL, string_value


class TokenKind(Enum):
    """The kind of a token."""

    NAME = "name"
    QUOTED_NAME = "quoted"
    NUMBER = "number"
    STRING = "string"
    SYMBOL = "symbol"
    UNCLOSED = "unclosed"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as written, from `start` up to `end`."""

    kind: TokenKind
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def value(self) -> str:
        """The value of a name or a string literal; the text of other tokens."""
        if self.kind is TokenKind.QUOTED_NAME:
            return self.text[1:-1].replace("``", "`")
        return string_value(self.text) if self.kind is TokenKind.STRING else self.text

    @property
    def word(self) -> str:
        """An unquoted name or a symbol in upper case; "" for other tokens."""
        if self.kind in (TokenKind.NAME, TokenKind.SYMBOL):
            return self.text.upper()
        return ""

    @property
    def is_name(self) -> bool:
        return self.kind in (TokenKind.NAME, TokenKind.QUOTED_NAME)

    @property
    def is_string(self) -> bool:
        return self.kind is TokenKind.STRING


class TokenError(ValueError):
    """Text that cannot be tokenized from `position` on."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"
_SUFFIX = r"(?:[bB][dD]|[fFdD])?"
# A letter or digit after most numbers makes a name of them, or of the part after their point.
_NUMBER = rf"""
    [0-9]+[eE][+-][0-9]+{_SUFFIX}
  | (?:[0-9]+\.[0-9]*|\.[0-9]+){_EXPONENT}{_SUFFIX}(?![A-Za-z0-9_])
  | (?:[0-9]+{_EXPONENT}{_SUFFIX}|[0-9]+[lLsSyY])(?!\w)"""
_TOKEN = re.compile(
    rf"""(?P<blank>\s+ | --(?:\\\n|[^\r\n])*)
      | (?P<string>{STRING_LITERAL})
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<number>{_NUMBER})
      | (?P<name>\w+)
      | (?P<unclosed>['"`])
      | (?P<symbol><=> | <> | != | == | <= | >= | !> | !< | \|\| | \|> | :: | -> | =>
                   | >>> | >> | << | .)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS = {kind.value: kind for kind in TokenKind}
_COMMENT_MARK = re.compile(r"/\*|\*/")


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, without comments; lazily, as the first ones are often enough.

    Of an unclosed one, the quotation mark alone, or the whole comment, is an UNCLOSED token.
    """
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            end = _comment_end(text, at)
            if end is None:
                yield Token(TokenKind.UNCLOSED, text[at:], at)
                return
            at = end
            continue
        match = _TOKEN.match(text, at)
        assert match is not None  # the last form takes any character
        kind = match.lastgroup or ""
        if kind != "blank":
            yield Token(_KINDS[kind], match[0], at)
        at = match.end()


def tokenize(text: str) -> list[Token]:
    """The tokens of `text` and an END token; TokenError for an unclosed token."""
    found_tokens = []
    for token in tokens(text):
        if token.kind is TokenKind.UNCLOSED:
            what = "comment" if token.text.startswith("/*") else "quotation"
            raise TokenError(f"a {what} is not closed", token.start)
        found_tokens.append(token)
    return [*found_tokens, Token(TokenKind.END, "", len(text))]


def _comment_end(text: str, start: int) -> int | None:
    """The position after a comment, which may be nested; None when it is not closed."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
