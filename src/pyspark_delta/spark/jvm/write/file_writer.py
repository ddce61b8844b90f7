"""Writes a DataFrame to Parquet files at their final paths, with Spark's own writer.

The job runs as a query, with an id, a plan in the UI, and metrics: Spark assigns jobs to
a query by their thread.  Py4J keeps a Python thread and its Java thread together.

The commit protocol of Spark's file stream sink writes directly to the final path, and lists every
finished file in a log of its own, which is temporary here.  No row enters Python.
A failed job deletes the files of its tasks; VACUUM deletes what a killed one leaves.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.partition_values import parse_partition_directory
from pyspark_delta.kernel.protocol.types import DataType
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    analyzed_plan,
    default_arguments,
    items,
    java_interfaces,
    moved_class,
)
from pyspark_delta.spark.jvm.plans.frames import plan_frame

OUTPUT_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
"""Spark's setting for the type of timestamps in files."""
MetricKind = Literal["sum", "size"]

_EXECUTION = "org.apache.spark.sql.execution"
_EXECUTION_ID = "spark.sql.execution.id"
_METRICS = f"{_EXECUTION}.metric"
_DATASOURCES = f"{_EXECUTION}.datasources"
_WRITER = f"{_DATASOURCES}.FileFormatWriter"
_FUNCTIONS = "org.apache.spark.sql.functions"
_ADAPTIVE = "spark.sql.adaptive."
_MIN_PARTITION_BYTES = 1 << 20
_BATCH = 0
# Required of files whatever the user's session has: lists with three levels, field ids of mapped
# columns, and unshredded variants, because readers need not support others.
_SESSION_CONF = {
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
# The default here: timestamps of Spark's own default, INT96, have no statistics.
_TIMESTAMPS = (OUTPUT_TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
# Partition directories have timestamps in this zone, so that they differ from local ones.
_WRITER_OPTIONS = {"timeZone": "UTC"}
_IDLE_SESSIONS: WeakKeyDictionary[SparkSession, list[Any]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that Spark finished.  `path` is decoded and relative to the table's root.

    `partition_values` are spelled as in directories: timestamps in UTC, None for null.
    """

    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None] = field(hash=False)

    def below(self, directory: str) -> WrittenFile:
        """The same file, for a root further up; `directory` ends with a slash."""
        return replace(self, path=directory + self.path)


def write_files(
    jvm: JvmSession,
    data: DataFrame,
    root: str,
    partition_columns: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    *,
    hadoop: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    planning: Mapping[str, str] | None = None,
    in_query: bool = False,
    one_partition_each: bool = False,
) -> list[WrittenFile]:
    """Run one job that writes `data` below `root`, a decoded location; returns the files.

    Partition columns are named as in `data`; of columns with the same name, the last one makes the
    directories, and the others go into the files.  `options` are those of Spark's writer, `hadoop`
    entries of the job's configuration, and `settings` those of the session that writes.  `planning`
    are settings that already apply when the data is planned, unless `data` is observed.
    `in_query` means that a query already runs on this thread, as for a streaming batch: the job is
    part of it, and `data`, which is written once, keeps its plan.
    `one_partition_each` promises that no task has rows of two partitions, which saves a sort.
    """
    # `observe` waits for a query of the user's own session.
    plans = bool(planning) and not _is_observed(data)
    written_with = {**(settings or {}), **((planning or {}) if plans else {})}
    with (
        _writer_session(jvm, written_with, is_new=plans) as session,
        _sink_log(jvm, session) as (sink_log, directory),
    ):
        if in_query and not plans:
            query = data._jdf.queryExecution()
        else:
            query = new_query(jvm, data, session if plans else None)
        output = query.analyzed().output()
        by_name = {each.name(): each for each in items(output)} if partition_columns else {}
        protocol = moved_class(jvm, "ManifestFileCommitProtocol")(str(uuid4()), root)
        protocol.setupManifestOptions(sink_log, _BATCH)
        arguments: tuple[Any, ...] = (
            session,
            query.executedPlan(),
            jvm.java_class(f"{_DATASOURCES}.parquet.ParquetFileFormat")(),
            protocol,
            jvm.static(_WRITER, "OutputSpec")(root, jvm.scala_map({}), output),
            session.sessionState().newHadoopConfWithOptions(jvm.scala_map(hadoop or {})),
            jvm.seq([by_name[name] for name in partition_columns]),
            jvm.none(),  # no buckets
            jvm.seq([]),  # no statistics trackers
            jvm.scala_map({**(options or {}), **_WRITER_OPTIONS}),
            # Spark does not sort by partition columns that it takes for static.
            len(partition_columns) if one_partition_each else 0,
        )
        arguments += default_arguments(jvm, f"{_WRITER}$", "write", len(arguments))
        write = jvm.java_class(f"{_WRITER}$").write
        if in_query:
            write(*arguments)
        else:
            run_as_query(jvm, query, "Delta write", lambda: write(*arguments))
        return _logged_files(directory / str(_BATCH), _root_path(jvm, root))


def new_query(jvm: JvmSession, data: DataFrame, session: Any = None) -> Any:
    """A new `QueryExecution` of the data, with the settings of a session if one is given.

    The execution of a DataFrame is planned only once: running it again would write the time of its
    first run, and read the files that a table had then.
    """
    datasets = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    session = jvm.session if session is None else session
    return datasets.ofRows(session, analyzed_plan(data)).queryExecution()


def run_as_query(
    jvm: JvmSession, query_execution: Any, name: str, body: Callable[[], object]
) -> None:
    """Run `body`, which starts jobs, so that Spark shows them as the query of a plan."""
    jvm.accept_callbacks()
    function = _ScalaFunction(body)
    execution = jvm.java_class(f"{_EXECUTION}.SQLExecution$")
    try:
        execution.withNewExecutionId(query_execution, jvm.some(name), function)
    except JAVA_FAILURES as error:
        # Java's exception only says that a callback failed; the callback's own error has the
        # reason.
        raise (function.error or error) from None


class PlanMetrics:
    """Our metrics in Spark's UI: those of one node on top of a running query's plan.

    `details` is the node's text, and `metrics` has the label of each in the UI and whether its
    unit is bytes.
    """

    def __init__(
        self,
        jvm: JvmSession,
        node: str,
        details: str,
        metrics: Mapping[str, tuple[str, MetricKind]],
    ) -> None:
        self._jvm = jvm
        self._node, self._details = node, details
        context, factory = jvm.spark.sparkContext._jsc.sc(), f"{_METRICS}.SQLMetrics"
        info = jvm.java_class(f"{_METRICS}.SQLMetricInfo")
        self._metrics: dict[str, Any] = {}
        infos = []
        for key, (label, kind) in metrics.items():
            if kind == "size":
                metric = jvm.static(factory, "createSizeMetric")(context, label, 0)
            else:
                metric = jvm.static(factory, "createMetric")(context, label)
            self._metrics[key] = metric
            infos.append(info(label, metric.id(), kind))
        self._infos = jvm.seq(infos)
        self._all = jvm.seq(self._metrics.values())
        self._context = context
        self._bus = context.listenerBus()
        self._mode = jvm.java_class(f"{_EXECUTION}.ExplainMode$").fromString("formatted")

    def show(self, data: DataFrame, values: Mapping[str, int]) -> None:
        """Show the values in the execution that runs on this thread and writes `data`."""
        jvm = self._jvm
        execution = jvm.spark.sparkContext.getLocalProperty(_EXECUTION_ID)
        if execution is None:
            return
        for key, value in values.items():
            self._metrics[key].set(value)
        query = data._jdf.queryExecution()
        name = f"{_EXECUTION}.SparkPlanInfo"
        below = jvm.java_class(f"{name}$").fromSparkPlan(query.executedPlan())
        no_more = jvm.remembered("no options", lambda: jvm.scala_map({}))
        plan = jvm.java_class(name)(
            self._node, self._details, jvm.seq([below]), no_more, self._infos
        )
        event = jvm.java_class(f"{_EXECUTION}.ui.SparkListenerSQLAdaptiveExecutionUpdate")
        self._bus.post(event(int(execution), query.explainString(self._mode), plan))
        post = jvm.java_class(f"{_METRICS}.SQLMetrics$").postDriverMetricUpdates
        post(self._context, execution, self._all)


def _is_observed(data: DataFrame) -> bool:
    """Whether the data contains `observe`, or a text that looks so."""
    return "CollectMetrics" in str(analyzed_plan(data).toString())


@contextmanager
def _writer_session(
    jvm: JvmSession, settings: Mapping[str, str], *, is_new: bool = False
) -> Iterator[Any]:
    """A session with the user's settings except those of a write, for one write at a time.

    Sessions are reused: Spark keeps a listener for each until it is garbage-collected.  A new one
    gets every listener that the user's session has now.
    """
    if is_new:
        session = jvm.session.cloneSession()
        _configure(session.sessionState().conf().settings(), settings)
        yield session
        return
    idle = _IDLE_SESSIONS.setdefault(jvm.spark, [])
    own = jvm.session.sessionState().conf().settings()
    try:
        session = idle.pop()
        conf = session.sessionState().conf()
        conf.clear()
        conf.settings().putAll(own)
    except (IndexError, Py4JJavaError):  # none is idle, or another thread changes settings just now
        session = jvm.session.cloneSession()
        conf = session.sessionState().conf()
    _configure(conf.settings(), settings)
    yield session
    idle.append(session)


def _configure(found: Any, settings: Mapping[str, str]) -> None:
    found.putIfAbsent(*_TIMESTAMPS)
    found.putAll({**_SESSION_CONF, **settings})


@contextmanager
def _sink_log(jvm: JvmSession, session: Any) -> Iterator[tuple[Any, Path]]:
    """A log for one batch, and its directory: the JVM is on this machine."""
    directory = Path(tempfile.mkdtemp(prefix="pyspark-delta-"))
    try:
        location = directory.as_uri()
        version = 1
        sink_log = moved_class(jvm, "FileStreamSinkLog")(version, session, location, jvm.none())
        yield sink_log, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _logged_files(batch: Path, root_path: str) -> list[WrittenFile]:
    """The files of a batch: its log has a version line, then a JSON object for each file."""
    lines = batch.read_text(encoding="utf-8").splitlines()[1:] if batch.exists() else []
    return [_written(json.loads(line), root_path) for line in lines]


def _written(status: Mapping[str, Any], root_path: str) -> WrittenFile:
    path = unquote(urlsplit(status["path"]).path, errors="strict").removeprefix(f"{root_path}/")
    return WrittenFile(
        path=path,
        size=status["size"],
        modified_ms=status["modificationTime"],
        partition_values=dict(parse_partition_directory(path)),
    )


def _root_path(jvm: JvmSession, root: str) -> str:
    path: str = jvm.hadoop_path(root).toUri().getPath()
    return path.removesuffix("/")


class _ScalaFunction:
    def __init__(self, body: Callable[[], object]) -> None:
        self._body = body
        self.error: BaseException | None = None

    def apply(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self.error = error
            raise

    def toString(self) -> str:
        return "pyspark_delta"

    Java = java_interfaces("scala.Function0")


def check_columns_differ(jvm: JvmSession, schema: Any) -> None:
    """Raise Spark's error for duplicate column names at any depth of a Java schema.

    The session decides whether names are case-sensitive.
    """
    exact = jvm.state.conf().caseSensitiveAnalysis()
    utils = jvm.java_class("org.apache.spark.sql.util.SchemaUtils$")
    utils.checkSchemaColumnNameDuplication(schema, exact)


def check_new_columns(data: DataFrame) -> None:
    """As `check_columns_differ`, for the columns of rows for a new table.

    Spark makes this check before it calls a catalog.
    """
    check_columns_differ(JvmSession(data.sparkSession), data._jdf.schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A column of a result: a SQL expression, cast to a type if there is one, under a name.

    `metadata` becomes the column's; without it, the column keeps that of the expression.  With
    `is_apart` the optimizer never merges it with another column of the same name and values.
    """

    expression: str
    name: str
    data_type: DataType | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    is_apart: bool = False


def project(jvm: JvmSession, data: DataFrame, columns: Sequence[Projected]) -> DataFrame:
    """`data` projected to exactly these columns, in few calls into the JVM.

    PySpark's own columns take a dozen calls each, which is slow for a small write.
    """
    selected = [_java_column(jvm, column) for column in columns]
    return jvm.data_frame(data._jdf.select(jvm.seq(selected)))


def rebalanced(
    jvm: JvmSession, data: DataFrame, columns: Sequence[str], num_bytes: int
) -> DataFrame:
    """`data` by Spark's adaptive shuffle: partitions of about `num_bytes`, clustered by `columns`.

    The size is that of shuffled bytes.
    """
    plan = analyzed_plan(data)
    by_name = {each.name(): each for each in items(plan.output())} if columns else {}
    # Py4J passes a small int as Integer, and Spark needs a long.
    text = jvm.java_class("scala.collection.StringOps$")
    some_long = getattr(text, "toLongOption$extension")(str(num_bytes))
    moved = jvm.plan_class("RebalancePartitions")(
        jvm.seq([by_name[name] for name in columns]),
        plan,
        jvm.none(),  # as many partitions as needed
        some_long,
    )
    return plan_frame(jvm, moved)


def rebalance_settings(num_bytes: int) -> dict[str, str]:
    """Settings by which `num_bytes`, not the number of cores, decides how many partitions."""
    return {
        f"{_ADAPTIVE}enabled": "true",
        f"{_ADAPTIVE}optimizeSkewsInRebalancePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.enabled": "true",
        f"{_ADAPTIVE}coalescePartitions.parallelismFirst": "false",
        f"{_ADAPTIVE}coalescePartitions.minPartitionSize": str(
            min(num_bytes, _MIN_PARTITION_BYTES)
        ),
    }


def _java_column(jvm: JvmSession, column: Projected) -> Any:
    if column.is_apart:
        # A free wrapper that the optimizer does not remove.  An alias with its own metadata would
        # not do: below a union it loses the metadata.
        parsed = jvm.parser.parseExpression(column.expression)
        found = column_of(jvm, jvm.expression_class("KnownNullable")(parsed))._jc
    else:
        found = jvm.static(_FUNCTIONS, "expr")(column.expression)
    if column.data_type is not None:
        found = found.cast(jvm.data_type(column.data_type))
    if not column.metadata:
        return getattr(found, "as")(column.name)
    text = json.dumps(column.metadata)
    metadata = jvm.static("org.apache.spark.sql.types.Metadata", "fromJson")(text)
    return getattr(found, "as")(column.name, metadata)
