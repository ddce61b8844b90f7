"""Spark's streaming `Source` in Python: offsets and batches, on the thread of the query.

The source stands in the plan of the DataFrame, so queries over one DataFrame share it; which of
them is calling, the properties of the calling thread tell.  What a query needs is made when it
begins, and goes when it stops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.thrown_errors import thrown_in_java
from pyspark_delta.spark.jvm.versions import moved_class

_READ_LIMIT = "org.apache.spark.sql.connector.read.streaming.ReadLimit"
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
_HASHES = count(1)


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A run of a query, as its thread tells; both are empty outside of one."""

    query_id: str
    run_id: str
    _jvm: JvmSession = field(repr=False, compare=False)
    _source_hash: int = field(repr=False, compare=False)

    @property
    def checkpoint(self) -> str | None:
        """Where the query keeps its checkpoint; None outside of a query."""
        execution = self._execution()
        return None if execution is None else str(execution.resolvedCheckpointRoot())

    @property
    def source_number(self) -> int:
        """Which of the query's sources is asking, counted from 0."""
        hashes = [each.hashCode() for each in self._sources()]
        return hashes.index(self._source_hash) if self._source_hash in hashes else 0

    @property
    def are_ours(self) -> list[bool]:
        """Of each of the query's sources, whether it is in Python, and not made by Spark."""
        is_proxy = self._jvm.static("java.lang.reflect.Proxy", "isProxyClass")
        return [bool(is_proxy(each.getClass())) for each in self._sources()]

    def _sources(self) -> list[Any]:
        execution = self._execution()
        return [] if execution is None else items(execution.sources().distinct())

    def _execution(self) -> Any:
        if not self.query_id:
            return None
        try:
            query = self._jvm.session.streams().get(self.query_id)
        except Py4JError:
            return None
        return None if query is None else query.streamingQuery()


class StreamReader(ABC):
    """What one run of a query reads.  Offsets are JSON; Spark calls in turn."""

    @abstractmethod
    def end_now(self) -> None:
        """The run is to end with what is there when it is first asked."""

    @abstractmethod
    def latest_offset(self, start: str | None, *, is_limited: bool) -> str | None:
        """The end of the next batch; `start` when there is nothing new."""

    @abstractmethod
    def batch(self, start: str | None, end: str) -> DataFrame:
        """The rows between two offsets, as a streaming DataFrame."""

    @abstractmethod
    def commit(self, end: str) -> None:
        """Everything up to `end` is done."""

    @abstractmethod
    def close(self) -> None:
        """The run is over."""


class StreamSource(ABC):
    """What a streaming DataFrame reads, for whichever query.  Makes a reader for each run."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What progress reports call it."""

    @abstractmethod
    def reader(self, run: QueryRun) -> StreamReader:
        """The reader of a run that begins."""


class StreamSourceProxy:
    """The object that Java calls.  Method names are Spark's."""

    class Java:
        """Tells Py4J which interfaces this is."""

        implements = (
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
        # The options say how much; here it only matters that there is a limit.
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
            first = str(start.get().json()) if start.isDefined() else None
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
        return QueryRun(query_id, context.getLocalProperty(_RUN_ID) or "", self._jvm, self._hash)

    def _offset(self, text: str) -> Any:
        return moved_class(self._jvm, "SerializedOffset")(text)


def stream_frame(jvm: JvmSession, source: StreamSource, shape: DataFrame) -> DataFrame:
    """A streaming DataFrame of the source, with the columns of `shape`."""
    jvm.accept_callbacks()
    proxy = StreamSourceProxy(jvm, source, shape._jdf.schema())
    relation = moved_class(jvm, "StreamingExecutionRelation")(
        proxy,
        shape._jdf.queryExecution().analyzed().output(),
        jvm.none(),  # no table of the catalog
        jvm.java_class("org.apache.spark.sql.catalyst.streaming.Unassigned$"),
        jvm.session,
    )
    return plan_frame(jvm, relation)
