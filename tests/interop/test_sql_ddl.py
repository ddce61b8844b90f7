"""DDL, SHOW and DESCRIBE: the same statements here and there, with the same results and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyspark_delta.errors import DeltaError
from tests.interop.engines import Engine, Pair
from tests.support.peer import PeerError

pytestmark = pytest.mark.slow

_RUN = """
from tests.support.canonical import json_rows
frame = spark.sql(text)
result = [frame.schema.simpleString(), json_rows(frame)]
"""
# What no two tables share, or no two runs.
_VARYING = ("id", "createdAt", "lastModified", "sizeInBytes", "timestamp", "engineInfo")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_WAREHOUSE = re.compile(r"file:[^\"' ]*/warehouse/[^/\"' ]*/")

# Statements, and where the two give errors of different names, ours.
SCRIPT: tuple[str | tuple[str, str], ...] = (
    """CREATE TABLE t (id BIGINT NOT NULL COMMENT 'the id', p STRING, s STRUCT<a: INT, b: STRING>,
       g BIGINT GENERATED ALWAYS AS (id + 1), d STRING DEFAULT 'x', v VARCHAR(4)) USING delta
       PARTITIONED BY (p) COMMENT 'héllo' TBLPROPERTIES ('delta.appendOnly' = 'false', own = '1',
       'delta.feature.allowColumnDefaults' = 'supported')""",
    "INSERT INTO t (id, p, v) VALUES (1, 'a', 'q'), (2, 'b', 'r'), (3, NULL, 's')",
    "CREATE TABLE c (a INT, b STRUCT<c: INT>) USING delta CLUSTER BY (a, b.c)",
    "CREATE TABLE delta.`{home}/p q` (id INT, p INT, q DATE) USING delta PARTITIONED BY (p, q)",
    "INSERT INTO delta.`{home}/p q` VALUES (1, 1, DATE'2024-01-01'), (2, 2, NULL)",
    "CREATE TABLE pq (a INT, b STRING) USING parquet PARTITIONED BY (b) TBLPROPERTIES (k = 'v')",
    "INSERT INTO pq VALUES (1, 'x')",
    "CREATE VIEW w AS SELECT id, p FROM t",
    # DESCRIBE.
    "DESCRIBE t",
    "DESC TABLE EXTENDED t",
    "DESCRIBE FORMATTED c",
    "DESCRIBE delta.`{home}/p q`",
    "DESCRIBE EXTENDED delta.`{home}/p q`",
    "DESCRIBE t id",
    "DESCRIBE EXTENDED t p",
    "DESCRIBE t v",
    "DESCRIBE missing",
    "DESCRIBE delta.`{home}/none`",
    "DESCRIBE w",
    # SHOW.
    "SHOW COLUMNS IN t",
    "SHOW COLUMNS FROM t FROM {db}",
    "SHOW COLUMNS IN {db}.t IN other",
    "SHOW COLUMNS IN delta.`{home}/p q`",
    "SHOW COLUMNS IN missing",
    "SHOW PARTITIONS t",
    "SHOW PARTITIONS t PARTITION (p = 'a')",
    "SHOW PARTITIONS t PARTITION (P = 'a')",
    "SHOW PARTITIONS t PARTITION (p = NULL)",
    "SHOW PARTITIONS t PARTITION (id = 1)",
    "SHOW PARTITIONS c",
    "SHOW PARTITIONS delta.`{home}/p q`",
    "SHOW PARTITIONS delta.`{home}/p q` PARTITION (p = 1)",
    "SHOW PARTITIONS delta.`{home}/p q` PARTITION (q = '2024-01-01')",
    "SHOW PARTITIONS w",
    "SHOW TBLPROPERTIES t",
    "SHOW TBLPROPERTIES t ('own')",
    "SHOW TBLPROPERTIES t (missing)",
    "SHOW TBLPROPERTIES c",
    "SHOW TBLPROPERTIES delta.`{home}/p q`",
    "SHOW TABLES",
    # DETAIL and HISTORY.
    "DESCRIBE DETAIL t",
    "DESC DETAIL c;",
    "DESCRIBE DETAIL delta.`{home}/p q`",
    "DESCRIBE DETAIL '{home}/p q'",
    "DESCRIBE DETAIL pq",
    "DESCRIBE DETAIL delta.`{home}/none`",
    "DESCRIBE DETAIL w",
    "DESCRIBE DETAIL missing",
    "DESCRIBE DETAIL",
    "DESCRIBE DETAIL t x",
    "DESCRIBE HISTORY t",
    "DESC HISTORY t LIMIT 1",
    "DESCRIBE HISTORY t LIMIT 0",
    "DESCRIBE HISTORY t LIMIT x",
    "DESCRIBE HISTORY '{home}/p q' LIMIT 1",
    "DESCRIBE HISTORY pq",
    "DESCRIBE HISTORY '{home}/none'",
    "DESCRIBE HISTORY delta.`{home}/none`",
    "DESCRIBE HISTORY w",
    "DESCRIBE HISTORY missing",
    # Names that mean nothing, or nothing of Delta's.
    "VACUUM missing",
    "VACUUM pq",
    "VACUUM w",
    "VACUUM '{home}/none'",
    "OPTIMIZE missing",
    "OPTIMIZE nowhere.missing",
    "OPTIMIZE nobodys.catalog.t",
    "OPTIMIZE pq",
    "OPTIMIZE w",
    "OPTIMIZE '{home}/none'",
    "OPTIMIZE delta.`{home}/none`",
    "RESTORE missing TO VERSION AS OF 0",
    "RESTORE pq TO VERSION AS OF 0",
    "RESTORE w TO VERSION AS OF 0",
    "GENERATE symlink_format_manifest FOR TABLE missing",
    "GENERATE symlink_format_manifest FOR TABLE pq",
    "GENERATE symlink_format_manifest FOR TABLE w",
    "REORG TABLE missing APPLY (PURGE)",
    "REORG TABLE pq APPLY (PURGE)",
    "REORG TABLE w APPLY (PURGE)",
    "REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 9))",
    "REORG TABLE t WHERE p = 'a' APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))",
    "CREATE TABLE cl SHALLOW CLONE missing",
    "CREATE TABLE cl SHALLOW CLONE w",
    "CONVERT TO DELTA missing",
    "ALTER TABLE missing DROP FEATURE deletionVectors",
    "ALTER TABLE w DROP FEATURE deletionVectors",
    "ALTER TABLE missing ALTER COLUMN a SYNC IDENTITY",
    "ALTER TABLE pq ALTER COLUMN a SYNC IDENTITY",
    "DESCRIBE HISTORY delta.`{home}/p q/p=1`",
    # What is refused.
    "ANALYZE TABLE t COMPUTE STATISTICS",
    "MSCK REPAIR TABLE t",
    "REFRESH TABLE t",
    "REFRESH TABLE delta.`{home}/p q`",
    "REFRESH TABLE missing",
    # CREATE TABLE LIKE.
    "CREATE TABLE l1 LIKE t",
    "DESCRIBE EXTENDED l1",
    "DESCRIBE DETAIL l1",
    "DESCRIBE HISTORY l1",
    "CREATE TABLE l1 LIKE t",
    "CREATE TABLE IF NOT EXISTS l1 LIKE c",
    "CREATE TABLE l2 LIKE c LOCATION '{home}/l2' TBLPROPERTIES (mine = '2')",
    "DESCRIBE DETAIL l2",
    "DESCRIBE EXTENDED l2",
    "CREATE TABLE l3 LIKE pq USING delta TBLPROPERTIES (z = '1')",
    "DESCRIBE DETAIL l3",
    "DESCRIBE l3",
    "CREATE TABLE delta.`{home}/l7` LIKE t",
    "DESCRIBE DETAIL delta.`{home}/l7`",
    "CREATE TABLE l8 LIKE delta.`{home}/p q`",
    "DESCRIBE DETAIL l8",
    "CREATE TABLE l9 LIKE missing USING delta",
    "CREATE OR REPLACE TABLE l1 LIKE c",
    # CREATE, and what it refuses.
    "CREATE TABLE k1 (a INT PRIMARY KEY) USING delta",
    "CREATE TABLE k2 (a INT) USING delta CLUSTER BY NONE",
    "CREATE TABLE k3 (a INT, b TIMESTAMP) USING delta PARTITIONED BY (years(b))",
    "CREATE TABLE k4 (a INT) USING delta CLUSTERED BY (a) INTO 4 BUCKETS",
    "CREATE EXTERNAL TABLE k5 (a INT) USING delta",
    "DESCRIBE EXTENDED k5",
    "CREATE TABLE k6 (a INT) USING delta OPTIONS (path '{home}/k6', foo 'bar')",
    "DESCRIBE DETAIL k6",
    "CREATE TABLE k7 (a INT) USING delta TBLPROPERTIES ('delta.nope' = '1')",
    "CREATE TABLE k8 (`a b` INT) USING delta",
    "CREATE TABLE k9 USING delta",
    "DESCRIBE k9",
    "CREATE TABLE k10 (a INT) USING delta LOCATION '{home}/p q'",
    "CREATE TABLE k11 (id INT, p INT, q DATE) USING delta LOCATION '{home}/p q'",
    "CREATE TABLE k12 USING delta LOCATION '{home}/p q' TBLPROPERTIES (y = 1)",
    "CREATE TABLE k13 USING delta LOCATION '{home}/p q'",
    "DESCRIBE DETAIL k13",
    "CREATE TABLE k14 (a INT DEFAULT 1) USING delta",
    "CREATE TABLE k15 (a INT GENERATED ALWAYS AS IDENTITY) USING delta",
    "CREATE TABLE k16 (a INT, b ARRAY<INT>) USING delta CLUSTER BY (b)",
    "CREATE TABLE k17 (a INT, b INT) USING delta CLUSTER BY (a, a)",
    "CREATE TABLE k18 (a INT, b INT, c INT, d INT, e INT) USING delta CLUSTER BY (a, b, c, d, e)",
    "CREATE TABLE t (a INT) USING delta",
    "REPLACE TABLE nope (a INT) USING delta",
    "CREATE TABLE ct USING delta PARTITIONED BY (b) AS SELECT 1 AS a, 'x' AS b",
    "CREATE OR REPLACE TABLE ct USING delta AS SELECT 2 AS a",
    "DESCRIBE HISTORY ct",
    "SELECT * FROM ct",
    # DROP and RENAME.
    "DROP TABLE delta.`{home}/p q`",
    "SELECT count(*) AS n FROM delta.`{home}/p q`",
    "DROP TABLE k13 PURGE",
    "DROP TABLE k13",
    "DROP TABLE IF EXISTS k13",
    "DROP TABLE IF EXISTS delta.`{home}/none`",
    "DROP TABLE delta.`{home}/none`",
    "ALTER TABLE l1 RENAME TO l1b",
    "SELECT count(*) AS n FROM l1b",
    "ALTER TABLE missing RENAME TO x",
    "SHOW TABLES LIKE 'l*'",
)


def outcome(engine: Engine, text: str, home: Path) -> tuple[str, Any]:
    """What a statement gave, without what is the engine's own; for an error, its condition."""
    try:
        schema, rows = engine.python(_RUN, text=text)
    except DeltaError as error:
        return ("error", error.condition)
    except PySparkException as error:
        return ("error", error.getCondition())
    except PeerError as error:
        return ("error", error.condition)
    told = [_steady(json.loads(_plain(row, home))) for row in rows]
    if text.startswith(("SHOW", "SELECT")):
        told.sort(key=str)
    return (schema, told)


def _plain(row: str, home: Path) -> str:
    row = row.replace(str(home), "HOME").replace("file:HOME", "HOME")
    return _UUID.sub("ID", _WAREHOUSE.sub("WAREHOUSE/", row))


def _steady(row: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in _VARYING}
    if "operationMetrics" in kept:
        metrics = kept["operationMetrics"].items()
        kept["operationMetrics"] = {k: v for k, v in metrics if not k.endswith("Bytes")}
    return kept


def test_statements_give_the_same_here_and_there(pair: Pair, db: str, table_path: Path) -> None:
    different = []
    for step in SCRIPT:
        text, own_condition = step if isinstance(step, tuple) else (step, None)
        found = {}
        for who, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
            home = table_path / who
            found[who] = outcome(engine, text.format(home=home, db=db), home)
        if own_condition is not None and found["theirs"][0] == "error":
            found["theirs"] = ("error", own_condition)
        if found["ours"] != found["theirs"]:
            different.append(f"{text}\n  ours   {found['ours']}\n  theirs {found['theirs']}")
    assert not different, "\n".join(different)
