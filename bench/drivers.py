"""Spark drivers as processes: start them, ask them, end them.

All of them run the same Spark with the same settings, in the environment that `scripts/peers.sh`
prepares; delta-spark's has its JARs beside.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import OURS, Timed

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers"
DELTA_SPARK = "delta-spark"

CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


class DriverError(Exception):
    """A driver did not start, or failed at a task."""


class Driver:
    """One Spark driver with its Python process."""

    def __init__(self, peer: str, folder: Path, conf: Mapping[str, str]) -> None:
        """`folder` is where Spark keeps what is temporary, and the driver's log."""
        folder.mkdir(parents=True, exist_ok=True)
        self.peer = peer
        self._log = folder / f"{peer}.log"
        whole = {
            **CONF,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            **conf,
        }
        jars = sorted(str(jar) for jar in (PEERS / "jars").glob("*.jar"))
        given = {"peer": peer, "jars": jars if peer == DELTA_SPARK else [], "conf": whole}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [PEERS / "bin" / "python", "-m", "bench.driver_main", json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                text=True,
                encoding="utf-8",
            )
        self._starting = True

    def wait_until_ready(self) -> None:
        """Drivers that were started together get ready together."""
        if self._starting:
            self._receive()
            self._starting = False

    def run(self, task: str, **arguments: Any) -> Timed:
        """Have a task of `bench.tasks` done."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        reply = self._receive()
        if "error" in reply:
            raise DriverError(f"{self.peer} failed at {task}:\n{reply['error']}")
        return Timed(reply["seconds"], reply["answer"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            raise DriverError("\n".join([f"{self.peer}'s driver ended:", *tail]))
        reply: dict[str, Any] = json.loads(line)
        return reply


@contextmanager
def drivers(folder: Path, conf: Mapping[str, str]) -> Iterator[tuple[Driver, Driver]]:
    """A driver with this package, and one with delta-spark, both with `conf` above the usual."""
    both = Driver(OURS, folder, conf), Driver(DELTA_SPARK, folder, conf)
    try:
        for driver in both:
            driver.wait_until_ready()
        yield both
    finally:
        for driver in both:
            driver.close()


def peer_versions() -> dict[str, str]:
    """The versions of Spark and delta-spark that the drivers run."""
    names = ("pyspark", DELTA_SPARK)
    asked = f"from importlib.metadata import version; print(*map(version, {names}))"
    command = [PEERS / "bin" / "python", "-c", asked]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(names, printed.split(), strict=True))
