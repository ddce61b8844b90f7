"""`FileIndex` in Python: Spark's own Parquet scan over the files that a log names.

Spark calls `listFiles` while it plans, with the query's filters; pruning and skipping happen then.
The proxy stays on the driver, and goes when the DataFrame goes.

A source may follow its table.  Its scan is then given the files of one version when a query is
planned (`scan_rule`): the newest, or the one that a command works on.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
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
from pyspark_delta.spark.jvm.scan_rule import scan_rule
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

    follows_table = False
    """Whether a query reads the version that is the newest when it is planned."""
    has_vectors = False
    """Whether rows of some file are deleted, and its bits come with it."""

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
    """The object that Java calls for files and sizes.  Method names are Spark's."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, jvm: JvmSession, source: ScanSource) -> None:
        self.jvm = jvm
        self.source = source
        self.name = _STAND_INS.name(self, ", ".join(source.identity))
        self._version: tuple[ScanSource, Any] | None = None

    def java_index(self, partition_schema: Any) -> Any:
        """The index of Java's that calls this object."""
        source = self.source
        return scan_rule(self.jvm).index(
            self,
            self.name,
            _NUL.join(source.identity),
            source.follows_table,
            source.has_vectors,
            self.jvm.seq([self.jvm.hadoop_path(source.root)]),
            partition_schema,
        )

    def index_of(self, version: ScanSource) -> Any:
        """The index of Java's for a version of the table; the same one for the same source."""
        known = self._version
        if known is None or known[0] is not version:
            proxy = FileIndexProxy(self.jvm, version)
            schema = self.jvm.data_type(version.partition_schema)
            self._version = known = (version, proxy.java_index(schema))
        return known[1]

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        note_caller(self.jvm)
        # A query that is being planned was not started here: Java must see what went wrong.
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

    def sizeInBytes(self) -> Any:
        # Py4J makes an Integer of a small int, and Spark wants a long.
        return self.jvm.static("java.lang.Long", "valueOf")(str(self.source.size_in_bytes))

    def toString(self) -> str:
        return self.name


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
    partition_schema = jvm.data_type(source.partition_schema)
    no_options = jvm.remembered("no options", lambda: jvm.scala_map({}))
    relation = jvm.java_class(f"{_SOURCES}.HadoopFsRelation")(
        FileIndexProxy(jvm, source).java_index(partition_schema),
        partition_schema,
        jvm.data_type(schema),
        jvm.none(),  # no buckets
        jvm.remembered("Parquet", jvm.java_class(f"{_SOURCES}.parquet.ParquetFileFormat")),
        jvm.scala_map(source.options) if source.options else no_options,
        jvm.session,
    )
    return jvm.java_class(f"{_SOURCES}.LogicalRelation$").apply(relation, is_stream)


def indexes_of_versions(
    names: Sequence[str], versions: Callable[[Sequence[ScanSource]], Sequence[ScanSource]]
) -> list[Any]:
    """The indexes that a query reads in place of those of these names, which follow their tables.

    `versions` gives the source of one version for each source.
    """
    proxies = [_STAND_INS.named(name) for name in names]
    chosen = versions([proxy.source for proxy in proxies])
    return [proxy.index_of(source) for proxy, source in zip(proxies, chosen, strict=True)]


def sources_in(data: DataFrame) -> list[ScanSource]:
    """The sources that a DataFrame reads, in subqueries too; one that is read twice comes twice."""
    plan = data._jdf.queryExecution().analyzed()
    return [source for each in (plan, *items(plan.subqueriesAll())) for source in _leaves(each)]


def sources_read_by(data: DataFrame) -> list[ScanSource]:
    """As `sources_in`, where rows that Spark has cached are of the version they were read from."""
    query = data._jdf.queryExecution()
    if query.sparkSession().sharedState().cacheManager().isEmpty():
        return sources_in(data)
    plan = query.withCachedData()
    plans = [plan, *items(plan.subqueriesAll())]
    found = [source for each in plans for source in _leaves(each)]
    leaves = [leaf for each in plans for leaf in items(each.collectLeaves())]
    cached = [leaf for leaf in leaves if _class_name(leaf) == "InMemoryRelation"]
    for relation in cached:
        found += _scanned_sources(relation.cacheBuilder().cachedPlan())
    return found


def _scanned_sources(plan: Any) -> list[ScanSource]:
    """The sources that a physical plan reads."""
    name = _class_name(plan)
    if name == "AdaptiveSparkPlanExec":
        return _scanned_sources(plan.inputPlan())
    if name == "InMemoryTableScanExec":
        return _scanned_sources(plan.relation().cacheBuilder().cachedPlan())
    if name == "FileSourceScanExec":
        proxy = proxy_of(plan.relation().location())
        return [] if proxy is None else [proxy.source]
    below = [*items(plan.children()), *items(plan.subqueries())]
    return [source for each in below for source in _scanned_sources(each)]


def _class_name(java_object: Any) -> str:
    name: str = java_object.getClass().getSimpleName()
    return name


def _leaves(plan: Any) -> Iterator[ScanSource]:
    for leaf in items(plan.collectLeaves()):
        found = proxy_behind(leaf)
        if found is not None:
            yield found.source


def _uris(groups: FileGroups) -> str:
    """The URIs of files as Hadoop spells them, one after the other."""
    locations = _NUL.join(groups.prefix + name for name in groups.names.to_pylist())
    return _ESCAPED_IN_URI.sub(lambda found: quote(found[0]), locations)
