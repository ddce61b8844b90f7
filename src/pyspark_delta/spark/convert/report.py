"""`ConvertReport`, the result of a dry run: what a conversion would commit, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.snapshot import html_table
from pyspark_delta.kernel.ops.convert.files import PartitionRules
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.convert.files import FileManifest
from pyspark_delta.spark.convert.footers import Footers
from pyspark_delta.spark.jvm.gateway import to_spark

_MOST_PROBLEMS = 20
_MOST_PATHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """The result of a dry run of a conversion.

    `files` and `bytes` count what would be committed, and `paths` has the first of these files.
    `skipped` counts unreadable files that are left out.  `schema` is None when it is not known.
    `problems` are the errors that would stop the conversion, in the order they would occur.
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
        """Whether the conversion would succeed."""
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
        return html_table("CONVERT TO DELTA, dry run", self._rows())


class ReportDraft:
    """A report under construction."""

    def __init__(self, *, location: str, is_delta: bool) -> None:
        self.report = ConvertReport(location=location, is_delta=is_delta)

    @contextmanager
    def collected_problems(self) -> Iterator[None]:
        """Add a DeltaError, which ends the block, to the problems of the report."""
        try:
            yield
        except DeltaError as error:
            problems = self.report.problems
            if str(error) not in map(str, problems):
                self._set(problems=(*problems, error))

    def add_files(
        self, manifest: FileManifest, partition_schema: StructType, rules: PartitionRules
    ) -> None:
        """Add the files, and the directories whose names do not have the expected columns."""
        self._set(
            files=manifest.num_files,
            bytes=manifest.num_bytes,
            partition_columns=partition_schema.names,
        )
        first: list[str] = []
        checked: set[str | int] = set()
        for batch in manifest.batches():
            paths = batch.column("path").to_pylist()
            first += paths[: _MOST_PATHS - len(first)]
            for path, number in zip(paths, batch.column("partition").to_pylist(), strict=True):
                directory = manifest.directory(path, number)
                if directory in checked or len(self.report.problems) >= _MOST_PROBLEMS:
                    continue
                checked.add(directory)
                with self.collected_problems():
                    manifest.partition_values(path, number, partition_schema, rules)
        self._set(paths=tuple(first))

    def add_footers(self, footers: Footers) -> None:
        self._set(
            skipped=self.report.files - footers.num_files,
            files=footers.num_files,
            bytes=footers.num_bytes,
            schema=None if footers.schema is None else to_spark(footers.schema),
        )

    def add_definition(self, metadata: Metadata) -> None:
        self._set(
            schema=to_spark(metadata.schema), partition_columns=tuple(metadata.partition_columns)
        )

    def _set(self, **facts: Any) -> None:
        self.report = replace(self.report, **facts)
