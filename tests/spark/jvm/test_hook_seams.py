"""What the hooks take for granted of Spark's inner classes: the next version shows here what moved.

All private fields are here too; `test_jvm_seams.py` has the seams of everything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import pyspark_delta
from pyspark_delta.spark.jvm.classes import _CONNECT_SOURCES, _SOURCES, _compiled, _parser_class
from pyspark_delta.spark.jvm.gateway import JvmSession, items, private_value
from pyspark_delta.spark.jvm.hooks import nodes
from pyspark_delta.spark.sql import statement

SQL = "org.apache.spark.sql"
PLANS = f"{SQL}.catalyst.plans.logical"
CONNECT = f"{SQL}.connect"

# What `hooks/nodes.py` and `Hooks.java` call of each node; they know its class by the short name.
NODES: dict[str, set[str]] = {
    f"{PLANS}.AppendData": {"table", "query", "writeOptions", "isByName"},
    f"{PLANS}.CreateTable": {"name", "columns", "partitioning", "tableSpec", "ignoreIfExists"},
    f"{SQL}.execution.datasources.CreateTable": {"tableDesc", "mode", "query"},
    f"{PLANS}.CreateTableAsSelect": {"name", "partitioning", "query", "tableSpec", "writeOptions"},
    f"{PLANS}.DeleteFromTable": {"table", "condition"},
    f"{PLANS}.InsertIntoStatement": {"table", "query", "overwrite", "partitionSpec"},
    f"{PLANS}.MergeIntoTable": {
        *("targetTable", "sourceTable", "mergeCondition", "matchedActions", "withSchemaEvolution"),
        *("notMatchedActions", "notMatchedBySourceActions"),
    },
    f"{PLANS}.OverwriteByExpression": {
        *("table", "query", "writeOptions", "isByName", "deleteExpr"),
    },
    f"{PLANS}.OverwritePartitionsDynamic": {"table", "query", "writeOptions", "isByName"},
    f"{SQL}.catalyst.analysis.RelationChanges": {"relation", "changelogContext"},
    f"{SQL}.catalyst.analysis.RelationTimeTravel": {"relation", "timestamp", "version"},
    f"{PLANS}.ReplaceTable": {"name", "columns", "partitioning", "tableSpec", "orCreate"},
    f"{PLANS}.ReplaceTableAsSelect": {
        *("name", "partitioning", "query", "tableSpec", "writeOptions", "orCreate"),
    },
    f"{SQL}.execution.command.SaveAsV1TableCommand": {"tableDesc", "mode", "query"},
    f"{PLANS}.UnresolvedDataSource": {
        *("format", "userSpecifiedSchema", "options", "isStreaming", "paths"),
    },
    f"{SQL}.catalyst.analysis.UnresolvedRelation": {
        "multipartIdentifier",
        "options",
        "isStreaming",
    },
    f"{PLANS}.UpdateTable": {"table", "assignments", "condition"},
}


# Private fields that are read or set, and the objects that have them.
FIELDS: dict[str, Callable[[JvmSession], Any]] = {
    "sqlParser": lambda jvm: jvm.state,
    "hintResolutionRules": lambda jvm: jvm.state.analyzer(),
    "parserBuilders": lambda jvm: jvm.session.extensions(),
    "hintResolutionRuleBuilders": lambda jvm: jvm.session.extensions(),
    "catalogs": lambda jvm: jvm.state.catalogManager(),
    "tableRelationCache": lambda jvm: jvm.state.catalog(),
    "lock": lambda jvm: jvm.callback_client,
    "connections": lambda jvm: jvm.callback_client,
}
SEAM = Path(pyspark_delta.__file__).parent / "spark" / "jvm"
ACCESS = ("private_value", "set_private_value")
JAVA = (*_SOURCES, *_CONNECT_SOURCES)


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    return JvmSession(spark)


def java_text(name: str) -> str:
    return (files("pyspark_delta.spark.jvm") / "hooks" / name).read_text(encoding="utf-8")


def signatures(jvm: JvmSession, name: str, method: str) -> set[tuple[str, ...]]:
    """The short names of the parameters of each of a class's methods of that name."""
    return {
        tuple(kind.getSimpleName() for kind in each.getParameterTypes())
        for each in jvm.class_named(name).getMethods()
        if each.getName() == method
    }


# Private fields, and classes by their names.


def fields_of(module: ast.Module) -> Iterator[str]:
    """The names that a module gives to `private_value` and `set_private_value`."""
    texts: dict[str, str] = {}
    for each in module.body:
        if isinstance(each, ast.Assign):
            for target in each.targets:
                texts.update(texts_of(target, each.value))
    for call in ast.walk(module):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        if call.func.id in ACCESS:
            name = call.args[1]
            if isinstance(name, ast.Constant):
                yield str(name.value)
            elif isinstance(name, ast.Name) and name.id in texts:
                yield texts[name.id]
            else:  # an argument of a function, whose callers give it one of these
                yield from (text for key, text in texts.items() if key.endswith("_FIELD"))


def texts_of(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    """The constants of an assignment, which may have several names."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for name, each in zip(target.elts, value.elts, strict=True):
            yield from texts_of(name, each)
    elif isinstance(target, ast.Name) and isinstance(value, ast.Constant):
        yield target.id, str(value.value)


def imports_of(name: str) -> list[str]:
    found = re.findall(r"^import (?:static )?([\w.$]+);", java_text(name), re.M)
    return [each for each in found if not each.startswith(("pyspark_delta.", "delta."))]


def test_every_private_field_that_is_used_is_stated_here() -> None:
    used = {
        field
        for path in SEAM.rglob("*.py")
        for field in fields_of(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert used == set(FIELDS)
    # The seam is the only place that opens private fields.
    others = [
        path
        for path in SEAM.parents[1].rglob("*.py")
        if not path.is_relative_to(SEAM)
        and any(f"{name}(" in path.read_text(encoding="utf-8") for name in ACCESS)
    ]
    assert others == []


@pytest.mark.parametrize("field", FIELDS)
def test_an_object_has_a_private_field(jvm: JvmSession, field: str) -> None:
    assert private_value(FIELDS[field](jvm), field) is not None


@pytest.mark.parametrize("name", JAVA)
def test_the_classes_that_our_text_imports_are_there(jvm: JvmSession, name: str) -> None:
    classes = imports_of(name)
    assert classes
    assert [each for each in classes if jvm.class_named(each).getName() != each] == []


# Classes, and where they are defined.


def test_classes_are_defined_in_the_loader_that_all_others_ask(jvm: JvmSession) -> None:
    loaders = jvm.class_named("java.lang.ClassLoader")
    [define] = [
        each
        for each in loaders.getDeclaredMethods()
        if each.getName() == "defineClass" and each.getParameterCount() == 4
    ]
    define.setAccessible(True)  # Spark's launcher opens java.lang to reflection
    system = jvm.static("java.lang.ClassLoader", "getSystemClassLoader")()
    assert jvm.class_named("pyspark_delta.Bridge").getClassLoader().equals(system)
    spark_loader = jvm.static(f"{SQL}.classic.SparkSession", "getActiveSession")
    assert spark_loader().get().getClass().getClassLoader().equals(system)
    assert jvm.static("org.apache.spark.util.Utils", "classIsLoadable")("delta.DefaultSource")


@pytest.mark.parametrize("name", JAVA)
def test_spark_s_own_janino_compiles_our_text(jvm: JvmSession, name: str) -> None:
    loader = jvm.static("java.lang.ClassLoader", "getSystemClassLoader")()
    made = dict(_compiled(jvm, loader, java_text(name)))
    assert all(code[:4] == b"\xca\xfe\xba\xbe" for code in made.values())
    declared = re.findall(r"^public (?:final )?(?:class|interface) (\w+)", java_text(name), re.M)
    assert {each.rpartition(".")[2] for each in made} >= set(declared)


def test_any_error_can_be_thrown_by_a_method_that_declares_none(jvm: JvmSession) -> None:
    assert signatures(jvm, "org.apache.spark.unsafe.Platform", "throwException") == {("Throwable",)}


# The parser.


def test_a_parser_has_these_methods_and_ours_has_them_all(jvm: JvmSession) -> None:
    name = f"{SQL}.catalyst.parser.ParserInterface"
    modifiers = jvm.java_class("java.lang.reflect.Modifier")
    wanted = {
        each.getName()
        for each in jvm.class_named(name).getMethods()
        if not modifiers.isStatic(each.getModifiers())
    }
    assert wanted >= {
        *("parsePlan", "parsePlanWithParameters", "parseMultipartIdentifier", "parseQuery"),
        *("parseExpression", "parseTableIdentifier", "parseDataType", "parseTableSchema"),
    }
    assert signatures(jvm, name, "parsePlan") == {("String",)}
    assert signatures(jvm, name, "parsePlanWithParameters") >= {("String", "ParameterContext")}
    made = set(re.findall(r"public [\w.<>]+ (\w+)\(", _parser_class(jvm)))
    assert made - {"sparks"} == wanted
    ours = jvm.class_named("pyspark_delta.Parser").getDeclaredMethods()
    assert {each.getName() for each in ours} >= wanted


def test_a_session_s_state_keeps_its_parser_in_a_field(jvm: JvmSession) -> None:
    assert private_value(jvm.state, "sqlParser").equals(jvm.state.sqlParser())


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("NamedParameterContext", ["params"]),
        ("PositionalParameterContext", ["params"]),
        ("HybridParameterContext", ["args", "paramNames"]),  # of EXECUTE IMMEDIATE
    ],
)
def test_bound_parameters_are_in_a_context(jvm: JvmSession, kind: str, parts: list[str]) -> None:
    name = f"{SQL}.catalyst.parser.{kind}"
    assert all(signatures(jvm, name, part) == {()} for part in parts)
    context = jvm.class_named(f"{SQL}.catalyst.parser.ParameterContext")
    assert context.isAssignableFrom(jvm.class_named(name))


# Sessions' extensions.


def test_a_session_s_extensions_keep_builders_in_two_buffers(jvm: JvmSession) -> None:
    for field in ("parserBuilders", "hintResolutionRuleBuilders"):
        builders = private_value(jvm.session.extensions(), field)
        assert {"addOne", "subtractOne"} <= set(dir(builders))
        [ours] = [each for each in items(builders) if "pyspark_delta" in each.getClass().getName()]
        assert ours is not None


def test_a_new_session_has_the_extensions_of_the_old_one(jvm: JvmSession) -> None:
    made = jvm.session.newSession()
    assert made.extensions().equals(jvm.session.extensions())
    assert made.sessionState().sqlParser().getClass().getName() == "pyspark_delta.Parser"
    assert made.sessionUUID() != jvm.session.sessionUUID()


# The analyzer.


def rule_names(rules: Any) -> list[str]:
    return [rule.getClass().getName() for rule in items(rules)]


def test_an_analyzer_keeps_its_hint_rules_in_a_field(jvm: JvmSession) -> None:
    assert rule_names(jvm.state.analyzer().hintResolutionRules()) == ["pyspark_delta.Resolution"]


def test_hints_are_resolved_before_anything_else_is(jvm: JvmSession) -> None:
    for session in (jvm.session, jvm.session.newSession()):
        batches = items(session.sessionState().analyzer().batches())
        names = [batch.name() for batch in batches]
        assert names.index("Hints") < names.index("Resolution")
        [hints] = [batch for batch in batches if batch.name() == "Hints"]
        assert "pyspark_delta.Resolution" in rule_names(hints.rules())
        # Nothing before looks a table up.
        before = {
            name for batch in batches[: names.index("Hints")] for name in rule_names(batch.rules())
        }
        assert not {name for name in before if "ResolveRelations" in name}


def test_the_hook_knows_these_nodes(jvm: JvmSession) -> None:
    [listed] = re.findall(r"Set NODES = .*?\{(.*?)\}", java_text("Hooks.java"), re.S)
    in_java = set(re.findall(r'"(\w+)"', listed))
    assert in_java == set(nodes._READERS) == {name.rpartition(".")[2] for name in NODES}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("UnresolvedIdentifier", "nameParts"),
        ("UnresolvedTable", "multipartIdentifier"),
        ("UnresolvedTableOrView", "multipartIdentifier"),
    ],
)
def test_a_node_with_a_name_is_copied_with_another(jvm: JvmSession, name: str, part: str) -> None:
    full = f"{SQL}.catalyst.analysis.{name}"
    assert signatures(jvm, full, part) == {()}
    [constructor] = jvm.class_named(full).getConstructors()
    assert constructor.getParameterTypes()[0].getSimpleName() == "Seq"
    assert signatures(jvm, full, "makeCopy") == {("Object[]",)}


@pytest.mark.parametrize("name", NODES, ids=lambda name: name.removeprefix(f"{SQL}."))
def test_a_node_has_these_parts(jvm: JvmSession, name: str) -> None:
    found = jvm.class_named(name)
    assert found.getSimpleName() == name.rpartition(".")[2]
    assert jvm.class_named(f"{PLANS}.LogicalPlan").isAssignableFrom(found)
    assert NODES[name] <= {each.getName() for each in found.getMethods()}


@pytest.mark.parametrize(
    ("statement", "node"),
    [
        ("CREATE TABLE t (a INT) USING delta", "CreateTable"),
        ("CREATE TABLE t USING delta AS SELECT 1", "CreateTableAsSelect"),
        ("REPLACE TABLE t (a INT) USING delta", "ReplaceTable"),
        ("REPLACE TABLE t USING delta AS SELECT 1", "ReplaceTableAsSelect"),
        ("INSERT INTO t SELECT 1", "InsertIntoStatement"),
        ("SELECT * FROM t VERSION AS OF 1", "RelationTimeTravel"),
        ("TABLE t", "UnresolvedRelation"),
        ("DELETE FROM t WHERE a = 1", "DeleteFromTable"),
        ("UPDATE t SET a = 1", "UpdateTable"),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MergeIntoTable"),
    ],
)
def test_the_parser_makes_these_nodes(jvm: JvmSession, statement: str, node: str) -> None:
    plan = jvm.parser.parsePlan(statement)
    found = re.findall(r"\b\w+", plan.treeString())
    inner = [each.getClass().getSimpleName() for each in items(plan.children())]
    assert node in {plan.getClass().getSimpleName(), *inner}, found


def test_a_writer_that_appends_to_a_name_creates_a_table_of_the_first_kind(
    spark: SparkSession, jvm: JvmSession
) -> None:
    """`df.write.format(of the first kind).saveAsTable` makes this node, by its full name."""
    [first] = [name for name in NODES if name == nodes._CREATE_OF_V1]
    [constructor] = jvm.class_named(first).getConstructors()
    kinds = [kind.getSimpleName() for kind in constructor.getParameterTypes()]
    assert kinds == ["CatalogTable", "SaveMode", "Option"]
    # `CREATE TABLE` of the second kind is another class of the same short name.
    assert jvm.parser.parsePlan("CREATE TABLE t (a INT) USING delta").getClass().getName() == (
        f"{PLANS}.CreateTable"
    )


def test_a_stream_s_sink_is_a_part_of_a_node(jvm: JvmSession) -> None:
    """Where delta-spark's JAR is, the node has its sink, in whose place ours goes."""
    name = f"{SQL}.catalyst.streaming.WriteToStreamStatement"
    assert signatures(jvm, name, "sink") == signatures(jvm, name, "outputMode") == {()}
    assert jvm.class_named(f"{PLANS}.LogicalPlan").isAssignableFrom(jvm.class_named(name))
    assert signatures(jvm, name, "makeCopy") == {("Object[]",)}


def test_the_first_words_of_statements_are_the_same_in_java(jvm: JvmSession) -> None:
    [listed] = re.findall(r"Set FIRST_WORDS = .*?\{(.*?)\}", java_text("Statements.java"), re.S)
    in_java = set(re.findall(r'"(\w+)"', listed))
    assert in_java == statement._FIRST_WORDS | set(statement._QUERIES)
    [patterns] = re.findall(r"BEFORE_TABLES = \{(.*?)\}", java_text("Statements.java"), re.S)
    ours = {
        " ".join((first, *others))
        for either, *others in statement._VERBS.values()
        for first in either.split("|")
    }
    in_java = set(re.findall(r'"([^"]+)"', patterns))
    assert in_java - ours == {"SHOW COLUMNS [IN] [FROM]"}  # the name is not the next word


def test_a_command_of_ours_is_a_command_of_spark_s(jvm: JvmSession) -> None:
    ours = jvm.class_named("pyspark_delta.DeltaCommand")
    for name in (f"{SQL}.execution.command.RunnableCommand", f"{PLANS}.Command"):
        assert jvm.class_named(name).isAssignableFrom(ours)
    modifiers = jvm.java_class("java.lang.reflect.Modifier")
    left = [
        each.getName() for each in ours.getMethods() if modifiers.isAbstract(each.getModifiers())
    ]
    assert left == []


# The data source.


def test_the_format_delta_is_found_by_the_name_of_a_package(jvm: JvmSession) -> None:
    source = jvm.static(f"{SQL}.execution.datasources.DataSource", "lookupDataSource")
    found = source("delta", jvm.state.conf())
    assert found.getName() == "delta.DefaultSource"
    for name in (
        f"{SQL}.connector.catalog.TableProvider",
        f"{SQL}.sources.CreatableRelationProvider",
        f"{SQL}.sources.StreamSinkProvider",
    ):
        assert jvm.class_named(name).isAssignableFrom(found)


def test_the_data_source_in_python_takes_a_short_name(jvm: JvmSession) -> None:
    name = f"{SQL}.execution.datasources.v2.python.PythonDataSourceV2"
    assert signatures(jvm, name, "setShortName") == {("String",)}


# Errors.


def test_an_error_of_the_analyzer_takes_nine_parts(jvm: JvmSession) -> None:
    constructors = jvm.class_named(f"{SQL}.AnalysisException").getConstructors()
    kinds = {tuple(k.getSimpleName() for k in each.getParameterTypes()) for each in constructors}
    option = "Option"
    assert (
        *("String", option, option, option, option),
        *("Map", "QueryContext[]", option, option),
    ) in kinds


def test_an_error_of_ours_is_java_s_with_its_condition_and_state(
    spark: SparkSession, jvm: JvmSession
) -> None:
    with pytest.raises(AnalysisException) as raised:
        jvm.session.sql("DELETE FROM delta.`/no/tä ble 100%`")
    assert raised.value.getCondition() == "DELTA_MISSING_DELTA_TABLE"


# Servers.


def test_spark_connect_takes_plugins_of_two_kinds(jvm: JvmSession) -> None:
    given = ("byte[]", "SparkConnectPlanner")
    assert signatures(jvm, f"{CONNECT}.plugin.RelationPlugin", "transform") == {given}
    assert signatures(jvm, f"{CONNECT}.plugin.CommandPlugin", "process") == {given}


def test_the_planner_of_spark_connect_reads_its_own_messages(jvm: JvmSession) -> None:
    planner = f"{CONNECT}.planner.SparkConnectPlanner"
    assert signatures(jvm, planner, "session") == {()}
    assert signatures(jvm, planner, "executeHolderOpt") == {()}
    assert ("Expression",) in signatures(jvm, planner, "transformExpression")
    assert ("Relation",) in signatures(jvm, planner, "transformRelation")
    converter = f"{CONNECT}.common.DataTypeProtoConverter"
    assert ("DataType",) in signatures(jvm, converter, "toCatalystType")
    for message in ("Expression", "Relation", "DataType"):
        proto = f"org.apache.spark.connect.proto.{message}"
        assert ("byte[]",) in signatures(jvm, proto, "parseFrom")


def test_spark_connect_is_started_in_a_driver(jvm: JvmSession) -> None:
    service = f"{CONNECT}.service.SparkConnectService"
    assert signatures(jvm, service, "start") == {("SparkContext",)}
    assert signatures(jvm, service, "stop") == {("Option", "Option")}
    assert signatures(jvm, f"{service}$", "localPort") == {()}


def test_the_thrift_server_is_started_with_a_session(jvm: JvmSession) -> None:
    thrift = f"{SQL}.hive.thriftserver.HiveThriftServer2"
    assert signatures(jvm, thrift, "startWithSparkSession") == {("SparkSession", "boolean")}
