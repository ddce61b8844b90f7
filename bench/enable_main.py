"""A driver that is enabled once, for the CPU time of it: `python -m bench.enable_main '{...}'`.

The settings of the session come as JSON; the seconds of CPU time are printed as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

# What a new JVM does by itself is over then.
_SETTLES_SECONDS = 3.0


def main() -> None:
    builder = SparkSession.builder.appName("bench enable")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.range(10).count()
    jvm: Any = spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    before = time.process_time()
    enable = import_module("pyspark_delta").enable
    imported = time.process_time()
    time.sleep(_SETTLES_SECONDS)
    begin = time.process_time(), _cpu_seconds(pid)
    enable(spark)
    end = time.process_time(), _cpu_seconds(pid)
    found = {
        "import": imported - before,
        "python": end[0] - begin[0],
        "jvm": end[1] - begin[1],
    }
    spark.stop()
    print(json.dumps(found), flush=True)


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
