"""`DeltaTable`: finding a table, and reading its newest version through a handle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable, tables
from pyspark_delta.errors import (
    PropertyError,
    TableNotFoundError,
)
from tests.spark.session.test_session import rows
from tests.support.refusals import refused


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


@pytest.fixture
def path(session: SparkSession, table_path: Path) -> str:
    frame = session.range(6).selectExpr("id", "id % 3 AS p", "concat('a ', id % 2) AS q")
    frame.coalesce(1).write.format("delta").partitionBy("p", "q").save(str(table_path))
    return str(table_path)


def test_a_handle_sees_the_newest_version(session: SparkSession, path: str) -> None:
    handle = DeltaTable.forPath(session, path)
    before = handle.toDF()
    assert before.count() == 6
    session.range(1).selectExpr("id", "id AS p", "'x' AS q").write.format("delta").mode(
        "append"
    ).save(path)
    assert handle.toDF().count() == 7
    assert handle.history().count() == 2
    (detail,) = handle.detail().collect()
    assert detail.numFiles == 7
    session.range(1).selectExpr("id", "id AS p", "'x' AS q", "1 AS new").write.format("delta").mode(
        "append"
    ).option("mergeSchema", "true").save(path)
    assert handle.toDF().columns == ["id", "p", "q", "new"]
    assert tables.DeltaTable is DeltaTable


def test_an_alias_is_for_expressions(session: SparkSession, path: str) -> None:
    handle = DeltaTable.forPath(session, path)
    named = handle.alias("t")
    assert rows(named.toDF().where("t.id = 1").select("t.p")) == [(1,)]
    assert repr(named) == f"DeltaTable({path!r}, alias='t')"
    assert repr(handle) == f"DeltaTable({path!r})"
    joined = named.toDF().join(handle.alias("s").toDF(), on="id").where("t.p = s.p")
    assert joined.count() == 6


def test_every_spelling_of_a_path_finds_the_table(session: SparkSession, path: str) -> None:
    for spelled in (path, f"{path}/", f"file:{path}", f"file://{path}"):
        assert DeltaTable.isDeltaTable(session, spelled)
        assert DeltaTable.forPath(session, spelled).toDF().count() == 6
    assert DeltaTable.isDeltaTable(session, f"delta.`{path}`")
    assert DeltaTable.forName(session, f"delta.`{path}`").toDF().count() == 6
    # As Hadoop has it, a percent sign is one with a scheme in front as well.
    assert not DeltaTable.isDeltaTable(session, Path(path).as_uri())


def test_a_path_into_a_table_is_a_table_of_its_partition(session: SparkSession, path: str) -> None:
    for inner in ("p=1", "p=1/q=a 1", "no/such/directory"):
        assert DeltaTable.isDeltaTable(session, f"{path}/{inner}")
    partition = DeltaTable.forPath(session, f"{path}/p=1")
    assert rows(partition.toDF().select("id")) == [(1,), (4,)]
    assert rows(DeltaTable.forPath(session, f"{path}/p=1/q=a 0").toDF()) == [(4, 1, "a 0")]
    (detail,) = partition.detail().collect()
    assert (detail.location, detail.numFiles) == (f"file:{path}", 6)
    with refused(TableNotFoundError):
        DeltaTable.forPath(session, f"{path}/no/such/directory").toDF()
    for inside in ("_delta_log", "_delta_log/_sidecars"):
        assert not DeltaTable.isDeltaTable(session, f"{path}/{inside}")


def test_what_is_no_table_is_said_to_be_none(
    session: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    session.range(1).write.parquet(str(table_path))
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    for missing in (str(table_path), str(tmp_path / "absent"), str(tmp_path / "empty")):
        assert not DeltaTable.isDeltaTable(session, missing)
        assert not DeltaTable.isDeltaTable(session, f"delta.`{missing}`")
        with refused(TableNotFoundError) as caught:
            DeltaTable.forPath(session, missing)
        assert caught.condition == "DELTA_MISSING_DELTA_TABLE"
        with refused(TableNotFoundError):
            DeltaTable.forName(session, f"delta.`{missing}`")
    for name in ("no_such_table", "no_such_database.no_such_table", "not a name", "a/b", "a:b"):
        assert not DeltaTable.isDeltaTable(session, name)
    for name in ("no_such_table", "no_such_database.no_such_table"):
        with refused(TableNotFoundError) as caught:
            DeltaTable.forName(session, name)
        assert caught.condition == "DELTA_MISSING_DELTA_TABLE"


def test_a_table_that_was_deleted_is_gone(session: SparkSession, path: str) -> None:
    handle = DeltaTable.forPath(session, path)
    shutil.rmtree(path)
    assert not DeltaTable.isDeltaTable(session, path)
    with refused(TableNotFoundError):
        handle.toDF()
    with refused(TableNotFoundError):
        handle.history()
    assert "DELTA_TABLE_NOT_FOUND" in handle._repr_html_()


def test_a_name_of_the_catalog_is_a_table(session: SparkSession, path: str) -> None:
    session.range(3).write.format("delta").saveAsTable("handles")
    session.range(3).write.format("parquet").saveAsTable("no_handles")
    session.range(1).createOrReplaceTempView("a_view")
    try:
        for name in ("handles", "default.handles", "spark_catalog.default.handles"):
            assert DeltaTable.isDeltaTable(session, name)
            handle = DeltaTable.forName(session, name)
            assert handle.toDF().count() == 3
            assert handle.detail().collect()[0].name == "spark_catalog.default.handles"
        assert "name='spark_catalog.default.handles'" in repr(handle)
        for name in ("no_handles", "a_view"):
            assert not DeltaTable.isDeltaTable(session, name)
            with refused(TableNotFoundError) as caught:
                DeltaTable.forName(session, name)
            assert caught.condition == "DELTA_MISSING_DELTA_TABLE"
    finally:
        session.catalog.dropTempView("a_view")
        session.sql("DROP TABLE no_handles")
        session.sql("DROP TABLE handles")


def test_a_notebook_shows_what_a_table_is(session: SparkSession, path: str) -> None:
    shown = DeltaTable.forPath(session, path)._repr_html_()
    for part in ("file:", "<th>version</th><td>0</td>", "id bigint, p bigint", "p, q", "100%"):
        assert part in shown
    hostile = Path(path).parent / "<b>"
    session.range(1).write.format("delta").save(str(hostile))
    assert "<b>" not in DeltaTable.forPath(session, str(hostile))._repr_html_()


def test_arguments_of_a_wrong_kind_are_refused_by_name(session: SparkSession, path: str) -> None:
    handle = DeltaTable.forPath(session, path, {})
    calls: list[tuple[type[Exception], str, Any]] = [
        (TypeError, "sparkSession", lambda: DeltaTable.forPath(None, path)),  # type: ignore[arg-type]
        (TypeError, "path", lambda: DeltaTable.forPath(session, 7)),  # type: ignore[arg-type]
        (ValueError, "path", lambda: DeltaTable.forPath(session, "")),
        (TypeError, "tableOrViewName", lambda: DeltaTable.forName(session, None)),  # type: ignore[arg-type]
        (ValueError, "identifier", lambda: DeltaTable.isDeltaTable(session, "")),
        (TypeError, "aliasName", lambda: handle.alias(None)),  # type: ignore[arg-type]
        (TypeError, "limit", lambda: handle.history("1")),  # type: ignore[arg-type]
        (TypeError, "limit", lambda: handle.history(True)),
    ]
    for kind, name, call in calls:
        with pytest.raises(kind, match=name):
            call()


def test_options_of_a_path_are_the_file_systems(session: SparkSession, path: str) -> None:
    handle = DeltaTable.forPath(session, path, {"fs.made.up.secret": "planted", "dfs.x": "y"})
    assert handle.toDF().count() == 6
    handle.toDF().createOrReplaceTempView("with_options")
    plan = session.sql("EXPLAIN EXTENDED SELECT * FROM with_options").collect()[0][0]
    session.catalog.dropTempView("with_options")
    for text in (repr(handle), handle._repr_html_(), repr(handle._log()), plan):
        assert "planted" not in text
    with refused(PropertyError) as caught:
        DeltaTable.forPath(session, path, {"spark.x": "planted", "fs.a": "b"})
    assert caught.condition == "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF"
    assert "spark.x" in str(caught.value)
    assert "planted" not in str(caught.value)


def test_every_command_of_a_handle_has_its_options(session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "möunt 1%"
    session.range(2).write.format("delta").save(f"{folder}/t")
    # Only with these options is there such a host.
    mount = {"fs.viewfs.mounttable.onlyhere.link./data": folder.as_uri()}
    handle = DeltaTable.forPath(session, "viewfs://onlyhere/data/t", mount)
    handle.addFeatureSupport("changeDataFeed")
    handle.upgradeTableProtocol(1, 7)
    handle.generate("symlink_format_manifest")
    handle.restoreToVersion(0)
    handle.vacuum(dryRun=True)
    told = [row.operation for row in handle.history().collect()]
    assert told[0] == "RESTORE"
    assert "SET TBLPROPERTIES" in told
