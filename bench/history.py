"""DESCRIBE HISTORY of many commits, each a small append with all that one says of itself.

Every row is fetched: a history that is made only when it is looked at would be no faster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.drivers import DELTA_SPARK
from bench.measure import OURS, Bar, Result, Work, check_equal, in_turns, median_result
from bench.spark import Bench, most_held

_FIRST_MS = 1_700_000_000_000
_SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


def history(bench: Bench) -> Iterator[Result]:
    commits = bench.sizes.stream_commits
    path = _written(bench.root / "history", commits)
    for limit in (None, 10):
        some = "" if limit is None else f"the last {limit} of "
        name = f"DESCRIBE HISTORY of {some}{commits:,} commits"
        yield _measured(bench, name, path, limit)
    yield most_held(bench, "DESCRIBE HISTORY")


def _measured(bench: Bench, name: str, path: str, limit: int | None) -> Result:
    def work(driver: Any) -> Work:
        return lambda: driver.run("history", path=path, limit=limit)

    works = {OURS: work(bench.ours), DELTA_SPARK: work(bench.delta_spark)}
    check_equal(name, {peer: each().answer for peer, each in works.items()})
    times = in_turns(name, works, rounds=bench.sizes.rounds, warm_up=bench.sizes.warm_up)
    return median_result(name, times, [Bar(peer=DELTA_SPARK, at_most=0.5)])


def _written(root: Path, commits: int) -> str:
    log = root / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": str(UUID(int=1)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_SCHEMA),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1,
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for version in range(commits):
        lines = [{"commitInfo": _info(version)}, *first, {"add": _added(version)}]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        file = log / f"{version:020d}.json"
        file.write_text(text, encoding="utf-8")
        # A second apart, as commits of a table that grew are.
        os.utime(file, (_FIRST_MS // 1000 + version,) * 2)
        first = []
    return str(root)


def _info(version: int) -> dict[str, Any]:
    return {
        "timestamp": _FIRST_MS + 1000 * version,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "readVersion": version - 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "1", "numOutputRows": "10", "numOutputBytes": "478"},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
        "txnId": str(UUID(int=version)),
    }


def _added(version: int) -> dict[str, Any]:
    stats = {
        "numRecords": 10,
        "minValues": {"id": version * 10},
        "maxValues": {"id": version * 10 + 9},
        "nullCount": {"id": 0},
    }
    return {
        "path": f"part-00000-{UUID(int=version)}-c000.snappy.parquet",
        "partitionValues": {},
        "size": 478,
        "modificationTime": _FIRST_MS + 1000 * version,
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
    }


WORKLOADS: dict[str, Callable[[Bench], Iterator[Result]]] = {"history": history}
