"""DataFrame to Parquet files at their final paths, by Spark's own writer.

Spark's file stream sink has a commit protocol that writes straight to the final path and notes
every finished file in a log of its own; here that log is a throw-away.  No row enters Python.
A job that fails takes back the files of its tasks; what a killed one leaves is VACUUM's.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.partition_values import parse_partition_directory
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.sql_execution import new_query, run_as_query
from pyspark_delta.spark.jvm.versions import default_arguments, moved_class

_DATASOURCES = "org.apache.spark.sql.execution.datasources"
_WRITER = f"{_DATASOURCES}.FileFormatWriter"
_BATCH = 0
# What files must be like whatever the user's session says: lists have three levels, ids of mapped
# columns are part of the file, and a variant is in one piece, for readers need not know others.
_SESSION_CONF = {
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
# Unless somebody said otherwise: timestamps of Spark's own default, INT96, have no statistics.
_TIMESTAMPS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
# Directories spell timestamps in this zone, so that they can be told from local ones.
_WRITER_OPTIONS = {"timeZone": "UTC"}
_IDLE_SESSIONS: WeakKeyDictionary[SparkSession, list[Any]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that Spark finished.  `path` is decoded and relative to the table's root.

    `partition_values` are as the directories spell them: timestamps in UTC, None for null.
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
    """Run one job that writes `data` below `root`, a decoded location, and say what it wrote.

    Partition columns are named as in `data`; of columns with the same name the last one makes
    the directories, and the others go into the files.  `options` are those of Spark's writer,
    `hadoop` entries of the job's configuration, `settings` of the session that writes; `planning`
    are settings that already count when the data is planned, unless somebody observes it.
    `in_query` says that a query runs on this thread already, as for the batch of a stream: the job
    is part of it, and `data`, which is written once, keeps the plan that it has.
    `one_partition_each` promises that no task has rows of two partitions, which need no sorting.
    """
    # Who observes a query waits for one of the user's own session.
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
            jvm.seq([]),  # no trackers of statistics
            jvm.scala_map({**(options or {}), **_WRITER_OPTIONS}),
            # Spark does not sort by partition columns whose values it takes to be given.
            len(partition_columns) if one_partition_each else 0,
        )
        arguments += default_arguments(jvm, f"{_WRITER}$", "write", len(arguments))
        write = jvm.java_class(f"{_WRITER}$").write
        if in_query:
            write(*arguments)
        else:
            run_as_query(jvm, query, "Delta write", lambda: write(*arguments))
        return _logged_files(directory / str(_BATCH), _root_path(jvm, root))


def _is_observed(data: DataFrame) -> bool:
    """Whether `observe` is a part of the data, or a text in it looks so."""
    return "CollectMetrics" in str(data._jdf.queryExecution().analyzed().toString())


@contextmanager
def _writer_session(
    jvm: JvmSession, settings: Mapping[str, str], *, is_new: bool = False
) -> Iterator[Any]:
    """A session with the user's settings but for those of a write, for one write at a time.

    Sessions are used again: Spark keeps a listener for each until it is collected.  A new one has
    every listener that the user's session has now.
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
    except (IndexError, Py4JJavaError):  # none is idle; or a thread changes settings just now
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
    """A log for one batch, and the directory it is in: the JVM is on this machine."""
    directory = Path(tempfile.mkdtemp(prefix="pyspark-delta-"))
    try:
        location = directory.as_uri()
        version = 1
        sink_log = moved_class(jvm, "FileStreamSinkLog")(version, session, location, jvm.none())
        yield sink_log, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _logged_files(batch: Path, root_path: str) -> list[WrittenFile]:
    """The files of a batch: a line with the version, then a JSON object for each."""
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
