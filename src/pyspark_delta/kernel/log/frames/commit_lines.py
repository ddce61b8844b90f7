"""Parse the lines of a commit into JSON objects and actions, or report what is malformed.

>>> [action.KEY for action in actions_from_json("0.json", b'{"txn":{"appId":"a","version":1}}')]
['txn']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.protocol.actions import (
    ACTIONS,
    Action,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.codec import MalformedRecordError

# A file, a line of it (from 1), and the byte where that begins.
Place = tuple[str, int, int]

_STATE_KEYS = tuple(kind.KEY for kind in (Metadata, Protocol, SetTransaction, DomainMetadata))
_ANY_ACTION = re.compile(
    '"(?:' + "|".join(key for key in ACTIONS if key != CommitInfo.KEY) + r')"\s*:'
)
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def actions_from_json(path: str, data: bytes) -> Iterator[Action]:
    """Every action of a commit in the order of its lines; unknown ones are left out."""
    for line_number, offset, line in lines(data):
        value = json_object(path, line_number, offset, line)
        for key, kind in ACTIONS.items():
            if value.get(key) is not None:
                yield action_at(kind, value[key], (path, line_number, offset))


def lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Non-blank lines with their number (from 1) and byte offset; a byte order mark is skipped."""
    offset = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    number = 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        end = len(data) if end < 0 else end
        number += 1
        line = data[offset:end]
        if line.strip():
            yield number, offset, line
        offset = end + 1


def json_object(path: str, number: int, offset: int, line: bytes) -> dict[str, Any]:
    """The JSON object that a line is; CorruptLogError with its place when it is none."""
    try:
        # Given bytes, `json` would guess the encoding; the protocol requires UTF-8.
        text = line.decode("utf-8")
        value = json.loads(text)
        is_text = not (b"\\ud" in line or b"\\uD" in line) or _is_text(value)
    except RecursionError:
        if _has_no_needed_action(text):
            return {}
        raise _malformed(path, number, offset, "it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _malformed(path, number, offset + error.start, "it is not UTF-8") from None
    except ValueError as error:
        at = len(text[: getattr(error, "pos", 0)].encode())
        raise _malformed(path, number, offset + at, f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise _malformed(path, number, offset, "it is not a JSON object")
    if not is_text and not value.keys().isdisjoint(ACTIONS.keys() - {CommitInfo.KEY}):
        raise _malformed(path, number, offset, "it holds half of a surrogate pair")
    return value


def _is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_no_needed_action(text: str) -> bool:
    """Whether a line too deep for the parser is complete and has no action that is needed."""
    # Writers put anything into commitInfo, and a future action may be of any shape.
    if _ANY_ACTION.search(text):
        return False
    bare = _JSON_STRING.sub("", text).strip()
    is_whole = all(bare.count(a) == bare.count(b) for a, b in ("{}", "[]"))
    return is_whole and bare.startswith("{") and bare.endswith("}")


def action_at(kind: type[Action], value: Any, place: Place) -> Action:
    """The action in `value`; CorruptLogError with its place when it is malformed."""
    try:
        return kind.from_json_value(value)
    except MalformedRecordError as error:
        raise _malformed(*place, str(error)) from None
    except RecursionError:
        raise _malformed(*place, "it is nested too deeply") from None


def _malformed(path: str, line: int, byte: int, reason: str) -> CorruptLogError:
    return CorruptLogError(
        "DELTA_MALFORMED_LOG_ENTRY", path=path, line=line, byte=byte, reason=reason
    )


def state_actions(value: dict[str, Any], place: Place) -> Iterator[Action]:
    """The actions of a line that are part of a table's state and not about files."""
    for key in _STATE_KEYS:
        if value.get(key) is not None:
            yield action_at(ACTIONS[key], value[key], place)
