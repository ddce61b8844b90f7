"""A client of Spark Connect in a process of its own, where test functions run.

A classic session and one of Spark Connect do not go together in a process, and the packages of a
client would load numpy, which no other test does.  So the body of a test runs in the client:

    @in_client
    def test_a_table_has_rows(spark: SparkSession, path: Path) -> None: ...

The test itself takes the fixtures `connect_client` and `table_path`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

from tests.support.delta_server import ROOT, client_environment

Body = Callable[[Any, Path], None]
_BODY = "body_in_client"


def in_client(body: Body) -> Callable[[ConnectClient, Path], None]:
    """Decorate a test whose body runs in a client, with its session and the path of a table."""

    def test(connect_client: ConnectClient, table_path: Path) -> None:
        connect_client.run(body.__module__, body.__name__, table_path)

    setattr(test, _BODY, body)
    test.__name__, test.__doc__ = body.__name__, body.__doc__
    test.__module__ = body.__module__
    return test


class ConnectClient:
    """A running client.  One request at a time."""

    def __init__(self, address: str, log: Path, *folders: Path, setup: str = "") -> None:
        """Start a client of the server at `address`.

        `folders` are searched for modules first, `setup` is a module that is imported first.
        """
        self._log = open(log, "w", encoding="utf-8")  # noqa: SIM115 - open until stop
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.connect_client", address, setup],
            cwd=ROOT,
            env=client_environment(*folders),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def run(self, module: str, name: str, path: Path) -> None:
        """Run the body of a test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([module, name, str(path)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client ended with {self._process.wait(20)}"
        failure = json.loads(line)
        if failure is not None:
            raise AssertionError(failure)

    def stop(self) -> None:
        """End the client."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def _serve(address: str, lines: TextIO, replies: TextIO) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    for line in lines:
        module, name, path = json.loads(line)
        failure = None
        try:
            getattr(getattr(import_module(module), name), _BODY)(spark, Path(path))
        except BaseException:
            failure = traceback.format_exc().partition("JVM stacktrace:")[0]
        _drop_tables(spark)
        replies.write(json.dumps(failure) + "\n")
        replies.flush()
    spark.stop()


def _drop_tables(spark: SparkSession) -> None:
    """Leave nothing in the catalog of a server that other tests use, too."""
    for each in spark.catalog.listTables():
        kind = "VIEW" if each.isTemporary or each.tableType == "VIEW" else "TABLE"
        spark.sql(f"DROP {kind} IF EXISTS `{each.name}`")


if __name__ == "__main__":
    # What others print must not get between the answers.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.argv[2]:
        import_module(sys.argv[2])
    _serve(sys.argv[1], sys.stdin, private)
