"""Scripts that leave every operation of a history, run by both engines, each in its own session.

Nothing here knows which engine it talks to.  Rows come in one file at a time, so that numbers of
files do not hang on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

Step = Callable[[SparkSession, Any, str], object]


@dataclass(frozen=True, slots=True)
class Script:
    """Steps on a table, and operations that its history has after them.

    The table is one of the catalog's where it is `named`: delta-spark does not let CREATE OR
    REPLACE give another schema to one at a path.
    """

    steps: tuple[Step | str, ...]
    leaves: tuple[str, ...]
    named: bool = False


def run(spark: SparkSession, tables: Any, script: Script, target: str) -> None:
    """Take the steps; in a statement `{t}` is the table and `{path}` where it is.

    :param tables: the engine's `DeltaTable`.
    :param target: a name for a table that is `named`, else a path.
    """
    table = target if script.named else f"delta.`{target}`"
    for step in script.steps:
        try:
            if isinstance(step, str):
                spark.sql(step.format(t=table, path=target))
            else:
                step(spark, tables, target)
        except Exception as error:
            raise AssertionError(f"{step}: {error}") from error


def _upgrade(spark: SparkSession, tables: Any, path: str) -> None:
    tables.forPath(spark, path).upgradeTableProtocol(1, 5)


def _add_feature(spark: SparkSession, tables: Any, path: str) -> None:
    tables.forPath(spark, path).addFeatureSupport("DeletionVectors")


def _parquet(spark: SparkSession, tables: Any, path: str) -> None:
    data = spark.range(0, 4, 1, 1).selectExpr("id", "id % 2 AS p")
    data.write.partitionBy("p").parquet(path)


def _convert_api(spark: SparkSession, tables: Any, path: str) -> None:
    tables.convertToDelta(spark, f"parquet.`{path}`", "p LONG")


def _created(spark: SparkSession, tables: Any, name: str) -> None:
    tables.create(spark).tableName(name).addColumn("id", "LONG").comment("büilt").execute()


def _replaced(spark: SparkSession, tables: Any, name: str) -> None:
    new = tables.replace(spark).tableName(name).addColumn("id", "LONG").addColumn("p", "INT")
    new.partitionedBy("p").property("own", "1").execute()


def _created_or_replaced(spark: SparkSession, tables: Any, name: str) -> None:
    new = tables.createOrReplace(spark).tableName(name).addColumn("id", "LONG")
    new.property("own", "2").execute()


def _streamed(mode: str) -> Step:
    def stream(spark: SparkSession, tables: Any, path: str) -> None:
        feed = f"{path} feed"
        spark.range(0, 3, 1, 1).write.mode("append").parquet(feed)
        rows = spark.readStream.schema("id LONG").parquet(feed)
        if mode == "complete":
            rows = rows.groupBy().count().coalesce(1)
        writer = rows.writeStream.format("delta").outputMode(mode)
        writer = writer.option("checkpointLocation", f"{path} checkpoint {mode}")
        writer.trigger(availableNow=True).start(path).awaitTermination()

    return stream


_NEW = "CREATE TABLE {t} (id LONG, v STRING) USING delta"
_FOUR = "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(0, 4, 1, 1)"
_VECTORS = f"{_NEW} TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
_MAPPED = f"{_NEW} TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"

SCRIPTS: Mapping[str, Script] = {
    "definitions": Script(
        (
            "CREATE TABLE {t} (id LONG, v STRING COMMENT 'c') USING delta PARTITIONED BY (v) "
            "COMMENT 'söme' TBLPROPERTIES ('own' = '1')",
            "REPLACE TABLE {t} (id LONG) USING delta",
            "CREATE OR REPLACE TABLE {t} (id LONG, p INT) USING delta PARTITIONED BY (p)",
            "REPLACE TABLE {t} USING delta AS SELECT /*+ COALESCE(1) */ id FROM range(3)",
            "CREATE OR REPLACE TABLE {t} USING delta AS SELECT /*+ COALESCE(1) */ id FROM range(3)",
        ),
        (
            "CREATE TABLE",
            "REPLACE TABLE",
            "CREATE OR REPLACE TABLE",
            "REPLACE TABLE AS SELECT",
            "CREATE OR REPLACE TABLE AS SELECT",
        ),
        named=True,
    ),
    "as select": Script(
        (
            "CREATE TABLE {t} USING delta COMMENT 'c' PARTITIONED BY (p) "
            "AS SELECT /*+ COALESCE(1) */ id, 1 AS p FROM range(3)",
        ),
        ("CREATE TABLE AS SELECT",),
    ),
    "builders": Script(
        (_created, _replaced, _created_or_replaced),
        ("CREATE TABLE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"),
        named=True,
    ),
    "rows": Script(
        (
            _NEW,
            _FOUR,
            "DELETE FROM {t} WHERE id = 1",
            "UPDATE {t} SET v = 'x' WHERE id = 2",
            "MERGE INTO {t} t USING (SELECT /*+ COALESCE(1) */ 2L AS id, 'm' AS v) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "TRUNCATE TABLE {t}",
            "TRUNCATE TABLE {t}",
        ),
        ("CREATE TABLE", "WRITE", "DELETE", "UPDATE", "MERGE", "TRUNCATE", "TRUNCATE"),
    ),
    "streams": Script(
        (_streamed("append"), _streamed("append")),
        ("STREAMING UPDATE", "STREAMING UPDATE"),
    ),
    "a stream of totals": Script(
        (_streamed("complete"), _streamed("complete")),
        ("STREAMING UPDATE", "STREAMING UPDATE"),
    ),
    "files": Script(
        (
            _VECTORS,
            _FOUR,
            _FOUR,
            "OPTIMIZE {t}",
            "DELETE FROM {t} WHERE id = 1",
            "REORG TABLE {t} APPLY (PURGE)",
            "RESTORE TABLE {t} TO VERSION AS OF 1",
        ),
        ("CREATE TABLE", "WRITE", "OPTIMIZE", "DELETE", "REORG", "RESTORE"),
    ),
    "a clone": Script(
        (
            "CREATE TABLE delta.`{path} source` (id LONG) USING delta",
            "CREATE TABLE {t} SHALLOW CLONE delta.`{path} source`",
            "INSERT INTO delta.`{path} source` VALUES (2)",
            "CREATE OR REPLACE TABLE {t} SHALLOW CLONE delta.`{path} source`",
        ),
        ("CLONE", "CLONE"),
    ),
    "a conversion": Script(
        (_parquet, "CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (p LONG)"), ("CONVERT",)
    ),
    "a conversion without statistics": Script(
        (_parquet, "CONVERT TO DELTA parquet.`{path}` NO STATISTICS PARTITIONED BY (p LONG)"),
        ("CONVERT",),
    ),
    "a conversion by the API": Script((_parquet, _convert_api), ("CONVERT",)),
    "properties": Script(
        (
            _NEW,
            "ALTER TABLE {t} SET TBLPROPERTIES ('own' = '1', 'delta.appendOnly' = 'false')",
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('own')",
            "ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS ('nope')",
            "COMMENT ON TABLE {t} IS 'mîne'",
            "COMMENT ON TABLE {t} IS NULL",
            "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",
            "ALTER TABLE {t} DROP CONSTRAINT positive",
            "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS nope",
            "ALTER TABLE {t} CLUSTER BY (id)",
            "ALTER TABLE {t} CLUSTER BY NONE",
        ),
        (
            "CREATE TABLE",
            "SET TBLPROPERTIES",
            "UNSET TBLPROPERTIES",
            "UNSET TBLPROPERTIES",
            "SET TBLPROPERTIES",
            "UNSET TBLPROPERTIES",
            "ADD CONSTRAINT",
            "DROP CONSTRAINT",
            "DROP CONSTRAINT",
            "CLUSTER BY",
            "CLUSTER BY",
        ),
    ),
    "columns": Script(
        (
            _MAPPED,
            "ALTER TABLE {t} ADD COLUMNS (a INT COMMENT 'x' FIRST, b INT)",
            "ALTER TABLE {t} DROP COLUMN a",
            "ALTER TABLE {t} RENAME COLUMN b TO `b c`",
            "ALTER TABLE {t} ALTER COLUMN v COMMENT 'why'",
            "ALTER TABLE {t} ALTER COLUMN v FIRST",
            "ALTER TABLE {t} ALTER COLUMN id COMMENT 'i', v AFTER id",
            "ALTER TABLE {t} REPLACE COLUMNS (id LONG COMMENT 'new', v STRING, `b c` INT, w INT)",
        ),
        (
            "CREATE TABLE",
            "ADD COLUMNS",
            "DROP COLUMNS",
            "RENAME COLUMN",
            "CHANGE COLUMN",
            "CHANGE COLUMN",
            "CHANGE COLUMNS",
            "REPLACE COLUMNS",
        ),
    ),
    "identities": Script(
        (
            "CREATE TABLE {t} (id BIGINT GENERATED BY DEFAULT AS IDENTITY, v INT) USING delta",
            "INSERT INTO {t} (id, v) VALUES (7, 1)",
            "ALTER TABLE {t} ALTER COLUMN id SYNC IDENTITY",
        ),
        ("CREATE TABLE", "WRITE", "CHANGE COLUMN"),
    ),
    "protocols": Script(
        (
            _NEW,
            _upgrade,
            _add_feature,
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.minReaderVersion' = '3', "
            "'delta.minWriterVersion' = '7')",
            "ALTER TABLE {t} DROP FEATURE deletionVectors",
        ),
        ("CREATE TABLE", "SET TBLPROPERTIES", "Empty Commit", "DROP FEATURE"),
    ),
    "a feature in use": Script(
        (
            _VECTORS,
            _FOUR,
            "DELETE FROM {t} WHERE id = 1",
            "ALTER TABLE {t} DROP FEATURE deletionVectors",
        ),
        ("UNSET TBLPROPERTIES", "REORG", "Deletion Vector Tombstones", "DROP FEATURE"),
    ),
    "mapping removed": Script(
        (_MAPPED, _FOUR, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"),
        ("CREATE TABLE", "WRITE", "REMOVE COLUMN MAPPING"),
    ),
    "row ids": Script(
        (
            _NEW,
            _FOUR,
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
            "ALTER TABLE {t} DROP FEATURE rowTracking",
        ),
        ("UPGRADE PROTOCOL", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"),
    ),
}

ELSEWHERE: Mapping[str, str] = {
    "VACUUM START": "test_vacuum",
    "VACUUM END": "test_vacuum",
    "DOMAIN METADATA CLEANUP": "test_drop_feature",
}
"""Operations that another module here compares."""

NOT_BY_STATEMENTS = frozenset(
    {
        "COMPUTE STATS",
        "Manual Update",
        "OPTIMIZE CHECKPOINT",
        "REORG TABLE UPGRADE UNIFORM",
        "SYNC IDENTITY",
        "UPDATE SCHEMA",
    }
)
"""Operations that no statement of ours leaves: known by name, for the logs of others."""
