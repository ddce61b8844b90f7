"""Spark's streaming in Python: sources and sinks.

A source is in the plan of a DataFrame, so all queries over one DataFrame share it.  The properties
of the calling thread identify the query.  The state of a query is made when it begins, and released
when it stops.

Spark's interface for sinks has one method that matters, `addBatch`, which it calls on the query's
own thread, inside the batch's execution: code that runs there has the query's id and name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.spark.jvm.callbacks import thrown_in_java
from pyspark_delta.spark.jvm.gateway import (
    JavaProxy,
    JvmSession,
    analyzed_plan,
    default_arguments,
    items,
    java_interfaces,
    moved_class,
    option_value,
)
from pyspark_delta.spark.jvm.plans.frames import plan_frame

_READ_LIMIT = "org.apache.spark.sql.connector.read.streaming.ReadLimit"
_LOGICAL_RDD = "org.apache.spark.sql.execution.LogicalRDD$"
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_HASHES = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """A run of a query, by the properties of its thread; both are empty outside a query."""

    query_id: str
    run_id: str
    _jvm: JvmSession = field(repr=False, compare=False)
    _source_hash: int = field(repr=False, compare=False)

    @property
    def checkpoint(self) -> str | None:
        """The location of the query's checkpoint; None outside a query."""
        execution = self._execution()
        return None if execution is None else str(execution.resolvedCheckpointRoot())

    @property
    def source_number(self) -> int:
        """The index of the calling source among the query's sources."""
        hashes = [each.hashCode() for each in self._sources()]
        return hashes.index(self._source_hash) if self._source_hash in hashes else 0

    @property
    def are_ours(self) -> list[bool]:
        """For each of the query's sources, whether it is a Delta source of this package."""
        is_proxy = self._jvm.static("java.lang.reflect.Proxy", "isProxyClass")
        return [bool(is_proxy(each.getClass())) for each in self._sources()]

    def _sources(self) -> list[Any]:
        execution = self._execution()
        return [] if execution is None else items(execution.sources().distinct())

    def _execution(self) -> Any:
        return _execution(self._jvm, self.query_id)


class StreamReader(ABC):
    """Reads for one run of a query.  Offsets are JSON; Spark makes one call at a time."""

    @abstractmethod
    def end_now(self) -> None:
        """End the run with the data that is there at its first call."""

    @abstractmethod
    def latest_offset(self, start: str | None, *, is_limited: bool) -> str | None:
        """The end of the next batch; `start` if there is nothing new."""

    @abstractmethod
    def batch(self, start: str | None, end: str) -> DataFrame:
        """The rows between two offsets, as a streaming DataFrame."""

    @abstractmethod
    def commit(self, end: str) -> None:
        """Note that everything up to `end` is processed."""

    @abstractmethod
    def close(self) -> None:
        """End the run."""


class StreamSource(ABC):
    """What a streaming DataFrame reads, shared by queries.  Makes a reader for each run."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The source's name in progress reports."""

    @abstractmethod
    def reader(self, run: QueryRun) -> StreamReader:
        """A reader for a new run."""


class StreamSourceProxy:
    """The object that Java calls.  Method names are Spark's."""

    Java = java_interfaces(
        "org.apache.spark.sql.execution.streaming.Source",
        "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow",
    )

    def __init__(self, jvm: JvmSession, source: StreamSource, schema: Any) -> None:
        self._jvm = jvm
        self._source = source
        self._schema = schema
        self._hash = next(_HASHES)
        self._runs: dict[str, tuple[str, StreamReader]] = {}

    def schema(self) -> Any:
        return self._schema

    def getDefaultReadLimit(self) -> Any:
        with thrown_in_java(self._jvm):
            self._reader()
        # The limit itself is in the options; here it only matters that there is one.
        return self._jvm.static(_READ_LIMIT, "maxFiles")(1)

    def prepareForTriggerAvailableNow(self) -> None:
        with thrown_in_java(self._jvm):
            self._reader().end_now()

    def initialOffset(self) -> Any:
        return None

    def getOffset(self) -> Any:
        return self._jvm.none()

    def latestOffset(self, start: Any, limit: Any) -> Any:
        with thrown_in_java(self._jvm):
            is_limited = "All Available" not in str(limit.toString())
            given = None if start is None else str(start.json())
            found = self._reader().latest_offset(given, is_limited=is_limited)
            if found is None:
                return None
            return start if found == given else self._offset(found)

    def reportLatestOffset(self) -> Any:
        return None

    def deserializeOffset(self, text: str) -> Any:
        return self._offset(text)

    def getBatch(self, start: Any, end: Any) -> Any:
        with thrown_in_java(self._jvm):
            begin = option_value(start)
            first = None if begin is None else str(begin.json())
            return self._reader().batch(first, str(end.json()))._jdf

    def commit(self, end: Any) -> None:
        with thrown_in_java(self._jvm):
            self._reader().commit(str(end.json()))

    def stop(self) -> None:
        run = self._current_run()
        found = self._runs.pop(run.query_id, None)
        if found is not None:
            found[1].close()

    def equals(self, other: Any) -> bool:
        if other is None or isinstance(other, StreamSourceProxy):
            return other is self
        return str(other.toString()) == self.toString() and other.hashCode() == self._hash

    def hashCode(self) -> int:
        return self._hash

    def toString(self) -> str:
        return self._source.name

    def _reader(self) -> StreamReader:
        run = self._current_run()
        known = self._runs.get(run.query_id)
        if known is None or (run.run_id and known[0] != run.run_id):
            known = (run.run_id, self._source.reader(run))
            self._runs[run.query_id] = known
        return known[1]

    def _current_run(self) -> QueryRun:
        context = self._jvm.spark.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        return QueryRun(
            query_id=query_id,
            run_id=context.getLocalProperty(_RUN_ID) or "",
            _jvm=self._jvm,
            _source_hash=self._hash,
        )

    def _offset(self, text: str) -> Any:
        return moved_class(self._jvm, "SerializedOffset")(text)


def stream_frame(jvm: JvmSession, source: StreamSource, shape: DataFrame) -> DataFrame:
    """A streaming DataFrame of the source, with the columns of `shape`."""
    jvm.accept_callbacks()
    proxy = StreamSourceProxy(jvm, source, shape._jdf.schema())
    relation = moved_class(jvm, "StreamingExecutionRelation")(
        proxy,
        analyzed_plan(shape).output(),
        jvm.none(),  # no table of the catalog
        jvm.java_class("org.apache.spark.sql.catalyst.streaming.Unassigned$"),
        jvm.session,
    )
    return plan_frame(jvm, relation)


class BatchSink(ABC):
    """A sink for the batches of a query.  Spark shows its `str()`."""

    @abstractmethod
    def add_batch(self, batch_id: int, data: DataFrame) -> None:
        """Write one batch; a batch that is repeated after a restart has the same id."""


def sink_proxy(jvm: JvmSession, sink: BatchSink) -> Any:
    """The sink as Java takes it."""
    return _SinkProxy(jvm, sink)


def running_query_id(jvm: JvmSession) -> str | None:
    """The id of the query whose batch runs on this thread; None outside a query.

    It is stored in the checkpoint, and so the same after a restart.
    """
    found = jvm.spark.sparkContext.getLocalProperty(_QUERY_ID)
    return None if found is None else str(found)


def running_table(jvm: JvmSession) -> tuple[str, ...] | None:
    """The name of the table that this thread's query writes; None for a path.

    `jvm` is the session that started the query.
    """
    execution = _execution(jvm, running_query_id(jvm))
    table = None if execution is None else option_value(execution.logicalPlan().catalogTable())
    if table is None:
        return None
    database = option_value(table.identifier().database())
    return (*((str(database),) if database else ()), str(table.identifier().table()))


def executed_frame(jvm: JvmSession, data: DataFrame) -> DataFrame:
    """The rows of a batch as a DataFrame that further plans can use.

    A batch is planned already, with its state and its place in the stream; a plan on top of it
    starts from its rows.
    """
    frame = data._jdf
    logical_rdd = jvm.java_class(_LOGICAL_RDD)
    is_streaming = False
    arguments = (frame.queryExecution().toRdd(), frame, is_streaming)
    more = default_arguments(jvm, _LOGICAL_RDD, "fromDataset", len(arguments))
    return plan_frame(jvm, logical_rdd.fromDataset(*arguments, *more))


def _execution(jvm: JvmSession, query_id: str | None) -> Any:
    """What runs a query of this session; None outside a query."""
    if not query_id:
        return None
    try:
        query = jvm.session.streams().get(query_id)
    except Py4JError:
        return None
    return None if query is None else query.streamingQuery()


class _SinkProxy(JavaProxy):
    """The object that Java calls.  Method names are Spark's.

    Java compares proxies; plans that take equal sinks for different ones are still correct.
    """

    def __init__(self, jvm: JvmSession, sink: BatchSink) -> None:
        self._jvm = jvm
        self._sink = sink
        self._session: SparkSession | None = None

    def addBatch(self, batch_id: int, data: Any) -> None:
        with thrown_in_java(self._jvm):
            if self._session is None:
                # All batches of a query run in one copy of the session that started it.
                context = self._jvm.spark.sparkContext
                self._session = SparkSession(context, data.sparkSession())
            self._sink.add_batch(batch_id, DataFrame(data, self._session))

    def name(self) -> str:
        return str(self._sink)

    def schema(self) -> Any:
        return self._jvm.java_class("org.apache.spark.sql.types.StructType")()

    def capabilities(self) -> Any:
        return self._jvm.java_class("java.util.Collections").emptySet()

    def toString(self) -> str:
        return str(self._sink)

    Java = java_interfaces("org.apache.spark.sql.execution.streaming.Sink")
