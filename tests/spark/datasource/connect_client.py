"""A client of Spark Connect, with a server of its own: run as a program, prints what it found.

    python connect_client.py <directory>

A classic session and one of Spark Connect do not go together in a process.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import pyspark_delta


def outcome(ask: Callable[[], Any]) -> Any:
    """What `ask` gives, or the text of what it raises."""
    try:
        return ask()
    except pyspark_delta.DeltaError as error:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return traceback.format_exc()


def answers(spark: Any, path: str) -> dict[str, Any]:
    """Everything the tests look at, by name."""
    data = spark.range(10).selectExpr("id", "concat('p ', id % 3) AS p")

    def load(**options: Any) -> Any:
        return spark.read.format("delta").options(**options).load(path)

    def save(frame: Any, mode: str, **options: Any) -> None:
        frame.write.format("delta").mode(mode).options(**options).save(path)

    found: dict[str, Any] = {"version": spark.version}
    save(data, "append")
    save(data.where("id < 2"), "append")
    found["appended"] = load().count()
    save(data.where("id > 4"), "overwrite")
    found["overwritten"] = sorted(row.id for row in load().collect())
    found["filtered"] = [tuple(row) for row in load().where("id = 7").collect()]
    found["asked"] = [tuple(row) for row in load(filter="id = 7").collect()]
    found["old"] = load(versionAsOf=0).count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    pushed = load(pushFilters=True).where("id = 7 AND p LIKE 'p%'")
    found["pushed"] = [tuple(row) for row in pushed.collect()]
    frame = load()
    found["union"] = frame.where("id = 7").union(frame.where("id = 8")).count()
    found["mismatch"] = outcome(lambda: save(data.selectExpr("*", "1 AS x"), "append"))
    found["catalog"] = outcome(lambda: data.write.format("delta").saveAsTable("by_name"))
    found["enable"] = outcome(lambda: str(pyspark_delta.enable(spark)))
    found["left alone"] = load().count()
    return found


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    print(json.dumps(answers(spark, str(Path(sys.argv[1]) / "tä ble 100%"))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
