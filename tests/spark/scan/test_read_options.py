"""Options for the file system are the scan's too, on this DataFrame alone, and stay secret."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, DeltaTable, enable
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.scan.frame import chosen_rows
from pyspark_delta.spark.tables.locations import open_log

SECRET = "planted-secret"


def on_viewfs(folder: Path) -> tuple[str, dict[str, str]]:
    """A location that only those can read who have the options, whoever read it before."""
    host = f"m{uuid4().hex}"
    options = {
        f"fs.viewfs.mounttable.{host}.link./data": folder.as_uri(),
        # Hadoop would give the next one the client that the log was read with.
        "fs.viewfs.impl.disable.cache": "true",
        "fs.s3a.secret.key": SECRET,
    }
    return f"viewfs://{host}/data", options


def shown(frame: DataFrame) -> str:
    """All that Spark and we tell of a DataFrame."""
    query = frame._jdf.queryExecution()
    plans = (query.logical(), query.analyzed(), query.optimizedPlan(), query.executedPlan())
    texts = [query.toString(), *(plan.toString() for plan in plans)]
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        texts.append(query.explainString(explain_mode(frame, mode)))
    for leaf in (query.analyzed().collectLeaves().head(), query.optimizedPlan()):
        texts += (leaf.toJSON(), leaf.prettyJson(), leaf.verboseStringWithSuffix(1000))
    texts.append(query.analyzed().collectLeaves().head().relation().toString())
    return "\n".join((*texts, repr(frame), str(frame.schema)))


def explain_mode(frame: DataFrame, name: str) -> object:
    modes = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    return modes.fromString(name)


@pytest.mark.parametrize("kind", ["load", "forPath", "time travel"])
def test_rows_are_read_with_the_options_of_the_reader(
    spark: SparkSession, tmp_path: Path, table_path: Path, kind: str
) -> None:
    enable(spark)
    frame = spark.range(5).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").save(str(table_path))
    # Hadoop's local file system lists files that go while it looks at them as an error.
    DeltaLog.for_table(table_path).wait_for_hooks()
    root, options = on_viewfs(tmp_path)
    location = f"{root}/{table_path.name}"
    if kind == "forPath":
        table = DeltaTable.forPath(spark, location, options).toDF()
    else:
        reader = spark.read.format("delta").options(**options)
        if kind == "time travel":
            reader = reader.option("versionAsOf", 0)
        table = reader.load(location)
    assert sorted(row["id"] for row in table.where("id > 1").collect()) == [2, 3, 4]
    assert table.where("p = 1").groupBy("p").count().first()["count"] == 2
    assert SECRET not in shown(table.where("id > 1 AND p = 0"))
    assert spark.conf.get("fs.viewfs.impl.disable.cache", None) is None
    # What a command reads again, to write it anew, it reads with them too.
    txn = open_log(spark, location, options).start_transaction()
    assert txn.snapshot is not None
    assert chosen_rows(JvmSession(spark), txn, txn.snapshot.files).count() == 5
