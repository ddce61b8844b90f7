"""The words of a SQL expression, as Spark's lexer cuts them.

Only tokens: what they mean together is for `predicate_sql`.

>>> [token.text for token in tokenize("a.`b c` <= 'it''s' -- yes")]
['a', '.', '`b c`', '<=', "'it''s'", '']
>>> tokenize("'it''s'")[0].value
"it's"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from pyspark_delta.kernel.scan.string_literals import STRING_LITERAL, string_value


class TokenKind(Enum):
    """What a token is."""

    NAME = "name"
    QUOTED_NAME = "name in backquotes"
    NUMBER = "number"
    STRING = "text"
    BINARY = "binary"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text; `value` is what a name or text holds once its marks are taken off."""

    kind: TokenKind
    text: str
    start: int
    value: str = ""

    @property
    def word(self) -> str:
        """The upper-case word that an unquoted name or a symbol is; "" for other tokens."""
        if self.kind in (TokenKind.NAME, TokenKind.SYMBOL):
            return self.text.upper()
        return ""


class TokenError(ValueError):
    """Text that cannot be cut into tokens, with the position of the trouble."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


_SPACE = re.compile(r"(?:\s+|--(?:\\\n|[^\r\n])*|/\*(?:(?!\*/|/\*).)*\*/)+", re.DOTALL)
_TOKENS = (
    (TokenKind.BINARY, re.compile(r"[xX]'[^']*'")),
    (TokenKind.STRING, re.compile(STRING_LITERAL, re.DOTALL)),
    (TokenKind.QUOTED_NAME, re.compile(r"`(?:[^`]|``)*`")),
    (TokenKind.NUMBER, re.compile(r"[0-9]+\.(?![\w.])")),
    (
        TokenKind.NUMBER,
        re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[bB][dD]|[lLsSyYfFdD])?\b"),
    ),
    (TokenKind.NAME, re.compile(r"[^\W\d]\w*")),
    (TokenKind.SYMBOL, re.compile(r"<=>|<=|>=|<>|!=|==|\|\||[^\s'\"`]")),
)


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, an END behind them; TokenError when a quotation does not end."""
    tokens = []
    at = 0
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if at == len(text):
            tokens.append(Token(TokenKind.END, "", at))
            return tokens
        if text.startswith("/*", at):
            raise TokenError("a comment is not closed, or holds another", at)
        token = _token(text, at)
        tokens.append(token)
        at += len(token.text)


def _token(text: str, at: int) -> Token:
    for kind, pattern in _TOKENS:
        if found := pattern.match(text, at):
            return Token(kind, found[0], at, _value(kind, found[0]))
    raise TokenError("a quotation is not closed", at)


def _value(kind: TokenKind, text: str) -> str:
    if kind is TokenKind.NAME:
        return text
    if kind is TokenKind.QUOTED_NAME:
        return text[1:-1].replace("``", "`")
    if kind is TokenKind.BINARY:
        return text[2:-1]
    return string_value(text) if kind is TokenKind.STRING else ""
