"""The session of the examples: plain PySpark, quiet and on loopback."""

from __future__ import annotations

import logging
import os

from pyspark.sql import SparkSession


def session() -> SparkSession:
    """A session without a web page and without a word."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.master("local[2]").appName("examples")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
