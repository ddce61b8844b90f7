"""`FileIndex` in Python: Spark's own Parquet scan over the files that a log names.

Spark asks `listFiles` while it plans, with the query's filters; pruning and skipping happen then.
The proxy stays on the driver, and goes when the DataFrame goes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.log_answers import Answers, Asked
from pyspark_delta.spark.jvm.callback_errors import noted_errors
from pyspark_delta.spark.jvm.callback_threads import note_caller
from pyspark_delta.spark.jvm.filters import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.partition_directories import (
    FileGroups,
    partition_directories,
    passing,
)
from pyspark_delta.spark.jvm.stand_ins import StandIns
from pyspark_delta.spark.jvm.thrown_errors import thrown_in_java

_SOURCES = "org.apache.spark.sql.execution.datasources"
_NUL = "\0"
# What Hadoop escapes when it makes a URI of a path: of ASCII, all but these.
_ESCAPED_IN_URI = re.compile(r"[\x01-\x7f](?<![A-Za-z0-9/:@!$&'()*+,;=._~-])")


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
    def options(self) -> Mapping[str, str]:
        """What the scan's Hadoop configuration has on top of the session's; may hold secrets."""
        return {}

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """What two sources have in common when they read the same."""

    @abstractmethod
    def groups(
        self, partition_filters: Sequence[Filter], data_filters: Sequence[Filter]
    ) -> tuple[FileGroups, list[int]]:
        """The files to read, and which partition filters are left to do, by position."""

    def answers(
        self, partition_filters: Sequence[Filter], asked: Sequence[Asked]
    ) -> Answers | None:
        """What is asked of the rows that pass, without reading them; None when that cannot be."""
        return None

    def drops_deleted_rows(self, columns: Set[str]) -> bool:
        """Whether a filter that needs these columns is the one by which deleted rows go."""
        return False


class FileIndexProxy:
    """The object that Java calls.  Method names are Spark's."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, jvm: JvmSession, source: ScanSource, partition_schema: Any) -> None:
        self.jvm = jvm
        self.source = source
        self._name = _STAND_INS.name(self, ", ".join(source.identity))
        self._partition_schema = partition_schema
        self._roots: Any = None
        self._size: Any = None

    def rootPaths(self) -> Any:
        if self._roots is None:
            self._roots = self.jvm.seq([self.jvm.hadoop_path(self.source.root)])
        return self._roots

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        note_caller(self.jvm)
        # Spark asks while a query runs, which nobody here started: Java must see what went wrong.
        with thrown_in_java(self.jvm), noted_errors():
            groups = self._groups(partition_filters, data_filters)
            return partition_directories(self.jvm, self.source.partition_schema, groups)

    def inputFiles(self) -> Any:
        with thrown_in_java(self.jvm), noted_errors():
            groups, _ = self.source.groups([], [])
        # One text for all: an array is filled by a call for each of its elements.
        split = self.jvm.static("org.apache.commons.lang3.StringUtils", "split")
        return split(_uris(groups), _NUL)

    def scanned_files(self, partition_filters: Any, data_filters: Any) -> list[str]:
        """The URIs of the files that a scan with these filters, of Java's, opens."""
        uris = _uris(self._groups(partition_filters, data_filters))
        return uris.split(_NUL) if uris else []

    def _groups(self, partition_filters: Any, data_filters: Any) -> FileGroups:
        groups, left = self.source.groups(
            filters_of(self.jvm, partition_filters), filters_of(self.jvm, data_filters)
        )
        if not left:
            return groups
        undone = [partition_filters.apply(position) for position in left]
        return groups.only(passing(self.jvm, undone, self.source.partition_schema, groups.values))

    def refresh(self) -> None:
        """Nothing to do: a version never changes."""

    def sizeInBytes(self) -> int:
        if self._size is None:
            # Py4J makes an Integer of a small int, and Spark wants a long.
            long_of = self.jvm.static("java.lang.Long", "valueOf")
            self._size = long_of(str(self.source.size_in_bytes))
        return self._size  # type: ignore[no-any-return]

    def partitionSchema(self) -> Any:
        return self._partition_schema

    def metadataOpsTimeNs(self) -> Any:
        return self.jvm.none()

    def isTimeTravel(self) -> bool:
        return False

    def equals(self, other: Any) -> bool:
        found = proxy_of(other)
        return found is not None and self.source.identity == found.source.identity

    def hashCode(self) -> int:
        return hash(self.source.identity) & 0x7FFFFFFF

    def toString(self) -> str:
        return self._name


_STAND_INS: StandIns[FileIndexProxy] = StandIns("Delta[")


def proxy_of(location: Any) -> FileIndexProxy | None:
    """Our proxy behind a `FileIndex` of Java's; None when it is another's."""
    if location is None or isinstance(location, FileIndexProxy):
        return location
    return _STAND_INS.behind(location)


def proxy_behind(leaf: Any) -> FileIndexProxy | None:
    """Our proxy that a leaf of a logical plan reads; None when it reads another's, or no files."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    return proxy_of(relation.location())


def scan_plan(
    jvm: JvmSession, source: ScanSource, schema: StructType, *, is_stream: bool = False
) -> Any:
    """A logical plan that reads the source: the columns of `schema`, where partition columns may
    be among them, and then the partition columns that are not.

    `is_stream` says that it is a batch of a stream.
    """
    jvm.accept_callbacks()
    partition_schema = jvm.data_type(source.partition_schema)
    no_options = jvm.remembered("no options", lambda: jvm.scala_map({}))
    relation = jvm.java_class(f"{_SOURCES}.HadoopFsRelation")(
        FileIndexProxy(jvm, source, partition_schema),
        partition_schema,
        jvm.data_type(schema),
        jvm.none(),  # no buckets
        jvm.remembered("Parquet", jvm.java_class(f"{_SOURCES}.parquet.ParquetFileFormat")),
        jvm.scala_map(source.options) if source.options else no_options,
        jvm.session,
    )
    return jvm.java_class(f"{_SOURCES}.LogicalRelation$").apply(relation, is_stream)


def sources_in(data: DataFrame) -> list[ScanSource]:
    """The sources that a DataFrame reads, in subqueries too; one that is read twice comes twice."""
    plan = data._jdf.queryExecution().analyzed()
    return [source for each in (plan, *items(plan.subqueriesAll())) for source in _leaves(each)]


def _leaves(plan: Any) -> Iterator[ScanSource]:
    for leaf in items(plan.collectLeaves()):
        found = proxy_behind(leaf)
        if found is not None:
            yield found.source


def _uris(groups: FileGroups) -> str:
    """The URIs of files as Hadoop spells them, one after the other."""
    locations = _NUL.join(groups.prefix + name for name in groups.names.to_pylist())
    return _ESCAPED_IN_URI.sub(lambda found: quote(found[0]), locations)
