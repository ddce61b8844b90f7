"""The last commits of a long log are told as the whole history tells them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pyspark_delta import DeltaLog

_METADATA = {
    "id": "6e5b2a3c-0000-4000-8000-000000000001",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps({"type": "struct", "fields": []}),
    "partitionColumns": [],
    "configuration": {},
}
_COMMITS = 150


def long_log(root: Path, seconds_apart: int) -> DeltaLog:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": _METADATA}]
    for version in range(_COMMITS):
        lines = [{"commitInfo": {"operation": f"number {version}"}}, *first]
        file = log / f"{version:020d}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.utime(file, (1_700_000_000 + seconds_apart * version,) * 2)
        first = []
    return DeltaLog.for_table(root)


# A table that was copied has files of one time: each is told a millisecond later than the last.
@pytest.mark.parametrize("seconds_apart", [1, 0])
def test_some_commits_are_told_as_among_all(table_path: Path, seconds_apart: int) -> None:
    log = long_log(table_path, seconds_apart)
    whole = log.history()
    assert len(whole) == _COMMITS
    for limit in (0, 1, 7, 100, _COMMITS - 1, _COMMITS, 10 * _COMMITS):
        assert log.history(limit) == whole[:limit]
