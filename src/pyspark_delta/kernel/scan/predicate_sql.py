"""SQL text to predicates: the part of Spark's expressions that scans can use.

Comparisons, AND, OR, NOT, IN, BETWEEN, LIKE with a prefix, IS NULL and literals; nothing else,
nothing is run.  A closed grammar: what it does not know is an error, or `Unknown` where that is
enough.  The way back is `Predicate.to_sql`.

>>> parse_predicate("a.b >= 5 AND NOT c LIKE 'x%'").to_sql()
"a.b >= 5 AND NOT (c LIKE 'x%')"
>>> parse_leniently("a > 5 AND year(d) = 2020")
And(all_of=(Comparison(op='>', left=Column(path=('a',)), right=Literal(value=5, \
data_type=PrimitiveType(name='integer'))), Unknown(text='year(d) = 2020')))
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import tzinfo
from itertools import pairwise

from pyspark_delta.errors.table import InvalidPredicateError
from pyspark_delta.kernel.protocol.types import DataType, DecimalType, StructType
from pyspark_delta.kernel.scan.binding import BoundPredicate, bind, cast_literal
from pyspark_delta.kernel.scan.literals import cast_text, zone_named
from pyspark_delta.kernel.scan.predicates import (
    FALSE,
    FLIPPED,
    NULL,
    RESERVED,
    TRUE,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operand,
    Predicate,
    StartsWith,
    Unknown,
    conjunction,
    disjunction,
    literal,
)
from pyspark_delta.kernel.scan.sql_literals import (
    SQL_TYPES,
    TYPED_LITERALS,
    parse_binary,
    parse_number,
    split_pattern,
)
from pyspark_delta.kernel.scan.sql_tokens import Token, TokenError, TokenKind, tokenize

MAX_DEPTH = 100
MAX_CHARACTERS = 1_000_000

_OPERATORS = {**{op: op for op in FLIPPED}, "==": "=", "<>": "!="}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE"})
_BEHIND_OPERAND = frozenset({*_OPERATORS, "IS", "IN", "BETWEEN", "LIKE", "NOT"})
_BEHIND_COLUMN = _BEHIND_OPERAND | {"AND", "OR", ")", ",", ".", "THEN", "ELSE", "END"}
_NEVER_COLUMNS = RESERVED - {"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TABLE", "END"}


def parse_predicate(text: str, *, time_zone: str = "UTC") -> Predicate:
    """The predicate that `text` spells; InvalidPredicateError, with the position, if none.

    `time_zone` is the one that timestamps without a zone are in.  Names are not looked up: see
    `binding.bind`.
    """
    zone = _zone(text, time_zone)
    try:
        return _Parser(text, zone, lenient=False).parsed()
    except (_NotUnderstoodError, TokenError) as error:
        reason = f"{error.reason}, at position {error.position}"
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE", predicate=text, reason=reason
        ) from None


def parse_leniently(text: str, *, time_zone: str = "UTC") -> Predicate:
    """As `parse_predicate`, with `Unknown` for every part that is not understood."""
    zone = _zone(text, time_zone)
    try:
        return _Parser(text, zone, lenient=True).parsed()
    except (_NotUnderstoodError, TokenError):
        return Unknown(text)


def parse_for_skipping(text: str, schema: StructType, *, time_zone: str = "UTC") -> BoundPredicate:
    """The predicate to choose files by: bound to `schema`, `Unknown` where nothing can be said."""
    predicate = parse_leniently(text, time_zone=time_zone)
    return bind(predicate, schema, time_zone=time_zone, lenient=True)


class _NotUnderstoodError(Exception):
    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


class _TooDeepError(_NotUnderstoodError):
    pass


def _zone(text: str, time_zone: str) -> tzinfo:
    try:
        return zone_named(time_zone)
    except ValueError as error:
        raise InvalidPredicateError(
            "DELTA_INVALID_PREDICATE", predicate=text, reason=error
        ) from None


class _Parser:
    """Recursive descent over the tokens; every method leaves `_at` behind what it read."""

    def __init__(self, text: str, zone: tzinfo, *, lenient: bool) -> None:
        if len(text) > MAX_CHARACTERS:
            raise _NotUnderstoodError(f"it is longer than {MAX_CHARACTERS} characters", 0)
        self._text = text
        self._zone = zone
        self._lenient = lenient
        self._tokens = tokenize(text)
        self._closing = _matching_parentheses(self._tokens)
        _check_cases(self._tokens)
        self._at = 0
        self._depth = 0

    def parsed(self) -> Predicate:
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
        """The word at hand, if it is one of `words`, and step behind it; "" if it is not."""
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
        shown = "the end" if token.kind is TokenKind.END else repr(token.text[:40])
        return _NotUnderstoodError(f"{shown} is not understood here{why}", token.start)

    def _is_at_boundary(self) -> bool:
        return self._token.kind is TokenKind.END or self._token.word in ("AND", "OR", ")")

    # Predicates.

    def _disjunction(self) -> Predicate:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeepError(f"it is nested deeper than {MAX_DEPTH} levels", self._token.start)
        parts = [self._conjunction()]
        while self._take("OR"):
            parts.append(self._conjunction())
        self._depth -= 1
        return disjunction(parts)

    def _conjunction(self) -> Predicate:
        parts = [self._negation()]
        while self._take("AND"):
            parts.append(self._negation())
        return conjunction(parts)

    def _negation(self) -> Predicate:
        negated = False
        while self._take("NOT", "!"):
            negated = not negated
        found = self._primary()
        return _negated(found) if negated else found

    def _primary(self) -> Predicate:
        start, depth = self._at, self._depth
        try:
            found = self._group() if self._is_at_group() else self._condition()
            if self._is_at_boundary():
                return found
            raise self._unexpected()
        except _NotUnderstoodError as error:
            if not self._lenient or isinstance(error, _TooDeepError):
                raise
            self._at, self._depth = start, depth
            return self._skipped()

    def _is_at_group(self) -> bool:
        """Whether a parenthesis opens a predicate, and not an operand such as `(a) < 5`."""
        if self._token.word != "(":
            return False
        return self._tokens[self._closing[self._at] + 1].word not in _BEHIND_OPERAND

    def _group(self) -> Predicate:
        if self._next.word in _QUERY_WORDS:
            # The words of a subquery are about other tables, whatever they look like.
            raise self._unexpected()
        self._expect("(")
        found = self._disjunction()
        self._expect(")")
        return found

    def _skipped(self) -> Predicate:
        """What is not understood, up to the AND, OR or parenthesis that ends it."""
        start, cases, betweens = self._at, 0, 0
        while self._token.kind is not TokenKind.END:
            word = self._token.word
            if word == "(":
                self._at = self._closing[self._at]
            elif word == "AND" and betweens:
                betweens -= 1
            elif (word in ("AND", "OR") and not cases) or word == ")":
                break
            elif word == "BETWEEN":
                betweens += 1
            cases += (word == "CASE") - (word == "END" and cases > 0)
            self._at += 1
        if self._at == start:
            raise self._unexpected()
        last = self._tokens[self._at - 1]
        return Unknown(self._text[self._tokens[start].start : last.start + len(last.text)])

    def _condition(self) -> Predicate:
        left = self._operand()
        if op := self._take(*_OPERATORS):
            return Comparison(_OPERATORS[op], left, self._operand())
        if self._take("IS"):
            return self._is(left)
        negated = bool(self._take("NOT"))
        if self._take("IN"):
            found = self._in(left)
        elif self._take("BETWEEN"):
            found = self._between(left)
        elif self._take("LIKE"):
            found = self._like(left, negated=negated)
        elif negated:
            raise self._unexpected()
        else:
            return self._truth(left)
        return _negated(found) if negated else found

    def _truth(self, operand: Operand) -> Predicate:
        """An operand that stands alone is a condition itself."""
        match operand:
            case Literal(value=bool() | None as value):
                return Constant(value)
            case Column():
                return Comparison("=", operand, literal(True))
            case _:
                raise self._unexpected(", for a condition is expected")

    def _is(self, left: Operand) -> Predicate:
        negated = bool(self._take("NOT"))
        if self._take("DISTINCT"):
            self._expect("FROM")
            negated = not negated
            found: Predicate = Comparison("<=>", left, self._operand())
        elif word := self._take("TRUE", "FALSE"):
            found = Comparison("<=>", left, literal(_CONSTANTS[word]))
        elif self._take("NULL", "UNKNOWN"):
            found = IsNull(left) if isinstance(left, Column) else _is_null(left)
        else:
            raise self._unexpected()
        return _negated(found) if negated else found

    def _in(self, left: Operand) -> Predicate:
        self._expect("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._expect(")")
        if isinstance(left, Column):
            return In(left, tuple(values))
        return disjunction(Comparison("=", left, value) for value in values)

    def _between(self, left: Operand) -> Predicate:
        low = self._operand()
        self._expect("AND")
        high = self._operand()
        return conjunction([Comparison(">=", left, low), Comparison("<=", left, high)])

    def _like(self, left: Operand, *, negated: bool) -> Predicate:
        pattern = self._token
        if pattern.kind is not TokenKind.STRING or not isinstance(left, Column):
            raise self._unexpected()
        prefix, rest = split_pattern(self._string())
        if not rest:
            return Comparison("=", left, literal(prefix))
        if rest.strip("%") == "":
            return StartsWith(left, prefix)
        if not self._lenient or negated or not prefix or not self._is_at_boundary():
            raise _NotUnderstoodError("only prefixes are known to LIKE", pattern.start)
        return conjunction([StartsWith(left, prefix), Unknown(f"LIKE {pattern.text}")])

    # Operands.

    def _operand(self) -> Operand:
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
        return token.word not in TYPED_LITERALS or self._next.kind is not TokenKind.STRING

    def _column(self) -> Column:
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
        return Column(tuple(path))

    def _literal(self) -> Literal:
        token = self._token
        sign = self._take("-", "+")
        if sign or token.kind is TokenKind.NUMBER:
            return self._number("-" if sign == "-" else "")
        if token.kind is TokenKind.STRING:
            return literal(self._string())
        self._at += 1
        if token.kind is TokenKind.BINARY:
            return self._checked(token, lambda: literal(parse_binary(token.value)))
        if token.word in _CONSTANTS:
            return literal(_CONSTANTS[token.word])
        if token.word in TYPED_LITERALS and self._token.kind is TokenKind.STRING:
            return self._typed(token)
        if token.word == "CAST":
            return self._cast(token)
        self._at -= 1
        raise self._unexpected()

    def _string(self) -> str:
        """The value of string literals that follow each other: one string, as Spark reads them."""
        first = self._at
        while self._token.kind is TokenKind.STRING:
            self._at += 1
        return "".join(token.value for token in self._tokens[first : self._at])

    def _number(self, sign: str) -> Literal:
        token = self._token
        if token.kind is not TokenKind.NUMBER:
            raise self._unexpected()
        self._at += 1
        return self._checked(token, lambda: parse_number(sign + token.text))

    def _typed(self, token: Token) -> Literal:
        kind, text = TYPED_LITERALS[token.word], self._token.value
        self._at += 1
        return self._checked(token, lambda: Literal(cast_text(text, kind, self._zone), kind))

    def _cast(self, token: Token) -> Literal:
        self._expect("(")
        value = self._literal()
        self._expect("AS")
        data_type = self._type()
        self._expect(")")
        return self._checked(token, lambda: cast_literal(value, data_type, self._zone))

    def _type(self) -> DataType:
        token = self._token
        self._at += 1
        if token.word in SQL_TYPES:
            return SQL_TYPES[token.word]
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

    def _checked(self, token: Token, made: Callable[[], Literal]) -> Literal:
        try:
            return made()
        except ValueError as error:
            raise _NotUnderstoodError(str(error), token.start) from None


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case Not(operand=operand):
            return operand
        case Constant(value=bool() as value):
            return FALSE if value else TRUE
        case Constant():
            return NULL
        case _:
            return Not(predicate)


def _is_null(operand: Operand) -> Predicate:
    assert isinstance(operand, Literal)
    return TRUE if operand.value is None else FALSE


def _check_cases(tokens: list[Token]) -> None:
    """Refuse a text of which it is not certain where a CASE ends: its ANDs are not ours."""
    words = [token.word for token in tokens]
    for word, behind in pairwise(words):
        if word == "CASE" and behind in _BEHIND_COLUMN:
            raise _NotUnderstoodError("CASE may be a column here", 0)
    if "CASE" in words and words.count("CASE") != words.count("END"):
        raise _NotUnderstoodError("CASE and END do not match", 0)


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
