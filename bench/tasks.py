"""What a driver can be asked to do.  Each task times what a user would wait for, and nothing else.

The format says who works: "delta" is this package or delta-spark, whichever the driver runs, and
"parquet" is plain Spark.  Answers are plain JSON, equal when the data is equal.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.measure import Timed, timed
from pyspark_delta import DeltaLog, disable

PARTITIONS = 20
_PARSES = 1000


def rows(spark: SparkSession, start: int, count: int, tasks: int) -> DataFrame:
    """Seven columns of the usual types, the last of them with 20 values."""
    number = F.col("id")
    return spark.range(start, start + count, 1, tasks).select(
        number,
        ((number * 7919) % 1_000_003 / 100).alias("amount"),
        F.concat(F.lit("name-"), number % 100_000).alias("name"),
        F.date_add(F.lit("2020-01-01").cast("date"), (number % 1500).cast("int")).alias("day"),
        F.timestamp_seconds(number + 1_600_000_000).alias("time"),
        F.hex(number * 2_654_435_761).alias("code"),
        (number % PARTITIONS).cast("int").alias("bucket"),
    )


def write(
    spark: SparkSession,
    path: str,
    format: str,
    count: int,
    tasks: int = 4,
    partition_by: list[str] | None = None,
    options: dict[str, str] | None = None,
) -> Timed:
    """Write a new table.  What earlier writes left to the disk is waited for before."""
    shutil.rmtree(path, ignore_errors=True)
    os.sync()
    data = rows(spark, 0, count, tasks)
    writer = data.write.format(format).options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    return Timed(timed(lambda: writer.save(path)).seconds)


def append(spark: SparkSession, path: str, format: str, start: int, count: int) -> Timed:
    """Append rows in one file, from the expression that makes them to the commit."""

    def work() -> None:
        rows(spark, start, count, 1).write.format(format).mode("append").save(path)

    return Timed(timed(work).seconds)


def copy(spark: SparkSession, source: str, path: str, tasks: int) -> Timed:
    """A Delta table with the rows of Parquet files."""
    data = spark.read.parquet(source).repartition(tasks)
    return Timed(timed(lambda: data.write.format("delta").save(path)).seconds)


def scan(spark: SparkSession, path: str, format: str) -> Timed:
    """Every column of every row, which goes nowhere."""

    def work() -> None:
        frame = spark.read.format(format).load(path)
        frame.write.format("noop").mode("overwrite").save()

    return Timed(timed(work).seconds)


def totals(spark: SparkSession, path: str, format: str, columns: list[str]) -> Timed:
    """Load and sum columns."""

    def work() -> list[Any]:
        frame = spark.read.format(format).load(path)
        return list(frame.agg(*[F.sum(column) for column in columns]).collect()[0])

    done = timed(work)
    return Timed(done.seconds, _plain(done.answer))


def extent(spark: SparkSession, path: str, format: str) -> Timed:
    """How many rows there are, and the ends of their keys."""

    def work() -> list[Any]:
        frame = spark.read.format(format).load(path)
        return list(frame.agg(F.count("*"), F.min("id"), F.max("id")).collect()[0])

    done = timed(work)
    return Timed(done.seconds, _plain(done.answer))


def find(spark: SparkSession, path: str, format: str, key: int) -> Timed:
    """The row of a key, and how many files were opened for it."""
    frames: list[DataFrame] = []

    def work() -> list[Any]:
        frames.append(spark.read.format(format).load(path).where(F.col("id") == key))
        return [list(row) for row in frames[0].collect()]

    done = timed(work)
    return Timed(done.seconds, [_plain(done.answer), _files_read(frames[0])])


def digest(spark: SparkSession, path: str, format: str) -> Timed:
    """How many rows there are, and a sum over a hash of all their values."""
    frame = spark.read.format(format).load(path)
    hashed: Column = F.xxhash64(*[F.col(name) for name in sorted(frame.columns)])
    found = frame.agg(F.count("*"), F.sum(hashed.cast("decimal(38,0)"))).collect()[0]
    return Timed(0.0, [str(value) for value in found])


def delete(spark: SparkSession, path: str, condition: str) -> Timed:
    """Delete rows with delta-spark."""
    jvm: Any = spark._jvm
    table = jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, path)
    return Timed(timed(lambda: table.delete(condition)).seconds)


def plan(spark: SparkSession, path: str, key: int, is_cold: bool) -> Timed:
    """Load a table and plan a query that finds one key, up to the tasks that would run.

    Cold is without anything that is remembered about the table.
    """
    if is_cold:
        forget(spark)
    frames: list[DataFrame] = []

    def work() -> int:
        frames.append(spark.read.format("delta").load(path).where(F.col("id") == key))
        tasks: int = frames[0]._jdf.queryExecution().toRdd().getNumPartitions()
        return tasks

    done = timed(work)
    return Timed(done.seconds, [done.answer, _files_read(frames[0])])


def forget(spark: SparkSession) -> None:
    """Drop what either implementation remembers about tables."""
    if "DeltaSparkSessionExtension" in (spark.conf.get("spark.sql.extensions", "") or ""):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    else:
        DeltaLog.clear_cache()


def wide_file(spark: SparkSession, path: str, count: int) -> Timed:
    """One Parquet file of twelve columns, as Spark writes it."""
    number = F.col("id")
    more = [
        (number % 1000).cast("decimal(12,2)").alias("price"),
        (number % 7).cast("short").alias("weekday"),
        (number % 2 == 0).alias("flag"),
        F.when(number % 3 == 0, F.concat(F.lit("note "), number)).alias("note"),
        (number / 7).cast("float").alias("share"),
    ]
    rows(spark, 0, count, 1).select("*", *more).write.parquet(path)
    return Timed(0.0)


def convert(spark: SparkSession, path: str, stats: bool) -> Timed:
    """Convert a directory of Parquet files, which was none of Delta's."""
    shutil.rmtree(Path(path) / "_delta_log", ignore_errors=True)
    forget(spark)
    os.sync()
    statement = f"CONVERT TO DELTA parquet.`{path}`" + ("" if stats else " NO STATISTICS")
    return Timed(timed(lambda: spark.sql(statement)).seconds)


def stream(spark: SparkSession, source: str, path: str, format: str, checkpoint: str) -> Timed:
    """Run a query over the files it has not seen, one for each batch; what every batch took."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "5000")
    schema = spark.read.parquet(source).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    writer = reader.parquet(source).writeStream.format(format).trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).start(path)
    query.awaitTermination()
    took = [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    return Timed(sum(took), took)


def drain(spark: SparkSession, path: str, checkpoint: str) -> Timed:
    """Read every commit of a table as a stream, whose rows go nowhere; how many there were."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "5000")
    shutil.rmtree(checkpoint, ignore_errors=True)
    forget(spark)

    def work() -> int:
        reader = spark.readStream.format("delta").option("startingVersion", 0)
        writer = reader.load(path).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    return timed(work)


def idle(spark: SparkSession, path: str, checkpoint: str, triggers: int) -> Timed:
    """What a trigger of a query takes that finds nothing new, and how many jobs those ran."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    reader = spark.readStream.format("delta").option("startingVersion", "latest")
    writer = reader.load(path).writeStream.format("noop").trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(query.runId))
    spans: list[float] = []
    seen = ""
    while len(spans) < triggers:
        progress = query.lastProgress
        if progress is not None and progress["timestamp"] != seen:
            seen = progress["timestamp"]
            spans.append(progress["durationMs"]["triggerExecution"] / 1000)
        time.sleep(0.005)
    ran = len(jobs(query.runId)) - before
    query.stop()
    spans.sort()
    return Timed(spans[len(spans) // 2], ran)


def change_file(spark: SparkSession, path: str, count: int, is_told: bool) -> Timed:
    """One Parquet file of three columns, or of those and what happened to each row."""
    kind = "if(id % 2 = 0, 'update_preimage', 'update_postimage') AS _change_type"
    rows = spark.range(0, count, 1, 1).selectExpr(
        "id", "id * 1.5D AS amount", "concat('name-', id) AS name", *([kind] if is_told else [])
    )
    rows.write.parquet(path)
    return Timed(0.0)


def feed(spark: SparkSession, path: str, condition: str | None) -> Timed:
    """Every change of a table, counted and summed by what happened."""

    def work() -> list[Any]:
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        frame = reader.option("startingVersion", 0).load(path)
        if condition is not None:
            frame = frame.where(condition)
        found = frame.groupBy("_change_type").agg(
            F.count("*"), F.sum("id"), F.sum("amount"), F.sum("_commit_version")
        )
        return sorted([_plain(list(row)) for row in found.collect()], key=str)

    return timed(work)


def history(spark: SparkSession, path: str, limit: int | None) -> Timed:
    """The history of a table, every row of it; how many there are, and a sum over their texts."""
    some = "" if limit is None else f" LIMIT {limit}"
    start = time.perf_counter()
    found = spark.sql(f"DESCRIBE HISTORY delta.`{path}`{some}").collect()
    seconds = time.perf_counter() - start
    told = [sum(len(str(row[i])) for row in found) for i in (0, 4, 5, 9, 12)]
    return Timed(seconds, [len(found), *told])


def plain_sql(spark: SparkSession, text: str, rounds: int) -> Timed:
    """How much longer `spark.sql` takes in this session than in one of Spark's own."""
    sessions = [spark, _bare_session(spark)]
    times: list[list[float]] = [[], []]
    for turn in range(-rounds // 4, rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            sessions[i].sql(text)
            if turn >= 0:
                times[i].append(time.perf_counter() - start)
    ours, plain = map(statistics.median, times)
    return Timed(max(ours - plain, 0.0))


def parses(spark: SparkSession, text: str, rounds: int) -> Timed:
    """Seconds that a statement's parsing takes here, and in a session of Spark's own.

    The JVM has the loop: a call from Python takes longer than what is measured.
    """
    parsers: list[Any] = [
        each._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
        for each in (spark, _bare_session(spark))
    ]
    loop = _parsing_loop(spark)
    times: list[list[float]] = [[], []]
    for turn in range(-rounds, rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            taken = loop(parsers[i], text) / _PARSES / 1e9
            if turn >= 0:
                times[i].append(taken)
    ours, plain = map(statistics.median, times)
    return Timed(ours, [ours, plain])


def parquet_table(spark: SparkSession, name: str) -> Timed:
    """A table of another format in the catalog."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (id LONG, s STRING) USING parquet")
    return Timed(0.0)


def small_query(spark: SparkSession, path: str, rounds: int) -> Timed:
    """The median of a small query, from its text to its rows."""
    text = f"SELECT count(*) AS n, sum(id % 7) AS s FROM delta.`{path}`"
    times = [timed(lambda: spark.sql(text).collect()).seconds for _ in range(2 * rounds)]
    return Timed(statistics.median(times[rounds:]))


def _bare_session(spark: SparkSession) -> SparkSession:
    made: Any = spark._jsparkSession
    return disable(SparkSession(spark.sparkContext, made.newSession()))


def _parsing_loop(spark: SparkSession) -> Callable[[Any, str], int]:
    """A function that parses a text many times, and returns the nanoseconds."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway

    def array(kind: Any, items: Sequence[Any]) -> Any:
        made = gateway.new_array(kind, len(items))
        for i, each in enumerate(items):
            made[i] = each
        return made

    lang, named = jvm.java.lang, jvm.java.lang.Class.forName
    parser = named("org.apache.spark.sql.catalyst.parser.ParserInterface")
    script = jvm.org.codehaus.janino.ScriptEvaluator()
    script.setParentClassLoader(lang.ClassLoader.getSystemClassLoader())
    script.setReturnType(lang.Long.TYPE)
    script.setThrownExceptions(array(lang.Class, [named("java.lang.Exception")]))
    kinds = array(lang.Class, [parser, named("java.lang.String")])
    script.setParameters(array(lang.String, ["parser", "text"]), kinds)
    script.cook(
        "long start = System.nanoTime();"
        f"for (int i = 0; i < {_PARSES}; i++) {{ parser.parsePlan(text); }}"
        "return System.nanoTime() - start;"
    )
    return lambda given, text: script.evaluate(array(lang.Object, [given, text]))


def memory(spark: SparkSession) -> Timed:
    """Bytes that the driver holds: the JVM, and this Python process, now and at most."""
    jvm: Any = spark._jvm
    pids = {"jvm": jvm.java.lang.ProcessHandle.current().pid(), "python": os.getpid()}
    return Timed(0.0, {name: _memory_of(pid) for name, pid in pids.items()})


def _memory_of(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "now": int(fields["VmRSS"].split()[0]) * 1024,
        "peak": int(fields["VmHWM"].split()[0]) * 1024,
    }


def _files_read(frame: DataFrame) -> int:
    scan_node = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    files: int = scan_node.metrics().apply("numFiles").value()
    return files


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.9g}")  # sums of doubles depend on their order
    return value if value is None or isinstance(value, int) else str(value)


TASKS: dict[str, Callable[..., Timed]] = {
    each.__name__: each
    for each in (
        write,
        append,
        copy,
        scan,
        totals,
        extent,
        find,
        digest,
        delete,
        plan,
        wide_file,
        convert,
        stream,
        drain,
        idle,
        change_file,
        feed,
        history,
        plain_sql,
        parses,
        parquet_table,
        small_query,
        memory,
    )
}
