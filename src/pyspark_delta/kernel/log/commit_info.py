r"""The provenance of a commit: finding `commitInfo` in its file without reading the rest.

>>> data = b'{"commitInfo":{"operation":"WRITE","txnId":"x"}}\n{"add":{}}\n'
>>> commit_info_of("0.json", data).operation
'WRITE'
"""

from __future__ import annotations

import json

from pyspark_delta.kernel.protocol.actions import CommitInfo
from pyspark_delta.kernel.protocol.codec import MalformedRecordError

_MARKER = b'"commitInfo"'


def commit_info_of(path: str, data: bytes) -> CommitInfo | None:
    """The commit's provenance; None when there is none, or none that can be read.

    It is best effort by nature: a commit without it is a commit all the same.
    """
    at = data.find(_MARKER)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        line = data[start : len(data) if end < 0 else end]
        info = _parsed(line)
        if info is not None:
            return info
        at = -1 if end < 0 else data.find(_MARKER, end)
    return None


def commit_info_in(value: object) -> CommitInfo | None:
    """The provenance in a line that is parsed already; None when there is none to be read."""
    try:
        if isinstance(value, dict) and value.get("commitInfo") is not None:
            return CommitInfo.from_json_value(value["commitInfo"])
    except (ValueError, RecursionError, MalformedRecordError):
        return None
    return None


def _parsed(line: bytes) -> CommitInfo | None:
    try:
        return commit_info_in(json.loads(line))
    except (ValueError, RecursionError):
        return None
