"""A standalone cluster from the classes that PySpark brings: a master and workers on 127.0.0.1."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_SECONDS_LIMIT = 60
# For processes that live for seconds on a few rows: code that is fast in the long run comes late.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def standalone_cluster(home: Path, *, workers: int = 2) -> Iterator[str]:
    """The master's address; every process has ended when the block is left, however it is left.

    The workers' environment says nothing of this package: no virtual environment, no PYTHONPATH.
    """
    with ExitStack() as running:
        master_log = home / "master.log"
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = _started(running, "master.Master", arguments, master_log)
        address = _awaited(master, master_log, _MASTER).group(1)
        started = []
        for number in range(workers):
            log = home / f"worker {number}.log"
            arguments = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
            places = ("--webui-port", "0", "--work-dir", str(home / f"work-{number}"))
            worker = _started(running, "worker.Worker", (*arguments, *places, address), log)
            started.append((worker, log))
        for worker, log in started:
            _awaited(worker, log, _REGISTERED)
            # Told before it is waited for: all of them end at the same time.
            running.callback(worker.terminate)
        yield address


def _started(
    running: ExitStack, name: str, arguments: tuple[str, ...], log: Path
) -> subprocess.Popen[bytes]:
    errors = running.enter_context(log.open("wb"))
    # spark-class turns into the JVM, so the process is the one to end.
    process = subprocess.Popen(
        [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=errors,
        stderr=errors,
    )
    running.callback(_end, process)
    return process


def _environment() -> Mapping[str, str]:
    kept = ("PATH", "JAVA_HOME", "HOME", "LANG", "TMPDIR")
    return {
        # A JVM reads the names of files in this encoding; without one it knows only ASCII.
        "LC_ALL": "C.UTF-8",
        **{key: os.environ[key] for key in kept if key in os.environ},
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _awaited(process: subprocess.Popen[bytes], log: Path, said: re.Pattern[str]) -> re.Match[str]:
    """The first line of the log that says what is waited for."""
    until = time.monotonic() + _SECONDS_LIMIT
    while time.monotonic() < until:
        text = log.read_text(errors="replace")
        if found := said.search(text):
            return found
        if process.poll() is not None:
            raise RuntimeError(f"{log.name} ended with {process.returncode}: {text[-2000:]}")
        time.sleep(0.1)
    raise RuntimeError(f"{log.name} said nothing like {said.pattern!r}: {text[-2000:]}")
