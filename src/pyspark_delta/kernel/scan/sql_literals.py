r"""Types, numbers, binary values and LIKE patterns, as SQL writes them.

>>> parse_number("-2.50").data_type.simple_string, parse_number("7L").data_type.simple_string
('decimal(3,2)', 'bigint')
>>> split_pattern("a\\_b%c")
('a_b', '%c')
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
)
from pyspark_delta.kernel.scan.literals import INTEGRAL, cast_text
from pyspark_delta.kernel.scan.predicates import Literal, literal

MAX_DIGITS = 38

# Types whose name may stand before a text to make a literal.
TYPED_LITERALS: dict[str, DataType] = {
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}
# The names that a CAST may use; decimals have digits and are parsed.
SQL_TYPES: dict[str, DataType] = {
    "BIGINT": LONG,
    "BINARY": BINARY,
    "BOOLEAN": BOOLEAN,
    "BYTE": BYTE,
    "DOUBLE": DOUBLE,
    "FLOAT": FLOAT,
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "LONG": LONG,
    "REAL": FLOAT,
    "SHORT": SHORT,
    "SMALLINT": SHORT,
    "STRING": STRING,
    "TINYINT": BYTE,
    "VOID": VOID,
    **TYPED_LITERALS,
}

_SUFFIXES: dict[str, DataType] = {"L": LONG, "S": SHORT, "Y": BYTE, "F": FLOAT, "D": DOUBLE}


def parse_number(text: str) -> Literal:
    """A number with its sign and suffix; ValueError when its type cannot hold it."""
    upper = text.upper()
    if upper.endswith("BD"):
        return _decimal(upper[:-2])
    kind = _SUFFIXES.get(upper[-1])
    digits = upper[:-1] if kind else upper
    if kind is None and "E" in digits:
        kind = DOUBLE
    if kind is not None:
        if kind in INTEGRAL and not digits.lstrip("-").isdigit():
            raise ValueError(f"{text} is not a whole number")
        return Literal(cast_text(digits, kind), kind)
    return _decimal(digits) if "." in digits or len(digits) > 19 else literal(int(digits))


def parse_binary(digits: str) -> bytes:
    """The bytes of `X'...'`; Spark puts a 0 in front of an odd number of digits."""
    if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ValueError("a binary literal has digits from 0 to F only")
    return bytes.fromhex("0" * (len(digits) % 2) + digits)


def split_pattern(pattern: str) -> tuple[str, str]:
    """The text before the first wildcard of a LIKE pattern, and the pattern from there on."""
    prefix: list[str] = []
    at = 0
    while at < len(pattern) and pattern[at] not in "%_":
        if pattern[at] == "\\":
            if at + 1 == len(pattern) or pattern[at + 1] not in "\\%_":
                return "".join(prefix), pattern[at:]  # Spark refuses such a pattern; so do we.
            at += 1
        prefix.append(pattern[at])
        at += 1
    return "".join(prefix), pattern[at:]


def _decimal(digits: str) -> Literal:
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise ValueError(f"{digits[:45]} is not a decimal") from None
    _, figures, exponent = number.as_tuple()
    if len(figures) > MAX_DIGITS or not -MAX_DIGITS <= int(exponent) <= MAX_DIGITS:
        raise ValueError(f"{digits[:45]} has more than {MAX_DIGITS} digits")
    return literal(number)
