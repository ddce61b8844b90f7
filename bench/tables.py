"""Synthetic logs: tables that are all log, for workloads about the log alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from pathlib import Path

_MOST_LINKS = 10_000
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (
            ("id", "long"),
            ("amount", "double"),
            ("name", "string"),
            ("day", "date"),
            ("flag", "integer"),
            ("ts", "timestamp"),
            ("note", "string"),
        )
    ],
}


def _stats(i: int) -> str:
    low = {
        "id": i * 1000,
        "amount": i * 0.5,
        "name": f"name-{i:08d}",
        "day": "2024-01-01",
        "flag": 0,
        "ts": "2024-01-01T00:00:00.000Z",
        "note": f"note {i}",
    }
    high = {
        **low,
        "id": i * 1000 + 999,
        "amount": i * 0.5 + 100.25,
        "flag": 9,
        "ts": "2024-01-02T00:00:00.000Z",
    }
    nulls = dict.fromkeys(low, 0)
    value = {"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(value, separators=(",", ":"))


def add_line(i: int, rng: random.Random, *, stats: bool, partitioned: bool = False) -> str:
    name = uuid.UUID(int=rng.getrandbits(128), version=4)
    values = {"p": str(i % 100)} if partitioned else {}
    prefix = f"p={i % 100}/" if partitioned else ""
    add = {
        "path": f"{prefix}part-{i % 100000:05d}-{name}-c000.snappy.parquet",
        "partitionValues": values,
        "size": 1_000_000 + i,
        "modificationTime": 1_700_000_000_000 + i,
        "dataChange": True,
    }
    if stats:
        add["stats"] = _stats(i)
    return json.dumps({"add": add}, separators=(",", ":"))


def linked_files(root: Path, source: Path, files: int) -> Path:
    """A directory of `files` files that are all the same one."""
    root.mkdir(parents=True)
    for i in range(files):
        # A file system allows only so many links to one file.
        if i % _MOST_LINKS == 0:
            original = root / f"part-{i:06d}-c000.snappy.parquet"
            shutil.copyfile(source, original)
        else:
            os.link(original, root / f"part-{i:06d}-c000.snappy.parquet")
    return root


def write_log(
    root: Path, files: int, *, commits: int = 3, stats: bool = False, partitioned: bool = False
) -> Path:
    """A table of `files` add actions spread over `commits` commits, without data files."""
    rng = random.Random(7)
    log = root / "_delta_log"
    log.mkdir(parents=True)
    fields = list(_SCHEMA["fields"])
    if partitioned:
        fields.append({"name": "p", "type": "integer", "nullable": True, "metadata": {}})
    metadata = {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"] if partitioned else [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    step = files // commits
    for version in range(commits):
        lines = [json.dumps({"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}})]
        if version == 0:
            lines.append(json.dumps({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}))
            lines.append(json.dumps({"metaData": metadata}))
        last = files if version == commits - 1 else (version + 1) * step
        lines.extend(
            add_line(i, rng, stats=stats, partitioned=partitioned)
            for i in range(version * step, last)
        )
        (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")
    return root


def write_backlog(root: Path, source: Path, commits: int) -> Path:
    """A table of one column `id`, whose every commit adds one file: all of them links to one."""
    linked_files(root, source, commits)
    size = source.stat().st_size
    log = root / "_delta_log"
    log.mkdir()
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    first = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": first}]
    for version in range(commits):
        info = {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}
        add = {
            "path": f"part-{version:06d}-c000.snappy.parquet",
            "partitionValues": {},
            "size": size,
            "modificationTime": 1_700_000_000_000 + version,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 10}),
        }
        lines = [{"commitInfo": info}, *lines, {"add": add}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (log / f"{version:020d}.json").write_text(text, encoding="utf-8")
        lines = []
    return root
