"""A reader in a process of its own, with a limit on time and memory, that tells what it did.

`GuardedReader.read(root)` opens a table the public way and gives an `Outcome`: its rows or its
error, what it opened and connected to, what it logged, and what it cost.  A process that dies or
does not answer is a failure of the test that asked.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta import DeltaLog
from pyspark_delta.errors import DeltaError
from tests.support.reading import open_table, read_table

MEMORY_LIMIT = 2 << 30  # above what the process has when it begins
SECONDS_LIMIT = 60
_REPOSITORY = Path(__file__).parents[2]
# Where the interpreter, its libraries and the system's tables (time zones, /proc) are.
_OF_THE_INTERPRETER = (
    sys.prefix,
    sys.base_prefix,
    os.path.dirname(os.__file__),
    str(_REPOSITORY),
    "/proc/",
    "/sys/",
    "/usr/share/zoneinfo",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one read ended."""

    rows: list[dict[str, Any]] | None = None
    error: str | None = None  # the name of the class
    condition: str | None = None  # None with an error: not one of ours
    message: str = ""
    untyped: list[str] = field(default_factory=list)  # what else, asked of the table, went wrong
    warnings: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)  # outside of the table and the interpreter
    connected: list[str] = field(default_factory=list)
    peak_bytes: int = 0  # above what the process had before
    seconds: float = 0.0


class GuardedReader:
    """The process, started when it is first needed and again when a table has killed it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, root: Path, *, seconds: float = SECONDS_LIMIT, asks: bool = True) -> Outcome:
        """What became of reading the table at `root`, and of all that can be asked of it."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([os.fspath(root), asks]) + "\n")
        process.stdin.flush()
        answers, _, _ = select.select([process.stdout], [], [], seconds)
        if not answers:
            self.close()
            pytest.fail(f"the reader did not come back in {seconds} s")
        answer = process.stdout.readline()
        if not answer:
            code = process.wait()
            self.close()
            pytest.fail(f"the reader died with {code}")
        return Outcome(**json.loads(answer))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=_REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process


# What runs in that process.


class _Watch(logging.Handler):
    """What the process opens, connects to and logs while a table is read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self.opened: list[str] = []
        self.connected: list[str] = []
        self.root: str | None = None
        sys.addaudithook(self._hear)
        logging.getLogger().addHandler(self)

    def begin(self, root: str) -> None:
        self.warnings, self.opened, self.connected = [], [], []
        self.root = root

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings.append(record.getMessage())

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.root is None:
            return
        if event == "open" and not isinstance(arguments[0], int):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            inside = path == self.root or path.startswith(self.root + "/")
            if not inside and not path.startswith(_OF_THE_INTERPRETER):
                self.opened.append(path)
        elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
            self.connected.append(f"{event}{arguments[1:]!r}")


def _outcome(watch: _Watch, root: str, asks: bool) -> Outcome:
    watch.begin(root)
    before = _memory("VmRSS")
    _forget_peak()
    started = time.monotonic()
    found: dict[str, Any] = {}
    try:
        found["rows"] = read_table(root)
    except Exception as error:
        condition = error.condition if isinstance(error, DeltaError) else None
        found.update(error=type(error).__name__, condition=condition, message=str(error))
    seconds = time.monotonic() - started
    peak = max(_memory("VmHWM") - before, 0)
    found["untyped"] = list(_untyped(root)) if asks else []
    watch.root = None
    return Outcome(
        **found,
        warnings=watch.warnings,
        opened=watch.opened,
        connected=watch.connected,
        peak_bytes=peak,
        seconds=seconds,
    )


def _untyped(root: str) -> Iterator[str]:
    """What a caller may also ask of a bad table: each question has an answer or a typed error."""
    log = open_table(root)
    for name, ask in _QUESTIONS.items():
        try:
            ask(log)
        except DeltaError:
            continue
        except Exception as error:
            yield f"{name}: {error!r}"


_QUESTIONS: dict[str, Callable[[DeltaLog], Any]] = {
    "transactions": lambda log: log.snapshot.transactions,
    "domains": lambda log: log.snapshot.domains,
    "schema": lambda log: log.snapshot.schema,
    "timestamp": lambda log: log.snapshot.timestamp,
    "size": lambda log: log.snapshot.size_in_bytes,
    "tombstones": lambda log: log.snapshot.tombstones(),
    "repr": lambda log: log.snapshot._repr_html_(),
    "filter": lambda log: log.snapshot.to_table(filter="id > 1 and v <> 'b'"),
    "history": lambda log: log.history(),
    "changes": lambda log: list(log.get_changes(0)),
    "version 0": lambda log: log.snapshot_at(version=0).files,
    "long ago": lambda log: log.snapshot_at(timestamp=0),
    "in a while": lambda log: log.snapshot_at(timestamp=2**62),
    "by text": lambda log: log.snapshot_at(timestamp="2024-01-01"),
    "transaction": lambda log: log.start_transaction(),
}


def _memory(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:  # then the peak is that of all reads so far
        pass


def main() -> None:
    """Answer a path on each line of the input with an outcome on a line of the output."""
    watch = _Watch()
    limit = _memory("VmSize") + MEMORY_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        outcome = _outcome(watch, *json.loads(line))
        print(json.dumps(asdict(outcome), default=str), flush=True)


if __name__ == "__main__":
    main()
