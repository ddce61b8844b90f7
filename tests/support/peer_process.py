"""An engine in a process of its own: a session that does what lines of JSON ask for.

`tests.support.peer` starts it and is the other end of the pipe: with the Python of `.venv-peers` to
have delta-spark, with the tests' own to have this package in a session that begins otherwise than
the one all tests share.  One request is one line, one answer is one line; whatever Spark prints
goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.canonical import contents, json_rows

OURS = "pyspark_delta"


def delta_spark_settings() -> dict[str, str]:
    """What makes a session delta-spark's."""
    jars = sorted(map(str, (Path(sys.prefix) / "jars").glob("*.jar")))
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def start_session(engine: str, conf: dict[str, str]) -> SparkSession:
    """A local session with the engine in it; `conf` wins over what is set here."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "peer",
        **({} if engine == OURS else delta_spark_settings()),
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
    if engine == OURS:
        import_module(OURS).enable(session)
    return session


class Requests:
    """What can be asked for: one method each, named by `do`."""

    def __init__(self, spark: SparkSession, engine: str) -> None:
        self._spark = spark
        self._tables = import_module(f"{engine}.tables").DeltaTable

    def read(self, path: str, options: dict[str, str]) -> Any:
        """The contents of the table at `path`."""
        found = contents(self._spark.read.format("delta").options(**options).load(path))
        return [found.schema, found.rows]

    def sql(self, text: str) -> list[str]:
        """The rows of a statement."""
        return json_rows(self._spark.sql(text))

    def python(self, code: str, names: dict[str, Any]) -> Any:
        """Runs `code`, with `names` in scope; what it leaves in `result` comes back."""
        given = {"spark": self._spark, "DeltaTable": self._tables, "F": F, "result": None}
        scope = {**given, **names}
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


def serve(engine: str, lines: TextIO, replies: TextIO) -> None:
    """Answers until the other end closes the pipe.

    :param engine: the package that has the engine's `DeltaTable`.
    """
    spark = start_session(engine, json.loads(lines.readline()))
    requests = Requests(spark, engine)
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
    serve(sys.argv[1], sys.stdin, private)
