"""Scala code in the driver's JVM: its calls reach Delta tables as PySpark's own do.

The calls are made through Py4J, on Spark's session, readers and writers of the JVM.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.errors import JobFailedError
from pyspark_delta.spark.jvm.gateway import JvmSession
from tests.support.catalog_tables import own_database, rows
from tests.support.notebook import CELLS, PRELUDE

Row = tuple[Any, ...]

# Cells that need no other, for every run.
SAMPLE = (
    *("a table for events", "rows by SQL", "rows by a DataFrame", "a view", "UPDATE"),
    *("MERGE", "what is refused", "older versions", "the history"),
)
HISTORY = {"the history with parameters": 'result = history("events")'}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


@pytest.fixture
def scala(session: SparkSession) -> Any:
    """The session as Scala code has it."""
    return session._jsparkSession


@pytest.fixture
def db(session: SparkSession) -> Iterator[str]:
    with own_database(session) as name:
        yield name


class Scala:
    """What the notebook needs of a session, by calls of Java's."""

    def __init__(self, python: SparkSession, java: Any) -> None:
        self.python = python
        self._java = java
        self.createDataFrame = python.createDataFrame

    def frame(self, java_frame: Any) -> DataFrame:
        return DataFrame(java_frame, self.python)

    def sql(self, text: str) -> DataFrame:
        return self.frame(self._java.sql(text))

    def table(self, name: str) -> DataFrame:
        return self.frame(self._java.table(name))

    def range(self, end: int) -> DataFrame:
        return self.frame(self._java.range(end).toDF())

    @property
    def read(self) -> ScalaReader:
        return ScalaReader(self, self._java.read())

    @property
    def readStream(self) -> ScalaReader:
        return ScalaReader(self, self._java.readStream())


class ScalaReader:
    """Spark's reader, for frames of PySpark."""

    def __init__(self, session: Scala, java: Any) -> None:
        self._session = session
        self._java = java

    def format(self, name: str) -> ScalaReader:
        return ScalaReader(self._session, self._java.format(name))

    def option(self, key: str, value: object) -> ScalaReader:
        return ScalaReader(self._session, self._java.option(key, str(value)))

    def load(self, path: str) -> DataFrame:
        return self._session.frame(self._java.load(path))

    def table(self, name: str) -> DataFrame:
        return self._session.frame(self._java.table(name))


class Tables:
    """`DeltaTable` is a class of Python's: it takes PySpark's session."""

    @staticmethod
    def forName(session: Scala, name: str) -> DeltaTable:
        return DeltaTable.forName(session.python, name)

    @staticmethod
    def createIfNotExists(session: Scala) -> Any:
        return DeltaTable.createIfNotExists(session.python)


def seq(session: SparkSession, *texts: str) -> Any:
    return JvmSession(session).seq(texts)


def read(session: SparkSession, path: Path | str) -> list[Row]:
    return rows(session.read.format("delta").load(str(path)))


def operations(path: Path | str) -> list[str | None]:
    return [info.operation for info in reversed(DeltaLog.for_table(path).history())]


def managed_path(session: SparkSession, table: str) -> str:
    found: str = session.sql(f"DESCRIBE DETAIL {table}").first()["location"]  # type: ignore[index]
    return found.removeprefix("file:")


def results(
    spark: Any, tables: Any, cells: Mapping[str, str], home: Path, db: str
) -> dict[str, Any]:
    found = {}
    for title, code in cells.items():
        scope = {"spark": spark, "DeltaTable": tables, "F": F, "home": str(home), "db": db}
        exec(compile(PRELUDE + code, title, "exec"), scope)
        # Predicates in a table's history have the numbers of Spark's expressions.
        found[title] = json.loads(re.sub(r"#\d+L?", "", json.dumps(scope["result"])))
    return found


def agree(session: SparkSession, titles: tuple[str, ...], home: Path) -> None:
    """The cells show the same to Scala as to PySpark."""
    cells = {title: CELLS[title] for title in titles}
    last = list(cells).index("the history") + 1
    cells = dict([*list(cells.items())[:last], *HISTORY.items(), *list(cells.items())[last:]])
    with own_database(session) as db:
        python = results(session, DeltaTable, cells, home / "python", db)
    session.catalog.dropTempView("news")
    session.catalog.dropTempView("last_day")
    with own_database(session) as db:
        in_scala = Scala(session, session._jsparkSession)
        scala = results(in_scala, Tables, cells, home / "scala", db)
    assert {title: result for title, result in scala.items() if result != python[title]} == {}


def test_a_notebook_s_first_cells_show_scala_what_they_show_pyspark(
    session: SparkSession, table_path: Path
) -> None:
    agree(session, SAMPLE, table_path)


@pytest.mark.slow
def test_a_notebook_shows_scala_what_it_shows_pyspark(
    session: SparkSession, table_path: Path
) -> None:
    agree(session, tuple(CELLS), table_path)


# Paths.


def test_rows_are_saved_and_loaded_by_path(
    session: SparkSession, scala: Any, table_path: Path
) -> None:
    frame = scala.sql("SELECT id, id % 2 AS p FROM range(6)")
    frame.write().format("delta").partitionBy(seq(session, "p")).save(str(table_path))
    writer = scala.sql("SELECT id, 0L AS p FROM range(10, 12)").write().format("DELTA")
    writer.mode("append").option("userMetadata", "from Scala").save(str(table_path))
    log = DeltaLog.for_table(table_path)
    assert log.update().metadata.partition_columns == ("p",)
    assert [info.user_metadata for info in log.history()] == ["from Scala", None]
    assert operations(table_path) == ["WRITE", "WRITE"]
    found = scala.read().format("delta").load(str(table_path))
    assert found.where("p = 0").count() == 5
    old = scala.read().format("Delta").option("versionAsOf", "0").load(str(table_path))
    assert old.count() == 6
    assert scala.sql(f"SELECT * FROM delta.`{table_path}` VERSION AS OF 0").count() == 6


def test_rows_of_one_partition_are_overwritten(
    session: SparkSession, scala: Any, table_path: Path
) -> None:
    frame = scala.sql("SELECT id, id % 2 AS p FROM range(6)")
    frame.write().format("delta").partitionBy(seq(session, "p")).save(str(table_path))
    writer = scala.sql("SELECT 100L AS id, 1L AS p").write().format("delta").mode("overwrite")
    writer.option("replaceWhere", "p = 1").save(str(table_path))
    assert read(session, table_path) == [(0, 0), (100, 1), (2, 0), (4, 0)]


def test_mode_of_an_existing_table_is_kept_to(scala: Any, table_path: Path) -> None:
    scala.range(2).write().format("delta").save(str(table_path))
    with pytest.raises(AnalysisException) as raised:
        scala.range(3).write().format("delta").save(str(table_path))
    assert raised.value.getCondition() == "DELTA_PATH_EXISTS"
    scala.range(3).write().format("delta").mode("ignore").save(str(table_path))
    assert operations(table_path) == ["WRITE"]


# Names.


def test_a_table_is_saved_by_name_and_appended_to(
    session: SparkSession, scala: Any, db: str
) -> None:
    scala.range(2).write().format("delta").option("userMetadata", "first").saveAsTable("t")
    scala.range(2, 3).write().format("delta").mode("append").saveAsTable("t")
    scala.range(3, 4).toDF().write().insertInto("t")
    assert rows(session.table("t")) == [(0,), (1,), (2,), (3,)]
    assert scala.table("t").count() == 4
    assert operations(managed_path(session, "t")) == [
        "CREATE TABLE AS SELECT",
        "WRITE",
        "WRITE",
    ]


def test_the_second_writer_does_all_its_verbs(session: SparkSession, scala: Any, db: str) -> None:
    def frame(*columns: str) -> Any:
        return scala.sql(f"SELECT {', '.join(columns)} FROM range(2)")

    writer = frame("id", "id AS p").writeTo("t").using("delta")
    writer.partitionedBy(F.col("p")._jc, seq(session)).create()
    frame("id + 10 AS id", "id AS p").writeTo("t").append()
    frame("id + 20 AS id", "1L AS p").writeTo("t").overwritePartitions()
    assert rows(session.table("t")) == [(0, 0), (10, 0), (20, 1), (21, 1)]
    frame("30L AS id", "0L AS p").limit(1).writeTo("t").overwrite(F.expr("p = 0")._jc)
    assert rows(session.table("t")) == [(20, 1), (21, 1), (30, 0)]
    frame("id AS other").writeTo("t").using("delta").createOrReplace()
    assert session.table("t").columns == ["other"]
    assert len(operations(managed_path(session, "t"))) == 5


def test_a_merge_is_built_of_clauses(session: SparkSession, scala: Any, db: str) -> None:
    scala.sql("CREATE TABLE t (id BIGINT, name STRING) USING delta")
    scala.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    source = scala.sql("SELECT * FROM VALUES (1L, 'A'), (4L, 'D') AS v(id, name)").alias("s")
    merge = source.mergeInto("t", F.expr("t.id = s.id")._jc)
    merge = merge.whenMatched().updateAll().whenNotMatched().insertAll()
    merge.whenNotMatchedBySource(F.expr("t.id = 3")._jc).delete().merge()
    assert rows(session.table("t")) == [(1, "A"), (2, "b"), (4, "D")]
    assert operations(managed_path(session, "t"))[-1] == "MERGE"


# Streams.


def test_a_stream_reads_one_table_and_writes_another(
    session: SparkSession, scala: Any, table_path: Path
) -> None:
    source, target = table_path / "source", table_path / "target"
    scala.range(3).write().format("delta").save(str(source))
    trigger = session._jvm.org.apache.spark.sql.streaming.Trigger.AvailableNow()  # type: ignore[union-attr]

    def run() -> None:
        stream = scala.readStream().format("delta").load(str(source)).where("id <> 1")
        writer = stream.writeStream().format("delta").trigger(trigger)
        writer = writer.option("checkpointLocation", str(table_path / "checkpoint"))
        writer.start(str(target)).awaitTermination()

    run()
    scala.range(7, 8).write().format("delta").mode("append").save(str(source))
    run()
    assert read(session, target) == [(0,), (2,), (7,)]
    assert operations(target) == ["STREAMING UPDATE", "STREAMING UPDATE"]


def test_a_stream_fills_a_table_by_name(
    session: SparkSession, scala: Any, db: str, table_path: Path
) -> None:
    scala.range(3).write().format("delta").saveAsTable("source")
    trigger = session._jvm.org.apache.spark.sql.streaming.Trigger.AvailableNow()  # type: ignore[union-attr]
    writer = scala.readStream().table("source").writeStream().format("delta").trigger(trigger)
    writer = writer.option("checkpointLocation", str(table_path / "checkpoint"))
    writer.toTable("target").awaitTermination()
    assert rows(session.table("target")) == [(0,), (1,), (2,)]


# Sessions that Python has not seen.


@pytest.mark.parametrize("make", ["newSession", "cloneSession"])
def test_a_session_made_in_scala_has_delta(
    session: SparkSession, scala: Any, table_path: Path, make: str
) -> None:
    other = getattr(scala, make)()
    table = f"delta.`{table_path}`"
    other.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
    other.sql(f"INSERT INTO {table} VALUES (1), (2)")
    other.range(3, 4).write().format("delta").mode("append").save(str(table_path))
    other.sql(f"DELETE FROM {table} WHERE id = 1")
    assert other.sql(f"SELECT * FROM {table}").count() == 2
    assert other.sql(f"DESCRIBE HISTORY {table}").count() == 4
    assert read(session, table_path) == [(2,), (3,)]


# What is cancelled.


CANCELS: dict[str, Callable[[SparkSession], object]] = {
    "all of a session": lambda spark: spark._jsparkSession.interruptAll(),
    "a group of jobs": lambda spark: spark.sparkContext.cancelJobGroup("endless"),
}


@pytest.mark.parametrize("name", CANCELS)
def test_an_insert_that_is_cancelled_leaves_no_commit(
    session: SparkSession, scala: Any, table_path: Path, name: str
) -> None:
    table = f"delta.`{table_path}`"
    scala.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
    before = sorted(table_path.rglob("*"))
    context, done = session.sparkContext, threading.Event()

    def cancel() -> None:
        while not done.wait(0.2):
            if context.statusTracker().getActiveJobsIds():
                CANCELS[name](session)

    thread = threading.Thread(target=cancel)
    thread.start()
    context.setJobGroup("endless", "an INSERT")
    try:
        with pytest.raises(JobFailedError) as raised:
            scala.sql(
                f"INSERT INTO {table} SELECT id FROM range(0, 1000000000000, 1, 2)"
                " WHERE sha2(string(id), 512) = 'x'"
            )
    finally:
        done.set()
        thread.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert raised.value.condition == "SPARK_JOB_CANCELLED"
    assert sorted(table_path.rglob("*")) == before
    assert operations(table_path) == ["CREATE TABLE"]
