"""A server of this package in a process of its own, and the programs of its clients.

    with serving(directory, "--port", "0") as server:
        run_client(server.url, "connected().sql('SELECT 1').show()")

Tests that harm no server share one, the fixture `delta_server`.  A server that is ended by a signal
must end well: `serving` checks it for every server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any
from urllib.request import ProxyHandler, build_opener

CLIENT_PACKAGES = Path(sys.prefix) / "connect"
"""Where `make install` puts what a client of Spark Connect needs beside PySpark."""

ROOT = Path(__file__).parents[2]
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
TOKEN = "a.token~of-this_test"
"""What clients of the shared server send."""

# Not UTC, so that a time taken for local, or for UTC, shows.
TIME_ZONE = "America/Los_Angeles"
_SECONDS = 120.0
_PAGES = "spark.ui.port="
# What pages may keep; a thousand of each are memory that grows for an hour.
_RETAINED = (
    "spark.ui.retainedJobs",
    "spark.ui.retainedStages",
    "spark.sql.ui.retainedExecutions",
    "spark.connect.ui.retainedSessions",
    "spark.connect.ui.retainedStatements",
    "spark.connect.session.manager.closedSessionsTombstonesSize",
    "spark.connect.execute.manager.abandonedTombstonesSize",
)
_BEGIN = "-- what the client found:"
_CLIENT = """
import json, logging, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
logging.disable()  # PySpark logs every error, and nobody reads it before the end
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

    @property
    def pages(self) -> str:
        """The address of Spark's own pages, of a server that has `with_pages`."""
        arguments: Any = self.process.args
        [port] = [each for each in map(str, arguments) if each.startswith(_PAGES)]
        return f"http://127.0.0.1:{port.removeprefix(_PAGES)}"

    def page(self, path: str) -> Any:
        """What Spark's own pages have in JSON for its application: `jobs`, `environment`."""
        root = f"{self.pages}/api/v1/applications"
        [application] = json_of(root)
        return json_of(f"{root}/{application['id']}/{path}")

    def is_idle(self) -> bool:
        """Whether no job and no query runs."""
        jobs = self.page("jobs?status=running")
        queries = self.page("sql?details=false&length=100000")
        return not jobs and not [each for each in queries if each["status"] == "RUNNING"]


def arguments_for(home: Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Arguments of a small server on free ports, whose warehouse is in the directory."""
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.buffer.pageSize": "1m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": TIME_ZONE,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        **(settings or {}),
    }
    options = [text for key, value in given.items() for text in ("--conf", f"{key}={value}")]
    return ["--port", "0", "--master", "local[2]", *options]


def with_pages() -> dict[str, str]:
    """Settings of a server that has Spark's own pages, and so `page` and `is_idle`."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.metrics.conf.driver.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
        **dict.fromkeys(_RETAINED, "20"),
    }


def shared_server(home: Path) -> Iterator[Server]:
    """A server of Connect and JDBC that writes down all that Spark can write down."""
    settings = {
        **with_pages(),
        "spark.log.level": "INFO",
        "spark.my.setting": "mine=yours",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": home.as_uri(),
    }
    arguments = [*arguments_for(home, settings), "--thrift-port", "0"]
    # Functions of clients run in the server's workers, with the packages of a client.
    path = os.pathsep.join([_python_path(), str(CLIENT_PACKAGES)])
    environment = {TOKEN_VARIABLE: TOKEN, "PYTHONPATH": path}
    with serving(home, *arguments, environment=environment) as server:
        yield server


@contextmanager
def serving(
    directory: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    ended_by: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """A server with these arguments, whose catalog and log are in the directory."""
    process, log = start_server(directory, *arguments, environment=environment)
    try:
        server = ready(process, log)
        yield server
        end(server, ended_by)
    finally:
        kill(process)


def end(server: Server, by: signal.Signals) -> None:
    """End a server by a signal: its exit status is 0, and no process stays."""
    processes = server.processes
    server.process.send_signal(by)
    status = server.process.wait(_SECONDS)
    assert status == 0, (status, server.log.read_text(encoding="utf-8")[-4000:])
    wait_until(lambda: not any(map(is_alive, processes)), "all processes have ended")


def kill(process: subprocess.Popen[str]) -> None:
    """End a process, whatever it does."""
    process.kill()
    process.wait(_SECONDS)
    assert process.stdout is not None
    process.stdout.close()


def start_server(
    directory: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[str], Path]:
    """The process of a server that may not be ready yet, and its log."""
    mixed = (TOKEN_VARIABLE, "SPARK_LOCAL_IP")  # the server itself has to see to its addresses
    kept = {key: value for key, value in os.environ.items() if key not in mixed}
    log = directory / "server log.txt"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pyspark_delta.server", *arguments],
            cwd=directory,
            env={**kept, "PYTHONPATH": _python_path(), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    return process, log


def ready(process: subprocess.Popen[str], log: Path) -> Server:
    """The server, once it has printed the address for clients of Spark Connect."""
    assert process.stdout is not None
    lines = []
    # A server that hangs ends the pipe, and so the wait for its line.
    limit = threading.Timer(_SECONDS, process.kill)
    limit.start()
    try:
        while line := process.stdout.readline():
            lines.append(line.rstrip("\n"))
            if line.startswith("sc://"):
                return Server(process=process, lines=lines, log=log)
    finally:
        limit.cancel()
    raise AssertionError(f"{process.wait(_SECONDS)}: {log.read_text(encoding='utf-8')[-4000:]}")


def client_environment(*folders: Path | str) -> dict[str, str]:
    """The environment of a client that has this package; modules in `folders` come first."""
    mixed = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", TOKEN_VARIABLE)
    kept = {key: value for key, value in os.environ.items() if key not in mixed}
    path = os.pathsep.join([*map(str, folders), str(CLIENT_PACKAGES), _python_path()])
    return {**kept, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}


def run_client(url: str, program: str, given: object = None, **environment: str) -> dict[str, Any]:
    """What a program puts into its dict `found`, as a client with nothing of ours."""
    process = start_client(url, program, given, **environment)
    output, errors = process.communicate(timeout=_SECONDS * 5)
    assert process.returncode == 0, errors
    return found_in(output)


def found_in(output: str) -> dict[str, Any]:
    """What a program of a client has put into `found`, by what it printed."""
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
        env={**kept, "PYTHONPATH": os.fspath(CLIENT_PACKAGES), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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


def wait_until(is_true: Callable[[], bool], what: str, seconds: float = _SECONDS) -> None:
    """Wait for a condition; raises after a time that is long enough for any machine."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def json_of(address: str) -> Any:
    """What a page of this machine has as JSON."""
    with build_opener(ProxyHandler({})).open(address, timeout=_SECONDS) as answer:
        return json.load(answer)


def _python_path() -> str:
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), *given])


def _with_children(pid: int) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += _with_children(int(child))
    return found
