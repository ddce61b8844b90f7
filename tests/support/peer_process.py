"""delta-spark in a process of its own: a session that does what lines of JSON ask for.

`tests.support.peer` starts it with the Python of `.venv-peers` and is the other end of the pipe.
One request is one line, one answer is one line; whatever Spark prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.canonical import contents, json_rows


def start_session(conf: dict[str, str]) -> SparkSession:
    """A local session with delta-spark in it; `conf` wins over what is set here."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = sorted(map(str, (Path(sys.prefix) / "jars").glob("*.jar")))
    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "peer",
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


class Requests:
    """What can be asked for: one method each, named by `do`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, path: str, options: dict[str, str]) -> Any:
        """The contents of the table at `path`."""
        found = contents(self._spark.read.format("delta").options(**options).load(path))
        return [found.schema, found.rows]

    def sql(self, text: str) -> list[str]:
        """The rows of a statement."""
        return json_rows(self._spark.sql(text))

    def python(self, code: str, names: dict[str, Any]) -> Any:
        """Runs `code`, with `names` in scope; what it leaves in `result` comes back."""
        scope = {"spark": self._spark, "DeltaTable": DeltaTable, "F": F, "result": None, **names}
        exec(compile(code, "<peer>", "exec"), scope)
        return scope["result"]


def answer(requests: Requests, line: str) -> dict[str, Any]:
    """The answer to one request; an error is an answer too."""
    request = json.loads(line)
    try:
        return {"value": getattr(requests, request.pop("do"))(**request)}
    except PySparkException as error:
        return _failure(error, error.getCondition())
    except Exception as error:
        return _failure(error, None)


def _failure(error: Exception, condition: str | None) -> dict[str, Any]:
    return {"error": type(error).__name__, "condition": condition, "message": str(error)[:4_000]}


def serve(lines: TextIO, replies: TextIO) -> None:
    """Answers until the other end closes the pipe."""
    spark = start_session(json.loads(lines.readline()))
    requests = Requests(spark)
    replies.write(json.dumps({"value": spark.version}) + "\n")
    replies.flush()
    for line in lines:
        replies.write(json.dumps(answer(requests, line)) + "\n")
        replies.flush()
    spark.stop()


if __name__ == "__main__":
    # The JVM inherits the descriptors: what it prints must not get between the answers.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, private)
