"""The change feed over many versions: appends, updates told by change files, vectors.

Files are as cheap as files can be, a link each, so that what counts is the way through the log and
the plan: the rows of all versions, those of one, and rows that only vectors tell.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.drivers import DELTA_SPARK
from bench.measure import OURS, Bar, Result, Work, check_equal, in_turns, median_result
from bench.spark import Bench, most_held
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, inline_descriptor

_ROWS = 1000
_FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in (("id", "long"), ("amount", "double"), ("name", "string"))
]
_FEATURES = ["deletionVectors", "changeDataFeed"]
_MOST_LINKS = 10_000


def change_feed(bench: Bench) -> Iterator[Result]:
    versions = bench.sizes.feed_versions
    files = _files(bench)
    path = _written(bench.root / "feed", files, versions, _updates)
    bars = [Bar(peer=DELTA_SPARK, at_most=0.5)]
    yield _measured(bench, f"changes of {versions:,} versions", path, None, bars)
    one = f"_commit_version = {versions // 2}"
    yield _measured(bench, f"changes of one of {versions:,} versions", path, one, bars)
    fewer = max(versions // 50, 4)
    path = _written(bench.root / "vectors", files, fewer, _deletes)
    yield _measured(bench, f"changes of {fewer:,} versions by vectors", path, None, bars)
    yield most_held(bench, "the change feed")


def _measured(bench: Bench, name: str, path: str, condition: str | None, bars: list[Bar]) -> Result:
    def work(driver: Any) -> Work:
        return lambda: driver.run("feed", path=path, condition=condition)

    works = {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}
    check_equal(name, {peer: each().answer for peer, each in works.items()})
    times = in_turns(name, works, rounds=bench.sizes.rounds, warm_up=bench.sizes.warm_up)
    return median_result(name, times, bars)


def _files(bench: Bench) -> dict[str, Path]:
    """A data file and a change file, of which all others are links."""
    found = {}
    for name in ("rows", "changes"):
        folder = bench.root / f"one file of {name}"
        bench.ours.run("change_file", path=str(folder), count=_ROWS, is_told=name == "changes")
        (found[name],) = folder.glob("*.parquet")
    return found


def _written(
    root: Path, files: dict[str, Path], versions: int, commit: Callable[..., list[Any]]
) -> str:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    (root / "_change_data").mkdir()
    metadata = {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": _FIELDS}),
        "partitionColumns": [],
        "configuration": {
            "delta.enableChangeDataFeed": "true",
            "delta.enableDeletionVectors": "true",
        },
        "createdTime": 1,
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": _FEATURES[:1],
        "writerFeatures": _FEATURES,
    }
    first = [{"protocol": protocol}, {"metaData": metadata}]
    for version in range(versions):
        info = {"timestamp": 1 + version, "operation": "WRITE"}
        lines = [{"commitInfo": info}, *first, *commit(root, files, version)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (log / f"{version:020d}.json").write_text(text, encoding="utf-8")
        first = []
    return str(root)


def _updates(root: Path, files: dict[str, Path], version: int) -> list[Any]:
    """A file more in each version; every fourth replaces the one before and tells the changes."""
    name = _link(root, files["rows"], version, "")
    added = {"add": _described(root, name)}
    if version % 4 != 3:
        return [added]
    told = _link(root, files["changes"], version, "_change_data/")
    cdc = {
        "path": told,
        "partitionValues": {},
        "size": (root / told).stat().st_size,
        "dataChange": False,
    }
    return [{"remove": _removed(root, _name(version - 1, ""))}, added, {"cdc": cdc}]


def _deletes(root: Path, files: dict[str, Path], version: int) -> list[Any]:
    """One more row of a file is gone in each version behind the first."""
    if version == 0:
        return [{"add": _described(root, _link(root, files["rows"], 0, ""))}]
    name = _name(0, "")

    def vector(count: int) -> dict[str, Any]:
        if not count:
            return {}
        rows = DeletionVector(range(0, count * 7, 7))
        return {"deletionVector": inline_descriptor(rows).to_json_value()}

    before, after = (vector(min(n, _ROWS // 7)) for n in (version - 1, version))
    removed, added = _removed(root, name) | before, _described(root, name) | after
    return [{"remove": removed}, {"add": added}]


def _described(root: Path, name: str) -> dict[str, Any]:
    stats = {"numRecords": _ROWS, "tightBounds": False}
    return {
        "path": name,
        "partitionValues": {},
        "size": (root / name).stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def _removed(root: Path, name: str) -> dict[str, Any]:
    return {
        "path": name,
        "deletionTimestamp": 1,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": (root / name).stat().st_size,
    }


def _name(number: int, folder: str) -> str:
    return f"{folder}part-{number:06d}-c000.snappy.parquet"


def _link(root: Path, source: Path, number: int, folder: str) -> str:
    name = _name(number, folder)
    original = root / _name(number // _MOST_LINKS * _MOST_LINKS + (3 if folder else 0), folder)
    # A file system allows only so many links to one file.
    if original.exists():
        os.link(original, root / name)
    else:
        shutil.copyfile(source, root / name)
    return name


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {"change-feed": change_feed}
