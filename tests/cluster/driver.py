"""What a user's program does on a cluster; prints what it found as one line of JSON.

python -m tests.cluster.driver spark://127.0.0.1:7077 /a/directory
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
from pyspark_delta.spark.convert.files import list_files
from pyspark_delta.spark.convert.footers import read_footers
from tests.cluster.standalone import SHORT_LIVED
from tests.support.tables import delete_positions, table_log

ROWS = 1_000


def session(master: str) -> SparkSession:
    """A session on the cluster, with one executor on each worker."""
    return enable(
        SparkSession.builder.master(master)
        .appName("cluster")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        # Nothing here is tried a second time: what fails once is a failure.
        .config("spark.task.maxFailures", "1")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def has_python(spark: SparkSession) -> bool:
    """Whether an executor can run Python."""
    plain = F.udf(lambda value: value, "long")
    try:
        spark.range(1).select(plain("id")).collect()
    except (PySparkException, Py4JJavaError):
        return False
    return True


def run(spark: SparkSession, path: Path) -> dict[str, Any]:
    """A table's life: written by two executors, filtered, rows deleted, appended, overwritten."""
    source = spark.range(0, ROWS, 1, 4).selectExpr("id", "id % 2 AS p", "concat('wörd ', id) AS v")
    options = {"delta.enableDeletionVectors": "true"}
    source.write.format("delta").partitionBy("p").options(**options).save(str(path))
    frame = spark.read.format("delta").load(str(path))
    found: dict[str, Any] = {
        "executors": spark._jsc.sc().statusTracker().getExecutorInfos().__len__() - 1,
        "python": has_python(spark),
        "rows": frame.count(),
        "sum": frame.agg(F.sum("id")).collect()[0][0],
        "filtered": [row.v for row in frame.where("p = 1 AND id = 7").collect()],
        "joined": frame.join(source, "id").where("id < 10").count(),
    }
    log = table_log(path)
    delete_positions(log, lambda file: [0, 1])
    deleted = log.snapshot.files.num_rows * 2
    frame = spark.read.format("delta").load(str(path))
    found["deleted"] = [deleted, ROWS - frame.count()]
    source.where("id < 3").write.format("delta").mode("append").save(str(path))
    found["appended"] = spark.read.format("delta").load(str(path)).count() - (ROWS - deleted)
    source.where("id < 3").write.format("delta").mode("overwrite").save(str(path))
    found["left"] = sorted(row.id for row in spark.read.format("delta").load(str(path)).collect())
    found["version"] = log.update().version
    return found


def footers(spark: SparkSession, path: Path) -> list[Any]:
    """What tasks, when they can run, and the driver find in the footers of a Parquet tree."""
    spark.range(0, 40, 1, 8).selectExpr("id", "id % 4 AS p").write.partitionBy("p").parquet(
        str(path)
    )
    noted: list[str] = []
    heard = logging.Handler()
    heard.emit = lambda record: noted.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pyspark_delta.spark.convert.footers").addHandler(heard)

    def found(tasks_from_files: int, distribute_above: int) -> list[Any]:
        with (
            list_files(spark, str(path), distribute_above=distribute_above) as manifest,
            read_footers(spark, manifest, stats=True, tasks_from_files=tasks_from_files) as read,
        ):
            return [read.schema, read.layouts, list(read.rows())]

    by_driver = found(10**9, 10**9)
    without_python = found(0, 10**9)
    fell_back = len(noted)
    # An executor's Python that has pyarrow, but whose `pyspark_delta` cannot be imported.
    hidden = path.parent / "hidden" / "pyspark_delta"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not on executors')")
    spark.sparkContext.environment["PYTHONPATH"] = str(hidden.parent)
    spark.sparkContext.pythonExec = sys.executable
    by_tasks = found(0, 1)
    return [fell_back, len(noted), by_driver == without_python == by_tasks]


if __name__ == "__main__":
    running = session(sys.argv[1])
    try:
        results = run(running, Path(sys.argv[2]))
        results["footers"] = footers(running, Path(f"{sys.argv[2]} of Parquet"))
        print(json.dumps(results))
    finally:
        running.stop()
