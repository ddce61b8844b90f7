"""delta-spark beside us: a process to which tests and benchmarks say what to do.

`scripts/peers.sh` prepares its environment; `tests/support/peer_process.py` is the other end.

    with Peer.start() as peer:
        peer.sql("CREATE TABLE delta.`/tmp/t` (id LONG) USING delta")
        peer.read("/tmp/t").rows
        peer.python("result = DeltaTable.forPath(spark, path).detail().count()", path="/tmp/t")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

from tests.support.canonical import Contents

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-peers"


class PeerError(Exception):
    """What delta-spark raised: the name of the class, the error condition, the text."""

    def __init__(self, name: str, condition: str | None, message: str) -> None:
        super().__init__(f"{name} [{condition}] {message}")
        self.name = name
        self.condition = condition


def is_prepared() -> bool:
    """Whether `scripts/peers.sh` has run here."""
    return (ENVIRONMENT / ".prepared").exists()


class Peer:
    """A running delta-spark session.  One request at a time: not for several threads."""

    def __init__(self, process: subprocess.Popen[str], log: IO[str]) -> None:
        self._process = process
        self._log = log

    @classmethod
    def start(
        cls,
        conf: Mapping[str, str] | None = None,
        *,
        log: Path | None = None,
        engine: Literal["delta", "pyspark_delta"] = "delta",
    ) -> Peer:
        """Starts the process and waits until its session is up.

        :param conf: settings of the session, over those of `peer_process.start_session`.
        :param log: where its standard error goes; nowhere by default.
        :param engine: `pyspark_delta` is ourselves, on the PySpark of the calling process.
        """
        python = str(ENVIRONMENT / "bin" / "python") if engine == "delta" else sys.executable
        # The Spark of the calling process must not become the peer's.
        mixed = ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT")
        environment = {key: value for key, value in os.environ.items() if key not in mixed}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        errors = open(log or os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until stop
        process = subprocess.Popen(
            [python, "-m", "tests.support.peer_process", engine],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        )
        peer = cls(process, errors)
        try:
            peer._ask(dict(conf or {}))
        except BaseException:
            peer.stop()
            raise
        return peer

    def read(self, path: Path | str, **options: object) -> Contents:
        """The table at `path`, with options as for `spark.read`."""
        text = {key: str(value) for key, value in options.items()}
        schema, rows = self._ask({"do": "read", "path": str(path), "options": text})
        return Contents(schema, rows)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement; the path of a table goes in as delta.`path`."""
        return [json.loads(row) for row in self._ask({"do": "sql", "text": text})]

    def python(self, code: str, **names: Any) -> Any:
        """Runs Python in the peer: `spark`, `DeltaTable`, `F` and `names` are there.

        :return: what the code left in `result`, by way of JSON.
        """
        texts = {k: str(v) if isinstance(v, Path) else v for k, v in names.items()}
        return self._ask({"do": "python", "code": code, "names": texts})

    def stop(self) -> None:
        """Ends the process; it has nothing to lose."""
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

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError("Ended", None, f"the peer ended with {self._process.wait(20)}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"], reply["condition"], reply["message"])
        return reply["value"]


if __name__ == "__main__":
    with Peer.start() as shown:
        for text in sys.argv[1:]:
            print(*shown.sql(text), sep="\n")
