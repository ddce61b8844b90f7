"""A `DataStreamWriter` and the query that it starts, with a sink in Python.

Spark's interface for sinks has one method that counts, `addBatch`, which it calls on the query's
own thread, inside of the batch's execution: what runs there carries the query's id and name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.thrown_errors import thrown_in_java

_WRITER = "org.apache.spark.sql.classic.DataStreamWriter"
_QUERY_ID = "sql.streaming.queryId"


class BatchSink(ABC):
    """Where the batches of a query go.  `str()` is what Spark shows of it."""

    @abstractmethod
    def add_batch(self, batch_id: int, data: DataFrame) -> None:
        """Take one batch; a batch that comes again after a restart has the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWrite:
    """What was said to a writer: the format is `source`, modes are Append, Update, Complete."""

    source: str
    output_mode: str
    is_continuous: bool
    partition_by: tuple[str, ...]
    cluster_by: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False, repr=False)


def source_of(jvm: JvmSession, writer: DataStreamWriter) -> str:
    """The format that a writer has now; `foreach` and `foreachBatch` are formats too."""
    return str(_said(jvm, writer, "source"))


def stream_write(jvm: JvmSession, writer: DataStreamWriter) -> StreamWrite:
    """Everything that was said to a writer."""
    options = _said(jvm, writer, "extraOptions").originalMap()
    trigger = _said(jvm, writer, "trigger").getClass().getSimpleName()
    return StreamWrite(
        source=source_of(jvm, writer),
        output_mode=_said(jvm, writer, "outputMode").toString(),
        is_continuous=str(trigger).startswith("ContinuousTrigger"),
        partition_by=_names(_said(jvm, writer, "partitioningColumns")),
        cluster_by=_names(_said(jvm, writer, "clusteringColumns")),
        options=dict(jvm.java_class("scala.jdk.javaapi.CollectionConverters").asJava(options)),
    )


def start_query(
    jvm: JvmSession, writer: DataStreamWriter, sink: BatchSink, options: Mapping[str, str]
) -> StreamingQuery:
    """Start what the writer was told, into `sink`."""
    jvm.accept_callbacks()
    manager = jvm.session.sessionState().streamingQueryManager()
    by_name = {key.lower(): value for key, value in options.items()}
    is_temporary, recovers = False, True
    query = manager.startQuery(
        jvm.some(by_name.get("queryname")),
        _said(jvm, writer, "sinkName"),
        jvm.some(by_name.get("checkpointlocation")),
        writer._df._jdf,
        jvm.scala_map(options),
        _SinkProxy(jvm, sink),
        _said(jvm, writer, "outputMode"),
        is_temporary,
        recovers,
        _said(jvm, writer, "trigger"),
        getattr(manager, "startQuery$default$11")(),  # the clock
        jvm.none(),  # no catalog and name: Spark has a sink of its own for those
        jvm.none(),  # no catalog table: it would be refreshed after every batch, and needs it not
    )
    return writer._sq(query)


def running_query_id(jvm: JvmSession) -> str | None:
    """The id of the query whose batch runs on this thread; None outside of one.

    It is the checkpoint's, and so the same after a restart.
    """
    found = jvm.spark.sparkContext.getLocalProperty(_QUERY_ID)
    return None if found is None else str(found)


def executed_frame(jvm: JvmSession, data: DataFrame) -> DataFrame:
    """The rows of a batch as data that can be planned on.

    A batch is planned already, with its state and its place in the stream; a plan on top of it
    begins with its rows.
    """
    frame = data._jdf
    logical_rdd = jvm.java_class("org.apache.spark.sql.execution.LogicalRDD$")
    is_streaming = False
    arguments = (frame.queryExecution().toRdd(), frame, is_streaming)
    more = jvm.remembered("fromDataset", lambda: _default_of(logical_rdd, "fromDataset", 4))
    node = logical_rdd.fromDataset(*arguments, *more)
    return plan_frame(jvm, node)


def _default_of(scala_object: Any, method: str, position: int) -> tuple[Any, ...]:
    name = f"{method}$default${position}"
    return (getattr(scala_object, name)(),) if name in dir(scala_object) else ()


def _said(jvm: JvmSession, writer: DataStreamWriter, name: str) -> Any:
    """A field that the writer keeps to itself."""

    def find() -> Any:
        found = writer._jwrite.getClass().getDeclaredField(name)
        found.setAccessible(True)
        return found

    return jvm.remembered(f"{_WRITER}.{name}", find).get(writer._jwrite)


def _names(option: Any) -> tuple[str, ...]:
    return tuple(items(option.get())) if option.isDefined() else ()


class _SinkProxy:
    """The object that Java calls.  Method names are Spark's."""

    def __init__(self, jvm: JvmSession, sink: BatchSink) -> None:
        self._jvm = jvm
        self._sink = sink
        self._session: SparkSession | None = None

    def addBatch(self, batch_id: int, data: Any) -> None:
        with thrown_in_java(self._jvm):
            if self._session is None:
                # A query runs in a copy of the session that started it, the same for all batches.
                context = self._jvm.spark.sparkContext
                self._session = SparkSession(context, data.sparkSession())
            self._sink.add_batch(batch_id, DataFrame(data, self._session))

    def name(self) -> str:
        return str(self._sink)

    def schema(self) -> Any:
        return self._jvm.java_class("org.apache.spark.sql.types.StructType")()

    def capabilities(self) -> Any:
        return self._jvm.java_class("java.util.Collections").emptySet()

    def equals(self, other: Any) -> bool:
        # Java asks with a stand-in; plans that take equal sinks for different ones are still right.
        return other is self

    def hashCode(self) -> int:
        return hash(str(self._sink)) & 0x7FFFFFFF

    def toString(self) -> str:
        return str(self._sink)

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.execution.streaming.Sink",)
