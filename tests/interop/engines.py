"""Two engines with one set of words: this package in our session, delta-spark in the peer's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog
from tests.support.canonical import Contents, contents
from tests.support.peer import Peer

_WRITE = """
writer = spark.sql(query).coalesce(1).write.format("delta").mode(mode).options(**options)
writer.partitionBy(*partition_by).save(path)
"""
_COUNT = """
table = spark.read.format("delta").load(path)
result = [table.where(condition).count() for condition in conditions]
"""


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

    def counts(self, path: Path, conditions: Iterable[str]) -> list[int]:
        """How many rows each condition holds for."""
        table = self.spark.read.format("delta").load(str(path))
        return [table.where(condition).count() for condition in conditions]


class Theirs:
    """delta-spark's session, in the peer."""

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


Engine = Ours | Theirs


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
