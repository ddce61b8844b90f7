"""Tasks that change rows: each runs on a fresh copy of a table, and answers with its row counts.

This package is asked through `DeltaTable`, delta-spark through SQL: each in the way its users have.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.measure import Timed, timed
from pyspark_delta import DeltaTable

KEYS = ("wr_order_number", "wr_item_sk")
# What a row of TPC-DS has besides its key: numbers of other tables, and money.
_REFERENCES = (
    *("wr_returned_date_sk", "wr_returned_time_sk", "wr_refunded_customer_sk"),
    *("wr_refunded_cdemo_sk", "wr_refunded_hdemo_sk", "wr_refunded_addr_sk"),
    *("wr_returning_customer_sk", "wr_returning_cdemo_sk", "wr_returning_hdemo_sk"),
    *("wr_returning_addr_sk", "wr_web_page_sk", "wr_reason_sk", "wr_return_quantity"),
)
_AMOUNTS = (
    *("wr_return_amt", "wr_return_tax", "wr_return_amt_inc_tax", "wr_fee"),
    *("wr_return_ship_cost", "wr_refunded_cash", "wr_reversed_charge", "wr_account_credit"),
    "wr_net_loss",
)


def web_returns(spark: SparkSession, path: str, count: int, files: int, vectors: bool) -> Timed:
    """A table of the shape of TPC-DS web_returns; keys are spread over all files."""
    spread = f"xxhash64({{}}, id) % {max(count, 1000)}"
    numbers = [f"abs({spread.format(i)}) AS {name}" for i, name in enumerate(_REFERENCES)]
    money = [
        f"cast(abs({spread.format(100 + i)}) / 100 AS decimal(7, 2)) AS {name}"
        for i, name in enumerate(_AMOUNTS)
    ]
    # Orders come in no order of theirs, as the generator's do not.
    keys = [f"(id * 7919) % {count} AS wr_order_number", "id % 18000 AS wr_item_sk"]
    data = spark.range(0, count, 1, files).selectExpr(*numbers, *keys, *money)
    writer = data.write.format("delta").mode("overwrite")
    writer.option("delta.enableDeletionVectors", str(vectors).lower()).save(path)
    return Timed(0.0)


def merge_source(
    spark: SparkSession, target: str, path: str, files: float, matched: float, unmatched: float
) -> Timed:
    """Rows for a MERGE: shares of the rows in a share of the target's files.

    Those that are to match nothing get fractions as their keys, which makes all keys doubles.
    """
    sampled = _sampled("_metadata.file_name", files)
    rows = spark.read.format("delta").load(target).where(sampled)
    key = "struct(wr_order_number, wr_item_sk)"
    found = rows.where(_sampled(key, matched, seed=1))
    missed = rows.where(_sampled(key, unmatched, seed=2))
    for i, name in enumerate(KEYS):
        found = found.withColumn(name, found[name].cast("double"))
        fraction = f"(abs(xxhash64({i}, wr_order_number, wr_item_sk)) % 1000000007) / 1000000007.0"
        missed = missed.selectExpr(
            *[
                f"cast({fraction} AS double) AS {name}" if column == name else f"`{column}`"
                for column in missed.columns
            ]
        )
    found.select(missed.columns).union(missed).write.format("delta").mode("overwrite").save(path)
    return Timed(0.0)


def merge(spark: SparkSession, target: str, source: str, path: str, clauses: list[str]) -> Timed:
    """MERGE into a fresh copy of `target`; the rows updated, deleted, inserted."""
    copy_table(target, path)
    is_ours = _is_ours(spark)
    work = _merge_by_builder if is_ours else _merge_by_sql
    done = timed(lambda: work(spark, source, path, clauses))
    return Timed(done.seconds, done.answer)


def change(spark: SparkSession, target: str, path: str, command: str, condition: str) -> Timed:
    """DELETE or UPDATE on a fresh copy of `target`; how many rows it touched."""
    copy_table(target, path)
    sets = {"amount": "amount + 1"}

    def ours() -> int:
        table = DeltaTable.forPath(spark, path)
        done = table.delete(condition) if command == "DELETE" else table.update(condition, sets)
        return int(done.collect()[0][0])

    def theirs() -> int:
        verb = (
            f"DELETE FROM delta.`{path}`"
            if command == "DELETE"
            else f"UPDATE delta.`{path}` SET amount = amount + 1"
        )
        return int(spark.sql(f"{verb} WHERE {condition}").collect()[0][0])

    return timed(ours if _is_ours(spark) else theirs)


def upsert(spark: SparkSession, path: str, start: int, count: int) -> Timed:
    """MERGE a few rows into a table that stays as it is left."""
    source = spark.range(start, start + count, 1, 1).selectExpr("id", "id * 1.0D AS amount")

    def ours() -> list[int]:
        table = DeltaTable.forPath(spark, path).alias("t")
        merge = table.merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedUpdate(set={"amount": "s.amount"})
        merge = merge.whenNotMatchedInsert(values={"id": "s.id", "amount": "s.amount"})
        return list(merge.execute().collect()[0])

    def theirs() -> list[int]:
        source.createOrReplaceTempView("few_rows")
        done = spark.sql(
            f"MERGE INTO delta.`{path}` t USING few_rows s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET amount = s.amount"
            " WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, s.amount)"
        )
        return list(done.collect()[0])

    return timed(ours if _is_ours(spark) else theirs)


def append_pairs(spark: SparkSession, path: str, start: int, count: int) -> Timed:
    """Append rows of two columns."""
    rows = spark.range(start, start + count, 1, 1).selectExpr("id", "id * 2.0D AS amount")
    rows.write.format("delta").mode("append").save(path)
    return Timed(0.0)


def _merge_by_sql(spark: SparkSession, source: str, path: str, clauses: list[str]) -> list[int]:
    on = " AND ".join(f"t.{name} = s.{name}" for name in KEYS)
    text = " ".join(_SQL[clause] for clause in clauses)
    done = spark.sql(f"MERGE INTO delta.`{path}` t USING delta.`{source}` s ON {on} {text}")
    return list(done.collect()[0])


def _merge_by_builder(spark: SparkSession, source: str, path: str, clauses: list[str]) -> list[int]:
    rows: DataFrame = spark.read.format("delta").load(source).alias("s")
    on = " AND ".join(f"t.{name} = s.{name}" for name in KEYS)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(rows, on)
    for clause in clauses:
        merge = _BUILT[clause](merge)
    return list(merge.execute().collect()[0])


_SQL = {
    "update": "WHEN MATCHED THEN UPDATE SET *",
    "delete": "WHEN MATCHED THEN DELETE",
    "insert even": "WHEN NOT MATCHED AND s.wr_item_sk % 2 = 0 THEN INSERT *",
    "insert": "WHEN NOT MATCHED THEN INSERT *",
}
_BUILT: dict[str, Callable[[Any], Any]] = {
    "update": lambda merge: merge.whenMatchedUpdateAll(),
    "delete": lambda merge: merge.whenMatchedDelete(),
    "insert even": lambda merge: merge.whenNotMatchedInsertAll("s.wr_item_sk % 2 = 0"),
    "insert": lambda merge: merge.whenNotMatchedInsertAll(),
}


def _sampled(what: str, share: float, seed: int = 0) -> str:
    """A condition that is true for a share of the values, the same in every run."""
    return f"abs(xxhash64({seed}, {what}) % 1000000) < {round(share * 1_000_000)}"


def copy_table(source: str, path: str) -> None:
    """A table of its own with the same files, which are never written again."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path, copy_function=_linked)
    os.sync()


def _linked(source: str, target: str) -> None:
    if Path(source).suffix == ".parquet" and "_delta_log" not in source:
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


def _is_ours(spark: SparkSession) -> bool:
    return "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or "")


def copy_of_table(spark: SparkSession, source: str, path: str) -> Timed:
    """A copy of a table."""
    copy_table(source, path)
    return Timed(0.0)


TASKS: dict[str, Callable[..., Timed]] = {
    each.__name__: each
    for each in (
        *(web_returns, merge_source, merge, change),
        *(upsert, append_pairs, copy_of_table),
    )
}
