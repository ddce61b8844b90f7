"""Runs the scripts of `random_scripts` in a session, whichever engine it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.interop.random_scripts import Script, script
from tests.support.canonical import contents, json_rows

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_UNTOLD = re.compile(r"Cannot find main error class '(\w+)'")
_EXPRESSION_ID = re.compile(r"#\d+L?")
# Not how many rows were copied: which files are rewritten is each engine's own choice.
_OF_ROWS = re.compile(
    r"num(Target)?(Rows)?(NotMatchedBySource|Matched)?(Inserted|Updated|Deleted)(Rows)?"
)
_OF_CHANGES = ("DELETE", "UPDATE", "MERGE")
# Statements that give sizes of files.
_OF_FILES = ("OPTIMIZE", "RESTORE")


def run(
    spark: SparkSession, seed: int, steps: int, path: str, left_out: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Take the steps of a script: after each what it gave, and the table's rows and changes.

    The next statement follows whether or not one is refused.  `left_out` are the numbers of
    statements that are not run.
    """
    chosen = script(seed, steps)
    before = {key: spark.conf.get(key, None) for key in chosen.conf}
    for key, value in chosen.conf.items():
        spark.conf.set(key, value)
    try:
        return list(_told(spark, chosen, path, left_out))
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def _told(spark: SparkSession, chosen: Script, path: str, left_out: Sequence[int]) -> Any:
    version = -1
    for number, text in enumerate((chosen.create, *chosen.fill, *chosen.steps)):
        told: dict[str, Any] = {"text": text}
        if number in left_out:
            yield told
            continue
        try:
            gave = json_rows(spark.sql(text.replace("{t}", f"delta.`{path}`")), sort=True)
            told["gave"] = [] if text.startswith(_OF_FILES) else gave
        except Exception as error:
            told["error"] = _condition(error)
            told["said"] = str(error)[:600]
        if text != chosen.create or "error" not in told:
            table = spark.read.format("delta").load(path)
            told["schema"], told["rows"] = contents(table)
            told["found"] = [_found(table, each) for each in chosen.seek]
            newest, counts = _newest(spark, path)
            # Files may be written anew though no row changes, or be left alone.
            if newest > version and counts:
                told["counts"] = counts
                if "enableChangeDataFeed" in chosen.create:
                    told["changes"] = _changes(spark, path, newest)
            version = newest
        yield told
        if "rows" not in told:
            return


def _found(table: DataFrame, condition: str) -> int | None:
    """How many rows a condition holds for; None where it cannot be told."""
    try:
        return table.where(condition).count()
    except Exception:
        return None


def _newest(spark: SparkSession, path: str) -> tuple[int, dict[str, str]]:
    """The newest version, and what its commit says of the rows it changed, if it did."""
    row = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]
    metrics = row["operationMetrics"] or {}
    told = {key: value for key, value in metrics.items() if _OF_ROWS.fullmatch(key)}
    if row["operation"] in _OF_CHANGES and not any(map(int, told.values())):
        return int(row["version"]), {}
    parameters = row["operationParameters"] or {}
    # Spark's optimizer has been over the condition of a write there, not here.
    if "predicate" in parameters and row["operation"] != "WRITE":
        told["predicate"] = _EXPRESSION_ID.sub("#", parameters["predicate"])
    return int(row["version"]), {"operation": row["operation"], **told}


def _changes(spark: SparkSession, path: str, version: int) -> list[str]:
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    feed = feed.option("startingVersion", version).option("endingVersion", version)
    try:
        found = feed.load(path).drop("_commit_timestamp", "_commit_version")
        return json_rows(found, sort=True)
    except Exception:
        # The feed may have been turned off meanwhile.
        return ["refused"]


def _condition(error: Exception) -> str:
    """The condition that an error has, or the innermost that its text names."""
    # Where delta-spark fails to tell its own error, Spark names the condition it should have told.
    untold = _UNTOLD.search(str(error))
    if untold is not None:
        return untold[1]
    if isinstance(error, PySparkException) and error.getCondition():
        return str(error.getCondition())
    found = _CONDITION.findall(str(error))
    return found[-1] if found else type(error).__name__
