"""Kinds of property values: flags, whole numbers, durations, choices, lists of columns.

A kind reads text and refuses, with ValueError, what is not one of its values.  Which property is of
which kind is in `properties`.

>>> FLAG.parse("TRUE"), COLUMNS.parse("a, b.`c,d`")
(True, (('a',), ('b', 'c,d')))
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark_delta.kernel.protocol.intervals import interval_ms

T_co = TypeVar("T_co", covariant=True)

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_COLUMN = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*")
_SIZE = re.compile(r"\s*([0-9]{1,18})\s*([kmgtp]?)i?b?\s*", re.IGNORECASE)
_VERSION = re.compile(r"[12]\.[0-9]{1,4}\.[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """How a value is read, and what to tell a user whose text is not one."""

    parse: Callable[[str], T_co]
    needs: str


def whole(least: int, *, most: int = 2**31 - 1) -> Kind[int]:
    """Whole numbers from `least` to `most`; the default is the largest that fits 32 bits."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    span = f"{least} or more" if most >= 2**31 - 1 else f"from {least} to {most}"
    return Kind(parse, f"it needs to be a whole number, {span}")


def choice(*values: str, ignore_case: bool = False) -> Kind[str]:
    """One of some words, given back in the spelling of `values`."""
    known = {value.lower() if ignore_case else value: value for value in values}

    def parse(text: str) -> str:
        found = known.get(text.lower() if ignore_case else text)
        if found is None:
            raise ValueError(text)
        return found

    return Kind(parse, f"it needs to be one of {', '.join(values)}")


def several(*values: str) -> Kind[tuple[str, ...]]:
    """Some words of a list, each once, joined by commas; empty text is none of them."""

    def parse(text: str) -> tuple[str, ...]:
        parts = tuple(text.split(",")) if text else ()
        if len(set(parts)) < len(parts) or not set(parts) <= set(values):
            raise ValueError(text)
        return parts

    return Kind(parse, f"it needs to be a list of different values out of {', '.join(values)}")


def _flag(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(text)


def _duration(text: str) -> int:
    length = interval_ms(text)
    if length < 0:
        raise ValueError(text)
    return length


def _columns(text: str) -> tuple[tuple[str, ...], ...]:
    if not text.strip():
        return ()  # statistics of no column at all
    paths: list[tuple[str, ...]] = []
    parts: list[str] = []
    position = 0
    while found := _COLUMN.match(text, position):
        quoted = found["quoted"]
        parts.append(found["plain"] if quoted is None else quoted.replace("``", "`"))
        separator = text[found.end() : found.end() + 1]
        if separator != ".":
            paths.append(tuple(parts))
            parts = []
        if not separator:
            return tuple(paths)
        if separator not in ".,":
            break
        position = found.end() + 1
    raise ValueError(text)


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    size = int(found[1]) << 10 * " kmgtp".index(found[2].lower() or " ") if found else 0
    if not 0 < size < 2**63:
        raise ValueError(text)
    return size


def _parquet_version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise ValueError(text)
    return text


FLAG = Kind(_flag, "it needs to be true or false")
SIZE = Kind(_size, "it needs to be a size such as 134217728 or 128mb")
TEXT = Kind(str, "it needs to be text")
DURATION = Kind(
    _duration,
    "it needs to be an interval such as '2 weeks', without months and years and not below zero",
)
COLUMNS = Kind(
    _columns, "it needs to be a list of columns joined by commas, unusual names in backticks"
)
JSON_OBJECT = Kind(_json_object, "it needs to be a JSON object")
PARQUET_VERSION = Kind(_parquet_version, "it needs to be a Parquet version such as 1.0.0 or 2.12.0")
