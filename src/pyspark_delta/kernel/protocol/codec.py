r"""JSON as delta-spark writes and reads it: compact, in declared order, absent options left out.

A record is a frozen dataclass with a table `FIELDS`; the table alone says how it is read and
written.  Keys that the table does not know are kept in `extra` and written back behind the others.

>>> dumps({"a": [1, True, None], "b": "é\x1f"})
'{"a":[1,true,null],"b":"é\\u001F"}'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

Json = dict[str, Any]

_ESCAPE = re.compile(r"\\u00[0-9a-f]{2}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


class MalformedRecordError(ValueError):
    """A JSON value that is not the record it should be; the reader adds the place."""


def dumps(value: Any) -> str:
    """`value` as compact JSON: non-ASCII text as it is, control characters in upper-case hex."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "\\u00" in text:
        text = _ESCAPE.sub(_upper_hex, text)
    if not text.isascii() and _SURROGATE.search(text):
        # Half of a pair cannot be encoded; escaped, it can be written and read back.
        text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04X}", text)
    return text


def _upper_hex(found: re.Match[str]) -> str:
    # Jackson writes \\u001F where Python writes \\u001f.  An escaped backslash before `u00..` is
    # ordinary text and stays.
    start = found.start()
    text = found.string
    backslashes = 0
    while start - backslashes > 0 and text[start - backslashes - 1] == "\\":
        backslashes += 1
    if backslashes % 2:
        return found[0]
    return "\\u" + found[0][2:].upper()


class RawJson(str):
    """Text that is JSON already and is written as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a record's table: its key, its attribute, and how its value is read."""

    key: str
    attribute: str
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] | None = None
    required: bool = False
    always: bool = False  # written even when it is None


class Record:
    """What actions and their parts share: a JSON form given by a table of fields."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def to_json_value(self) -> Json:
        """The record as a JSON object, keys in the table's order, unknown ones behind."""
        value: Json = {}
        for f in self.FIELDS:
            item = getattr(self, f.attribute)
            if item is None:
                if f.always:
                    value[f.key] = None
                continue
            value[f.key] = f.write(item) if f.write else item
        extra: Json = getattr(self, "extra", {})
        for key, item in extra.items():
            value.setdefault(key, item)
        return value

    @classmethod
    def from_json_value(cls, value: Any) -> Self:
        """The record that a JSON object spells; MalformedRecordError when it does not."""
        if not isinstance(value, dict):
            raise MalformedRecordError(f"{cls.__name__} is not an object")
        by_key, required = cls._table()
        arguments: Json = {}
        extra: Json = {}
        # By the keys that are there: of a long table most records have few.
        for key, item in value.items():
            f = by_key.get(key)
            if f is None:
                extra[key] = item
            elif item is not None:
                arguments[f.attribute] = f.read(item, key)
        for f in required:
            if f.attribute not in arguments:
                raise MalformedRecordError(f"{cls.__name__} has no {f.key}")
        if extra and "extra" in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            arguments["extra"] = extra
        return cls(**arguments)

    @classmethod
    def _table(cls) -> tuple[dict[str, Field], tuple[Field, ...]]:
        """The fields by key, and those that a record must have."""
        known = _TABLES.get(cls)
        if known is None:
            required = tuple(f for f in cls.FIELDS if f.required)
            known = _TABLES[cls] = {f.key: f for f in cls.FIELDS}, required
        return known


_TABLES: dict[type[Record], tuple[dict[str, Field], tuple[Field, ...]]] = {}


def text(value: Any, key: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise MalformedRecordError(f"{key} is not text")
    return value


def integer(value: Any, key: str) -> int:
    """A whole number that fits 64 bits; some writers spell it as text or as 1.0."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedRecordError(f"{key} is not a whole number")
    if not -(2**63) <= value < 2**63:
        raise MalformedRecordError(f"{key} does not fit 64 bits")
    return value


def boolean(value: Any, key: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise MalformedRecordError(f"{key} is not true or false")
    return value


def string_map(value: Any, key: str) -> dict[str, str | None]:
    """An object whose values are text or null; numbers and booleans are taken as their text."""
    if not isinstance(value, dict):
        raise MalformedRecordError(f"{key} is not an object")
    return {
        name: item if item is None or isinstance(item, str) else dumps(item)
        for name, item in value.items()
    }


def raw_map(value: Any, key: str) -> dict[str, Any]:
    """An object whose values are kept as they are."""
    if not isinstance(value, dict):
        raise MalformedRecordError(f"{key} is not an object")
    return value


def string_tuple(value: Any, key: str) -> tuple[str, ...]:
    """A list of strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedRecordError(f"{key} is not a list of text")
    return tuple(value)


def record(kind: type[Record]) -> Callable[[Any, str], Record]:
    """A reader of nested records of one kind."""

    def read(value: Any, key: str) -> Record:
        return kind.from_json_value(value)

    return read


def write_record(value: Record) -> Json:
    """A nested record's JSON object."""
    return value.to_json_value()


def write_tuple(value: tuple[str, ...]) -> list[str]:
    """A list from the tuple that holds it."""
    return list(value)


def frozen_map(value: Mapping[str, Any]) -> dict[str, Any]:
    """A plain dict of any mapping, for writing."""
    return dict(value)
