"""`FileIndex` in Python: Spark's own Parquet scan over the files that a log names.

Spark calls `listFiles` while it plans, with the query's filters; pruning and skipping happen then.
The proxy stays on the driver, and goes when the DataFrame goes.

A source may follow its table.  An optimizer rule then gives its scan the files of one version when
a query is planned: the newest, or the one that a command works on.  The rule replaces aggregates
too.  Rules are Scala classes, and Python objects can only implement interfaces:
`hooks/DeltaScans.java` walks the plans, and calls Python for decisions.

Plans are searched for such scans, for the tables and files that a query reads.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.machine import cache_directory
from pyspark_delta.kernel.protocol.types import BINARY, LONG, StructField, StructType
from pyspark_delta.kernel.scan.aggregates import Aggregate, AggregateValues
from pyspark_delta.spark.jvm.callbacks import note_caller, noted_errors, thrown_in_java
from pyspark_delta.spark.jvm.classes import load_classes
from pyspark_delta.spark.jvm.expressions.catalyst import Filter, filters_of
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    ProxyNames,
    analyzed_plan,
    items,
    java_interfaces,
    simple_name,
)
from pyspark_delta.spark.jvm.plans.conditions import is_repeatable
from pyspark_delta.spark.jvm.plans.frames import METADATA, plan_frame, without_deleted_rows
from pyspark_delta.spark.jvm.scan.catalyst_rows import (
    FileGroups,
    partition_directories,
    passing,
)

VECTOR = "__delta_deletion_vector"
"""The column that has the bits of a file's deleted rows."""
Versions = Callable[[str, list[str]], list[Any]]
"""Maps file indexes that follow their tables to the indexes that a query reads.

The arguments are the command that runs the query, empty if there is none, and the indexes' names.
"""
COMMAND = "pyspark_delta.command"
"""The local property of a thread with the name of the running command; None outside of one."""
Answer = Callable[[Any], Any]
"""Returns the plan that replaces an aggregate node of Catalyst; None to keep it."""
_CLASS = "pyspark_delta.DeltaScans"
_ROW_INDEX = StructType((StructField("row_index", LONG),))
# Sessions in which this process installed the rule.
_INSTALLED: WeakSet[SparkSession] = WeakSet()
_LOG = logging.getLogger(__name__)
_SOURCES = "org.apache.spark.sql.execution.datasources"
_NUL = "\0"
# Plan nodes that give the same rows each time, if their children do.
_STEADY_NODES = frozenset(
    {
        *("CollectMetrics", "Filter", "LocalRelation", "LogicalRelation", "OneRowRelation"),
        *("Project", "Range", "SubqueryAlias", "Union", "View"),
    }
)
# What Hadoop escapes when it makes a URI of a path: of ASCII, all but these.
_ESCAPED_IN_URI = re.compile(r"[\x01-\x7f](?<![A-Za-z0-9/:@!$&'()*+,;=._~-])")
_NAMES: ProxyNames[FileIndexProxy] = ProxyNames("Delta[")


def scan_rule(jvm: JvmSession) -> Any:
    """The rule, one for each JVM; it also makes file indexes."""
    return jvm.remembered(_CLASS, lambda: _new_rule(jvm))


def install_rule(jvm: JvmSession, versions: Versions, answer: Answer) -> None:
    """Add the rule to the session, if it is not there; copies of the session have it too."""
    if jvm.spark in _INSTALLED:
        return
    rules = jvm.session.experimental().extraOptimizations()
    if not _is_among(rules):
        decisions = (_version_indexes(jvm, versions), _log_answer(jvm, answer))
        scan_rule(jvm).decideBy(*map(_Function, decisions))
        _set_rules(jvm, rules.appended(scan_rule(jvm)))
    _INSTALLED.add(jvm.spark)


def remove_rule(jvm: JvmSession) -> None:
    """Undo `install_rule`."""
    _INSTALLED.discard(jvm.spark)
    rules = jvm.session.experimental().extraOptimizations()
    if _is_among(rules):
        _set_rules(jvm, rules.diff(jvm.seq([scan_rule(jvm)])))


@contextmanager
def running_command(jvm: JvmSession, name: str) -> Iterator[str | None]:
    """Mark queries that this thread plans as a command's; yields the outer command.

    Spark passes the name on to its own threads; Java may call Python on any thread.
    """
    context = jvm.spark.sparkContext
    outer = context.getLocalProperty(COMMAND)
    context.setLocalProperty(COMMAND, name)
    try:
        yield outer
    finally:
        context.setLocalProperty(COMMAND, outer)  # type: ignore[arg-type]


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
        """The size of all files in bytes, before any filter."""

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
        self, partition_filters: Sequence[Filter], aggregates: Sequence[Aggregate]
    ) -> AggregateValues | None:
        """Aggregates over the rows that pass, computed without reading them; None if impossible."""
        return None

    def drops_deleted_rows(self, columns: Set[str]) -> bool:
        """Whether a filter that needs these columns is the one by which deleted rows go."""
        return False


class FileIndexProxy:
    """The object that Java calls for files and sizes.  Method names are Spark's."""

    Java = java_interfaces("org.apache.spark.sql.execution.datasources.FileIndex")

    def __init__(self, jvm: JvmSession, source: ScanSource) -> None:
        self.jvm = jvm
        self.source = source
        self.name = _NAMES.name(self, ", ".join(source.identity))
        self._version: tuple[ScanSource, Any] | None = None

    def java_index(self, partition_schema: Any) -> Any:
        """The Java index that calls this object."""
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
        """The Java index for a version of the table; the same one for the same source."""
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
        """The URIs of the files that a scan with these Java filters opens."""
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


def proxy_of(location: Any) -> FileIndexProxy | None:
    """The proxy behind a Java `FileIndex`; None when it is another kind of index."""
    if location is None or isinstance(location, FileIndexProxy):
        return location
    return _NAMES.behind(location)


def proxy_behind(leaf: Any) -> FileIndexProxy | None:
    """Our proxy that a leaf of a logical plan reads; None when it reads another's, or no files."""
    if simple_name(leaf) != "LogicalRelation":
        return None
    relation = leaf.relation()
    return proxy_of(relation.location()) if simple_name(relation) == "HadoopFsRelation" else None


def scan_plan(
    jvm: JvmSession, source: ScanSource, schema: StructType, *, is_stream: bool = False
) -> Any:
    """A logical plan that reads the source.

    Its columns are those of `schema`, where partition columns may be among them, and then the
    partition columns that are not.  `is_stream` marks a batch of a stream.
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
    proxies = [_NAMES.named(name) for name in names]
    chosen = versions([proxy.source for proxy in proxies])
    return [proxy.index_of(source) for proxy, source in zip(proxies, chosen, strict=True)]


def sources_in(data: DataFrame) -> list[ScanSource]:
    """The sources of a DataFrame and its subqueries; one that is read twice is listed twice."""
    plan = analyzed_plan(data)
    return [source for each in (plan, *items(plan.subqueriesAll())) for source in _leaves(each)]


def sources_read_by(data: DataFrame) -> list[ScanSource]:
    """As `sources_in`; for cached rows, the version that they were read from, not the plan's."""
    query = data._jdf.queryExecution()
    if query.sparkSession().sharedState().cacheManager().isEmpty():
        return sources_in(data)
    plan = query.withCachedData()
    plans = [plan, *items(plan.subqueriesAll())]
    found = [source for each in plans for source in _leaves(each)]
    for leaf in (leaf for each in plans for leaf in items(each.collectLeaves())):
        if simple_name(leaf) == "InMemoryRelation":
            found += _scanned_sources(leaf.cacheBuilder().cachedPlan())
    return found


def is_steady(jvm: JvmSession, frame: DataFrame) -> bool:
    """Whether a second query over the frame gives the same rows, as for a version of a table."""
    plan = analyzed_plan(frame)
    nodes = _node_names(plan)
    if not set(nodes) <= _STEADY_NODES or not is_repeatable(jvm, frame):
        return False
    return nodes.count("LogicalRelation") == len(sources_in(frame))


def input_files(frame: DataFrame) -> tuple[list[str], list[DataFrame]] | None:
    """The URIs of a query's files in Delta tables, and each of its other leaves as a query.

    The files are those left by pruning and skipping.  None when the query reads no Delta table.
    Spark's own `inputFiles` has all files of a relation, whatever the filters; here the filters
    come from the physical plan.
    """
    query = frame._jdf.queryExecution()
    leaves = items(query.optimizedPlan().collectLeaves())
    others = [leaf for leaf in leaves if proxy_behind(leaf) is None]
    if len(others) == len(leaves):
        return None
    found: list[str] = []
    for leaf in items(query.sparkPlan().collectLeaves()):
        if simple_name(leaf) == "FileSourceScanExec":
            proxy = proxy_of(leaf.relation().location())
            if proxy is not None:
                found += proxy.scanned_files(leaf.partitionFilters(), leaf.dataFilters())
    jvm = JvmSession(frame.sparkSession)
    return found, [plan_frame(jvm, leaf) for leaf in others]


def _is_among(rules: Any) -> bool:
    return any(rule.getClass().getName() == _CLASS for rule in items(rules))


def _set_rules(jvm: JvmSession, rules: Any) -> None:
    getattr(jvm.session.experimental(), "extraOptimizations_$eq")(rules)


def _new_rule(jvm: JvmSession) -> Any:
    load_classes(jvm, cache_directory())
    return jvm.java_class(_CLASS)(*_live_rows(jvm))


def _live_rows(jvm: JvmSession) -> tuple[Any, Any]:
    """The condition for rows that are not deleted, and its column of bits."""
    columns = StructType((StructField(VECTOR, BINARY), StructField(METADATA, _ROW_INDEX)))
    relation = jvm.plan_class("LocalRelation$").apply(jvm.data_type(columns))
    rows = plan_frame(jvm, without_deleted_rows(jvm, relation, VECTOR))
    plan = analyzed_plan(rows)
    return plan.condition(), items(plan.output())[0]


def _version_indexes(jvm: JvmSession, versions: Versions) -> Callable[[str], Any]:
    def indexes(names: str) -> Any:
        note_caller(jvm)
        # Spark's planner is the caller, so Java must see the error.
        with thrown_in_java(jvm), noted_errors():
            found = jvm.java_class("java.util.ArrayList")()
            command, *followed = names.split("\n")
            for index in versions(command, followed):
                found.add(index)
            return found

    return indexes


def _log_answer(jvm: JvmSession, answer: Answer) -> Callable[[Any], Any]:
    def plan(aggregate: Any) -> Any:
        note_caller(jvm)
        try:
            return answer(aggregate)
        except Exception:
            # The scan that stays in the plan gives a better error for a damaged log.
            _LOG.debug("An aggregate was not answered from the log.", exc_info=True)
            return None

    return plan


class _Function:
    Java = java_interfaces("java.util.function.Function")

    def __init__(self, apply: Callable[[Any], Any]) -> None:
        self.apply = apply


def _uris(groups: FileGroups) -> str:
    """The URIs of files as Hadoop spells them, one after the other."""
    locations = _NUL.join(groups.prefix + name for name in groups.names.to_pylist())
    return _ESCAPED_IN_URI.sub(lambda found: quote(found[0]), locations)


def _scanned_sources(plan: Any) -> list[ScanSource]:
    name = simple_name(plan)
    if name == "AdaptiveSparkPlanExec":
        return _scanned_sources(plan.inputPlan())
    if name == "InMemoryTableScanExec":
        return _scanned_sources(plan.relation().cacheBuilder().cachedPlan())
    if name == "FileSourceScanExec":
        proxy = proxy_of(plan.relation().location())
        return [] if proxy is None else [proxy.source]
    below = [*items(plan.children()), *items(plan.subqueries())]
    return [source for each in below for source in _scanned_sources(each)]


def _leaves(plan: Any) -> Iterator[ScanSource]:
    proxies = map(proxy_behind, items(plan.collectLeaves()))
    return (proxy.source for proxy in proxies if proxy is not None)


def _node_names(plan: Any) -> list[str]:
    below = [name for child in items(plan.children()) for name in _node_names(child)]
    return [simple_name(plan), *below]
