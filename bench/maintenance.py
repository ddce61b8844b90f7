"""VACUUM over many partitions: what a listing costs, and telling needed files from others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.drivers import DELTA_SPARK
from bench.measure import OURS, Bar, Result, Work, check_equal, in_turns, median_result
from bench.spark import Bench, most_held

_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("p", "string"))
    ],
}
_STRAY_EVERY = 10
_LONG_AGO = (1_000_000_000, 1_000_000_000)


def vacuum(bench: Bench) -> Iterator[Result]:
    partitions = bench.sizes.vacuumed_partitions
    path = _written(bench.root / "many partitions", partitions)
    name = f"VACUUM DRY RUN of {partitions:,} partitions"

    def work(driver: Any) -> Work:
        return lambda: driver.run("vacuum", path=path)

    works = {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}
    check_equal(name, {peer: each().answer for peer, each in works.items()})
    # Few rounds: there one takes minutes.
    times = in_turns(name, works, rounds=bench.sizes.merges)
    yield median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.5)])
    yield most_held(bench, "VACUUM")


def _written(root: Path, partitions: int) -> str:
    """A file in each partition, and in some another that no version has."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": ["p"],
        "configuration": {},
        "createdTime": 1,
    }
    lines: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "WRITE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    for number in range(partitions):
        value = f"value {number:06d}"
        directory = root / f"p={value}"
        directory.mkdir()
        name = f"part-{number:05d}-{uuid4()}.c000.snappy.parquet"
        _file(directory / name)
        if number % _STRAY_EVERY == 0:
            _file(directory / f"part-00000-{uuid4()}.c000.snappy.parquet")
        lines.append({"add": _described(f"p={value}/{name}".replace(" ", "%20"), value)})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{0:020d}.json").write_text(text, encoding="utf-8")
    return str(root)


def _file(path: Path) -> None:
    # Nobody looks into one.
    path.write_bytes(b"PAR1")
    os.utime(path, _LONG_AGO)


def _described(path: str, value: str) -> dict[str, Any]:
    return {
        "path": path,
        "partitionValues": {"p": value},
        "size": 4,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {"vacuum": vacuum}
