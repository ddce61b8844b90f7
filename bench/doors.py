"""What the ways in cost: `enable` itself, and a server with clients of Spark Connect."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.drivers import CONF, PEERS, ROOT
from bench.measure import Result, absolute
from bench.spark import Bench

_MOST_CPU_SECONDS = 0.3
_MOST_MS_OVER_CLASSIC = 30.0
_SLEEP_SECONDS = 30
_CLIENTS = 8
_PYTHON = PEERS / "bin" / "python"


def doors(bench: Bench) -> Iterator[Result]:
    """In processes of their own: an enabled driver has paid already."""
    yield _enabling(bench)
    path = str(bench.root / "doors" / "queried")
    bench.ours.run("write", path=path, format="delta", count=10_000, tasks=1)
    rounds = 10 * bench.sizes.rounds
    classic = bench.ours.run("small_query", path=path, rounds=rounds).seconds
    with _server(bench) as url:
        found = _client(url, {"do": "query", "path": path, "rounds": rounds})["seconds"]
        yield absolute(
            "added by Spark Connect to a Delta query",
            (found - classic) * 1000,
            "ms",
            _MOST_MS_OVER_CLASSIC,
            note=f"{1000 * found:.0f} ms, and {1000 * classic:.0f} ms in a classic session",
        )
        folder = str(bench.root / "doors")
        given = {"folder": folder, "clients": _CLIENTS, "sleep": _SLEEP_SECONDS}
        waited = _client(url, {"do": "appends", **given})
        yield absolute(
            f"{_CLIENTS} Connect clients append while a job of another sleeps {_SLEEP_SECONDS} s",
            waited["seconds"],
            "s",
            _SLEEP_SECONDS / 2,
            note=f"the other job ended after {waited['slept']:.0f} s",
        )


def _enabling(bench: Bench) -> Result:
    """The first driver fills the cache of bytecode; it does not count."""
    drivers = [_run("bench.enable_main", {**CONF, **bench.conf}) for _ in range(4)][1:]
    cpu = [each["jvm"] + each["python"] for each in drivers]
    middle = {
        name: statistics.median(each[name] for each in drivers)
        for name in ("jvm", "python", "import")
    }
    return absolute(
        "CPU time of enable in a new driver",
        statistics.median(cpu),
        "CPU s",
        _MOST_CPU_SECONDS,
        note=f"JVM {middle['jvm']:.2f}, Python {middle['python']:.2f}; "
        f"the import before it {middle['import']:.2f}",
        samples=cpu,
    )


@contextmanager
def _server(bench: Bench) -> Iterator[str]:
    """The address of a server with the settings of the drivers."""
    home = bench.root / "doors server"
    home.mkdir(parents=True, exist_ok=True)
    conf = {**CONF, **bench.conf, "spark.sql.warehouse.dir": str(home / "warehouse")}
    conf["spark.local.dir"] = str(home / "local")
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [_PYTHON, "-m", "pyspark_delta.server", "--port", "0", *settings],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            text=True,
        )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url.startswith("sc://"):
            raise RuntimeError((home / "log").read_text(encoding="utf-8", errors="replace")[-2000:])
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=120)


def _client(url: str, given: Mapping[str, object]) -> dict[str, Any]:
    packages = {"PYTHONPATH": str(PEERS / "connect")}
    return _run("bench.connect_main", {"url": url, **given}, packages)


def _run(
    module: str, given: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a program of ours prints, as JSON in its last line."""
    done = subprocess.run(
        [_PYTHON, "-m", module, json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


WORKLOADS = {"doors": doors}
