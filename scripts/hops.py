"""Modules of this package that one statement passes through, counted in a traced run.

    python scripts/hops.py            # the counts
    python scripts/hops.py --modules  # and the modules, in the order of their first call

Each statement runs once before it is traced, so that what only a first run does is left out.  The
bars are for modules of the Spark half; those of the kernel are counted beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

import pyspark_delta

PACKAGE = "pyspark_delta."
BARS = {"read": 30, "append": 30, "MERGE from Python": 40, "MERGE from SQL": 40}


_VISITED: dict[str, None] = {}


def trace() -> None:
    """Note the modules whose functions are called, on this thread and on those started later.

    Java calls Python on threads that are there before the statement, so this comes first.
    """

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__", "")
            if name.startswith(PACKAGE):
                _VISITED.setdefault(name.removeprefix(PACKAGE))

    threading.setprofile(note)
    sys.setprofile(note)


def visited(run: Callable[[], object]) -> list[str]:
    """The modules of this package whose functions `run` calls, in the order of their first call."""
    _VISITED.clear()
    run()
    return list(_VISITED)


def statements(spark: SparkSession, root: Path) -> dict[str, Callable[[], object]]:
    """What is traced, by name."""
    path = str(root / "orders ä 100%")
    spark.range(10).write.format("delta").save(path)
    table = pyspark_delta.DeltaTable.forPath(spark, path)
    source = spark.range(5, 15)
    source.createOrReplaceTempView("source")

    def merge() -> None:
        builder = table.alias("t").merge(source.alias("s"), "t.id = s.id")
        builder.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return {
        "read": lambda: spark.read.format("delta").load(path).collect(),
        "append": lambda: spark.range(1).write.format("delta").mode("append").save(path),
        "MERGE from Python": merge,
        "MERGE from SQL": lambda: spark.sql(
            f"MERGE INTO delta.`{path}` t USING source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ),
    }


def main() -> int:
    """Print the counts; 1 when one is over its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", action="store_true", help="list the modules too")
    given = parser.parse_args()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        builder = builder.config("spark.sql.warehouse.dir", folder)
        trace()
        spark = pyspark_delta.enable(builder.getOrCreate())
        for name, run in statements(spark, Path(folder)).items():
            run()
            modules = visited(run)
            of_spark = sum(module.startswith("spark.") for module in modules)
            is_met &= of_spark <= BARS[name]
            print(
                f"{name}: {of_spark} modules of spark (at most {BARS[name]}), "
                f"{len(modules) - of_spark} of the kernel"
            )
            for module in modules if given.modules else ():
                print(f"  {module}")
        spark.stop()
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
