"""What we take for granted of Spark's inner classes: the next version tells here what moved."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    DecimalType,
    StructField,
    StructType,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.partition_directories import (
    FileGroups,
    partition_directories,
    passing,
)


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def methods(jvm: JvmSession, name: str) -> set[str]:
    found = jvm.jvm.java.lang.Class.forName(name).getMethods()
    return {method.getName() for method in found}


def test_a_file_index_is_an_interface_with_these_methods(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.execution.datasources.FileIndex"
    assert jvm.jvm.java.lang.Class.forName(name).isInterface()
    assert {
        "rootPaths",
        "listFiles",
        "inputFiles",
        "refresh",
        "sizeInBytes",
        "partitionSchema",
        "metadataOpsTimeNs",
    } <= methods(jvm, name)


def test_a_relation_takes_seven_parts(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
    [constructor] = jvm.jvm.java.lang.Class.forName(name).getConstructors()
    assert constructor.getParameterCount() == 7


def test_many_files_cross_in_one_buffer_and_come_back_the_same(jvm: JvmSession) -> None:
    names = [f"p=a%20b/{i} ü.parquet" for i in range(300)]
    groups = FileGroups(
        prefix="file:///t/tä ble 100%/",
        names=pa.array(names),
        sizes=pa.array([i * 2**33 for i in range(300)]),
        modified_ms=pa.array([1_700_000_000_000 + i for i in range(300)]),
        counts=[7, 293],
        values=[("x",), (None,)],
    )
    schema = StructType((StructField("p", STRING),))
    found = partition_directories(jvm, schema, groups)
    assert found.size() == 2
    assert found.apply(0).values().getUTF8String(0).toString() == "x"
    assert found.apply(1).values().isNullAt(0)
    assert found.apply(1).files().size() == 293
    status = found.apply(1).files().apply(2).fileStatus()
    assert (
        status.getPath().toUri().toString() == "file:///t/tä%20ble%20100%25/p=a%2520b/9%20ü.parquet"
    )
    assert (status.getLen(), status.getModificationTime()) == (9 * 2**33, 1_700_000_000_009)
    assert status.isFile()
    assert partition_directories(jvm, schema, groups.only([False, False])).isEmpty()
    assert partition_directories(jvm, schema, groups.only([True, False])).size() == 1


def test_values_of_all_types_cross_in_spark_s_own_rows(jvm: JvmSession) -> None:
    kinds = (
        *(INTEGER, LONG, STRING, DATE, TIMESTAMP, DecimalType(10, 2), DecimalType(38, 3)),
        *(BOOLEAN, BINARY, FLOAT, DOUBLE, BYTE, SHORT),
    )
    schema = StructType(tuple(StructField(f"c {i}", kind) for i, kind in enumerate(kinds)))
    large = Decimal("-12345678901234567890123456789012345.678")
    values = (
        *(-1, -(2**40), "x'\\\"ü", 19_782, 1_704_164_645_000_001, Decimal("-1.50"), large),
        *(True, b"\0\xff", 1.5, -2.25, -7, -300),
    )
    groups = FileGroups(
        prefix="",
        names=pa.array(["file:/a", "file:/b"]),
        sizes=pa.array([1, 2]),
        modified_ms=pa.array([1, 2]),
        counts=[1, 1],
        values=[values, (None,) * len(values)],
    )
    directories = partition_directories(jvm, schema, groups)
    row, nothing = (directories.apply(i).values() for i in range(2))
    assert (row.getInt(0), row.getLong(1)) == (-1, -(2**40))
    assert row.getUTF8String(2).toString() == "x'\\\"ü"
    assert (row.getInt(3), row.getLong(4)) == (19_782, 1_704_164_645_000_001)
    assert row.getDecimal(5, 10, 2).toString() == "-1.50"
    assert row.getDecimal(6, 38, 3).toString() == str(large)
    assert row.getBoolean(7) is True
    assert bytes(row.getBinary(8)) == b"\0\xff"
    assert (row.getFloat(9), row.getDouble(10)) == (1.5, -2.25)
    assert (row.getByte(11), row.getShort(12)) == (-7, -300)
    assert all(nothing.isNullAt(i) for i in range(len(kinds)))


def test_no_partition_columns_are_an_empty_row(jvm: JvmSession) -> None:
    groups = FileGroups(
        prefix="file:/",
        names=pa.array(["a"]),
        sizes=pa.array([1]),
        modified_ms=pa.array([1]),
        counts=[1],
        values=[()],
    )
    found = partition_directories(jvm, StructType(), groups)
    assert found.apply(0).values().numFields() == 0


def test_spark_evaluates_a_filter_on_rows_that_we_made(
    spark: SparkSession, jvm: JvmSession
) -> None:
    frame = spark.createDataFrame([], "q int, p string, r long")
    plan = frame.where("upper(p) = 'A' AND r + 1 > 5")._jdf.queryExecution().analyzed()
    schema = StructType(
        (StructField("p", STRING), StructField("q", INTEGER), StructField("r", LONG))
    )
    rows = [("a", 1, 9), ("b", 1, 9), ("a", None, 2), (None, 1, 9)]
    assert passing(jvm, [plan.condition()], schema, rows) == [True, False, False, False]


def test_the_catalog_asks_a_cache_in_a_field_of_its_own(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.catalyst.catalog.SessionCatalog"
    fields = jvm.jvm.java.lang.Class.forName(name).getDeclaredFields()
    [cache] = [field for field in fields if field.getName() == "tableRelationCache"]
    assert cache.getType().getName() == "org.sparkproject.guava.cache.Cache"
    assert cache.getType().isInterface()


def test_the_catalog_manager_keeps_catalogs_in_a_map(jvm: JvmSession) -> None:
    manager = jvm.session.sessionState().catalogManager()
    names = {field.getName() for field in manager.getClass().getDeclaredFields()}
    assert "catalogs" in names
    catalog = "org.apache.spark.sql.connector.catalog.TableCatalog"
    assert jvm.jvm.java.lang.Class.forName(catalog).isInterface()


def test_an_entry_of_the_catalog_has_these_fields_at_these_places(jvm: JvmSession) -> None:
    tables = jvm.java_class("org.apache.spark.sql.catalyst.catalog.CatalogTable$")
    defaults = {name for name in dir(tables) if name.startswith("apply$default$")}
    assert {f"apply$default${position}" for position in range(5, 23)} <= defaults
    constructors = jvm.jvm.java.lang.Class.forName(
        "org.apache.spark.sql.catalyst.catalog.CatalogTable"
    ).getConstructors()
    kinds = [kind.getSimpleName() for kind in constructors[0].getParameterTypes()]
    assert (kinds[8], kinds[14], kinds[17]) == ("long", "Option", "boolean")


def test_the_parser_says_what_a_statement_is(jvm: JvmSession) -> None:
    parser = jvm.session.sessionState().sqlParser()
    for sql, name in (
        ("CREATE TABLE t (a INT) USING delta", "CreateTable"),
        ("CREATE TABLE t USING delta AS SELECT 1", "CreateTableAsSelect"),
        ("REPLACE TABLE t (a INT) USING delta", "ReplaceTable"),
        ("CREATE OR REPLACE TABLE t USING delta AS SELECT 1", "ReplaceTableAsSelect"),
        ("INSERT INTO t VALUES (1)", "InsertIntoStatement"),
    ):
        assert parser.parsePlan(sql).getClass().getSimpleName() == name


def test_the_expressions_of_rules_take_these_parts(jvm: JvmSession) -> None:
    expressions = "org.apache.spark.sql.catalyst.expressions"
    for name, count in (
        ("Cast", 4),
        ("UpCast", 3),
        ("CheckOverflowInTableInsert", 2),
        ("EqualNullSafe", 2),
        ("objects.StaticInvoke", 9),
        ("objects.Invoke", 8),
    ):
        found = jvm.jvm.java.lang.Class.forName(f"{expressions}.{name}").getConstructors()
        assert count in {each.getParameterCount() for each in found}, name
    assert {"expression"} <= methods(jvm, "org.apache.spark.sql.classic.SparkSession")
    assert {"column"} <= methods(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    assert "numPartitions" in methods(jvm, "org.apache.spark.TaskContext")


def test_leaves_come_in_the_order_of_the_tree_s_text(jvm: JvmSession) -> None:
    parser = jvm.session.sessionState().sqlParser()
    parsed = parser.parseExpression("exists(a, x -> x > b) OR c IN (1, d) AND NOT e")
    tree = [node for node in json.loads(parsed.toJSON()) if node["num-children"] == 0]
    leaves = parsed.collectLeaves()
    named = [leaves.apply(i).nodeName() for i in range(leaves.size())]
    assert named == [node["class"].rpartition(".")[2] for node in tree]
