"""What we take for granted of Spark's inner classes: the next version tells here what moved.

`test_hook_seams.py` has the seams of the hooks, and all private fields.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import OperationNotAllowedError
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
from pyspark_delta.spark.jvm.callbacks import thrown_in_java
from pyspark_delta.spark.jvm.catalog.entries import (
    entry_partitions,
    find_entry,
    make_delta,
)
from pyspark_delta.spark.jvm.expressions.catalyst import (
    is_default_keyword,
    parse_attribute_name,
    without_alias,
)
from pyspark_delta.spark.jvm.expressions.lookups import looked_up, range_number
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    all_settings,
    items,
    moved_class,
)
from pyspark_delta.spark.jvm.parser.plans import syntax_error
from pyspark_delta.spark.jvm.parser.tables import parse_spark_predicate
from pyspark_delta.spark.jvm.plans.conditions import is_repeatable, resolved_condition
from pyspark_delta.spark.jvm.plans.frames import UNION_SETTINGS, union_of
from pyspark_delta.spark.jvm.scan.catalyst_rows import (
    FileGroups,
    partition_directories,
    passing,
)
from pyspark_delta.spark.jvm.write.file_writer import new_query, rebalance_settings, rebalanced


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


def test_the_catalog_asks_a_cache_that_is_an_interface(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.catalyst.catalog.SessionCatalog"
    fields = jvm.jvm.java.lang.Class.forName(name).getDeclaredFields()
    [cache] = [field for field in fields if field.getName() == "tableRelationCache"]
    assert cache.getType().getName() == "org.sparkproject.guava.cache.Cache"
    assert cache.getType().isInterface()


def test_a_catalog_is_an_interface(jvm: JvmSession) -> None:
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


def test_a_syntax_error_is_made_of_a_place_and_a_condition(jvm: JvmSession) -> None:
    error = syntax_error(jvm, "a\n ü b", 5, "b")
    assert isinstance(error, ParseException)
    assert error.getCondition() == "PARSE_SYNTAX_ERROR"
    assert str(error).endswith("(line 2, pos 3)\n\n== SQL ==\na\n ü b\n---^^^\n")


def test_an_entry_is_altered_and_its_partitions_cross_as_one_text(jvm: JvmSession) -> None:
    jvm.spark.sql("CREATE TABLE seam (id INT, p INT) USING parquet PARTITIONED BY (p)")
    try:
        for value in ("1", "2", "NULL"):
            jvm.spark.sql(f"ALTER TABLE seam ADD PARTITION (p = {value}) LOCATION '/s e%am/ü'")
        entry = find_entry(jvm, None, "seam")
        assert entry is not None
        found = sorted(entry_partitions(jvm, entry), key=repr)
        where = "file:/s e%am/ü"
        assert found == [({"p": "1"}, where), ({"p": "2"}, where), ({"p": None}, where)]
        make_delta(jvm, entry, StructType((StructField("id", INTEGER),)))
        altered = find_entry(jvm, None, "seam")
        assert altered is not None
        assert (altered.provider, altered.location) == ("delta", entry.location)
        assert altered.partition_schema == StructType()
    finally:
        jvm.spark.sql("DROP TABLE IF EXISTS seam")


def test_the_expressions_of_rules_take_these_parts(jvm: JvmSession) -> None:
    expressions = "org.apache.spark.sql.catalyst.expressions"
    for name, count in (
        ("Cast", 4),
        ("UpCast", 3),
        ("CheckOverflowInTableInsert", 2),
        ("EqualNullSafe", 2),
        ("KnownNullable", 1),
        ("objects.StaticInvoke", 9),
        ("objects.Invoke", 8),
    ):
        found = jvm.jvm.java.lang.Class.forName(f"{expressions}.{name}").getConstructors()
        assert count in {each.getParameterCount() for each in found}, name
    assert {"expression"} <= methods(jvm, "org.apache.spark.sql.classic.SparkSession")
    assert {"column"} <= methods(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
    assert "numPartitions" in methods(jvm, "org.apache.spark.TaskContext")


def test_leaves_come_in_the_order_of_the_tree_s_text(jvm: JvmSession) -> None:
    parser = jvm.parser
    parsed = parser.parseExpression("exists(a, x -> x > b) OR c IN (1, d) AND NOT e")
    tree = [node for node in json.loads(parsed.toJSON()) if node["num-children"] == 0]
    leaves = parsed.collectLeaves()
    named = [leaves.apply(i).nodeName() for i in range(leaves.size())]
    assert named == [node["class"].rpartition(".")[2] for node in tree]


def test_a_projection_hides_columns_behind_a_tag(jvm: JvmSession) -> None:
    plans = "org.apache.spark.sql.catalyst.plans.logical.Project$"
    tag = jvm.java_class(plans).hiddenOutputTag()
    plan = jvm.spark.range(1).selectExpr("id", "id + 1 AS x")._jdf.queryExecution().analyzed()
    assert plan.metadataOutput().isEmpty()
    plan.setTagValue(tag, plan.output().takeRight(1))
    assert plan.metadataOutput().head().name() == "x"
    assert {"rewriteAttrs", "withNewChildren"} <= set(dir(plan))


def test_options_of_a_relation_are_in_the_hadoop_configuration_of_its_scan(
    jvm: JvmSession,
) -> None:
    options = jvm.scala_map({"fs.Some.Key": "x"})
    conf = jvm.session.sessionState().newHadoopConfWithOptions(options)
    assert conf.get("fs.Some.Key") == "x"


def test_a_plan_becomes_a_frame_of_a_session(jvm: JvmSession) -> None:
    plan = jvm.spark.range(3).where("id > 0")._jdf.queryExecution().analyzed()
    dataset = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    assert jvm.data_frame(dataset.ofRows(jvm.session, plan)).count() == 2
    other = jvm.session.cloneSession()
    made = dataset.ofRows(other, plan).queryExecution()
    assert made.sparkSession().equals(other)


def test_rows_are_rebalanced_by_a_plan_of_four_parts(jvm: JvmSession) -> None:
    name = "org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions"
    kinds = [
        [kind.getSimpleName() for kind in constructor.getParameterTypes()]
        for constructor in jvm.jvm.java.lang.Class.forName(name).getConstructors()
    ]
    assert ["Seq", "LogicalPlan", "Option", "Option"] in kinds
    made = rebalanced(jvm, jvm.spark.range(10), ["id"], 7)
    plan = made._jdf.queryExecution().analyzed()
    assert plan.nodeName() == "RebalancePartitions"
    assert plan.optAdvisoryPartitionSize().get() == 7
    assert made.count() == 10  # which casts the size to a long
    settings = rebalance_settings(7)
    known = jvm.java_class("org.apache.spark.sql.internal.SQLConf$")
    assert all(known.containsConfigKey(key) for key in settings)


def test_catalyst_asks_a_partial_function_for_each_node(jvm: JvmSession) -> None:
    condition = without_alias(jvm, F.expr("t.a + T.`b c`.d = x.a AND length(t.a) > 0"), "t")
    shown = jvm.spark.createDataFrame([], "a int, `b c` struct<d: int>, x struct<a: int>").where(
        condition
    )
    names = {each.name() for each in items(shown._jdf.queryExecution().analyzed().output())}
    assert names == {"a", "b c", "x"}


def test_names_of_frames_outlive_a_checkpoint(jvm: JvmSession) -> None:
    kept = jvm.spark.range(2).alias("s").localCheckpoint(eager=True)
    assert [row[0] for row in kept.select("s.id").collect()] == [0, 1]


def test_settings_of_a_session_are_a_map_that_can_be_filled(jvm: JvmSession) -> None:
    session = jvm.session.cloneSession()
    settings = session.sessionState().conf().settings()
    key = "spark.sql.parquet.outputTimestampType"
    settings.remove(key)
    settings.putIfAbsent(key, "TIMESTAMP_MICROS")
    settings.putIfAbsent(key, "INT96")
    assert session.conf().get(key) == "TIMESTAMP_MICROS"
    own = jvm.scala_map({"parquet.block.size": "77"})
    hadoop = session.sessionState().newHadoopConfWithOptions(own)
    assert (hadoop.get("parquet.block.size"), hadoop.get(key)) == ("77", "TIMESTAMP_MICROS")


def test_a_sink_is_an_interface_with_one_method_that_counts(jvm: JvmSession) -> None:
    sink = jvm.jvm.java.lang.Class.forName("org.apache.spark.sql.execution.streaming.Sink")
    assert sink.isInterface()
    (method,) = [m for m in sink.getDeclaredMethods() if m.getName() == "addBatch"]
    assert [kind.getSimpleName() for kind in method.getParameterTypes()] == ["long", "Dataset"]


def test_metrics_are_shown_by_events(jvm: JvmSession) -> None:
    def kinds(name: str) -> list[str]:
        found = jvm.jvm.java.lang.Class.forName(f"org.apache.spark.sql.execution.{name}")
        return [kind.getSimpleName() for kind in found.getConstructors()[0].getParameterTypes()]

    update = kinds("ui.SparkListenerSQLAdaptiveExecutionUpdate")
    assert update == ["long", "String", "SparkPlanInfo"]
    assert kinds("SparkPlanInfo") == ["String", "String", "Seq", "Map", "Seq"]
    assert kinds("metric.SQLMetricInfo") == ["String", "long", "String"]


def test_an_exception_of_spark_s_takes_a_text_and_a_condition(jvm: JvmSession) -> None:
    told = OperationNotAllowedError("DELTA_UNSUPPORTED_OUTPUT_MODE", dataSource="a", mode="b")
    with pytest.raises(Py4JJavaError) as raised, thrown_in_java(jvm):
        raise told
    found = raised.value.java_exception
    assert found.getClass().getName() == "org.apache.spark.SparkRuntimeException"
    assert found.getMessage() == str(told)
    assert (found.getCondition(), found.getSqlState()) == (told.condition, told.sqlstate)
    assert dict(found.getMessageParameters()) == told.parameters
    # It is meant for one error: callbacks of others are answered as before.
    assert jvm.gateway.python_parameters.propagate_java_exceptions
    assert not jvm.gateway.python_parameters.propagate_java_exceptions


def test_a_stream_source_is_made_of_interfaces(jvm: JvmSession) -> None:
    source = "org.apache.spark.sql.execution.streaming.Source"
    admission = "org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow"
    for name in (source, admission):
        assert jvm.jvm.java.lang.Class.forName(name).isInterface()
    asked = {"schema", "getOffset", "getBatch", "initialOffset", "deserializeOffset", "stop"}
    assert methods(jvm, source) >= {*asked, "commit"}
    admits = {"getDefaultReadLimit", "latestOffset", "reportLatestOffset"}
    assert methods(jvm, admission) >= {*admits, "prepareForTriggerAvailableNow"}
    limit = jvm.java_class("org.apache.spark.sql.connector.read.streaming.ReadLimit")
    assert limit.allAvailable().toString() == "All Available"
    assert limit.maxFiles(1).toString() != "All Available"


def test_a_query_tells_its_checkpoint_and_its_sources(jvm: JvmSession) -> None:
    relation = moved_class(jvm, "StreamingExecutionRelation")
    [constructor] = jvm.jvm.java.lang.Class.forName(relation._fqn).getConstructors()
    assert constructor.getParameterCount() == 5
    place = relation._fqn.rpartition(".")[0]
    assert methods(jvm, f"{place}.StreamExecution") >= {"resolvedCheckpointRoot", "sources"}
    write = "org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSourceV1"
    assert "catalogTable" in methods(jvm, write)
    assert "streamingQuery" in methods(jvm, f"{place}.StreamingQueryWrapper")


def test_very_many_files_cross_by_way_of_a_file(jvm: JvmSession) -> None:
    count = 20_000
    names = [f"p={i % 7}/{i:08} ü.parquet" for i in range(count)]
    groups = FileGroups(
        prefix="file:/t/tä ble 100%/",
        names=pa.array(names),
        sizes=pa.array(range(count)),
        modified_ms=pa.array([1_700_000_000_000] * count),
        counts=[5_000, 15_000],
        values=[("x",), (None,)],
    )
    found = partition_directories(jvm, StructType((StructField("p", STRING),)), groups)
    assert found.apply(0).values().getUTF8String(0).toString() == "x"
    files = found.apply(1).files()
    assert (found.size(), files.size()) == (2, 15_000)
    last = files.apply(14_999).fileStatus()
    assert last.getPath().toString() == f"file:/t/tä ble 100%/{names[-1]}"
    assert (last.getLen(), last.getModificationTime()) == (count - 1, 1_700_000_000_000)


def test_a_condition_tells_what_it_is_made_of(jvm: JvmSession) -> None:
    rows = jvm.spark.range(3).selectExpr("id", "cast(id AS TIMESTAMP) AS t")
    found = resolved_condition(jvm, rows, F.expr("id <> 1 + 1 AND id IN (1, 2)"))
    assert re.sub(r"#\d+", "#", found.text) == "(NOT (id#L = 2) AND id#L IN (1,2))"
    assert found.columns == ("id",)
    assert (found.is_deterministic, found.is_steady, found.has_subquery) == (True, True, False)
    assert resolved_condition(jvm, rows, F.expr("id = null")).filter is None
    assert not resolved_condition(jvm, rows, F.expr("t < current_timestamp()")).is_steady
    assert not resolved_condition(jvm, rows, F.expr("rand() < id")).is_deterministic
    assert is_repeatable(jvm, rows.selectExpr("id + 1"))
    assert not is_repeatable(jvm, rows.selectExpr("now()"))
    asked = rows.where("id IN (SELECT id FROM range(2))")
    assert not is_repeatable(jvm, asked.selectExpr("id + 1"))


def test_names_of_columns_are_parsed_as_sql_does(jvm: JvmSession) -> None:
    assert parse_attribute_name(jvm, "s.`a.b`.c d") == ("s", "a.b", "c d")
    assert is_default_keyword(jvm, F.expr("Default"))
    assert not is_default_keyword(jvm, F.expr("'default'"))


def test_places_among_bounds_are_compiled_looks_into_java_arrays(
    spark: SparkSession, jvm: JvmSession
) -> None:
    frame = spark.sql(
        "SELECT * FROM VALUES (-1L, 0.5D, 'a'), (5L, double('NaN'), 'b\u00e4'), (9L, -0.0D, 'z'),"
        " (NULL, NULL, NULL) AS t(n, x, s)"
    )
    found = frame.select(
        range_number(jvm, F.col("n"), [0, 5, 8]),
        range_number(jvm, F.col("x"), [-1.0, 0.5]),
        range_number(jvm, F.col("s"), ["b", "c"]),
        range_number(jvm, F.col("n"), []),
        looked_up(jvm, [10, 2**60, 30], range_number(jvm, F.col("n"), [0, 5])),
    )
    assert [tuple(row) for row in found.collect()] == [
        (0, 1, 0, 0, 10),
        (1, 2, 1, 0, 2**60),
        (3, 1, 2, 0, 30),
        (0, 0, 0, 0, 10),
    ]
    # A column of real rows, in code that Spark compiles.
    many = spark.range(0, 100, 1, 2).select(range_number(jvm, F.col("id"), [49]).alias("r"))
    assert sorted(tuple(row) for row in many.groupBy("r").count().collect()) == [(0, 50), (1, 50)]


def test_a_union_keeps_the_parts_of_its_inputs_apart(spark: SparkSession, jvm: JvmSession) -> None:
    frames = [spark.range(start, start + 5, 1, 2).coalesce(1) for start in (0, 10, 20)]
    union = union_of(jvm, frames)
    session = jvm.session.cloneSession()
    for key, value in UNION_SETTINGS.items():
        session.conf().set(key, value)
    assert new_query(jvm, union, session).toRdd().getNumPartitions() == 3
    assert sorted(row[0] for row in union.collect()) == [*range(5), *range(10, 15), *range(20, 25)]


def test_a_predicate_is_shown_as_the_parser_leaves_it(jvm: JvmSession) -> None:
    found = parse_spark_predicate(jvm, "p = 1 AND q.`a b` IS NULL")
    assert found is not None
    assert found.text.startswith("(('p = 1) AND isnull('q.")
    assert sorted(found.columns) == [("p",), ("q", "a b")]
    assert not found.has_subquery
    subquery = parse_spark_predicate(jvm, "p IN (SELECT 1)")
    assert subquery is not None
    assert subquery.has_subquery
    assert parse_spark_predicate(jvm, "p =") is None


def test_all_settings_of_a_session_cross_at_once(jvm: JvmSession) -> None:
    jvm.spark.conf.set('spark.a."key"', "ä\n'b\\")
    found = all_settings(jvm)
    assert found == jvm.spark.conf.getAll
    assert found['spark.a."key"'] == "ä\n'b\\"
