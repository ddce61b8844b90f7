"""Two engines with one set of words: this package in our session, delta-spark in the peer's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable
from tests.support.canonical import Contents, contents, json_rows
from tests.support.peer import Peer

_WRITE = """
writer = spark.sql(query).coalesce(1).write.format("delta").mode(mode).options(**options)
writer.partitionBy(*partition_by).save(path)
"""
_COUNT = """
table = spark.read.format("delta").load(path)
result = [table.where(condition).count() for condition in conditions]
"""
_CHANGES = """
from tests.support.canonical import json_rows
feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
result = json_rows(feed.load(path).drop("_commit_timestamp"), sort=True)
"""
# What differs from run to run, or says who wrote.
_VARYING = ("timestamp", "engineInfo", "clusterMetadata", "txnId", "inCommitTimestamp")


class Ours:
    """A session with this package enabled in it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def write(
        self,
        query: str,
        path: Path,
        *,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        **options: object,
    ) -> None:
        """Save the rows of a query; by way of one file where there are no partitions."""
        writer = self.spark.sql(query).coalesce(1).write.format("delta").mode(mode)
        for key, value in options.items():
            writer = writer.option(_spelled(key), str(value))
        writer.partitionBy(*partition_by).save(str(path))
        # Checkpoints and checksums follow a commit; the next engine is to find them.
        DeltaLog.for_table(path).wait_for_hooks()

    def read(self, path: Path | str, **options: object) -> Contents:
        """The table as it is, or as `versionAsOf` and the like say."""
        texts = {key: str(value) for key, value in options.items()}
        return contents(self.spark.read.format("delta").options(**texts).load(str(path)))

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement."""
        return [json.loads(row) for row in json_rows(self.spark.sql(text))]

    def python(self, code: str, **names: Any) -> Any:
        """Runs Python as the peer does: `spark`, `DeltaTable`, `F` and `names` are there.

        :return: what the code left in `result`, by way of JSON.
        """
        texts = {k: str(v) if isinstance(v, Path) else v for k, v in names.items()}
        scope = {"spark": self.spark, "DeltaTable": DeltaTable, "F": F, "result": None, **texts}
        exec(compile(code, "<ours>", "exec"), scope)
        return json.loads(json.dumps(scope["result"]))

    def counts(self, path: Path, conditions: Iterable[str]) -> list[int]:
        """How many rows each condition holds for."""
        table = self.spark.read.format("delta").load(str(path))
        return [table.where(condition).count() for condition in conditions]


class Theirs:
    """delta-spark's session, in the peer; what it can tell of a table by itself is here."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sql = peer.sql
        self.python = peer.python
        self.read = peer.read

    def write(
        self,
        query: str,
        path: Path,
        *,
        mode: str = "append",
        partition_by: Sequence[str] = (),
        **options: object,
    ) -> None:
        """Save the rows of a query; by way of one file where there are no partitions."""
        self.peer.python(
            _WRITE,
            query=query,
            path=path,
            mode=mode,
            partition_by=list(partition_by),
            options={_spelled(key): str(value) for key, value in options.items()},
        )

    def counts(self, path: Path, conditions: Iterable[str]) -> list[int]:
        """How many rows each condition holds for."""
        found: list[int] = self.peer.python(_COUNT, path=path, conditions=list(conditions))
        return found

    def changes(self, path: Path, first: int = 0) -> list[dict[str, Any]]:
        """The table's change feed from a version on, in the order of its text."""
        found: list[str] = self.peer.python(_CHANGES, path=path, first=first)
        return [json.loads(row) for row in found]

    def history(self, path: Path | str) -> list[dict[str, Any]]:
        """What each commit says of itself, oldest first, without what no two runs share."""
        told = self.peer.sql(f"DESCRIBE HISTORY delta.`{path}`")
        return [_steady(commit) for commit in reversed(told)]


Engine = Ours | Theirs
# Gives a setting of the peer's session a value, for one test.
SetTheirs = Callable[[str, str], None]


class Pair:
    """Both engines, and what it means that they agree."""

    def __init__(self, ours: Ours, theirs: Theirs) -> None:
        self.ours = ours
        self.theirs = theirs

    def agree(self, path: Path, **options: object) -> Contents:
        """What both read at `path`: schema and rows, to the last byte."""
        ours, theirs = self.ours.read(path, **options), self.theirs.read(path, **options)
        assert ours.schema == theirs.schema
        assert ours.rows == theirs.rows
        return ours

    def agree_on(self, path: Path, conditions: Sequence[str]) -> list[int]:
        """How many rows satisfy each condition, files being skipped by both."""
        ours, theirs = self.ours.counts(path, conditions), self.theirs.counts(path, conditions)
        assert dict(zip(conditions, ours, strict=True)) == dict(
            zip(conditions, theirs, strict=True)
        )
        return ours


def table(path: Path) -> str:
    """The table at a path as SQL names it."""
    return f"delta.`{path}`"


def _spelled(option: str) -> str:
    """`delta_appendOnly` is `delta.appendOnly`: a dot is no letter of Python's."""
    return option.replace("_", ".")


def _steady(commit: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in commit.items() if key not in _VARYING}
    metrics = kept["operationMetrics"] or {}
    kept["operationMetrics"] = {
        key: "*" if key.endswith(("Bytes", "Ms")) else value for key, value in metrics.items()
    }
    return kept
