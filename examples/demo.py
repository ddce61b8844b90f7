"""Orders of a small shop on Spark: write, evolve, replace, look back, upsert, convert, stream.

`make demo` runs this.  No JAR is added to Spark; the table is made in a temporary folder.
At the end a table lives in SQL alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import deltalake
from in_sql import in_sql
from pyspark.sql import DataFrame, SparkSession
from quiet_session import session
from streams import stream

import pyspark_delta
from pyspark_delta import DeltaTable

MONDAY = [(1, "2026-11-09", "tea", 12.50), (2, "2026-11-09", "cups", 31.00)]
TUESDAY = [(3, "2026-11-10", "tea", 25.00), (4, "2026-11-10", "pot", 58.90)]
# The shop began to note where an order came from.
WEDNESDAY = [(5, "2026-11-11", "tea", 12.50, "web"), (6, "2026-11-11", "kettle", 49.00, "phone")]
COLUMNS = "id LONG, day STRING, item STRING, price DOUBLE"


def main() -> None:
    """Every step, told as it happens."""
    spark = pyspark_delta.enable(session())
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "commandes 100% thé")
            create(spark, path)
            evolve(spark, path)
            correct(spark, path)
            travel(spark, path)
            look_back(spark, path)
            read_elsewhere(path)
            upsert(spark, str(Path(folder) / "stock 100% thé"))
            convert(spark, str(Path(folder) / "vieux parquet 5%"))
            stream(spark, Path(folder))
            in_sql(spark, Path(folder))
    finally:
        spark.stop()


def create(spark: SparkSession, path: str) -> None:
    """Version 0 and version 1."""
    say("Monday's orders make the table, Tuesday's are appended")
    for orders in (MONDAY, TUESDAY):
        data = spark.createDataFrame(orders, COLUMNS)
        data.write.format("delta").partitionBy("day").mode("append").save(path)
    show(spark.read.format("delta").load(path))


def evolve(spark: SparkSession, path: str) -> None:
    """A column that the table does not have is refused, until the writer asks for it."""
    say("Wednesday's orders have a new column")
    data = spark.createDataFrame(WEDNESDAY, f"{COLUMNS}, channel STRING")
    try:
        data.write.format("delta").mode("append").save(path)
    except pyspark_delta.DeltaError as refused:
        print(f"refused: {refused.condition}")
    data.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
    show(spark.read.format("delta").load(path))


def correct(spark: SparkSession, path: str) -> None:
    """One day is replaced in one commit; rows of another day would be refused."""
    say("Tuesday was booked wrongly: replace that day alone")
    right = spark.createDataFrame(
        [(3, "2026-11-10", "tea", 20.00, None)], f"{COLUMNS}, channel STRING"
    )
    writer = right.write.format("delta").mode("overwrite")
    writer.option("replaceWhere", "day = '2026-11-10'").save(path)
    show(spark.read.format("delta").load(path))


def travel(spark: SparkSession, path: str) -> None:
    """Every version stays readable."""
    say("What did Tuesday look like before?")
    before = spark.read.format("delta").option("versionAsOf", 1).load(path)
    show(before.where("day = '2026-11-10'"))


def look_back(spark: SparkSession, path: str) -> None:
    """Who did what."""
    say("History")
    history = DeltaTable.forPath(spark, path).history()
    for row in history.orderBy("version").collect():
        metrics = row.operationMetrics
        print(
            f"version {row.version}: {row.operation} {row.operationParameters['mode']:9}"
            f" {metrics['numOutputRows']} rows in {metrics['numFiles']} files"
        )


def read_elsewhere(path: str) -> None:
    """The same table without Spark, by delta-rs."""
    say("Another engine reads the same table")
    table = deltalake.DeltaTable(path)
    total = sum(table.to_pyarrow_table().column("price").to_pylist())
    print(f"deltalake {deltalake.__version__}, version {table.version()}: {total:.2f} in total")


def upsert(spark: SparkSession, path: str) -> None:
    """Rows that are there are updated, others inserted; the change feed tells which."""
    say("A delivery: update what is in stock, insert what is new")
    stock = spark.createDataFrame([(1, "tea", 5), (2, "cups", 0)], "id LONG, item STRING, n INT")
    stock.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    delivery = spark.createDataFrame([(2, "cups", 12), (3, "pot", 4)], stock.schema)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(delivery.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"n": "t.n + s.n"})
    merge.whenNotMatchedInsertAll().execute()
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    show(changes.option("startingVersion", 1).load(path).drop("_commit_timestamp"))


def convert(spark: SparkSession, path: str) -> None:
    """A folder that has been plain Parquet becomes a table, and no file moves."""
    say("Last year's orders are a Parquet folder: convert it")
    for number, day in enumerate(("2025-11-09", "2025-11-10")):
        old = spark.createDataFrame([(number, "tea", 10.0)], "id LONG, item STRING, price DOUBLE")
        old.coalesce(1).write.parquet(f"{path}/day={day}")
    report = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "day DATE", dry_run=True)
    print(f"{report.files} files, problems: {list(report.problems)}")
    spark.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (day DATE)")
    show(spark.read.format("delta").load(path).where("day = '2025-11-10'"))


def show(frame: DataFrame) -> None:
    """A small table, in order."""
    frame.orderBy("id").show()


def say(what: str) -> None:
    """A heading."""
    print(f"\n== {what} ==")


if __name__ == "__main__":
    main()
