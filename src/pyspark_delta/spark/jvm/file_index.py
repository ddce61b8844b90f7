"""`FileIndex` in Python: Spark's own Parquet scan over the files that a log names.

Spark asks `listFiles` while it plans, with the query's filters; pruning and skipping happen then.
The proxy stays on the driver, and goes when the DataFrame goes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.file_statuses import FileStatuses
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.partition_rows import PartitionValue, partition_rows


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files with the same partition values: decoded location, size, modification time in ms."""

    values: tuple[PartitionValue, ...]
    files: tuple[tuple[str, int, int], ...]


class ScanSource(ABC):
    """What a scan reads.  Three promises, which Spark relies on:

    1. `groups` leaves out only files in which no row passes all filters.
    2. Filters on partition columns alone are applied in full, because Spark does not apply them
       again, or named as left to do.
    3. Equal sources read the same rows: plans are reused, and caches found, by equality.
    """

    @property
    @abstractmethod
    def root(self) -> str:
        """The decoded location of the table's root."""

    @property
    @abstractmethod
    def partition_schema(self) -> StructType:
        """The columns whose values come with a file, not out of it."""

    @property
    @abstractmethod
    def size_in_bytes(self) -> int:
        """How much there is to read, before any filter."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """What two sources have in common when they read the same."""

    @abstractmethod
    def groups(
        self, partition_filters: Sequence[str], data_filters: Sequence[str]
    ) -> tuple[list[FileGroup], list[int]]:
        """The files to read, and which partition filters are left to do, by position.

        Filters are the JSON of Catalyst's expressions.
        """


class FileIndexProxy:
    """The object that Java calls.  Method names are Spark's."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, jvm: JvmSession, source: ScanSource) -> None:
        self._jvm = jvm
        self._source = source
        self._partition_schema = jvm.data_type(source.partition_schema)

    def rootPaths(self) -> Any:
        return self._jvm.seq([self._jvm.hadoop_path(self._source.root)])

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        expressions = items(partition_filters)
        groups, left = self._source.groups(
            [expression.toJSON() for expression in expressions],
            [expression.toJSON() for expression in items(data_filters)],
        )
        for position in left:
            groups = self._filtered(expressions[position], groups)
        return self._jvm.seq(self._directories(groups))

    def inputFiles(self) -> Any:
        groups, _ = self._source.groups([], [])
        names = [location for group in groups for location, _, _ in group.files]
        return self._jvm.array(self._jvm.jvm.java.lang.String, names)

    def refresh(self) -> None:
        """Nothing to do: a version never changes."""

    def sizeInBytes(self) -> int:
        # Py4J makes an Integer of a small int, and Spark wants a long.
        return self._jvm.jvm.java.lang.Long.valueOf(str(self._source.size_in_bytes))  # type: ignore[no-any-return]

    def partitionSchema(self) -> Any:
        return self._partition_schema

    def metadataOpsTimeNs(self) -> Any:
        return self._jvm.none()

    def isTimeTravel(self) -> bool:
        return False

    def equals(self, other: Any) -> bool:
        return bool(other is not None and self.toString() == other.toString())

    def hashCode(self) -> int:
        return hash(self._source.identity) & 0x7FFFFFFF

    def toString(self) -> str:
        return "Delta[" + ", ".join(self._source.identity) + "]"

    def _filtered(self, expression: Any, groups: list[FileGroup]) -> list[FileGroup]:
        """Those groups whose partition values pass a filter, as Spark evaluates it."""
        schema = self._source.partition_schema
        attributes = items(expression.references().toSeq())
        positions = [schema.names.index(attribute.name()) for attribute in attributes]
        used = StructType(tuple(schema.fields[position] for position in positions))
        rows = partition_rows(
            self._jvm, used, [[group.values[p] for p in positions] for group in groups]
        )
        catalyst = "org.apache.spark.sql.catalyst.expressions"
        sequence = getattr(
            self._jvm.jvm.org.apache.spark.sql.catalyst.expressions, "package$AttributeSeq"
        )(self._jvm.seq(attributes))
        bound = self._jvm.java_class(f"{catalyst}.BindReferences$").bindReference(
            expression, sequence, False
        )
        predicate = self._jvm.java_class(f"{catalyst}.Predicate$").createInterpreted(bound)
        return [group for group, row in zip(groups, rows, strict=True) if predicate.eval(row)]

    def _directories(self, groups: Sequence[FileGroup]) -> list[Any]:
        if not groups:
            return []
        rows = partition_rows(
            self._jvm, self._source.partition_schema, [group.values for group in groups]
        )
        statuses = FileStatuses(self._jvm, (file for group in groups for file in group.files))
        directory = self._jvm.java_class(
            "org.apache.spark.sql.execution.datasources.PartitionDirectory$"
        )
        found = []
        start = 0
        for row, group in zip(rows, groups, strict=True):
            found.append(directory.apply(row, statuses.part(start, len(group.files))))
            start += len(group.files)
        return found


def scan(
    jvm: JvmSession, source: ScanSource, data_schema: StructType, options: Mapping[str, str]
) -> DataFrame:
    """A DataFrame over the source: `data_schema` from its files, then its partition columns."""
    jvm.accept_callbacks()
    datasources = jvm.jvm.org.apache.spark.sql.execution.datasources
    relation = datasources.HadoopFsRelation(
        FileIndexProxy(jvm, source),
        jvm.data_type(source.partition_schema),
        jvm.data_type(data_schema),
        jvm.none(),
        datasources.parquet.ParquetFileFormat(),
        jvm.scala_map(options),
        jvm.session,
    )
    return jvm.data_frame(jvm.session.baseRelationToDataFrame(relation))
