"""A Spark driver that does tasks for the benchmark: a JSON line in, a JSON line out.

`python -m bench.driver_main '{"peer": ..., "jars": [...], "conf": {...}}'`, in the environment of
the peers.  With `peer` "ours" it is a plain Spark with this package enabled, which also does plain
Parquet; with "delta-spark" it has that one's JARs, and this package stays out of the session.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from bench import dml_tasks, maintenance_tasks, optimize_tasks, tasks
from pyspark_delta import enable

TASKS = {**tasks.TASKS, **dml_tasks.TASKS, **optimize_tasks.TASKS, **maintenance_tasks.TASKS}
_DELTA_SPARK_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(peer: str, jars: list[str], conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(f"bench {peer}")
    for key, value in conf.items():
        builder = builder.config(key, value)
    if peer == "delta-spark":
        builder = builder.config("spark.jars", ",".join(jars))
        for key, value in _DELTA_SPARK_CONF.items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return enable(spark) if peer == "ours" else spark


def answer(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    try:
        done = TASKS[request["task"]](spark, **request["arguments"])
    except Exception:
        return {"error": traceback.format_exc()}
    return {"seconds": done.seconds, "answer": done.answer}


def main() -> None:
    # The JVM inherits standard output and may write there: keep it for the answers alone.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    given = json.loads(sys.argv[1])
    spark = session(given["peer"], given["jars"], given["conf"])
    print(json.dumps({"spark": pyspark.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
