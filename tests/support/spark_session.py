"""One Spark session for all tests: starting a JVM takes longer than any of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.delta_server import TIME_ZONE


def local_session(home: Path) -> Iterator[SparkSession]:
    """A local session on two threads, stopped when the iterator goes on."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # As in an activated environment: Spark's workers find this package, and so its data source.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        # Every sort and join of a task takes a page at once, of 16 MB in such a heap.
        .config("spark.buffer.pageSize", "1m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", TIME_ZONE)
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    with warnings.catch_warnings():
        # PySpark leaves the sockets of its gateway to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
