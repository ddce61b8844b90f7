"""Parse SQL text into predicates: the part of Spark's expressions that scans can use.

The grammar has comparisons, AND, OR, NOT, IN, BETWEEN, LIKE with a prefix, IS NULL and literals.
All else raises.  `Predicate.to_sql` is the inverse.

>>> parse_predicate("a.b >= 5 AND NOT c LIKE 'x%'").to_sql()
"a.b >= 5 AND NOT (c LIKE 'x%')"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo

from pyspark_delta.errors import InvalidPredicateError
from pyspark_delta.kernel.protocol import types
from pyspark_delta.kernel.protocol.types import DataType, DecimalType
from pyspark_delta.kernel.scan.predicates import tree
from pyspark_delta.kernel.scan.predicates.binding import cast_literal, predicate_zone
from pyspark_delta.kernel.sql.lexer import Token, TokenError, TokenKind, tokenize

MAX_DEPTH = 100
MAX_CHARACTERS = 1_000_000

_TIMES: dict[str, DataType] = {
    "DATE": types.DATE,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP_LTZ": types.TIMESTAMP,
    "TIMESTAMP_NTZ": types.TIMESTAMP_NTZ,
}
# Words that make a literal of the string after them.
_TYPED_LITERALS: dict[str, DataType] = {**_TIMES, "X": types.BINARY}
# The type names in a CAST; decimals have digits and are parsed.
_TYPES: dict[str, DataType] = {
    "BOOLEAN": types.BOOLEAN,
    **dict.fromkeys(("BYTE", "TINYINT"), types.BYTE),
    **dict.fromkeys(("SHORT", "SMALLINT"), types.SHORT),
    **dict.fromkeys(("INT", "INTEGER"), types.INTEGER),
    **dict.fromkeys(("LONG", "BIGINT"), types.LONG),
    **dict.fromkeys(("FLOAT", "REAL"), types.FLOAT),
    "DOUBLE": types.DOUBLE,
    "STRING": types.STRING,
    "BINARY": types.BINARY,
    "VOID": types.VOID,
    **_TIMES,
}
_OPERATORS = {**{op: op for op in tree.FLIPPED}, "==": "=", "<>": "!="}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
_BEHIND_OPERAND = frozenset({*_OPERATORS, "IS", "IN", "BETWEEN", "LIKE", "NOT"})
_NEVER_COLUMNS = tree.RESERVED - {
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ",
    "TABLE",
    "END",
}


def parse_predicate(text: str, *, time_zone: str = "UTC") -> tree.Predicate:
    """The predicate in `text`; InvalidPredicateError, with the position, if it does not parse.

    `time_zone` is that of timestamps without a zone.  Names are not resolved: see `binding.bind`.
    """
    zone = predicate_zone(time_zone, lambda: text)
    try:
        return _Parser(text, zone).parsed()
    except (_NotUnderstoodError, TokenError) as error:
        reason = f"{error.reason}, at position {error.position}"
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE", predicate=text, reason=reason
        ) from None


class _NotUnderstoodError(Exception):
    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


class _Parser:
    """Recursive descent over the tokens; every method leaves `_at` after the tokens it read."""

    def __init__(self, text: str, zone: tzinfo) -> None:
        if len(text) > MAX_CHARACTERS:
            raise _NotUnderstoodError(f"it is longer than {MAX_CHARACTERS} characters", 0)
        self._zone = zone
        self._tokens = tokenize(text)
        self._closing = _matching_parentheses(self._tokens)
        self._at = 0
        self._depth = 0

    def parsed(self) -> tree.Predicate:
        found = self._disjunction()
        if self._token.kind is not TokenKind.END:
            raise self._unexpected()
        return found

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _next(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _take(self, *words: str) -> str:
        word = self._token.word
        if word not in words:
            return ""
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(f", where {word} is expected")

    def _unexpected(self, why: str = "") -> _NotUnderstoodError:
        token = self._token
        text = "the end" if token.kind is TokenKind.END else repr(token.text[:40])
        return _NotUnderstoodError(f"{text} is not understood here{why}", token.start)

    # Predicates.

    def _disjunction(self) -> tree.Predicate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            reason = f"it is nested deeper than {MAX_DEPTH} levels"
            raise _NotUnderstoodError(reason, self._token.start)
        parts = [self._conjunction()]
        while self._take("OR"):
            parts.append(self._conjunction())
        self._depth -= 1
        return tree.disjunction(parts)

    def _conjunction(self) -> tree.Predicate:
        parts = [self._negation()]
        while self._take("AND"):
            parts.append(self._negation())
        return tree.conjunction(parts)

    def _negation(self) -> tree.Predicate:
        negated = False
        while self._take("NOT", "!"):
            negated = not negated
        found = self._primary()
        return _negated(found) if negated else found

    def _primary(self) -> tree.Predicate:
        found = self._group() if self._is_at_group() else self._condition()
        if self._token.kind is TokenKind.END or self._token.word in ("AND", "OR", ")"):
            return found
        raise self._unexpected()

    def _is_at_group(self) -> bool:
        """Whether a parenthesis opens a predicate, and not an operand such as `(a) < 5`."""
        if self._token.word != "(":
            return False
        return self._tokens[self._closing[self._at] + 1].word not in _BEHIND_OPERAND

    def _group(self) -> tree.Predicate:
        if self._next.word in _QUERY_WORDS:
            # The names in a subquery belong to other tables.
            raise self._unexpected()
        self._expect("(")
        found = self._disjunction()
        self._expect(")")
        return found

    def _condition(self) -> tree.Predicate:
        left = self._operand()
        if op := self._take(*_OPERATORS):
            return tree.Comparison(_OPERATORS[op], left, self._operand())
        if self._take("IS"):
            return self._is(left)
        negated = bool(self._take("NOT"))
        if self._take("IN"):
            found = self._in(left)
        elif self._take("BETWEEN"):
            found = self._between(left)
        elif self._take("LIKE"):
            found = self._like(left)
        elif negated:
            raise self._unexpected()
        else:
            return self._truth(left)
        return _negated(found) if negated else found

    def _truth(self, operand: tree.Operand) -> tree.Predicate:
        match operand:
            case tree.Literal(value=bool() | None as value):
                return tree.Constant(value)
            case tree.Column():
                return tree.Comparison("=", operand, tree.literal(True))
            case _:
                raise self._unexpected(", for a condition is expected")

    def _is(self, left: tree.Operand) -> tree.Predicate:
        negated = bool(self._take("NOT"))
        if self._take("DISTINCT"):
            self._expect("FROM")
            negated = not negated
            found: tree.Predicate = tree.Comparison("<=>", left, self._operand())
        elif word := self._take("TRUE", "FALSE"):
            found = tree.Comparison("<=>", left, tree.literal(_CONSTANTS[word]))
        elif self._take("NULL", "UNKNOWN"):
            is_null = isinstance(left, tree.Literal) and left.value is None
            found = tree.IsNull(left) if isinstance(left, tree.Column) else tree.Constant(is_null)
        else:
            raise self._unexpected()
        return _negated(found) if negated else found

    def _in(self, left: tree.Operand) -> tree.Predicate:
        self._expect("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._expect(")")
        if isinstance(left, tree.Column):
            return tree.In(left, tuple(values))
        return tree.disjunction(tree.Comparison("=", left, value) for value in values)

    def _between(self, left: tree.Operand) -> tree.Predicate:
        low = self._operand()
        self._expect("AND")
        high = self._operand()
        return tree.conjunction(
            [tree.Comparison(">=", left, low), tree.Comparison("<=", left, high)]
        )

    def _like(self, left: tree.Operand) -> tree.Predicate:
        pattern = self._token
        if pattern.kind is not TokenKind.STRING or not isinstance(left, tree.Column):
            raise self._unexpected()
        prefix, rest = _split_pattern(self._string())
        if not rest:
            return tree.Comparison("=", left, tree.literal(prefix))
        if rest.strip("%") == "":
            return tree.StartsWith(left, prefix)
        raise _NotUnderstoodError("only prefixes are known to LIKE", pattern.start)

    # Operands.

    def _operand(self) -> tree.Operand:
        if self._token.word == "(":
            depth = 0
            while self._take("("):
                depth += 1
            found = self._operand()
            for _ in range(depth):
                self._expect(")")
            return found
        if self._is_at_column():
            return self._column()
        return self._literal()

    def _is_at_column(self) -> bool:
        token = self._token
        if token.kind is TokenKind.QUOTED_NAME:
            return True
        if token.kind is not TokenKind.NAME or token.word in _NEVER_COLUMNS:
            return False
        return token.word not in _TYPED_LITERALS or self._next.kind is not TokenKind.STRING

    def _column(self) -> tree.Column:
        path = []
        while True:
            token = self._token
            if token.kind not in (TokenKind.NAME, TokenKind.QUOTED_NAME) or not token.value:
                raise self._unexpected()
            path.append(token.value)
            self._at += 1
            if not self._take("."):
                break
        if self._token.word in ("(", "["):
            raise self._unexpected()
        return tree.Column(tuple(path))

    def _literal(self) -> tree.Literal:
        token = self._token
        sign = self._take("-", "+")
        if sign or token.kind is TokenKind.NUMBER:
            return self._number("-" if sign == "-" else "")
        if token.kind is TokenKind.STRING:
            return tree.literal(self._string())
        self._at += 1
        if token.word in _CONSTANTS:
            return tree.literal(_CONSTANTS[token.word])
        if token.word in _TYPED_LITERALS and self._token.kind is TokenKind.STRING:
            return self._typed(token)
        if token.word == "CAST":
            return self._cast(token)
        self._at -= 1
        raise self._unexpected()

    def _string(self) -> str:
        """The value of consecutive string literals, which Spark joins to one string."""
        first = self._at
        while self._token.kind is TokenKind.STRING:
            self._at += 1
        return "".join(token.value for token in self._tokens[first : self._at])

    def _number(self, sign: str) -> tree.Literal:
        token = self._token
        if token.kind is not TokenKind.NUMBER:
            raise self._unexpected()
        self._at += 1
        return self._checked(token, lambda: tree.parse_number(sign + token.text))

    def _typed(self, token: Token) -> tree.Literal:
        text = self._token.value
        self._at += 1
        return self._checked(
            token, lambda: tree.parse_typed(_TYPED_LITERALS[token.word], text, self._zone)
        )

    def _cast(self, token: Token) -> tree.Literal:
        self._expect("(")
        value = self._literal()
        self._expect("AS")
        data_type = self._type()
        self._expect(")")
        return self._checked(token, lambda: cast_literal(value, data_type, self._zone))

    def _type(self) -> DataType:
        token = self._token
        self._at += 1
        if token.word in _TYPES:
            return _TYPES[token.word]
        if token.word not in _DECIMALS:
            self._at -= 1
            raise self._unexpected(", for a type is expected")
        digits = [10, 0]
        if self._take("("):
            digits = [self._digits(), 0]
            if self._take(","):
                digits[1] = self._digits()
            self._expect(")")
        try:
            return DecimalType(*digits)
        except ValueError as error:
            raise _NotUnderstoodError(str(error), token.start) from None

    def _digits(self) -> int:
        if not re.fullmatch("[0-9]{1,2}", self._token.text):
            raise self._unexpected()
        self._at += 1
        return int(self._tokens[self._at - 1].text)

    def _checked(self, token: Token, made: Callable[[], tree.Literal]) -> tree.Literal:
        try:
            return made()
        except ValueError as error:
            raise _NotUnderstoodError(str(error), token.start) from None


def _negated(predicate: tree.Predicate) -> tree.Predicate:
    match predicate:
        case tree.Not(operand=operand):
            return operand
        case tree.Constant(value=value):
            return tree.Constant(None if value is None else not value)
        case _:
            return tree.Not(predicate)


def _split_pattern(pattern: str) -> tuple[str, str]:
    """The text before the first wildcard of a LIKE pattern, and the pattern from there on."""
    prefix: list[str] = []
    at = 0
    while at < len(pattern) and pattern[at] not in "%_":
        if pattern[at] == "\\":
            if at + 1 == len(pattern) or pattern[at + 1] not in "\\%_":
                return "".join(prefix), pattern[at:]  # Spark rejects such a pattern, too.
            at += 1
        prefix.append(pattern[at])
        at += 1
    return "".join(prefix), pattern[at:]


def _matching_parentheses(tokens: list[Token]) -> dict[int, int]:
    opened: list[int] = []
    closing = {}
    for at, token in enumerate(tokens):
        if token.word == "(":
            opened.append(at)
        elif token.word == ")":
            if not opened:
                raise _NotUnderstoodError("a parenthesis was never opened", token.start)
            closing[opened.pop()] = at
    if opened:
        raise _NotUnderstoodError("a parenthesis is not closed", tokens[opened[-1]].start)
    return closing
