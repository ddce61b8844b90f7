"""A till that streams its sales into a table, and a display that streams them out of it again.

`python examples/streams.py` runs this; both queries are started twice, as after a crash.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from quiet_session import session

import pyspark_delta
from pyspark_delta import DeltaTable

HOURS = [
    [{"id": 1, "item": "tea", "price": 12.5}, {"id": 2, "item": "cups", "price": 31.0}],
    [{"id": 3, "item": "tea", "price": 25.0}],
]


def main() -> None:
    """Every step, told as it happens."""
    spark = pyspark_delta.enable(session())
    try:
        with tempfile.TemporaryDirectory() as folder:
            stream(spark, Path(folder))
    finally:
        spark.stop()


def stream(spark: SparkSession, folder: Path) -> None:
    """Sales come in by the hour; every hour both queries go on where they were."""
    tills, sales, display = folder / "tills", folder / "ventes 100% thé", folder / "display"
    tills.mkdir()
    print("\n== Stream into a table, and out of it ==")
    for hour, sold in enumerate(HOURS):
        lines = "".join(json.dumps(sale) + "\n" for sale in sold)
        (tills / f"{hour}.json").write_text(lines, encoding="utf-8")
        incoming = spark.readStream.schema("id LONG, item STRING, price DOUBLE").json(str(tills))
        run(incoming, sales, folder / "checkpoint of the till")
        table = spark.readStream.format("delta").load(str(sales))
        run(table.selectExpr("id", "upper(item) AS shown"), display, folder / "checkpoint")
    shown = spark.read.format("delta").load(str(display)).orderBy("id")
    print(*[f"{row.id}: {row.shown}" for row in shown.collect()], sep="\n")
    history = DeltaTable.forPath(spark, str(sales)).history().select("version", "operation")
    print(*[f"version {row.version}: {row.operation}" for row in history.collect()], sep="\n")


def run(data: DataFrame, path: Path, checkpoint: Path) -> None:
    """Write what is there by now, each row once however often this runs."""
    writer = data.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(path)).awaitTermination()


if __name__ == "__main__":
    main()
