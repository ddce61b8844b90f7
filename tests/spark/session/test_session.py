"""Turning sessions on and off: what is ours then, and what is as it always was."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog

import pyspark_delta
from pyspark_delta import DeltaLog, disable, enable
from pyspark_delta.errors import OperationNotAllowedError, TableAlreadyExistsError
from pyspark_delta.spark.jvm import gateway
from pyspark_delta.spark.jvm.gateway import SESSION_CATALOG_KEY, items, private_value
from pyspark_delta.spark.jvm.hooks import bridge
from pyspark_delta.spark.session import enable as session_module
from pyspark_delta.spark.session import enabled as enabled_sessions
from tests.support.catalog_tables import own_database, rows

RULES = ("hintResolutionRules", "extendedResolutionRules")


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(enable(spark))  # as a notebook's cell that is run twice


def test_what_is_written_is_read_back(session: SparkSession, table_path: Path) -> None:
    frame = session.range(10).selectExpr("id", "concat('p ', id % 3) AS part")
    frame.write.format("delta").partitionBy("part").save(str(table_path))
    read = session.read.format("delta").load(str(table_path))
    assert rows(read) == rows(frame)
    assert rows(read.where("part = 'p 1'")) == [(1, "p 1"), (4, "p 1"), (7, "p 1")]
    theirs = DeltaTable(str(table_path)).to_pyarrow_table().column("id").to_pylist()
    assert sorted(theirs) == list(range(10))


def test_the_four_modes_do_what_spark_says(session: SparkSession, table_path: Path) -> None:
    def write(mode: str | None, first: int) -> None:
        writer = session.range(first, first + 2).write.format("delta")
        (writer if mode is None else writer.mode(mode)).save(str(table_path))

    def found() -> list[tuple[object, ...]]:
        return rows(session.read.format("delta").load(str(table_path)))

    write(None, 0)
    for mode in (None, "error", "errorifexists"):
        with pytest.raises(TableAlreadyExistsError):
            write(mode, 5)
    write("ignore", 5)
    assert found() == [(0,), (1,)]
    write("append", 5)
    assert found() == [(0,), (1,), (5,), (6,)]
    write("overwrite", 8)
    assert found() == [(8,), (9,)]
    operations = [info.operation for info in DeltaLog.for_table(table_path).history()]
    assert len(operations) == 3
    old = session.read.format("delta").option("versionAsOf", 1).load(str(table_path))
    assert rows(old) == [(0,), (1,), (5,), (6,)]


def test_parameters_of_save_and_load_count_as_options(
    session: SparkSession, table_path: Path
) -> None:
    frame = session.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.save(str(table_path), format="delta", mode="append", partitionBy="p")
    frame.write.save(format="delta", mode="append", path=str(table_path))
    assert session.read.load(str(table_path), format="delta", versionAsOf=0).count() == 4
    assert session.read.option("path", str(table_path)).format("delta").load().count() == 8


def test_a_new_session_of_an_enabled_one_is_enabled(
    session: SparkSession, table_path: Path
) -> None:
    session.range(1).write.format("delta").save(str(table_path))
    child = session.newSession()
    assert child.read.format("delta").load(str(table_path)).count() == 1
    assert child.sql(f"SELECT * FROM delta.`{table_path}`").count() == 1
    disable(child)
    assert session.read.format("delta").load(str(table_path)).count() == 1
    assert session.sql(f"SELECT * FROM delta.`{table_path}`").count() == 1


def test_a_copy_of_an_enabled_session_is_enabled(session: SparkSession, table_path: Path) -> None:
    session.range(3).write.format("delta").save(str(table_path))
    copy = SparkSession(session.sparkContext, session._jsparkSession.cloneSession())
    assert copy.sql(f"SELECT * FROM delta.`{table_path}`").count() == 3
    copy.range(2).write.format("delta").mode("append").save(str(table_path))
    assert DeltaLog.for_table(table_path).update().version == 1


def test_disabling_the_last_session_leaves_no_trace(session: SparkSession) -> None:
    alone = session.newSession()
    disable(alone)
    with own_database(session):
        session.range(2).write.format("delta").saveAsTable("t")
        others = [each for each in _enabled_sessions() if each is not session]
        for each in others:
            disable(each)
        disable(session)
        try:
            for owner, name in session_module._CHANGED.keys() - session_module._LASTING:
                assert not hasattr(getattr(owner, name), "__wrapped__"), name
            assert_not_hooked(session)
            assert "pyspark_delta" not in [row[0] for row in session.sql("SHOW CATALOGS").collect()]
            assert session.newSession().conf.get("spark.pyspark_delta.enabled", None) is None
        finally:
            enable(session)
            for each in others:
                enable(each)
        assert session.table("t").count() == 2


def assert_not_hooked(session: SparkSession) -> None:
    """Parser, rules and settings of the session are Spark's own, and so are its new sessions'."""
    for each in (session, session.newSession()):
        state = each._jsparkSession.sessionState()
        rules = [rule for name in RULES for rule in items(private_value(state.analyzer(), name))]
        classes = [part.getClass().getName() for part in (state.sqlParser(), *rules)]
        assert not [name for name in classes if name.startswith("pyspark_delta")]
        assert "delta" not in str(each.conf.get("spark.sql.sources.useV1SourceList")).split(",")
        assert each.conf.get("spark.pyspark_delta.enabled", None) is None


def delta_statements(session: SparkSession, path: Path) -> list[str]:
    """What DELETE on a path, saveAsTable and a read become in a session: errors by their class."""
    found = []
    for run in (
        lambda: session.sql(f"DELETE FROM delta.`{path}` WHERE id = 1").collect(),
        lambda: session.range(1).write.format("delta").saveAsTable("not_enabled"),
        lambda: session.sql(f"SELECT * FROM delta.`{path}`").collect(),
        lambda: session.sql("OPTIMIZE not_enabled").collect(),
    ):
        try:
            found.append(repr(run()))
        except PySparkException as error:
            found.append(f"{type(error).__name__} {error.getCondition()}")
    session.sql("DROP TABLE IF EXISTS not_enabled")
    return found


# How a Spark can be another one than is supported: a version, or a part that it does not have.
FAILURES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an old version": lambda patch: patch.setattr(gateway, "_OLDEST", (99, 0)),
    "a method of PySpark": lambda patch: patch.delattr(Catalog, "listColumns"),
    "a field of the analyzer": lambda patch: patch.setattr(bridge, "_RULES_FIELD", "renamedRules"),
    # The last step that touches the JVM: Spark's own map of catalogs takes no entry any more.
    "a field of the catalogs": lambda patch: patch.setattr(
        gateway, "_CATALOGS_FIELD", "renamedCatalogs"
    ),
}


@pytest.mark.parametrize("missing", FAILURES)
def test_enabling_that_fails_leaves_nothing_changed(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, table_path: Path, missing: str
) -> None:
    session.range(3).write.format("delta").save(str(table_path))
    others = _enabled_sessions()
    for each in others:
        disable(each)
    never, fresh = session.newSession(), session.newSession()
    FAILURES[missing](monkeypatch)
    functions = fresh._jsparkSession.sessionState().tableFunctionRegistry()
    try:
        fresh.conf.set(SESSION_CATALOG_KEY, "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        with pytest.raises(OperationNotAllowedError) as refused:
            enable(fresh)
        by_version = missing in ("an old version", "a method of PySpark")
        assert refused.value.condition == (
            "DELTA_UNSUPPORTED_SPARK_VERSION" if by_version else "DELTA_OPERATION_NOT_ALLOWED"
        )
        monkeypatch.undo()
        assert not _enabled_sessions()
        for owner, name in session_module._CHANGED.keys() - session_module._LASTING:
            assert not hasattr(getattr(owner, name, None), "__wrapped__"), name
        assert (
            fresh.conf.get(SESSION_CATALOG_KEY) == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        fresh.conf.unset(SESSION_CATALOG_KEY)
        assert_not_hooked(fresh)
        assert "pyspark_delta" not in [row[0] for row in fresh.sql("SHOW CATALOGS").collect()]
        assert "table_changes" not in str(functions.listFunction().mkString(" "))
        assert fresh._jsparkSession.experimental().extraOptimizations().isEmpty()
        catalog = fresh._jsparkSession.sessionState().catalog()
        assert "Delta" not in private_value(catalog, "tableRelationCache").toString()
        assert delta_statements(fresh, table_path) == delta_statements(never, table_path)
        assert DeltaLog.for_table(table_path).update().version == 0
    finally:
        monkeypatch.undo()
        for each in {*others, session}:
            enable(each)
    assert enable(fresh).sql(f"DELETE FROM delta.`{table_path}` WHERE id = 1").first() == (1,)
    assert session.newSession().sql(f"SELECT * FROM delta.`{table_path}`").count() == 2


def _enabled_sessions() -> list[SparkSession]:
    return list(enabled_sessions._ON)


def test_threads_enable_and_write_at_once(session: SparkSession, tmp_path: Path) -> None:
    def work(number: int) -> None:
        child = enable(session.newSession())
        child.range(number).write.format("delta").save(str(tmp_path / f"tä ble {number}%"))

    threads = [Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2, 3):
        path = str(tmp_path / f"tä ble {number}%")
        assert session.read.format("delta").load(path).count() == number


def test_a_statement_without_delta_costs_next_to_nothing(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    client = type(session._jvm._gateway_client)  # type: ignore[union-attr]
    send = client.send_command

    def counted(self: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        # Whenever Python drops a Java object, some thread says so.
        if not command.startswith("m\nd\n"):
            calls.append(command)
        return send(self, command, *args, **kwargs)

    def cost(run: Callable[[], DataFrame]) -> int:
        run()
        calls.clear()
        run()
        return len(calls)

    with own_database(session):
        session.range(1).write.format("parquet").saveAsTable("p")
        sparks_own = disable(session.newSession())
        sparks_own.sql(f"USE {session.catalog.currentDatabase()}")
        statement = "SELECT 'delta', id FROM p WHERE id > 3 -- delta"
        monkeypatch.setattr(client, "send_command", counted)
        plain = cost(lambda: sparks_own.sql(statement))
        added = cost(lambda: session.sql(statement)) - plain
        monkeypatch.undo()
    # A call to the JVM takes a fifth of a millisecond at most.
    assert plain > 0
    assert added <= 5, calls


def test_a_session_tells_the_version_that_it_committed_last(
    spark: SparkSession, table_path: Path
) -> None:
    key = "spark.databricks.delta.lastCommitVersionInSession"
    enable(spark)
    spark.range(3).write.format("delta").save(str(table_path))
    assert spark.conf.get(key) == "0"
    spark.sql(f"DELETE FROM delta.`{table_path}` WHERE id = 1")
    assert spark.conf.get(key) == "1"
    # Nothing was committed: it stays.
    spark.sql(f"DELETE FROM delta.`{table_path}` WHERE id = 1")
    spark.read.format("delta").load(str(table_path)).count()
    assert spark.conf.get(key) == "1"
    # Each session has its own, and one that is not on has none.
    other = SparkSession(spark.sparkContext, spark._jsparkSession.newSession())
    assert other.conf.get(key, None) is None


def test_a_session_needs_no_jar_no_extension_and_no_catalog_class(
    session: SparkSession, table_path: Path
) -> None:
    session.range(3).write.format("delta").save(str(table_path))
    assert session.read.format("delta").load(str(table_path)).count() == 3
    settings = dict(session.sparkContext.getConf().getAll())
    assert not {"spark.jars", "spark.jars.packages", "spark.jars.ivy"} & settings.keys()
    assert session.sparkContext._jsc.sc().listJars().isEmpty()
    for key in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog"):
        assert "delta" not in settings.get(key, "")
    package = Path(pyspark_delta.__file__).parent
    assert not [path for kind in ("jar", "class") for path in package.rglob(f"*.{kind}")]
    assert "delta-spark" not in " ".join(importlib.metadata.requires("pyspark-delta") or [])
