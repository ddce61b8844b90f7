"""`DeltaTable` in a client of Spark Connect: the whole API, against a real server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import (
    AnalysisException,
    PySparkException,
    UnsupportedOperationException,
)
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import pyspark_delta
from pyspark_delta import DeltaTable
from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.tables import IdentityGenerator
from tests.support.connect_client import in_client


def made(spark: Any, path: Path, **properties: str) -> DeltaTable:
    """A table of ids from 0 to 4, with a text beside each."""
    builder = DeltaTable.create(spark).location(str(path))
    for key, value in properties.items():
        builder = builder.property(key.replace("_", "."), value)
    table = builder.addColumn("id", "BIGINT").addColumn("text", "STRING").execute()
    rows = spark.range(5).selectExpr("id", "concat('no ', id) AS text").coalesce(1)
    rows.write.format("delta").mode("append").save(str(path))
    return table


def ids(table: Any) -> list[int]:
    """The ids of a table or frame, in order."""
    frame = table.toDF() if isinstance(table, DeltaTable) else table
    return sorted(row.id for row in frame.collect())


def texts(table: DeltaTable) -> dict[int, str]:
    """The text beside each id."""
    return {row.id: row.text for row in table.toDF().collect()}


def written_at(table: DeltaTable) -> str:
    """The time of version 1, in the zone of the server."""
    times = table.history().where("version = 1").selectExpr("CAST(timestamp AS STRING)")
    return str(times.collect()[0][0])


def refused(call: Callable[[], object]) -> Any:
    """The error of a call that has one of PySpark's."""
    with pytest.raises(PySparkException) as caught:
        call()
    return caught.value


@in_client
def test_a_table_is_opened_by_its_path_and_by_its_name(spark: Any, path: Path) -> None:
    made(spark, path)
    assert ids(DeltaTable.forPath(spark, str(path))) == [0, 1, 2, 3, 4]
    assert ids(DeltaTable.forName(spark, f"delta.`{path}`")) == [0, 1, 2, 3, 4]
    spark.sql(f"CREATE TABLE by_name USING delta LOCATION '{path}'")
    table = DeltaTable.forName(spark, "by_name")
    assert ids(table) == [0, 1, 2, 3, 4]
    assert isinstance(table, DeltaTable)
    assert table.detail().select("name").collect()[0][0] == "spark_catalog.default.by_name"


@in_client
def test_a_path_or_name_without_a_table_is_an_error_at_once(spark: Any, path: Path) -> None:
    error = refused(lambda: DeltaTable.forPath(spark, str(path)))
    assert error.getCondition() == "DELTA_MISSING_DELTA_TABLE"
    assert isinstance(error, AnalysisException)
    assert refused(lambda: DeltaTable.forName(spark, "nowhere")).getCondition() == (
        "DELTA_MISSING_DELTA_TABLE"
    )


@in_client
def test_whether_a_table_is_there(spark: Any, path: Path) -> None:
    assert not DeltaTable.isDeltaTable(spark, str(path))
    made(spark, path)
    assert DeltaTable.isDeltaTable(spark, str(path))
    assert DeltaTable.isDeltaTable(spark, f"delta.`{path}`")
    assert not DeltaTable.isDeltaTable(spark, "nowhere")


@in_client
def test_rows_are_deleted_once(spark: Any, path: Path) -> None:
    table = made(spark, path)
    done = table.delete("id = 2")
    assert [row.num_affected_rows for row in done.collect()] == [1]
    assert done.count() == 1  # of rows that the client has
    assert table.delete(F.col("id") > 3).collect()[0][0] == 1
    assert ids(table) == [0, 1, 3]
    assert [row.operation for row in table.history(2).collect()] == ["DELETE", "DELETE"]
    table.delete()
    assert ids(table) == []
    assert table.version() == 4


@in_client
def test_rows_are_updated(spark: Any, path: Path) -> None:
    table = made(spark, path)
    done = table.update("id < 2", {"text": "concat(text, '!')"})
    assert done.collect()[0].num_affected_rows == 2
    table.alias("t").update(F.col("t.id") == 4, {"t.text": F.lit("last")})
    table.update(set={"id": "id + 10"})
    assert texts(table) == {10: "no 0!", 11: "no 1!", 12: "no 2", 13: "no 3", 14: "last"}


@in_client
def test_a_merge_has_clauses_of_each_kind(spark: Any, path: Path) -> None:
    table = made(spark, path)
    source = spark.createDataFrame([(1, "one"), (2, "gone"), (7, "new")], "id BIGINT, text STRING")
    done = (
        table.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.text = 'gone'")
        .whenMatchedUpdate(set={"text": F.col("s.text")})
        .whenNotMatchedInsert(values={"id": "s.id", "text": "upper(s.text)"})
        .whenNotMatchedBySourceUpdate("t.id = 0", {"text": "'alone'"})
        .whenNotMatchedBySourceDelete(F.expr("t.id = 4"))
        .execute()
    )
    (counts,) = done.collect()
    assert tuple(counts) == (5, 2, 2, 1)
    assert texts(table) == {0: "alone", 1: "one", 3: "no 3", 7: "NEW"}


@in_client
def test_a_merge_of_all_columns_evolves_the_schema(spark: Any, path: Path) -> None:
    table = made(spark, path)
    source = spark.createDataFrame([(1, "one", 1), (7, "new", 2)], "id BIGINT, text STRING, n INT")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert table.schema().fieldNames() == ["id", "text", "n"]
    assert {row.id: row.n for row in table.toDF().collect()}[7] == 2


@in_client
def test_a_merge_of_all_columns_leaves_some_out(spark: Any, path: Path) -> None:
    table = made(spark, path)
    source = spark.createDataFrame([(1, "one"), (7, "new")], "id BIGINT, text STRING")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll(except_cols=["text"])
    merge.whenNotMatchedInsertAll(except_cols=["text"]).execute()
    assert texts(table)[1] == "no 1"
    assert texts(table)[7] is None


@in_client
def test_a_merge_sets_defaults(spark: Any, path: Path) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, n INT DEFAULT 5) USING delta"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    table = DeltaTable.forPath(spark, str(path))
    merge = table.alias("t").merge(spark.range(1).alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsert(values={"id": "s.id", "n": "DEFAULT"}).execute()
    assert [tuple(row) for row in table.toDF().collect()] == [(0, 5)]


@in_client
def test_small_files_are_compacted_and_ordered(spark: Any, path: Path) -> None:
    spark.range(8).selectExpr("id", "id % 2 AS p").repartition(4).write.format("delta").partitionBy(
        "p"
    ).save(str(path))
    table = DeltaTable.forPath(spark, str(path))
    (first,) = table.optimize().where("p = 0").executeCompaction().collect()
    assert first.metrics.numFilesAdded == 1
    assert table.optimize().executeZOrderBy("id").collect()[0].metrics.numFilesAdded >= 1
    assert [row.operation for row in table.history(2).collect()] == ["OPTIMIZE", "OPTIMIZE"]
    assert ids(table) == list(range(8))


@in_client
def test_files_are_vacuumed(spark: Any, path: Path) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table = made(spark, path)
    table.delete("id >= 0")
    files = list(path.glob("*.parquet"))
    assert files
    assert table.vacuum(0, dryRun=True).count() == len(files)
    assert table.vacuum(0, dryRun=True, lite=True).count() == len(files)
    assert list(path.glob("*.parquet")) == files
    inventory = spark.createDataFrame(
        [], "path STRING, length LONG, isDir BOOLEAN, modificationTime LONG"
    )
    assert table.vacuum(0.5, dryRun=True, inventory=inventory).count() == 0
    assert table.vacuum(0).count() == 1
    assert not list(path.glob("*.parquet"))
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    error = refused(lambda: table.vacuum(0))
    assert error.getCondition() == "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"
    assert spark.catalog.listTables() == [
        t for t in spark.catalog.listTables() if not t.isTemporary
    ]


@in_client
def test_a_table_describes_itself(spark: Any, path: Path) -> None:
    table = made(spark, path)
    (detail,) = table.detail().collect()
    assert detail.numFiles == 1
    assert detail.format == "delta"
    assert [row.version for row in table.history().select("version").collect()] == [1, 0]
    assert table.history(1).collect()[0].operation == "WRITE"
    assert table.version() == 1
    assert table.schema().simpleString() == "struct<id:bigint,text:string>"
    assert len(table.fileUris()) == 1
    assert table.fileUris()[0].startswith("file:/")
    assert repr(table) == f"DeltaTable({str(path)!r})"
    assert "id bigint" in table._repr_html_()


@in_client
def test_rows_come_as_arrow(spark: Any, path: Path) -> None:
    table = made(spark, path)
    found = table.toArrow(["text"], "id = 3")
    assert found.to_pylist() == [{"text": "no 3"}]
    assert pa.table(table).num_rows == 5
    assert table.toArrowReader().read_all().num_columns == 2


@in_client
def test_a_table_is_restored(spark: Any, path: Path) -> None:
    table = made(spark, path)
    time = written_at(table)
    table.delete("id > 0")
    counts = table.restoreToVersion(1)
    assert counts.collect()[0].num_restored_files >= 0
    assert counts.count() == 1
    assert ids(table) == [0, 1, 2, 3, 4]
    table.delete()
    table.restoreToTimestamp(time)
    assert ids(table) == [0, 1, 2, 3, 4]
    assert table.version() == 5


@in_client
def test_a_table_is_cloned(spark: Any, path: Path) -> None:
    table = made(spark, path)
    table.delete("id = 0")
    clone = table.clone(f"{path} clone", isShallow=True, properties={"user.x": "1"})
    assert ids(clone) == [1, 2, 3, 4]
    assert clone.detail().collect()[0].properties["user.x"] == "1"
    assert ids(table.cloneAtVersion(1, f"{path} old", True)) == [0, 1, 2, 3, 4]
    time = written_at(table)
    assert ids(table.cloneAtTimestamp(time, f"{path} then", True)) == [0, 1, 2, 3, 4]
    assert ids(table.clone("clone_by_name", True)) == [1, 2, 3, 4]
    error = refused(lambda: table.clone(f"{path} deep"))
    assert error.getCondition() == "DELTA_UNSUPPORTED_DEEP_CLONE"


@in_client
def test_changes_are_read(spark: Any, path: Path) -> None:
    table = made(spark, path, delta_enableChangeDataFeed="true")
    table.delete("id = 2")
    rows = table.changes(2).collect()
    assert [(row.id, row._change_type, row._commit_version) for row in rows] == [(2, "delete", 2)]
    assert table.changes(0, 1).count() == 5
    assert table.changes(written_at(table)).count() == 6
    error = refused(table.changes(datetime(2020, 1, 1), datetime(2020, 1, 2)).count)
    assert error.getCondition() == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    assert ids(table.alias("t").changes(1, 1).select("t.id")) == [0, 1, 2, 3, 4]


@in_client
def test_features_and_versions_are_raised_and_dropped(spark: Any, path: Path) -> None:
    table = made(spark, path)
    table.upgradeTableProtocol(2, 5)
    assert table.detail().collect()[0].minWriterVersion == 5
    table.addFeatureSupport("deletionVectors")
    assert "deletionVectors" in table.detail().collect()[0].tableFeatures
    table.addFeatureSupport("rowTracking")
    table.dropFeatureSupport("rowTracking")
    assert "rowTracking" not in table.detail().collect()[0].tableFeatures
    table.generate("symlink_format_manifest")
    assert (path / "_symlink_format_manifest" / "manifest").exists()


@in_client
def test_a_table_is_built_column_by_column(spark: Any, path: Path) -> None:
    table = (
        DeltaTable.create(spark)
        .tableName("built")
        .location(str(path))
        .comment("a comment")
        .addColumn("id", LongType(), nullable=False, comment="the key")
        .addColumn("n", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=10, step=5))
        .addColumn("m", "BIGINT", generatedByDefaultAs=IdentityGenerator())
        .addColumn("twice", "BIGINT", generatedAlwaysAs="id * 2")
        .addColumns(StructType([StructField("p", IntegerType()), StructField("q", StringType())]))
        .partitionedBy("p")
        .property("user.x", "1")
        .execute()
    )
    spark.sql("INSERT INTO built (id, p) VALUES (1, 7), (2, 7)")
    rows = table.toDF().orderBy("id").collect()
    assert [(row.id, row.twice, row.p) for row in rows] == [(1, 2, 7), (2, 4, 7)]
    assert sorted(row.n for row in rows) == [10, 15]
    (detail,) = table.detail().collect()
    assert (detail.description, detail.partitionColumns) == ("a comment", ["p"])
    assert detail.properties["user.x"] == "1"
    assert table.schema()["id"].metadata["comment"] == "the key"
    assert table.toDF().schema["p"].dataType == IntegerType()


@in_client
def test_a_builder_creates_or_replaces_or_does_nothing(spark: Any, path: Path) -> None:
    with_path = DeltaTable.createIfNotExists(spark).location(str(path))
    with_path.addColumn("a", "INT").clusterBy("a").execute()
    DeltaTable.createIfNotExists(spark).location(str(path)).addColumn("a", "INT").execute()
    table = DeltaTable.forPath(spark, str(path))
    assert table.version() == 0
    assert table.detail().collect()[0].clusteringColumns == ["a"]
    error = refused(
        lambda: DeltaTable.create(spark).location(str(path)).addColumn("b", "INT").execute()
    )
    assert error.getCondition() == "TABLE_OR_VIEW_ALREADY_EXISTS"
    DeltaTable.replace(spark).location(str(path)).addColumn("c", "INT").execute()
    assert table.schema().fieldNames() == ["c"]
    DeltaTable.createOrReplace(spark).location(str(path)).addColumn("d", "INT").execute()
    assert DeltaTable.forPath(spark, str(path)).schema().fieldNames() == ["d"]
    assert DeltaTable.create().location(f"{path} 2").addColumn("e", "INT").execute().version() == 0


@in_client
def test_a_parquet_table_is_converted(spark: Any, path: Path) -> None:
    data = spark.range(4).selectExpr("id", "id % 2 AS p")
    data.write.partitionBy("p").parquet(str(path))
    table = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p BIGINT")
    assert ids(table) == [0, 1, 2, 3]
    data.write.partitionBy("p").parquet(f"{path} 2")
    schema = StructType([StructField("p", LongType())])
    assert ids(DeltaTable.convertToDelta(spark, f"parquet.`{path} 2`", schema)) == [0, 1, 2, 3]


@in_client
def test_wrong_arguments_are_refused_before_anything_is_sent(spark: Any, path: Path) -> None:
    table = made(spark, path)
    for call in (
        lambda: DeltaTable.forPath(spark, 1),  # type: ignore[arg-type]
        lambda: table.delete(1),  # type: ignore[arg-type]
        lambda: table.update("id = 1", [1]),  # type: ignore[arg-type]
        lambda: table.history("x"),  # type: ignore[arg-type]
        lambda: table.merge(1, "x"),  # type: ignore[arg-type]
        lambda: table.restoreToVersion("1"),  # type: ignore[arg-type]
        lambda: table.changes(1.5),  # type: ignore[arg-type]
        lambda: DeltaTable.create(spark).addColumn("a", 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="set"):
        table.update("id = 1")


@in_client
def test_what_needs_the_log_itself_is_refused_with_a_reason(spark: Any, path: Path) -> None:
    table = made(spark, path)
    for call in (table.metadata, table.protocol, table.checkpoint, table.cleanUpLog, table.repair):
        with pytest.raises(OperationNotAllowedError, match="Spark Connect"):
            call()
    with pytest.raises(OperationNotAllowedError):
        table.vacuum(keepVersions=[0])


@in_client
def test_a_session_of_a_server_with_delta_is_enabled(spark: Any, path: Path) -> None:
    assert pyspark_delta.enable(spark) is spark


@in_client
def test_errors_of_the_server_keep_all_they_have(spark: Any, path: Path) -> None:
    table = made(spark, path)
    error = refused(lambda: table.restoreToVersion(99))
    assert isinstance(error, AnalysisException)
    assert error.getCondition() == "DELTA_CANNOT_RESTORE_TABLE_VERSION"
    assert error.getSqlState() == "22003"
    assert error.getMessageParameters() == {"version": "99", "startVersion": "0", "endVersion": "1"}
    unresolved = refused(lambda: table.delete("nothing = 1"))
    assert unresolved.getCondition()
    assert isinstance(unresolved, AnalysisException)
    spark.conf.set("spark.databricks.delta.properties.defaults.appendOnly", "true")
    appending = DeltaTable.create(spark).location(f"{path} 2").addColumn("id", "INT").execute()
    spark.conf.unset("spark.databricks.delta.properties.defaults.appendOnly")
    spark.sql(f"INSERT INTO delta.`{path} 2` VALUES (1)")
    fixed = refused(appending.delete)
    assert isinstance(fixed, UnsupportedOperationException)
    assert fixed.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    assert fixed.getSqlState() == "42809"
