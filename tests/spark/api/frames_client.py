"""A table's rows in pandas, polars and DuckDB: run as a program, prints what each of them holds.

    python frames_client.py <directory>

Numpy, which pandas brings, changes what pyarrow does: it stays out of the process of the tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
from pyspark.sql import SparkSession

import pyspark_delta
from pyspark_delta import DeltaLog, DeltaTable

_ROWS = """
SELECT id, id % 2 AS part, IF(id = 3, NULL, concat('ä', id)) AS name, id % 2 = 0 AS even,
  CAST(id / 4 AS DECIMAL(10, 2)) AS price, DATE'2024-02-29' + CAST(id AS INT) AS day,
  TIMESTAMP'2024-01-01 01:02:03.000004' AS at, TIMESTAMP_NTZ'1500-01-01 00:00:00' AS local,
  named_struct('x', id, 'y', array('a', NULL)) AS nested, encode('é', 'utf-8') AS raw
FROM range(0, 6, 1, 1)
"""
_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}


def made(spark: SparkSession, path: str) -> DeltaTable:
    """A table with partitions, a vector that hides a row, and a column that was renamed."""
    writer = spark.sql(_ROWS).write.format("delta").partitionBy("part")
    writer.options(**_PROPERTIES).save(path)
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN name TO `the name`")
    table = DeltaTable.forPath(spark, path)
    table.delete("id = 2")
    return table


def in_pandas(frame: Any) -> dict[str, Any]:
    """What a pandas frame holds."""
    rows = frame.sort_values("id").to_dict("list")
    return {"columns": list(frame.columns), "rows": rows, "sum": int(frame["id"].sum())}


def in_polars(frame: Any) -> dict[str, Any]:
    """What a polars frame holds."""
    rows = frame.sort("id").to_dict(as_series=False)
    return {"columns": frame.columns, "rows": rows, "sum": frame["id"].sum()}


def in_duckdb(relation: Any) -> dict[str, Any]:
    """What a relation of DuckDB's holds."""
    names = list(relation.columns)
    rows = relation.order("id").fetchall()
    columns = [list(values) for values in zip(*rows, strict=True)]
    total = sum(row[names.index("id")] for row in rows)
    return {"columns": names, "rows": dict(zip(names, columns, strict=True)), "sum": total}


def answers(handle: DeltaTable, path: str) -> dict[str, Any]:
    """The table by every way into every library."""
    kernel = DeltaLog.for_table(path).update()
    table = handle.toArrow()
    reader = handle.toArrowReader(["id"], "id > 2")  # noqa: F841 - DuckDB finds it by its name
    return {
        "pandas, of the table": in_pandas(table.to_pandas()),
        "pandas, of the handle": in_pandas(pd.DataFrame.from_arrow(handle)),
        "polars, of the table": in_polars(pl.from_arrow(table)),
        "polars, of the handle": in_polars(pl.DataFrame(handle)),
        "duckdb, of the table": in_duckdb(duckdb.from_arrow(table)),
        "duckdb, of the handle": in_duckdb(duckdb.sql("SELECT * FROM handle")),
        "kernel, polars": in_polars(pl.from_arrow(kernel.to_table())),
        "batches": duckdb.sql("SELECT sum(id), count(*) FROM reader").fetchall(),
    }


def main(home: Path) -> None:
    """Makes the table and prints one line of JSON."""
    os.chdir(home)
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.session.timeZone", "UTC")
    spark = pyspark_delta.enable(session.getOrCreate())
    try:
        path = str(home / "tä ble 100%")
        print(json.dumps(answers(made(spark, path), path), default=str))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
