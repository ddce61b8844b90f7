"""Each statement of Delta's is decided when it is parsed, and does nothing before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.jvm.gateway import to_spark
from pyspark_delta.spark.sql.dispatch import _COMMANDS, find_command
from pyspark_delta.spark.sql.statement import Command
from pyspark_delta.spark.tables.names import table_log
from tests.support.catalog_tables import own_database

# {path} is a directory with Parquet files, {new} one that does not exist.
STATEMENTS: dict[str, tuple[str, ...]] = {
    "CREATE TABLE": (
        "CREATE TABLE made (id LONG) USING delta",
        "CREATE TABLE delta.`{new}` (id LONG) USING delta",
        "CREATE TABLE made USING delta AS SELECT * FROM t",
        "CREATE OR REPLACE TABLE t USING delta AS SELECT 1 AS id",
        "CREATE TABLE made LIKE t",
        "CREATE TABLE made SHALLOW CLONE t",
    ),
    "REPLACE TABLE": (
        "REPLACE TABLE t (id LONG) USING delta",
        "REPLACE TABLE empty SHALLOW CLONE other",
    ),
    "INSERT INTO": ("INSERT INTO t VALUES (5, 'e')", "FROM other INSERT INTO t SELECT id, s"),
    "INSERT OVERWRITE": ("INSERT OVERWRITE t SELECT * FROM other",),
    "DROP TABLE": ("DROP TABLE t", "DROP TABLE IF EXISTS delta.`{new}`"),
    "OPTIMIZE": ("OPTIMIZE t", "OPTIMIZE t WHERE s = 'a'"),
    "VACUUM": ("VACUUM t", "VACUUM t RETAIN 200 HOURS DRY RUN"),
    "REORG TABLE": ("REORG TABLE t APPLY (PURGE)",),
    "CONVERT TO DELTA": ("CONVERT TO DELTA parquet.`{path}`",),
    "RESTORE": ("RESTORE TABLE t TO VERSION AS OF 0",),
    "GENERATE": ("GENERATE symlink_format_manifest FOR TABLE t",),
    "DESCRIBE DETAIL": ("DESCRIBE DETAIL t", "DESC DETAIL t"),
    "DESCRIBE HISTORY": ("DESCRIBE HISTORY t LIMIT 1", "DESC HISTORY t"),
    "DESCRIBE": ("DESCRIBE TABLE EXTENDED t", "DESCRIBE t id", "DESC t"),
    "SHOW COLUMNS": ("SHOW COLUMNS IN t",),
    "SHOW PARTITIONS": ("SHOW PARTITIONS t",),
    "SHOW TBLPROPERTIES": ("SHOW TBLPROPERTIES t",),
    "SHOW CREATE TABLE": ("SHOW CREATE TABLE t",),
    "UPDATE": ("UPDATE t SET s = 'z' WHERE id = 1",),
    "DELETE": ("DELETE FROM t WHERE id = 1",),
    "MERGE": ("MERGE INTO t USING other ON t.id = other.id WHEN MATCHED THEN DELETE",),
    "TRUNCATE TABLE": ("TRUNCATE TABLE t",),
    "ALTER TABLE": (
        "ALTER TABLE t ADD COLUMNS (more INT)",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
        "ALTER TABLE t ADD CONSTRAINT small CHECK (id < 100)",
    ),
    "COMMENT ON TABLE": ("COMMENT ON TABLE t IS 'ä'",),
    "COMMENT ON COLUMN": ("COMMENT ON COLUMN t.id IS 'ä'",),
    "ANALYZE TABLE": ("ANALYZE TABLE t COMPUTE DELTA STATISTICS",),
    "EXPLAIN": ("EXPLAIN UPDATE t SET s = 'z'", "EXPLAIN REPLACE TABLE t USING delta AS SELECT 1"),
}
REFUSED = {
    "LOAD DATA": "LOAD DATA INPATH '{path}' INTO TABLE t",
    "MSCK REPAIR TABLE": "MSCK REPAIR TABLE t",
}
ALL = [text for texts in STATEMENTS.values() for text in texts]


@pytest.fixture
def db(spark: SparkSession, table_path: Path) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        place = f"{table_path}/in the catalog"
        spark.sql(
            f"CREATE TABLE t (id INT, s STRING) USING delta PARTITIONED BY (s) LOCATION '{place}'"
        )
        spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        spark.sql("CREATE TABLE other USING delta AS SELECT 1 AS id, 'c' AS s")
        spark.sql("CREATE TABLE empty (id INT) USING delta")
        spark.range(2).write.parquet(f"{table_path}/parquet")
        yield name


def on_disk(spark: SparkSession, db: str, path: Path) -> dict[str, object]:
    """All files of the tables, and all entries of the catalog."""
    home = Path(spark.sql(f"DESCRIBE DATABASE {db}").collect()[-1][1].removeprefix("file:"))
    files: dict[str, object] = {
        str(each): (each.stat().st_size, each.stat().st_mtime_ns)
        for root in (path, home)
        for each in root.rglob("*")
        if each.is_file()
    }
    tables = [tuple(row) for row in spark.sql(f"SHOW TABLES IN {db}").collect()]
    return {**files, "tables": tables, "properties": properties(spark)}


def properties(spark: SparkSession) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql("DESCRIBE EXTENDED t").collect()]


def parsed(spark: SparkSession, text: str) -> Command:
    command = find_command(spark, text, None)
    assert command is not None, text
    return command


def test_the_table_of_statements_is_complete() -> None:
    assert STATEMENTS.keys() | REFUSED.keys() == _COMMANDS.keys()


@pytest.mark.parametrize("text", ALL)
def test_a_statement_changes_nothing_before_it_runs_and_has_its_result_s_columns(
    spark: SparkSession, db: str, table_path: Path, text: str
) -> None:
    text = text.format(path=table_path / "parquet", new=table_path / "new")
    before, version = on_disk(spark, db, table_path), table_log(spark, "t").update().version
    first, second = parsed(spark, text), parsed(spark, text)
    spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # type: ignore[attr-defined]
    assert on_disk(spark, db, table_path) == before
    assert table_log(spark, "t").update().version == version
    assert first.schema == second.schema
    found = second.run()
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in to_spark(first.schema)
    ]
    assert all(len(row) == len(first.schema) for row in found.collect())


@pytest.mark.parametrize("verb", REFUSED)
def test_a_refused_statement_changes_nothing(
    spark: SparkSession, db: str, table_path: Path, verb: str
) -> None:
    before = on_disk(spark, db, table_path)
    with pytest.raises(AnalysisException) as caught:
        spark.sql(REFUSED[verb].format(path=table_path / "parquet"))
    assert caught.value.getCondition() == "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE"
    assert on_disk(spark, db, table_path) == before
