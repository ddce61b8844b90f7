"""Writers in processes of their own: some that race, and one that gets killed.

`run_appenders` lets processes append to one table, all at once.  `Mortal` runs writers that it
kills.  Both fork them from one process that has everything imported and runs no thread: a fork
costs milliseconds, a new interpreter half a second.

An acknowledgement is a line of its own file, appended in one write(2) after the commit returned.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.machine import system_now_ms
from pyspark_delta.kernel.protocol.actions import Action, AddFile, SetTransaction
from pyspark_delta.kernel.protocol.operations import optimize, write
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import HookRunner, compaction_hook, default_hooks
from tests.support.tables import append, write_files

SECONDS_LIMIT = 120
APP_ID = "the mortal writer"
_REPOSITORY = Path(__file__).parents[2]
_DAY_MS = 86_400_000


def run_appenders(path: Path, kinds: Sequence[str], count: int) -> dict[str, int]:
    """Let processes append `count` rows each, a commit per row, all at once.

    Given back is every id (`<kind><index>-<number>`) that a writer was told is committed, and the
    version that it was told; -1 where it was told none.
    """
    parent = _started("append", os.fspath(path), str(count), *kinds)
    acked: dict[str, int] = {}
    try:
        for _ in kinds:
            assert _line(parent) == "ready"
        assert parent.stdin is not None
        parent.stdin.write("go\n")
        parent.stdin.flush()
        while (line := _line(parent)) != "done":
            name, version = json.loads(line)
            assert name not in acked
            acked[name] = version
        return acked
    finally:
        _end(parent)


class Mortal:
    """One writer at a time, forked and killed; `kind` says what it does, see `_WRITERS`."""

    def __init__(self, path: Path, kind: str, acks: Path) -> None:
        self._arguments = (kind, os.fspath(path), os.fspath(acks))
        self._acks = acks
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Mortal:
        self._server = _started("serve", *self._arguments)
        assert _line(self._server) == "ready"
        return self

    def __exit__(self, *exc_info: object) -> None:
        assert self._server is not None
        _end(self._server)

    def kill_one(self, seed: int, delay_seconds: float, *, after_ack: bool) -> None:
        """Let a writer live until so long after its first acknowledgement, or its start."""
        assert self._server is not None
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps([seed, delay_seconds, after_ack]) + "\n")
        self._server.stdin.flush()
        status = json.loads(_line(self._server))
        assert status == -signal.SIGKILL, f"the writer ended by itself: {status}"

    @property
    def acked(self) -> list[int]:
        """The numbers that writers were told are committed, in that order."""
        if not self._acks.exists():
            return []
        return [int(line) for line in self._acks.read_text().splitlines()]


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
        cwd=_REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the process ended with {process.wait(SECONDS_LIMIT)}; stderr tells more"
    return line.strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(SECONDS_LIMIT)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


# What runs in those processes.


def _append(path: str, count: str, *kinds: str) -> None:
    """Fork a writer per kind, let them all go once each is ready, and see that none fails."""
    barrier, gate = os.pipe()
    children = []
    for index, kind in enumerate(kinds):
        child = os.fork()
        if child == 0:
            os.close(gate)
            commit = _APPENDERS[kind](path)
            _say("ready")
            os.read(barrier, 1)  # ends when the gate is closed
            for number in range(int(count)):
                name = f"{kind}{index}-{number}"
                _say(json.dumps([name, commit(pa.table({"id": [name]}))]))
            return  # the end of the process waits for its hooks
        children.append(child)
    sys.stdin.readline()
    os.close(gate)
    failures = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    if failures:
        raise SystemExit(f"{failures} writers failed")
    _say("done")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # one write: the writers share the pipe


def _kernel_appender(path: str) -> Callable[[pa.Table], int]:
    log = DeltaLog.for_table(path)
    return lambda rows: append(log, rows)


def _deltalake_appender(path: str) -> Callable[[pa.Table], int]:
    properties = CommitProperties(max_commit_retries=10_000)

    def commit(rows: pa.Table) -> int:
        write_deltalake(path, rows, mode="append", commit_properties=properties)
        return -1

    return commit


_APPENDERS = {"kernel": _kernel_appender, "deltalake": _deltalake_appender}


def _serve(kind: str, path: str, acks: str) -> None:
    """Fork a writer per line of input.  No thread may run here: a fork would not have it."""
    print("ready", flush=True)
    for line in sys.stdin:
        seed, delay_seconds, after_ack = json.loads(line)
        reader, signaller = os.pipe()
        child = os.fork()
        if child == 0:
            _live(kind, path, acks, seed, signaller)
        os.close(signaller)
        if after_ack:
            select.select([reader], [], [], SECONDS_LIMIT)  # also when the child is gone
        time.sleep(delay_seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reader)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


def _live(kind: str, path: str, acks: str, seed: int, signaller: int) -> None:
    """Write until killed."""
    try:
        parent = os.getppid()
        handle = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        writer = _WRITERS[kind](path, random.Random(seed))
        while os.getppid() == parent:
            os.write(handle, f"{writer.commit_next()}\n".encode())
            os.write(signaller, b".")
            writer.rest()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(3)


class _Writer:
    """Commits 0, 1, 2 ...: the number of each is in its rows, and in its SetTransaction.

    A writer that starts anew goes on after the last number that the table knows.
    """

    def __init__(self, log: DeltaLog, rng: random.Random) -> None:
        self.log = log
        self.random = rng
        self.number = log.start_transaction().txn_version(APP_ID)

    def commit_next(self) -> int:
        self.number += 1
        transaction = self.log.start_transaction()
        files = self.files(self.number, self.log)
        mark = SetTransaction(app_id=APP_ID, version=self.number, last_updated=self.log.now_ms())
        transaction.commit([*files, mark], write("Append"))
        return self.number

    def rest(self) -> None:
        """What is done once a commit is acknowledged."""

    def files(self, number: int, log: DeltaLog) -> Iterable[AddFile]:
        raise NotImplementedError


class _RowWriter(_Writer):
    """Writes real files, and now and then puts all of them together into one."""

    def __init__(self, path: str, rng: random.Random) -> None:
        super().__init__(DeltaLog(LocalStore(path, fsync=rng.random() < 0.5)), rng)

    def files(self, number: int, log: DeltaLog) -> Iterable[AddFile]:
        rows = pa.table({"id": [number]})
        return write_files(log.store, log.snapshot.metadata, rows, now_ms=log.now_ms())

    def commit_next(self) -> int:
        if self.random.random() < 0.1:
            self._compact()
        return super().commit_next()

    def _compact(self) -> None:
        transaction = self.log.start_transaction()
        old = list(add_files(transaction.filter_files()))
        rows = self.log.snapshot.to_table()
        new = write_files(self.log.store, transaction.metadata, rows, now_ms=self.log.now_ms())
        now_ms = self.log.now_ms()
        actions: list[Action] = [replace(file, data_change=False) for file in new]
        actions += [file.remove(deletion_timestamp=now_ms, data_change=False) for file in old]
        transaction.commit(actions, optimize())


class _LogWriter(_Writer):
    """Writes nothing but the log; most of the time goes into checkpoints and compactions."""

    def __init__(self, path: str, rng: random.Random) -> None:
        hooks = HookRunner((*default_hooks(), compaction_hook(3)))
        super().__init__(DeltaLog(LocalStore(path, fsync=False), hooks=hooks), rng)

    def files(self, number: int, log: DeltaLog) -> Iterable[AddFile]:
        return [log_only_file(number)]

    def rest(self) -> None:
        self.log.wait_for_hooks()  # they are what shall be hit


class _CleaningWriter(_LogWriter):
    """As its base, a long time after every commit before: whatever a checkpoint covers goes."""

    def __init__(self, path: str, rng: random.Random) -> None:
        log = DeltaLog(
            LocalStore(path, fsync=False),
            hooks=HookRunner(),
            now_ms=lambda: system_now_ms() + 100 * _DAY_MS,
        )
        _Writer.__init__(self, log, rng)


_WRITERS: dict[str, Callable[[str, random.Random], Any]] = {
    "rows": _RowWriter,
    "log": _LogWriter,
    "cleaning": _CleaningWriter,
}


def log_only_file(number: int) -> AddFile:
    """A file that exists in the log alone, with the number in its name."""
    return AddFile(
        path=f"{number}.parquet",
        size=1,
        modification_time=1,
        data_change=True,
        stats=f'{{"numRecords":1,"minValues":{{"id":{number}}},"maxValues":{{"id":{number}}}}}',
    )


_COMMANDS: dict[str, Callable[..., None]] = {"append": _append, "serve": _serve}


if __name__ == "__main__":
    _COMMANDS[sys.argv[1]](*sys.argv[2:])
