"""A real Hadoop file system that is not `file:`: viewfs, mounted on a local directory."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession


def mounted(spark: SparkSession, folder: Path) -> str:
    """A location on viewfs under which files of `folder / "mount"` are.

    Hadoop keeps a client for each host, so each call gives another one.
    """
    target = folder / "mount"
    target.mkdir(exist_ok=True)
    host = f"m{uuid4().hex}"
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{host}.link./data", target.as_uri())
    return f"viewfs://{host}/data"
