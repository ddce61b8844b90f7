"""Scripts that both engines run, each in its own session: one step is one commit, or none.

Nothing here knows which engine it talks to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

Steps = Mapping[str, Callable[[SparkSession, str], object]]


def rows(spark: SparkSession, number: int, p: str) -> DataFrame:
    """One row of three columns; delta-spark replaces no table whose partitions are not last."""
    return spark.sql(f"SELECT {number}L AS id, 'wörd' AS v, '{p}' AS p").coalesce(1)


def four(spark: SparkSession, first: int, p: str) -> DataFrame:
    """Four rows that come to lie in one file."""
    numbers = spark.range(first, first + 4)
    return numbers.selectExpr("id", "'wörd' AS v", f"'{p}' AS p").coalesce(1)


def write(data: DataFrame, mode: str, **options: str) -> DataFrameWriter:
    """A writer; `_` in the name of an option is a dot."""
    spelled = {key.replace("_", "."): value for key, value in options.items()}
    return data.write.format("delta").mode(mode).options(**spelled)


def run(spark: SparkSession, tables: Any, steps: Steps, target: str) -> dict[str, int]:
    """Take the steps on the table at a path or of a name; the version after each of them.

    :param tables: the engine's `DeltaTable`.
    """
    versions = {}
    handle = tables.forPath if "/" in target else tables.forName
    for label, step in steps.items():
        try:
            step(spark, target)
        except Exception as error:
            raise AssertionError(f"{label}: {error}") from error
        versions[label] = handle(spark, target).history(1).first().version
    return versions


def _on(spark: SparkSession, path: str) -> None:
    data = rows(spark, 8, "a").alias("s")
    write(data, "overwrite", replaceOn="t.id = s.id", targetAlias="t").save(path)


def _rearranged(spark: SparkSession, path: str) -> None:
    data = spark.read.format("delta").load(path).coalesce(1)
    write(data, "overwrite", dataChange="false").save(path)


BY_PATH: Steps = {
    "new": lambda s, t: (
        write(rows(s, 1, "a"), "error", userMetadata="said ü").partitionBy("p").save(t)
    ),
    "append": lambda s, t: write(rows(s, 2, "b"), "append").save(t),
    "append, partitions named": lambda s, t: (
        write(rows(s, 3, "b"), "append").partitionBy("p").save(t)
    ),
    "nothing": lambda s, t: write(rows(s, 3, "b").where("false"), "append").save(t),
    "merged": lambda s, t: write(
        rows(s, 4, "b").withColumn("x", F.lit(1)), "append", mergeSchema="true"
    ).save(t),
    "transaction": lambda s, t: write(
        rows(s, 5, "c"), "append", txnAppId="app", txnVersion="1"
    ).save(t),
    "where partition": lambda s, t: write(
        rows(s, 6, "b"), "overwrite", replaceWhere="p = 'b'"
    ).save(t),
    "where rows": lambda s, t: write(rows(s, 1, "a"), "overwrite", replaceWhere="id < 2").save(t),
    "four": lambda s, t: write(four(s, 20, "d"), "append").save(t),
    "where some are copied": lambda s, t: write(
        rows(s, 21, "d"), "overwrite", replaceWhere="id = 21"
    ).save(t),
    "where, by nothing": lambda s, t: write(
        rows(s, 22, "d").where("false"), "overwrite", replaceWhere="id = 22"
    ).save(t),
    "where, append": lambda s, t: write(rows(s, 7, "a"), "append", replaceWhere="id = 7").save(t),
    "dynamic": lambda s, t: write(
        rows(s, 8, "a"), "overwrite", partitionOverwriteMode="dynamic"
    ).save(t),
    "using": lambda s, t: write(rows(s, 8, "a"), "overwrite", replaceUsing="id,p").save(t),
    "on": _on,
    "rearranged": _rearranged,
    "overwritten": lambda s, t: write(rows(s, 9, "a"), "overwrite").save(t),
    "overwritten by nothing": lambda s, t: write(rows(s, 9, "a").where("false"), "overwrite").save(
        t
    ),
    "another schema, dynamic": lambda s, t: write(
        rows(s, 10, "b").withColumn("x", F.lit(1)),
        "overwrite",
        overwriteSchema="true",
        partitionOverwriteMode="dynamic",
    ).save(t),
    "another schema": lambda s, t: write(
        s.range(2).coalesce(1), "overwrite", overwriteSchema="true"
    ).save(t),
    "both schema options": lambda s, t: write(
        s.range(2).coalesce(1), "overwrite", overwriteSchema="true", mergeSchema="true"
    ).save(t),
}
BY_NAME: Steps = {
    "created": lambda s, t: s.sql(
        f"CREATE TABLE {t} (id BIGINT COMMENT 'the id', v STRING, p STRING) USING delta "
        "PARTITIONED BY (p) COMMENT 'söme' "
        "TBLPROPERTIES ('delta.appendOnly' = 'false', 'own' = '1')"
    ),
    "INSERT": lambda s, t: s.sql(f"INSERT INTO {t} VALUES (1, 'x', 'a')"),
    "INSERT by name": lambda s, t: s.sql(f"INSERT INTO {t} (p, id) VALUES ('b', 2)"),
    "INSERT a query": lambda s, t: s.sql(f"INSERT INTO {t} SELECT 3L, 'x', 'c'"),
    "INSERT OVERWRITE": lambda s, t: s.sql(f"INSERT OVERWRITE {t} VALUES (4, 'y', 'a')"),
    "insertInto": lambda s, t: rows(s, 5, "b").write.insertInto(t),
    "insertInto, overwrite": lambda s, t: rows(s, 6, "b").write.insertInto(t, overwrite=True),
    "saved": lambda s, t: write(rows(s, 7, "c"), "append").saveAsTable(t),
    "saved, dynamic": lambda s, t: (
        write(rows(s, 8, "c"), "overwrite", partitionOverwriteMode="dynamic")
        .partitionBy("p")
        .saveAsTable(t)
    ),
    "saved where": lambda s, t: (
        write(rows(s, 9, "c"), "overwrite", replaceWhere="p = 'c'").partitionBy("p").saveAsTable(t)
    ),
    "written": lambda s, t: rows(s, 10, "d").writeTo(t).append(),
    "written where": lambda s, t: rows(s, 11, "d").writeTo(t).overwrite(F.col("p") == "d"),
    "written partitions": lambda s, t: rows(s, 12, "d").writeTo(t).overwritePartitions(),
    "saved, overwrite": lambda s, t: (
        write(rows(s, 13, "e"), "overwrite").partitionBy("p").saveAsTable(t)
    ),
    "saved, another schema": lambda s, t: write(
        s.range(2).coalesce(1), "overwrite", overwriteSchema="true", userMetadata="said ü"
    ).saveAsTable(t),
    "createOrReplace": lambda s, t: (
        rows(s, 14, "f").writeTo(t).using("delta").partitionedBy(F.col("p")).createOrReplace()
    ),
    "replace": lambda s, t: rows(s, 15, "g").writeTo(t).using("delta").replace(),
    "CREATE OR REPLACE AS SELECT": lambda s, t: s.sql(
        f"CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (p) COMMENT 'c' "
        "AS SELECT 1 AS id, 'x' AS p"
    ),
    "REPLACE": lambda s, t: s.sql(f"REPLACE TABLE {t} (id INT, q INT) USING delta CLUSTER BY (id)"),
    "CREATE OR REPLACE": lambda s, t: s.sql(f"CREATE OR REPLACE TABLE {t} (id INT) USING delta"),
}
# Each makes the table.
NEW: Steps = {
    "AS SELECT": lambda s, t: s.sql(
        f"CREATE TABLE {t} USING delta COMMENT 'c' PARTITIONED BY (p) TBLPROPERTIES ('own' = '1') "
        "AS SELECT 1 AS id, 'x' AS p"
    ),
    "clustered": lambda s, t: s.sql(
        f"CREATE TABLE {t} (id INT, s STRUCT<x: INT>) USING delta CLUSTER BY (id, s.x)"
    ),
    "saved": lambda s, t: write(rows(s, 1, "a"), "error", delta_appendOnly="true").saveAsTable(t),
    "saved, overwrite": lambda s, t: (
        write(rows(s, 1, "a"), "overwrite").partitionBy("p").saveAsTable(t)
    ),
    "saved, append": lambda s, t: write(rows(s, 1, "a"), "append").saveAsTable(t),
    "create": lambda s, t: (
        rows(s, 1, "a")
        .writeTo(t)
        .using("delta")
        .tableProperty("delta.appendOnly", "true")
        .partitionedBy(F.col("p"))
        .create()
    ),
    "createOrReplace": lambda s, t: rows(s, 1, "a").writeTo(t).using("delta").createOrReplace(),
}
