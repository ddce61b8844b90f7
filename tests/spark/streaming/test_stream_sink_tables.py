"""`writeStream.toTable`: tables of the catalog as sinks, made where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_delta import disable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.names import table_log
from tests.support.catalog_tables import own_database, rows
from tests.support.feeds import Feed, fails_with, finish
from tests.support.spark_tables import SparkTable


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with own_database(enable(spark)):
        yield spark
    disable(spark)


@pytest.fixture
def feed(session: SparkSession, tmp_path: Path) -> Feed:
    return Feed(session, tmp_path / "feed", "id LONG, s STRING").add({"id": 1, "s": "a"})


def writer(data: Any, checkpoint: Path) -> DataStreamWriter:
    found: DataStreamWriter = data.writeStream.format("delta").trigger(availableNow=True)
    return found.option("checkpointLocation", str(checkpoint))


def test_a_table_that_is_missing_is_made(session: SparkSession, feed: Feed, tmp_path: Path) -> None:
    query = writer(feed.stream(), tmp_path / "c").partitionBy("s").toTable("events")
    finish(query)
    assert rows(session.table("events")) == [(1, "a")]
    log = table_log(session, "events")
    assert [info.operation for info in log.history()] == ["STREAMING UPDATE", "CREATE TABLE"]
    assert log.update().metadata.partition_columns == ("s",)

    # The next run finds it; rows that somebody cached are read anew.
    session.catalog.cacheTable("events")
    assert session.table("events").count() == 1
    feed.add({"id": 2, "s": "b"})
    finish(writer(feed.stream(), tmp_path / "c").toTable("events", queryName="named"))
    assert rows(session.table("events")) == [(1, "a"), (2, "b")]
    session.catalog.uncacheTable("events")
    feed.add({"id": 3, "s": "c"})
    with fails_with("DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"):
        finish(writer(feed.stream(), tmp_path / "c").toTable("events", partitionBy="id"))
    assert len(rows(session.table("events"))) == 2


def test_the_catalog_learns_of_new_columns(
    session: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    session.sql("CREATE TABLE events (id LONG) USING delta")
    stream = writer(feed.stream(), tmp_path / "c").option("mergeSchema", "true")
    finish(stream.toTable("events"))
    assert rows(session.table("events")) == [(1, "a")]
    assert [column.name for column in session.catalog.listColumns("events")] == ["id", "s"]
    name = (session.catalog.currentDatabase(), "events")
    catalog = JvmSession(session).state.catalog().externalCatalog()
    assert list(catalog.getTable(*name).schema().fieldNames()) == ["id", "s"]


def test_a_table_may_be_elsewhere_and_clustered(
    session: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    place = tmp_path / "tä ble 100%"
    stream = writer(feed.stream(), tmp_path / "c").clusterBy("id").option("path", str(place))
    finish(stream.toTable("events"))
    table = SparkTable(session, place)
    assert table.rows == [(1, "a")]
    assert clustering_columns(table.log.snapshot.domains) == (("id",),)
    by_path = tmp_path / "by pä th"
    finish(writer(feed.stream(), tmp_path / "d").toTable(f"delta.`{by_path}`"))
    assert SparkTable(session, by_path).rows == [(1, "a")]


def test_what_is_no_delta_table_is_refused(
    session: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    session.sql("CREATE TABLE files (id LONG, s STRING) USING parquet")
    session.sql("CREATE TABLE events (id LONG, s STRING) USING delta")
    session.range(1).createOrReplaceTempView("a_view")
    try:
        for name in ("files", "a_view"):
            with pytest.raises(AnalysisException):
                writer(feed.stream(), tmp_path / "c").toTable(name)
    finally:
        session.catalog.dropTempView("a_view")
    # As everywhere in Spark, a stream names the format of its table.
    plain = feed.stream().writeStream.option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(AnalysisException, match="events"):
        plain.toTable("events")
    with pytest.raises(DeltaError) as error:
        writer(feed.stream(), tmp_path / "c").outputMode("update").toTable("events")
    assert error.value.condition == "DELTA_UNSUPPORTED_OUTPUT_MODE"
    finish(plain.trigger(availableNow=True).toTable("files"))
    assert rows(session.table("files")) == [(1, "a")]
