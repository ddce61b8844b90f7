"""A server of this package in a process of its own, and the programs of its clients.

    with serving(directory, "--port", "0") as server:
        run_client(server.url, "spark.sql('SELECT 1').show()")

A server that is ended by a signal must end well: `serving` checks it for every server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

CONNECT = Path(sys.prefix) / "connect"
"""Where `make install` puts what a client of Spark Connect needs."""

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SOURCE = Path(__file__).parents[2] / "src"
_JARS = Path(pyspark.__file__).parent / "jars"
_SECONDS = 120.0
_BEGIN = "-- what the client found:"
_CLIENT = """
import json, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession, functions as F
from pyspark.errors import PySparkException
url, given = sys.argv[1], json.loads(sys.argv[2])
def connected(url=url):
    return SparkSession.builder.remote(url).create()
def failure(run):
    try:
        run()
    except PySparkException as error:
        return error.getCondition() or str(error)
    except Exception as error:
        return str(error)
    return None
found = {}
"""
# PySpark's threads of open sessions could wait for each other at the end of the interpreter.
_END = """
print({begin!r}, json.dumps(found), flush=True)
os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that is ready."""

    process: subprocess.Popen[str] = field(repr=False)
    lines: list[str]
    log: Path

    @property
    def url(self) -> str:
        """The address for clients of Spark Connect."""
        return self.lines[-1]

    @property
    def jdbc_url(self) -> str:
        """The address for JDBC."""
        return self.lines[0]

    @property
    def processes(self) -> list[int]:
        """The server's process, and all that it has started."""
        return _with_children(self.process.pid)

    @property
    def jvm(self) -> int:
        """The process of the JVM."""
        return next(each for each in self.processes if "java" in command_line(each)[0])


@contextmanager
def serving(
    directory: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    ended_by: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """A server with these arguments, whose catalog and log are in the directory."""
    log = directory / "server log.txt"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyspark_delta.server", *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": os.fspath(_SOURCE), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        server = Server(process=process, lines=_first_lines(process, log), log=log)
        yield server
        processes = server.processes
        process.send_signal(ended_by)
        assert process.wait(_SECONDS) == 0, log.read_text(encoding="utf-8")
        wait_until(lambda: not any(map(_is_alive, processes)), "all processes have ended")
    finally:
        process.kill()
        process.wait(_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


def run_client(url: str, program: str, given: object = None, **environment: str) -> dict[str, Any]:
    """What a program puts into its dict `found`, as a client with nothing of ours."""
    process = start_client(url, program, given, **environment)
    output, errors = process.communicate(timeout=_SECONDS * 5)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(output.rpartition(_BEGIN)[2])
    return found


def start_client(
    url: str, program: str, given: object = None, **environment: str
) -> subprocess.Popen[str]:
    """The process of such a program."""
    whole = f"{_CLIENT}\n{textwrap.dedent(program)}\n{_END.format(begin=_BEGIN)}"
    kept = {key: value for key, value in os.environ.items() if key != TOKEN_VARIABLE}
    return subprocess.Popen(
        [sys.executable, "-c", whole, url, json.dumps(given)],
        env={**kept, "PYTHONPATH": os.fspath(CONNECT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_beeline(url: str, directory: Path, sql: str) -> tuple[list[str], str]:
    """The lines of results of a script in beeline, as comma-separated values, and its messages."""
    script = directory / "script.sql"
    script.write_text(sql, encoding="utf-8")
    java = ("java", "-Dfile.encoding=UTF-8", "-cp", f"{_JARS}/*", "org.apache.hive.beeline.BeeLine")
    options = ("-u", url, "--outputformat=csv2", "--silent=true", "--force=true")
    done = subprocess.run(
        [*java, *options, "-f", str(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=_SECONDS * 2,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if line], done.stderr


def command_line(pid: int) -> list[str]:
    """The arguments of a process, as every user of the machine can list them."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return [""]


def footprint(pid: int) -> dict[str, int]:
    """The memory in KiB, threads and open files of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {
        "memory": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]),
        "threads": int(re.findall(r"Threads:\s+(\d+)", status)[0]),
        "files": len(os.listdir(f"/proc/{pid}/fd")),
    }


def wait_until(is_true: Any, what: str, seconds: float = _SECONDS) -> None:
    """Wait for a condition; raises after a time that is long enough for any machine."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def _first_lines(process: subprocess.Popen[str], log: Path) -> list[str]:
    assert process.stdout is not None
    lines = []
    while line := process.stdout.readline():
        lines.append(line.rstrip("\n"))
        if line.startswith("sc://"):
            return lines
    raise AssertionError(f"{process.wait(_SECONDS)}: {log.read_text(encoding='utf-8')}")


def _with_children(pid: int) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += _with_children(int(child))
    return found


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
