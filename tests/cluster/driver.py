"""What a user's program does on a cluster; prints what it found as one line of JSON.

python -m tests.cluster.driver spark://127.0.0.1:7077 /a/directory
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
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
        "sum": frame.agg(F.sum("id")).first()[0],
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


if __name__ == "__main__":
    running = session(sys.argv[1])
    try:
        print(json.dumps(run(running, Path(sys.argv[2]))))
    finally:
        running.stop()
