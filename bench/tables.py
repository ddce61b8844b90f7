"""Synthetic logs: tables that are all log, for workloads about the log alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import uuid
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MOST_LINKS = 10_000
_ROW_GROUP = 100_000
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

_TIMESTAMP = pa.timestamp("us", "UTC")
_NO_TEXT = pa.nulls(0, pa.string())
_BOUNDS = pa.struct(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("flag", pa.int32()),
        ("ts", _TIMESTAMP),
        ("note", pa.string()),
    ]
)
_STATS_PARSED = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", _BOUNDS),
        ("maxValues", _BOUNDS),
        ("nullCount", pa.struct([(f.name, pa.int64()) for f in _BOUNDS])),
    ]
)
_TEXTS = pa.map_(pa.string(), pa.string())
_TYPED_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats_parsed", _STATS_PARSED),
    ]
)
_TYPED_CHECKPOINT = pa.schema(
    [
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        ("add", _TYPED_ADD),
    ]
)


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


def write_typed_checkpoint(root: Path, files: int) -> Path:
    """A table of `files` files in one checkpoint that has their statistics typed, and no text."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    version = 10
    rng = random.Random(7)
    metadata = {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "format": {"provider": "parquet", "options": []},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [],
        "configuration": [
            ("delta.checkpoint.writeStatsAsJson", "false"),
            ("delta.checkpoint.writeStatsAsStruct", "true"),
        ],
        "createdTime": 1_700_000_000_000,
    }
    top = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}, "metaData": metadata}
    path = log / f"{version:020d}.checkpoint.parquet"
    with pq.ParquetWriter(path, _TYPED_CHECKPOINT) as writer:
        writer.write_table(pa.Table.from_pylist([top], _TYPED_CHECKPOINT))
        for first in range(0, files, _ROW_GROUP):
            adds = _typed_adds(first, min(first + _ROW_GROUP, files), rng)
            others = [pa.nulls(len(adds), f.type) for f in list(_TYPED_CHECKPOINT)[:-1]]
            writer.write_table(pa.table([*others, adds], schema=_TYPED_CHECKPOINT))
    info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}
    (log / f"{version:020d}.json").write_text(json.dumps(info) + "\n")
    hint = {"version": version, "size": files + 2}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    return root


def _typed_adds(first: int, stop: int, rng: random.Random) -> pa.StructArray:
    """The rows from `first` to `stop`, with the statistics that `_stats` spells."""
    rows = stop - first
    number = pa.array(range(first, stop), pa.int64())
    text = number.cast(pa.string())
    day = pa.scalar(date(2024, 1, 1), pa.date32())
    start = pa.scalar(datetime(2024, 1, 1, tzinfo=UTC), _TIMESTAMP)
    low = {
        "id": pc.multiply(number, 1000),
        "amount": pc.multiply(number.cast(pa.float64()), 0.5),
        "name": pc.binary_join_element_wise("name", pc.utf8_lpad(text, 8, "0"), "-"),
        "day": pa.repeat(day, rows),
        "flag": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "ts": pa.repeat(start, rows),
        "note": pc.binary_join_element_wise("note", text, " "),
    }
    high = {
        **low,
        "id": pc.add(low["id"], 999),
        "amount": pc.add(low["amount"], 100.25),
        "flag": pa.repeat(pa.scalar(9, pa.int32()), rows),
        "ts": pc.add(low["ts"], pa.scalar(timedelta(days=1), pa.duration("us"))),
    }
    none = pa.repeat(pa.scalar(0, pa.int64()), rows)
    stats = _struct(
        _STATS_PARSED,
        pa.repeat(pa.scalar(1000, pa.int64()), rows),
        _struct(_STATS_PARSED.field("minValues").type, *low.values()),
        _struct(_STATS_PARSED.field("maxValues").type, *high.values()),
        _struct(_STATS_PARSED.field("nullCount").type, *([none] * len(low))),
    )
    own = (uuid.UUID(int=rng.getrandbits(128), version=4) for _ in range(rows))
    names = [f"part-{i % 100000:05d}-{each}-c000.snappy.parquet" for i, each in enumerate(own)]
    nothing = pa.MapArray.from_arrays([0] * (rows + 1), pa.nulls(0, pa.string()), _NO_TEXT)
    size, time = pc.add(number, 1_000_000), pc.add(number, 1_700_000_000_000)
    changed = pa.repeat(pa.scalar(False), rows)
    return _struct(_TYPED_ADD, pa.array(names), nothing, size, time, changed, stats)


def _struct(wanted: pa.StructType, *children: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(children, fields=list(wanted))


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
