"""What a conversion would do, and what stands in its way: the answer of a dry run."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.kernel.ops.convert import (
    PartitionRules,
    given_partition_values,
    partition_values,
)
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.convert.footers import Footers
from pyspark_delta.spark.convert.manifest import FileManifest
from pyspark_delta.spark.types import to_spark

_MOST_PROBLEMS = 20
_MOST_PATHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """The answer of a dry run.

    `files` and `bytes` count what would be committed, `paths` are the first of them, `skipped` is
    how many files cannot be read and are left out.  `schema` is None when it is not known, and
    `problems` are the errors that the conversion would end with, the first of them first.
    """

    location: str
    is_delta: bool
    files: int = 0
    bytes: int = 0
    skipped: int = 0
    paths: tuple[str, ...] = ()
    schema: SparkStructType | None = None
    partition_columns: tuple[str, ...] = ()
    problems: tuple[DeltaError, ...] = ()

    @property
    def can_convert(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.problems

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "location", self.location
        yield "a Delta table already", "yes" if self.is_delta else "no"
        yield "files", f"{self.files:,}"
        yield "bytes", f"{self.bytes:,}"
        if self.skipped:
            yield "files that cannot be read", f"{self.skipped:,}"
        if self.schema is not None:
            columns = (f"{f.name} {f.dataType.simpleString()}" for f in self.schema.fields)
            yield "columns", ", ".join(columns)
        yield "partitioned by", ", ".join(self.partition_columns) or "nothing"
        for problem in self.problems:
            yield "problem", str(problem)

    def __str__(self) -> str:
        return "\n".join(f"{key}: {value}" for key, value in self._rows())

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        cells = "".join(
            f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in self._rows()
        )
        return f"<table><caption>CONVERT TO DELTA, dry run</caption>{cells}</table>"


class ReportDraft:
    """A report while it is written."""

    def __init__(self, *, location: str, is_delta: bool) -> None:
        self._location = location
        self._is_delta = is_delta
        self._files = self._bytes = self._skipped = 0
        self._paths: list[str] = []
        self._schema: StructType | None = None
        self._partition_columns: tuple[str, ...] = ()
        self._problems: dict[str, DeltaError] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Let an error of ours end what is inside, and become a problem of the report."""
        try:
            yield
        except DeltaError as error:
            self._problems[str(error)] = error

    def add_files(
        self, manifest: FileManifest, partition_schema: StructType, rules: PartitionRules
    ) -> None:
        """Note the files, and the directories that do not spell what they should."""
        self._files, self._bytes = manifest.num_files, manifest.num_bytes
        self._partition_columns = partition_schema.names
        checked: set[str] = set()
        for batch in manifest.batches():
            paths = batch.column("path").to_pylist()
            self._paths += paths[: _MOST_PATHS - len(self._paths)]
            for path, given in zip(paths, batch.column("partition").to_pylist(), strict=True):
                where = path.rpartition("/")[0] if given is None else f"\0{given}"
                if where in checked or len(self._problems) >= _MOST_PROBLEMS:
                    continue
                checked.add(where)
                with self.noted():
                    if given is None:
                        partition_values(path, partition_schema, rules)
                    else:
                        values = manifest.partitions[given].values
                        given_partition_values(values, partition_schema, rules)

    def add_footers(self, footers: Footers) -> None:
        """Note what the footers said."""
        self._skipped = self._files - footers.num_files
        self._files, self._bytes = footers.num_files, footers.num_bytes
        self._schema = footers.schema

    def add_definition(self, metadata: Metadata) -> None:
        """Note what the table will be."""
        self._schema = metadata.schema
        self._partition_columns = metadata.partition_columns

    def report(self) -> ConvertReport:
        """The report so far."""
        return ConvertReport(
            location=self._location,
            is_delta=self._is_delta,
            files=self._files,
            bytes=self._bytes,
            skipped=self._skipped,
            paths=tuple(self._paths),
            schema=None if self._schema is None else to_spark(self._schema),
            partition_columns=self._partition_columns,
            problems=tuple(self._problems.values()),
        )
