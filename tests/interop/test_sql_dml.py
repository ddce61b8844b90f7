"""The same SQL by both engines: the same results, rows, history, and errors of the same class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyspark_delta.errors import DeltaError
from tests.interop.engines import Engine, Pair
from tests.interop.samples import sampled
from tests.support.peer import PeerError

TABLES = {
    "t": "id BIGINT, v STRING, s STRUCT<a: INT, b: STRING>",
    "src": "id BIGINT, v STRING",
    "pt": "a INT, b STRING, p INT, q STRING",
    "d": "id BIGINT, c INT DEFAULT 42, e STRING DEFAULT 'dd', n STRING",
}
MORE = {
    "pt": "PARTITIONED BY (p, q)",
    "d": "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
    "t": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
}
FILLED = (
    "INSERT INTO t SELECT /*+ COALESCE(1) */ id, concat('v', id), "
    "named_struct('a', cast(id AS INT), 'b', 'x') FROM range(6)",
    "INSERT INTO src SELECT /*+ COALESCE(1) */ * FROM VALUES (1L, 'n1'), (9L, 'n9') AS x(id, v)",
    "INSERT INTO pt VALUES (1, 'x', 1, 'm'), (2, 'y', 2, 'm'), (3, 'z', 1, 'n')",
    "CREATE OR REPLACE TEMP VIEW tv AS SELECT * FROM t",
    "CREATE OR REPLACE TEMP VIEW tvf AS SELECT * FROM t WHERE id > 2",
    "CREATE OR REPLACE TEMP VIEW tvp AS SELECT id, s FROM t",
    "CREATE OR REPLACE TEMP VIEW tvm AS SELECT *, 1 AS one FROM t",
)
CHANGES = """
UPDATE t SET v = 'z' WHERE id = 1
UPDATE t AS x SET x.v = concat(x.v, '!'), s.a = x.s.a + 1 WHERE x.id = 2
UPDATE default.t SET default.t.v = 'q' WHERE spark_catalog.default.t.id = 3
UPDATE t SET v = (SELECT max(v) FROM src) WHERE id = 1
UPDATE t SET v = DEFAULT WHERE id = 0
UPDATE tv SET tv.v = 'view' WHERE id = 5
WITH c AS (SELECT 1 AS id) UPDATE t SET v = 'cte' WHERE id = 1
UPDATE IDENTIFIER('t') SET v = 'ident' WHERE id = 1
UPDATE t SET s = s WHERE 1 = 0
UPDATE t x SET v = 'n' WHERE t.id = 1
UPDATE t SET v = 'a', v = 'b'
UPDATE t SET nope = 1
UPDATE t SET s.nope = 1
UPDATE t SET v = nope
UPDATE t SET v = 1 WHERE nope = 1
UPDATE t SET v = 1 WHERE id IN (SELECT id FROM src)
UPDATE t SET v = 1 WHERE id
UPDATE nope SET v = 1
UPDATE tvf SET v = 'some'
UPDATE tvp SET v = 'hidden'
UPDATE tvp SET id = length(v)
UPDATE tvm SET v = 'more'
UPDATE tvm SET one = 2
DELETE FROM t WHERE default.t.id = 77
DELETE FROM tv WHERE id = 5
DELETE FROM t x WHERE x.id = 4
DELETE FROM t x WHERE t.id = 2
DELETE FROM t WHERE id = (SELECT max(id) FROM src)
DELETE FROM t WHERE nope = 2
DELETE FROM nope
DELETE FROM tvf
DELETE FROM tvp WHERE v = 'hidden'
DELETE FROM tvm WHERE id = 1
"""
MERGES = """
MERGE INTO t USING src ON t.id = src.id WHEN MATCHED THEN UPDATE SET v = src.v
    WHEN NOT MATCHED THEN INSERT (id, v) VALUES (src.id, src.v)
MERGE INTO t AS x USING (SELECT * FROM src WHERE id = 9) AS y ON x.id = y.id
    WHEN MATCHED AND y.id > 1 THEN DELETE
MERGE INTO default.t USING (SELECT 1L AS id, 'w' AS v) y ON default.t.id = y.id
    WHEN MATCHED THEN UPDATE SET default.t.v = y.v, t.s.b = 'merged'
MERGE INTO t USING src ON t.id = src.id
    WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN UPDATE SET v = 'gone'
    WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE
WITH s AS (SELECT 2L AS id, 'cte' AS v) MERGE INTO t USING s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET v = s.v
MERGE INTO src USING (SELECT 20L AS id, 'i' AS v) s ON src.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY TARGET THEN INSERT *
MERGE WITH SCHEMA EVOLUTION INTO src USING (SELECT 20L AS id, 'i2' AS v, 5 AS extra) s
    ON src.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
MERGE INTO t USING t AS o ON t.id = o.id AND o.id = 1
    WHEN MATCHED THEN UPDATE SET v = concat(o.v, 'self')
MERGE INTO tv USING src ON tv.id = src.id WHEN MATCHED THEN UPDATE SET v = 'tv'
MERGE INTO t USING src ON t.id = src.id
MERGE INTO t USING src ON t.id = src.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1
MERGE INTO t USING src ON t.id = src.id AND t.id IN (SELECT id FROM src) WHEN MATCHED THEN DELETE
MERGE INTO t USING src ON t.id = src.id WHEN MATCHED THEN UPDATE SET v = 'a', v = 'b'
MERGE INTO t USING src ON t.id = src.id WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)
MERGE INTO t USING src ON t.id = src.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1, 2)
MERGE INTO t USING (SELECT 1L AS id FROM range(2)) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET v = 'm'
MERGE INTO t USING src ON id = src.id WHEN MATCHED THEN DELETE
MERGE INTO t USING nope ON t.id = nope.id WHEN MATCHED THEN DELETE
MERGE INTO nope USING src ON nope.id = src.id WHEN MATCHED THEN DELETE
MERGE INTO tvf USING src ON tvf.id = src.id WHEN MATCHED THEN DELETE
MERGE INTO tvp USING src ON tvp.id = src.id WHEN MATCHED THEN DELETE
MERGE INTO tvm USING src ON tvm.id = src.id WHEN MATCHED THEN DELETE
TRUNCATE TABLE pt PARTITION (p = 1)
TRUNCATE TABLE tv
TRUNCATE TABLE nope
TRUNCATE TABLE pt
TRUNCATE TABLE pt
DELETE FROM t WHERE true
"""
INSERTS = """
INSERT INTO pt PARTITION (p = 7) VALUES (1, 'b', 'qq')
INSERT INTO pt PARTITION (p = 7, q = 'w') VALUES (1, 'b')
INSERT INTO pt PARTITION (p, q) VALUES (1, 'b', 8, 'dyn')
INSERT INTO pt PARTITION (q = 'only') SELECT 1, 'b', 33
INSERT INTO pt PARTITION (p = null, q = 'nul') VALUES (1, 'b')
INSERT INTO pt PARTITION (p = 7) (q, a) SELECT 'cols2', 2
INSERT OVERWRITE pt PARTITION (p = 1) SELECT 100, 'ow', 'm'
INSERT OVERWRITE pt PARTITION (p = 7, q = 'w') SELECT 101, 'ow2'
SET spark.sql.sources.partitionOverwriteMode=dynamic
INSERT OVERWRITE pt PARTITION (p = 1, q) SELECT 103, 'dy', 'k'
INSERT OVERWRITE pt SELECT 105, 'dy', 2, 'm'
SET spark.sql.sources.partitionOverwriteMode=static
INSERT INTO pt REPLACE WHERE p = 7 SELECT 107, 'rw', 7, 'cols'
INSERT INTO pt REPLACE WHERE a = 107 VALUES (107, 'rw2', 9, 'data')
INSERT INTO pt BY NAME REPLACE WHERE p = 9 SELECT 9 AS p, 'nn' AS q, 5 AS a
INSERT INTO pt REPLACE WHERE p = 7 SELECT 107, 'rw', 8, 'cols'
INSERT INTO pt REPLACE WHERE nope = 9 SELECT 1, '', 9, ''
INSERT INTO pt PARTITION (p = 7) VALUES (1, 'b')
INSERT INTO pt PARTITION (p = 7) VALUES (1, 'b', 'q', 5)
INSERT INTO pt PARTITION (a = 7) VALUES (1, 'b', 'q')
INSERT INTO pt PARTITION (p = 'xx') VALUES (1, 'b', 'q')
INSERT INTO pt PARTITION (p = 7) (p, a) SELECT 'cols2', 2
INSERT OVERWRITE pt PARTITION (p = 1, q = 'm') IF NOT EXISTS VALUES (1, 'b')
INSERT INTO d VALUES (1, DEFAULT, 'x', 'y')
INSERT INTO d VALUES (2, 3, DEFAULT, DEFAULT), (3, DEFAULT, 'k', 'l')
INSERT INTO d (id, c) VALUES (4, DEFAULT)
INSERT INTO d (id) VALUES (5)
INSERT INTO d SELECT 6, DEFAULT, DEFAULT, 'sel'
INSERT INTO d BY NAME SELECT 'byname' AS n, 9 AS id
INSERT INTO d (n, id) VALUES ('rev', 11)
INSERT INTO src TABLE src
FROM src INSERT INTO src SELECT id + 100, v
FROM src INSERT INTO src SELECT id + 200, v WHERE id = 1 INSERT INTO d (id) SELECT id WHERE id = 9
WITH c AS (SELECT 300L AS id) INSERT INTO src SELECT id, 'cte' FROM c
INSERT INTO src WITH c AS (SELECT 301L AS id) SELECT id, 'cte' FROM c
INSERT INTO IDENTIFIER('src') VALUES (302, 'ident')
INSERT INTO d VALUES (1)
INSERT INTO d VALUES ('x', 2, '3', '4')
INSERT INTO nope VALUES (1)
"""
FEEDS = """
UPDATE t SET v = 'up' WHERE id = 1
DELETE FROM t WHERE id = 2
SELECT id, v, _change_type, _commit_version FROM table_changes('t', 2) ORDER BY 1, 2, 3
SELECT count(*) FROM table_changes('spark_catalog.default.t', 1, 1 + 1)
SELECT c.id, s.v FROM table_changes('t', 2) AS c JOIN src s ON c.id = s.id ORDER BY 1, c.v
SELECT * FROM table_changes('t', 0, current_timestamp())
SELECT * FROM table_changes('t', 99)
SELECT * FROM table_changes('t', 3, 1)
SELECT * FROM table_changes('nope', 1)
SELECT * FROM table_changes('src', 1)
"""
SCRIPTS = {"changes": CHANGES, "merges": MERGES, "inserts": INSERTS, "feeds": FEEDS}


@pytest.fixture
def tables(pair: Pair, tmp_path: Path) -> Iterator[Pair]:
    """The same tables in both engines' catalogs, at places of their own."""
    for engine, folder in ((pair.ours, "öurs 1%"), (pair.theirs, "theirs")):
        # One task for each scan: how many files a command leaves must not depend on the machine.
        engine.sql("SET spark.sql.files.minPartitionNum=1")
        for name, columns in TABLES.items():
            place = f"LOCATION '{tmp_path / folder / name}'"
            partitions, properties = (
                (MORE.get(name, ""), "")
                if "PARTITIONED" in MORE.get(name, "")
                else ("", MORE.get(name, ""))
            )
            engine.sql(
                f"CREATE TABLE {name} ({columns}) USING delta {partitions} {place} {properties}"
            )
        for statement in FILLED:
            engine.sql(statement)
    yield pair
    for engine in (pair.ours, pair.theirs):
        for name in TABLES:
            engine.sql(f"DROP TABLE {name}")
        for name in ("tv", "tvf"):
            engine.sql(f"DROP VIEW {name}")
        engine.sql("RESET spark.sql.files.minPartitionNum")


def statements(script: str) -> list[str]:
    """One for each line; a line that is indented goes on with the one before."""
    return script.replace("\n    ", " ").strip().splitlines()


def outcome(engine: Engine, statement: str) -> Any:
    """The rows of a statement, or the condition that it is refused with.

    Of a condition that tells more than delta-spark's, what both have counts.
    """
    try:
        return engine.sql(statement)
    except (PySparkException, DeltaError) as error:
        found = error.getCondition() or ""
    except PeerError as error:
        found = error.condition or ""
    return found.partition(".")[0] if found.startswith("DELTA_") else found


def history(pair: Pair, path: Path) -> list[dict[str, Any]]:
    """What each commit says, but for files: how many tasks write rows is the machine's affair.

    Columns come without the numbers by which plans tell them apart.
    """
    told = pair.theirs.history(path)
    for commit in told:
        parameters, metrics = commit["operationParameters"], commit["operationMetrics"]
        for key, value in parameters.items():
            parameters[key] = re.sub(r"#\d+", "#", value or "")
        commit["operationMetrics"] = {
            key: n for key, n in metrics.items() if "Row" in key and "Copied" not in key
        }
    return told


@pytest.mark.parametrize("script", sampled("feeds", SCRIPTS))
def test_statements_mean_the_same(tables: Pair, tmp_path: Path, script: str) -> None:
    differing = {}
    for statement in statements(SCRIPTS[script]):
        both = outcome(tables.ours, statement), outcome(tables.theirs, statement)
        if both[0] != both[1]:
            differing[statement] = both
    assert differing == {}
    for name in TABLES:
        ours, theirs = tmp_path / "öurs 1%" / name, tmp_path / "theirs" / name
        assert tables.agree(ours).rows == tables.agree(theirs).rows, name
        pairs = zip(history(tables, ours), history(tables, theirs), strict=True)
        assert [pair for pair in pairs if pair[0] != pair[1]] == [], name
