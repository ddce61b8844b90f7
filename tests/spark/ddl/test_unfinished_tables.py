"""How statements go on where one was stopped between the log and the catalog.

The states are those that real kills leave (`test_statement_kills.py`), made by hand here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaError, DeltaTable, disable, enable
from pyspark_delta.kernel.ops.notes import (
    CREATION_NOTE,
    read_creation_note,
    write_creation_note,
)
from pyspark_delta.spark.jvm.catalog.entries import default_location
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.tables.names import look_up, table_log
from tests.support.catalog_tables import own_database, rows
from tests.support.tables import table_log as log_at


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


def refused(spark: SparkSession, statement: str) -> str:
    with pytest.raises(DeltaError) as found:
        spark.sql(statement)
    return found.value.condition


def place(spark: SparkSession, name: str) -> Path:
    """Where a managed table of that name belongs."""
    return Path(default_location(JvmSession(spark), None, name).removeprefix("file:"))


def left_behind(spark: SparkSession, folder: Path, name: str, *ids: int) -> None:
    """A table that somebody made, of whose name no catalog has heard."""
    for number in ids:
        frame = spark.sql(f"SELECT {number} AS id")
        frame.write.format("delta").mode("append").save(str(folder))
    write_creation_note(log_at(folder).store, name)


def operations(spark: SparkSession, name: str) -> list[str]:
    history = DeltaTable.forName(spark, name).history()
    return [row.operation for row in history.orderBy("version").collect()]


def test_rows_that_were_never_known_give_way_to_those_of_the_statement(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    left_behind(spark, place(spark, "t"), f"spark_catalog.{db}.t", 1)
    spark.sql("CREATE TABLE T USING delta AS SELECT 'a' AS other, 2 AS n")
    assert rows(spark.table("t")) == [("a", 2)]
    assert operations(spark, "t") == ["WRITE", "CREATE OR REPLACE TABLE AS SELECT"]
    left_behind(spark, table_path, f"spark_catalog.{db}.u", 1)
    writer = spark.sql("SELECT 3 AS x").write.format("delta").option("path", str(table_path))
    writer.mode("append").saveAsTable(f"{db}.u")
    assert rows(spark.table("u")) == [(3,)]
    entry = look_up(spark, "u")
    assert entry is not None
    assert entry.entry is not None
    assert not entry.entry.is_managed
    for name in ("t", "u"):
        assert read_creation_note(table_log(spark, name).store) is None
        assert [c.name for c in spark.catalog.listColumns(name)] == spark.table(name).columns


def test_a_table_of_another_name_or_with_more_versions_is_left_alone(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    left_behind(spark, place(spark, "t"), f"spark_catalog.{db}.u", 1)
    left_behind(spark, place(spark, "v"), f"spark_catalog.{db}.v", 1, 2)
    for name in ("t", "v"):
        for sql in ("AS SELECT 1 AS id", "SHALLOW CLONE delta.`{}`"):
            statement = f"CREATE TABLE {name} {sql.format(place(spark, 'v'))}"
            statement = statement.replace(" AS ", " USING delta AS ", 1)
            assert refused(spark, statement) == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
        assert not spark.catalog.tableExists(name)
    assert spark.read.format("delta").load(str(place(spark, "v"))).count() == 2
    # By its path a table is complete without a catalog.
    left_behind(spark, table_path, f"delta.`{table_path}`", 1)
    assert refused(spark, f"CREATE TABLE delta.`{table_path}` USING delta AS SELECT 1 AS id") == (
        "TABLE_OR_VIEW_ALREADY_EXISTS"
    )


def test_files_of_nobody_are_no_hindrance_with_a_note(spark: SparkSession, db: str) -> None:
    folder = place(spark, "t")
    spark.range(3).write.parquet(str(folder))
    statement = "CREATE TABLE t USING delta AS SELECT 7 AS id"
    assert refused(spark, statement) == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    write_creation_note(log_at(folder).store, f"spark_catalog.{db}.t")
    spark.sql(statement)
    assert rows(spark.table("t")) == [(7,)]
    assert operations(spark, "t") == ["CREATE TABLE AS SELECT"]


def test_a_statement_that_fails_can_be_followed_by_one_that_does_not(
    spark: SparkSession, db: str
) -> None:
    failing = "USING delta AS SELECT CAST(raise_error('no') AS INT) AS id"
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.sql(f"CREATE TABLE t {failing}")
    assert not spark.catalog.tableExists("t")
    spark.sql("CREATE TABLE t USING delta AS SELECT 1 AS id")
    assert rows(spark.table("t")) == [(1,)]
    left_behind(spark, place(spark, "u"), f"spark_catalog.{db}.u", 1)
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.sql(f"CREATE TABLE u {failing}")
    assert not spark.catalog.tableExists("u")
    assert (place(spark, "u") / CREATION_NOTE).exists()
    spark.sql("CREATE TABLE u USING delta AS SELECT 2 AS id")
    assert rows(spark.table("u")) == [(2,)]


def test_a_clone_goes_on_from_another_version_of_its_source(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    spark.sql(f"CREATE TABLE delta.`{table_path}` USING delta AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE first SHALLOW CLONE delta.`{table_path}`")
    shutil.copytree(place(spark, "first"), place(spark, "t"))
    write_creation_note(log_at(place(spark, "t")).store, f"spark_catalog.{db}.t")
    spark.sql(f"INSERT OVERWRITE delta.`{table_path}` SELECT 2 AS id")
    spark.sql(f"CREATE TABLE t SHALLOW CLONE delta.`{table_path}`")
    other = spark.newSession()
    other.sql(f"USE {db}")
    assert rows(other.table("t")) == [(2,)]
    assert rows(other.table("first")) == [(1,)]
    assert operations(spark, "t") == ["CLONE", "CLONE"]


def test_dropping_a_table_ends_its_making(spark: SparkSession, db: str, table_path: Path) -> None:
    spark.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}' AS SELECT 1 AS id")
    write_creation_note(log_at(table_path).store, f"spark_catalog.{db}.t")  # who died right behind
    spark.sql("DROP TABLE t")
    statement = f"CREATE TABLE t USING delta LOCATION '{table_path}' AS SELECT 2 AS id"
    assert refused(spark, statement) == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    assert spark.read.format("delta").load(str(table_path)).first() == (1,)


def test_a_rename_goes_on_when_only_the_directory_was_moved(spark: SparkSession, db: str) -> None:
    for name in ("t", "other"):
        spark.sql(f"CREATE TABLE {name} USING delta AS SELECT 1 AS id")
    place(spark, "t").rename(place(spark, "u"))
    with pytest.raises(DeltaError) as gone:
        spark.table("t").collect()
    assert gone.value.condition in ("DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")
    spark.sql("ALTER TABLE t RENAME TO u")
    assert rows(spark.table("u")) == [(1,)]
    assert not spark.catalog.tableExists("t")
    spark.sql("INSERT INTO u VALUES (2)")
    spark.sql("DROP TABLE u")
    assert not place(spark, "u").exists()
    # A table with other columns is not the one that was moved.
    spark.sql("CREATE TABLE t USING delta AS SELECT 'x' AS name")
    shutil.rmtree(place(spark, "t"))
    shutil.copytree(place(spark, "other"), place(spark, "u"))
    with pytest.raises((PySparkException, DeltaError)):
        spark.sql("ALTER TABLE t RENAME TO u")
    assert not spark.catalog.tableExists("u")
    spark.sql("DROP TABLE t")
    assert rows(spark.table("other")) == [(1,)]
    shutil.rmtree(place(spark, "u"))


def test_properties_that_a_session_or_others_bring_are_no_other_table(
    spark: SparkSession, db: str
) -> None:
    key = "spark.databricks.delta.properties.defaults.appendOnly"
    statement = (
        "CREATE TABLE t (id INT) USING delta TBLPROPERTIES "
        "('delta.enableIcebergCompatV2' = 'true', 'own' = 'x')"
    )
    spark.conf.set(key, "true")
    spark.sql(statement)
    made = shutil.copytree(place(spark, "t"), place(spark, "t").with_name("kept"))
    spark.sql("DROP TABLE t")
    shutil.move(made, place(spark, "t"))
    assert refused(spark, statement.replace("'x'", "'y'")) == (
        "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY"
    )
    spark.sql(statement)
    assert table_log(spark, "t").update().version == 0
    assert spark.table("t").columns == ["id"]


def test_of_several_who_make_a_table_at_once_one_does(spark: SparkSession, db: str) -> None:
    """A note says that somebody makes the table; he may be alive."""

    def made(who: int) -> int | None:
        try:
            spark.sql(f"CREATE TABLE t USING delta AS SELECT {who} AS id FROM range(3)")
        except (DeltaError, PySparkException):
            return None
        return who

    with ThreadPoolExecutor(4) as pool:
        winners = [who for who in pool.map(made, range(4)) if who is not None]
    assert len(winners) == 1
    assert [row.id for row in spark.table("t").collect()] == winners * 3
    assert operations(spark, "t") == ["CREATE TABLE AS SELECT"]
    assert read_creation_note(table_log(spark, f"{db}.t").store) is None


DEFINITION = """CREATE TABLE t (id BIGINT COMMENT 'the id', v VARCHAR(5), p STRING NOT NULL)
USING delta PARTITIONED BY (p) COMMENT 'why'
TBLPROPERTIES ('own' = '1', 'delta.appendOnly' = 'true')
"""
# Each makes the table as the catalog defines it.
COMPLETING: Mapping[str, Callable[[SparkSession], object]] = {
    "INSERT": lambda s: s.sql("INSERT INTO t VALUES (1, 'x', 'a')"),
    "INSERT by name": lambda s: s.sql("INSERT INTO t (p, id) SELECT 'a', 1L"),
    "insertInto": lambda s: row_for_t(s).write.insertInto("t"),
    "append": lambda s: row_for_t(s).write.format("delta").mode("append").saveAsTable("t"),
    "writeTo": lambda s: row_for_t(s).writeTo("t").append(),
    "the statement again": lambda s: s.sql(DEFINITION),
    "IF NOT EXISTS": lambda s: s.sql("CREATE TABLE IF NOT EXISTS t (other INT) USING delta"),
    "builder": lambda s: DeltaTable.createIfNotExists(s).tableName("t").execute(),
}
# Each brings a definition of its own, which is the table's then.
REDEFINING: Mapping[str, Callable[[SparkSession], object]] = {
    "CREATE": lambda s: s.sql("CREATE TABLE t (n INT) USING delta"),
    "CREATE OR REPLACE": lambda s: s.sql("CREATE OR REPLACE TABLE t (n INT) USING delta"),
    "CREATE AS SELECT": lambda s: s.sql("CREATE TABLE t USING delta AS SELECT 1 AS n"),
    "saveAsTable": lambda s: s.sql("SELECT 1 AS n").write.format("delta").saveAsTable("t"),
    "overwrite": lambda s: (
        s.sql("SELECT 1 AS n").write.format("delta").mode("overwrite").saveAsTable("t")
    ),
}


def row_for_t(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 1L AS id, 'x' AS v, 'a' AS p")


@pytest.fixture
def plain(spark: SparkSession, db: str) -> SparkSession:
    """A session that is not enabled, with the same catalog."""
    other = disable(spark.newSession())
    other.sql(f"USE {db}")
    return other


def test_a_definition_of_a_session_that_was_not_enabled_is_completed_by_the_first_write(
    spark: SparkSession, plain: SparkSession
) -> None:
    for way, complete in COMPLETING.items():
        plain.sql(DEFINITION)
        assert not (place(spark, "t") / "_delta_log").exists()
        complete(spark)
        metadata = table_log(spark, "t").update().metadata
        assert list(metadata.schema.names) == ["id", "v", "p"], way
        assert metadata.schema["id"].metadata["comment"] == "the id"
        assert not metadata.schema["p"].nullable
        assert metadata.partition_columns == ("p",)
        assert metadata.description == "why"
        assert metadata.configuration == {"own": "1", "delta.appendOnly": "true"}
        written = {"INSERT by name": [(1, None, "a")]}.get(way, [(1, "x", "a")])
        is_write = way in list(COMPLETING)[:5]
        assert rows(spark.table("t")) == (written if is_write else []), way
        with pytest.raises((DeltaError, PySparkException)):
            spark.sql("INSERT INTO t VALUES (1, 'longer than five', 'a')")
        entry = look_up(spark, "t")
        assert entry is not None
        assert entry.entry is not None
        assert not entry.entry.is_sparks_own
        spark.sql("DROP TABLE t")


def test_a_statement_with_columns_of_its_own_makes_the_table_that_it_defines(
    spark: SparkSession, plain: SparkSession
) -> None:
    for way, define in REDEFINING.items():
        plain.sql(DEFINITION)
        define(spark)
        assert spark.table("t").columns == ["n"], way
        assert [each.name for each in spark.catalog.listColumns("t")] == ["n"]
        metadata = table_log(spark, "t").update().metadata
        assert (metadata.partition_columns, metadata.configuration) == ((), {})
        spark.sql("INSERT INTO t VALUES (2)")
        spark.sql("DROP TABLE t")


def test_reading_a_definition_without_a_log_tells_the_statement_that_completes_it(
    spark: SparkSession, plain: SparkSession, db: str, table_path: Path
) -> None:
    plain.sql(f"CREATE TABLE t (id BIGINT) USING delta LOCATION '{table_path}'")
    statement = f"CREATE TABLE IF NOT EXISTS `spark_catalog`.`{db}`.`t` USING delta"
    for read in (
        lambda: spark.table("t"),
        lambda: spark.sql("SELECT * FROM t"),
        lambda: spark.sql("DELETE FROM t"),
        lambda: spark.sql("DESCRIBE HISTORY t"),
        lambda: DeltaTable.forName(spark, "t"),
    ):
        with pytest.raises(DeltaError) as found:
            read()
        assert found.value.condition == "DELTA_TABLE_WITHOUT_LOG"
        assert found.value.parameters["statement"] == statement
    spark.sql(statement)
    assert spark.table("t").columns == ["id"]
    assert (table_path / "_delta_log").is_dir()
    spark.sql("DROP TABLE t")
    # Clustering is recorded too.  Files of somebody's own are in the way.
    plain.sql("CREATE TABLE c (id BIGINT) USING delta CLUSTER BY (id)")
    spark.range(1).write.parquet(str(place(spark, "c") / "files"))
    assert refused(spark, "INSERT INTO c VALUES (1)") == (
        "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    )
    shutil.rmtree(place(spark, "c") / "files")
    spark.sql("INSERT INTO c VALUES (1)")
    assert spark.sql("DESCRIBE DETAIL c").first().clusteringColumns == ["id"]  # type: ignore[union-attr]


def test_a_write_by_path_to_the_place_of_a_definition_makes_the_table(
    spark: SparkSession, plain: SparkSession, table_path: Path
) -> None:
    """Who writes by path brings the columns: a path knows no name, and so no definition."""
    plain.sql(f"CREATE TABLE t (id BIGINT, v STRING, p STRING) USING delta LOCATION '{table_path}'")
    row_for_t(spark).selectExpr("id", "p").write.format("delta").save(str(table_path))
    assert spark.table("t").columns == ["id", "p"]
    assert rows(spark.table("t")) == [(1, "a")]
    spark.sql("INSERT INTO t VALUES (2, 'b')")
    assert rows(spark.read.format("delta").load(str(table_path))) == [(1, "a"), (2, "b")]
    assert operations(spark, "t") == ["WRITE", "WRITE"]
    spark.sql("DELETE FROM t WHERE id = 1")
    assert rows(spark.table("t")) == [(2, "b")]
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()] == ["id", "p"]


def test_a_table_that_lost_its_log_is_not_made_anew_by_a_write(
    spark: SparkSession, db: str
) -> None:
    spark.sql("CREATE TABLE t USING delta AS SELECT 1 AS id")
    shutil.rmtree(place(spark, "t"))
    assert refused(spark, "INSERT INTO t VALUES (2)") == "DELTA_TABLE_NOT_FOUND"
    assert refused(spark, "CREATE TABLE t (id INT) USING delta") == "TABLE_OR_VIEW_ALREADY_EXISTS"
