"""`DeltaTable.create` and its kin: what a builder is told, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from pyspark_delta import DeltaTable, enable
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.tables import IdentityGenerator
from tests.support.catalog_tables import own_database, table_log
from tests.support.refusals import Refusal, refused


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def refusal(make: Callable[[], Any]) -> Refusal:
    with refused() as found:
        make()
    return found


def test_all_that_is_said_reaches_the_log(spark: SparkSession, db: str) -> None:
    made = (
        DeltaTable.create(spark)
        .tableName("t")
        .addColumn("a", "INT", nullable=False, comment="the a")
        .addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=2, step=3))
        .addColumn("d", "BIGINT", generatedByDefaultAs=IdentityGenerator())
        .addColumn("g", IntegerType(), generatedAlwaysAs="a + 1")
        .addColumn("v", "VARCHAR(4)")
        .addColumn("s c", "STRUCT<x: INT COMMENT 'inner'>")
        .addColumns(StructType([StructField("l", ArrayType(StringType()), False)]))
        .addColumns([StructField("m", StringType(), True, {"comment": "said"})])
        .partitionedBy("a")
        .property("delta.columnMapping.mode", "name")
        .property("mine", "1")
        .comment("hello")
        .execute()
    )
    assert repr(made).endswith(f"name='spark_catalog.{db}.t')")
    metadata = table_log(spark, "t").update().metadata
    assert (metadata.description, metadata.partition_columns) == ("hello", ("a",))
    assert metadata.configuration["mine"] == "1"
    fields = {f.name: f for f in metadata.schema}
    assert list(fields) == ["a", "i", "d", "g", "v", "s c", "l", "m"]
    assert (fields["a"].nullable, fields["a"].comment) == (False, "the a")
    assert fields["i"].metadata["delta.identity.start"] == 2
    assert fields["i"].metadata["delta.identity.step"] == 3
    assert fields["i"].metadata["delta.identity.allowExplicitInsert"] is False
    assert fields["d"].metadata["delta.identity.allowExplicitInsert"] is True
    assert fields["g"].metadata["delta.generationExpression"] == "a + 1"
    assert fields["v"].metadata["__CHAR_VARCHAR_TYPE_STRING"] == "varchar(4)"
    assert fields["s c"].data_type.simple_string == "struct<x:int>"
    assert not fields["l"].nullable
    assert fields["m"].comment == "said"
    [info] = made.history().collect()
    assert info.operation == "CREATE TABLE"
    assert json.loads(info.operationParameters["properties"])["mine"] == "1"


def test_four_ways_to_make_a_table(spark: SparkSession, db: str, table_path: Path) -> None:
    error = refusal(DeltaTable.replace(spark).tableName("t").addColumn("a", "INT").execute)
    assert error.condition == "TABLE_OR_VIEW_NOT_FOUND"
    DeltaTable.createOrReplace(spark).tableName("t").addColumn("a", "INT").execute()
    error = refusal(DeltaTable.create(spark).tableName("t").addColumn("b", "INT").execute)
    assert error.condition == "TABLE_OR_VIEW_ALREADY_EXISTS"
    same = DeltaTable.createIfNotExists(spark).tableName("t").addColumn("b", "INT").execute()
    assert same.toDF().columns == ["a"]
    DeltaTable.replace(spark).tableName("t").addColumn("c", "INT").execute()
    DeltaTable.createOrReplace().tableName(f"{db}.t").addColumn("d", "INT").execute()
    assert same.toDF().columns == ["d"]
    assert [row.operation for row in same.history().collect()] == [
        "CREATE OR REPLACE TABLE",
        "REPLACE TABLE",
        "CREATE OR REPLACE TABLE",
    ]
    # By path alone, by path as a name, and with both a name and a location.
    by_path = DeltaTable.create(spark).location(str(table_path)).addColumn("x", "INT")
    by_path.clusterBy("x").execute()
    log = table_log(spark, f"delta.`{table_path}`")
    assert clustering_columns(log.update().domains) == (("x",),)
    named = DeltaTable.createOrReplace(spark).tableName(f"delta.`{table_path}`")
    assert named.addColumn("y", "STRUCT<z: INT>").clusterBy(["y.z"]).execute().toDF().columns
    assert clustering_columns(log.update().domains) == (("y", "z"),)
    external = DeltaTable.create(spark).tableName("e").location(str(table_path)).execute()
    assert external.toDF().columns == ["y"]
    assert spark.catalog.getTable("e").tableType == "EXTERNAL"


def test_a_builder_remembers_what_it_was_told(spark: SparkSession, db: str) -> None:
    builder = DeltaTable.create(spark)
    builder.tableName("other")
    builder.tableName("t")
    builder.addColumn("a", "INT")
    builder.addColumn("b", "INT")
    builder.partitionedBy("a")
    builder.partitionedBy(["b"])
    builder.execute()
    assert table_log(spark, "t").update().metadata.partition_columns == ("b",)
    assert not spark.catalog.tableExists("other")


def test_what_cannot_be_made_is_refused(spark: SparkSession, db: str, table_path: Path) -> None:
    error = refusal(DeltaTable.create(spark).addColumn("a", "INT").execute)
    assert error.condition == "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION"
    named = DeltaTable.create(spark).tableName(f"delta.`{table_path}`").addColumn("a", "INT")
    error = refusal(named.location(f"{table_path}x").execute)
    assert error.condition == "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH"
    both = DeltaTable.create(spark).tableName("t").addColumn("a", "INT").addColumn("b", "INT")
    error = refusal(both.partitionedBy("a").clusterBy("b").execute)
    assert error.condition == "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY"
    bad = DeltaTable.create(spark).tableName("t").addColumn("a", "INT")
    assert refusal(bad.property("delta.nope", "1").execute).condition == (
        "DELTA_UNKNOWN_CONFIGURATION"
    )
    with pytest.raises(ParseException):
        DeltaTable.create(spark).tableName("t").addColumn("a", "INTO")
    assert not spark.catalog.tableExists("t")
    assert not table_path.exists()


def test_arguments_of_a_wrong_kind_are_refused_by_name(spark: SparkSession) -> None:
    enable(spark)
    wrong: list[tuple[Callable[[Any], Any], str]] = [
        (lambda b: b.tableName(1), "identifier"),
        (lambda b: b.location(None), "location"),
        (lambda b: b.comment(b"x"), "comment"),
        (lambda b: b.addColumn(1, "INT"), "colName"),
        (lambda b: b.addColumn("a", int), "dataType"),
        (lambda b: b.addColumn("a", "INT", nullable=1), "nullable"),
        (lambda b: b.addColumn("a", "INT", generatedAlwaysAs=1), "generatedAlwaysAs"),
        (lambda b: b.addColumn("a", "INT", generatedByDefaultAs="1"), "generatedByDefaultAs"),
        (lambda b: b.addColumn("a", "INT", comment=1), "comment"),
        (lambda b: b.addColumns([1]), "cols"),
        (lambda b: b.addColumns("a INT"), "cols"),
        (lambda b: b.partitionedBy(1), "partitioning"),
        (lambda b: b.clusterBy(["a", 1]), "clustering"),
        (lambda b: b.property("a", 1), "value"),
    ]
    for call, name in wrong:
        with pytest.raises(TypeError, match=name):
            call(DeltaTable.create(spark))
    with pytest.raises(ValueError, match="exclude"):
        DeltaTable.create(spark).addColumn(
            "a",
            "BIGINT",
            generatedAlwaysAs=IdentityGenerator(),
            generatedByDefaultAs=IdentityGenerator(),
        )
    with pytest.raises(ValueError, match="step"):
        DeltaTable.create(spark).addColumn(
            "a", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=1, step=0)
        )
