"""`python -m pyspark_delta.server` for tests: a process of its own, on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.spark_session import TIME_ZONE

# What a client needs beside PySpark; `make install` puts it there.
CLIENT_PACKAGES = Path(sys.prefix) / "connect"
ROOT = Path(__file__).parents[2]
_SECONDS_TO_START, _SECONDS_TO_STOP = 240, 60
_ADDRESS = re.compile(r"sc://\S+")


@contextmanager
def connect_server(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server whose warehouse and log are in `home`; gives its address, with the token."""
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.buffer.pageSize": "1m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        **(settings or {}),
    }
    options = [text for key, value in given.items() for text in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "pyspark_delta.server", "--port", "0"]
    with open(home / "server.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2]", *options],
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": _python_path()},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield _address(process, home / "server.log")
        finally:
            _stop(process)


def client_environment(*folders: Path | str) -> dict[str, str]:
    """The environment of a client's process; modules in `folders` come first."""
    mixed = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    kept = {key: value for key, value in os.environ.items() if key not in mixed}
    path = os.pathsep.join([*map(str, folders), str(CLIENT_PACKAGES), _python_path()])
    return {**kept, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}


def _python_path() -> str:
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([str(ROOT), *given])


def _address(process: subprocess.Popen[str], log: Path) -> str:
    """The address that the server prints when it is ready."""
    assert process.stdout is not None
    # A server that hangs ends the pipe, and so the wait for its line.
    limit = threading.Timer(_SECONDS_TO_START, process.kill)
    limit.start()
    try:
        for line in process.stdout:
            if _ADDRESS.fullmatch(line.strip()):
                return line.strip()
    finally:
        limit.cancel()
    raise AssertionError(f"no server: {log.read_text(encoding='utf-8')[-4000:]}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
