"""The log of Spark's streaming file sink: which files of a directory were committed.

A query that failed leaves files that no batch ever named, so where there is such a log, a listing
of the directory would find too many.  Only read here; writing it is Spark's.

The directory `_spark_metadata` holds a file for each batch, `0`, `1`, `2`, and at times one that
stands for all before it, `9.compact`.  Each begins with the line `v1`, and has a line of JSON for
each file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark_delta.errors.table import DataFileError
from pyspark_delta.kernel.storage.base import LogStore

SINK_LOG_DIRECTORY = "_spark_metadata"
_NAME = re.compile(r"([0-9]{1,18})(\.compact)?")
_VERSION = "v1"


class SinkFile(NamedTuple):
    """A file that the sink committed; `uri` is absolute."""

    uri: str
    size: int
    modified_ms: int


def has_sink_log(store: LogStore) -> bool:
    """Did a streaming query write into this directory?"""
    return bool(store.list_from(f"{SINK_LOG_DIRECTORY}/"))


def sink_files(store: LogStore) -> list[SinkFile]:
    """The files that the log says are there, in the order of their batches."""
    found: dict[str, SinkFile] = {}
    for path in _batch_paths(store):
        for entry in _entries(store, path):
            try:
                uri, action = entry["path"], entry.get("action", "add")
                if action == "delete":
                    found.pop(uri, None)
                elif not entry.get("isDir", False):
                    found[uri] = SinkFile(uri, int(entry["size"]), int(entry["modificationTime"]))
            except (KeyError, TypeError, ValueError, AttributeError):
                raise _invalid(store, path, "an entry lacks its path, size or time") from None
    return list(found.values())


def _batch_paths(store: LogStore) -> list[str]:
    """The newest file that stands for all before it, and those of the batches after it."""
    batches: dict[int, str] = {}
    compacted: dict[int, str] = {}
    for info in store.list_from(f"{SINK_LOG_DIRECTORY}/"):
        name = _NAME.fullmatch(info.path.rpartition("/")[2])
        if name is not None:
            (compacted if name[2] else batches)[int(name[1])] = info.path
    start = max(compacted, default=-1)
    after = sorted(batch for batch in batches if batch > start)
    if after != list(range(start + 1, start + 1 + len(after))):
        raise _invalid(store, SINK_LOG_DIRECTORY, "a batch is missing")
    if start < 0 and not after:
        return []
    return [*([compacted[start]] if start >= 0 else []), *(batches[batch] for batch in after)]


def _entries(store: LogStore, path: str) -> Iterator[dict[str, Any]]:
    try:
        version, *lines = store.read(path).decode().splitlines()
    except ValueError:
        raise _invalid(store, path, "it is empty, or no text") from None
    if version.strip() != _VERSION:
        raise _invalid(store, path, f"it is of the version {version[:20]!r}")
    for line in lines:
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError:
                raise _invalid(store, path, "a line is no JSON") from None
            yield entry


def _invalid(store: LogStore, path: str, reason: str) -> DataFileError:
    return DataFileError("DELTA_CONVERT_INVALID_SINK_LOG", path=store.address(path), reason=reason)
