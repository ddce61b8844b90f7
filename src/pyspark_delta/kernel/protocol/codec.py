r"""JSON as delta-spark writes and reads it: compact, in declared order, absent options left out.

A record is a frozen dataclass whose table `FIELDS` defines how it is read and written.  The table
follows from the attributes: `app_id: str` is the required string `appId`, an attribute with a
default is optional, and `form` describes one that has another key or form.  Keys that are not in
the table are kept in `extra` and written back after the others.

>>> dumps({"a": [1, True, None], "b": "é\x1f"})
'{"a":[1,true,null],"b":"é\\u001F"}'
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from inspect import get_annotations
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

Json = dict[str, Any]
REQUIRED = {"required": True}
"""The metadata of an attribute that has a default, and whose key is required all the same."""

Reader = Callable[[Any, str], Any]
Writer = Callable[[Any], Any]

# An escaped backslash is matched whole, so that `u00..` after it stays ordinary text.
_ESCAPE = re.compile(r"\\\\|\\u00[0-9a-f]{2}")
_CAMEL = re.compile("_([a-z])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


class MalformedRecordError(ValueError):
    """A JSON value that is not a valid record; the reader adds the place."""


def dumps(value: Any) -> str:
    """`value` as compact JSON: non-ASCII text as it is, control characters in upper-case hex."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "\\u00" in text:
        # Jackson writes \\u001F where Python writes \\u001f.
        text = _ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), text)
    if not text.isascii() and _SURROGATE.search(text):
        # An unpaired surrogate cannot be encoded; escaped, it can be written and read back.
        text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04X}", text)
    return text


class RawJson(str):
    """Text that is JSON already and is written as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a record's table: its key, its attribute, and how its value is read."""

    key: str
    attribute: str
    read: Reader
    write: Writer | None = None
    required: bool = False


def form(key: str = "", read: Reader | None = None, write: Writer | None = None) -> Json:
    """The metadata of an attribute whose key, or form, does not follow from its name and type."""
    return {"form": (key, read, write)}


class Record:
    """The base of actions and their parts: a JSON form defined by a table of fields."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    KEEPS_MALFORMED: ClassVar[bool] = False  # a value of a wrong type counts as an unknown key
    BY_KEY: ClassVar[Mapping[str, Field]] = {}
    REQUIRED_FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __init_subclass__(cls) -> None:
        if "FIELDS" not in cls.__dict__:
            cls.FIELDS = (*cls.FIELDS, *_fields_of(cls))  # those of the base class first
        cls.BY_KEY = {f.key: f for f in cls.FIELDS}
        cls.REQUIRED_FIELDS = tuple(f for f in cls.FIELDS if f.required)

    def to_json_value(self) -> Json:
        """The record as a JSON object, keys in the table's order, unknown ones last."""
        value: Json = {}
        for f in self.FIELDS:
            item = getattr(self, f.attribute)
            if item is not None:
                value[f.key] = f.write(item) if f.write else item
        extra: Json = getattr(self, "extra", {})
        for key, item in extra.items():
            value.setdefault(key, item)
        return value

    @classmethod
    def from_json_value(cls, value: Any) -> Self:
        """The record in a JSON object; MalformedRecordError when it is not valid."""
        if not isinstance(value, dict):
            raise MalformedRecordError(f"{cls.__name__} is not an object")
        arguments: Json = {}
        extra: Json = {}
        # Loop over the keys present: most records have few of a long table's fields.
        for key, item in value.items():
            f = cls.BY_KEY.get(key)
            if f is None:
                extra[key] = item
            elif item is not None:
                try:
                    arguments[f.attribute] = f.read(item, key)
                except MalformedRecordError:
                    if not cls.KEEPS_MALFORMED:
                        raise
                    extra[key] = item
        for f in cls.REQUIRED_FIELDS:
            if f.attribute not in arguments:
                raise MalformedRecordError(f"{cls.__name__} has no {f.key}")
        if extra and "extra" in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            arguments["extra"] = extra
        return cls(**arguments)


def _fields_of(kind: type[Record]) -> Iterator[Field]:
    types = get_type_hints(kind)
    for name in get_annotations(kind):
        data_type = types[name]
        if name == "extra" or get_origin(data_type) is ClassVar:
            continue
        if type(None) in get_args(data_type):  # `X | None` is read as X
            data_type = get_args(data_type)[0]
        default = kind.__dict__.get(name, MISSING)
        metadata: Mapping[str, Any] = {}
        if isinstance(default, dataclasses.Field):
            metadata = default.metadata
            default = default.default if default.default_factory is MISSING else None
        key, read, write = metadata.get("form", ("", None, None))
        if read is None:
            read, write = _form_of(data_type)
        key = key or _CAMEL.sub(lambda match: match[1].upper(), name)
        yield Field(key, name, read, write, default is MISSING or metadata == REQUIRED)


def _form_of(data_type: Any) -> tuple[Reader, Writer | None]:
    is_list = get_origin(data_type) is tuple
    item = get_args(data_type)[0] if is_list else data_type
    if isinstance(item, type) and issubclass(item, Record):
        return (_records(item), _write_records) if is_list else (_record(item), _write_record)
    return _FORMS[data_type]


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


def count(value: Any, key: str) -> int:
    """A whole number that is not negative."""
    number = integer(value, key)
    if number < 0:
        raise MalformedRecordError(f"{key} is negative")
    return number


def boolean(value: Any, key: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise MalformedRecordError(f"{key} is not true or false")
    return value


def string_map(value: Any, key: str) -> dict[str, str | None]:
    """An object whose values are text or null; numbers and booleans are taken as their text."""
    return {
        name: item if item is None or isinstance(item, str) else dumps(item)
        for name, item in raw_map(value, key).items()
    }


def raw_map(value: Any, key: str) -> dict[str, Any]:
    """An object whose values are kept as they are."""
    if not isinstance(value, dict):
        raise MalformedRecordError(f"{key} is not an object")
    return value


def raw_list(value: Any, key: str) -> list[Any]:
    """A list whose items are kept as they are."""
    if not isinstance(value, list):
        raise MalformedRecordError(f"{key} is not a list")
    return value


def string_tuple(value: Any, key: str) -> tuple[str, ...]:
    """A list of strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedRecordError(f"{key} is not a list of text")
    return tuple(value)


def _integers(value: Any, key: str) -> tuple[int, ...]:
    return tuple(integer(item, key) for item in raw_list(value, key))


def _record(kind: type[Record]) -> Reader:
    return lambda value, key: kind.from_json_value(value)


def _write_record(value: Record) -> Json:
    return value.to_json_value()


def _records(kind: type[Record]) -> Reader:
    return lambda value, key: tuple(map(kind.from_json_value, raw_list(value, key)))


def _write_records(values: tuple[Record, ...]) -> list[Json]:
    return [value.to_json_value() for value in values]


# The type of an attribute -> how its value is read and written.
_FORMS: Mapping[object, tuple[Reader, Writer | None]] = {
    str: (text, None),
    int: (integer, None),
    bool: (boolean, None),
    tuple[str, ...]: (string_tuple, list),
    tuple[int, ...]: (_integers, list),
    Mapping[str, str | None]: (string_map, dict),
    Json: (raw_map, None),
}
