"""ALTER statements that both engines run, each in its own session, and what came of each.

Nothing here knows which engine it talks to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_CONDITION = re.compile(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)?)\]")


@dataclass(frozen=True)
class Script:
    """How a table is made, and what is then altered; `{t}` is its name."""

    table: tuple[str, ...]
    changes: tuple[str, ...]


def run(spark: SparkSession, script: Script, name: str) -> dict[str, str]:
    """Make the table and take the steps; for each `done`, or the condition of its error."""
    for statement in script.table:
        spark.sql(statement.format(t=name))
    return {change: outcome(spark, f"ALTER TABLE {name} {change}") for change in script.changes}


def outcome(spark: SparkSession, statement: str) -> str:
    """`done`, or the condition of the error; PySpark does not know those of all of Delta's."""
    try:
        spark.sql(statement)
    except Exception as error:
        known: Any = getattr(error, "getCondition", lambda: None)()
        found = _CONDITION.search(str(error))
        return str(known or (found and found[1]))
    return "done"


def _made(columns: str, properties: Mapping[str, str], rest: str = "") -> str:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"CREATE TABLE {{t}} ({columns}) USING delta {rest} TBLPROPERTIES ({listed})"


def _lines(*texts: str) -> Sequence[str]:
    return tuple(line.strip() for text in texts for line in text.strip().splitlines())


_NESTED = (
    "id INT, s STRING, st STRUCT<a: INT, b: STRING, c: STRUCT<d: INT>>, "
    "arr ARRAY<STRUCT<x: INT, z: INT>>, m MAP<STRING, STRUCT<y: INT, z: INT>>, n INT NOT NULL"
)
_ROW = (
    "INSERT INTO {t} SELECT 1, 'a', named_struct('a', 1, 'b', 'x', 'c', named_struct('d', 1)), "
    "array(named_struct('x', 1, 'z', 1)), map('k', named_struct('y', 1, 'z', 2)), 5"
)

SCRIPTS: Mapping[str, Script] = {
    "plain": Script(
        (_made(_NESTED, {"own": "1"}), _ROW),
        tuple(
            _lines("""
            ADD COLUMN x INT
            ADD COLUMNS (y INT COMMENT 'why' FIRST, z STRING AFTER ID, st.e INT AFTER a)
            ADD COLUMNS (arr.element.w INT, m.value.v INT COMMENT 'vv', vc VARCHAR(4), void VOID)
            ADD COLUMN ID INT
            ADD COLUMN st.a INT
            ADD COLUMN s.q INT
            ADD COLUMN arr.q INT
            ADD COLUMN nope.q INT
            ADD COLUMN x2 INT AFTER nope
            ADD COLUMN x2 INT NOT NULL
            ADD COLUMN x2 INT DEFAULT 3
            ADD COLUMN `a b` INT
            ADD COLUMN x2 INTERVAL DAY
            ADD COLUMNS (x2 INT, x2 INT)
            ADD COLUMN x2 TIMESTAMP_NTZ
            DROP COLUMN s
            DROP COLUMN nope
            DROP COLUMN IF EXISTS nope
            RENAME COLUMN s TO t
            RENAME COLUMN s TO id
            ALTER COLUMN id COMMENT 'thé id'
            ALTER COLUMN arr.element.x COMMENT 'inner'
            ALTER COLUMN arr.element COMMENT 'el'
            ALTER COLUMN id FIRST
            ALTER COLUMN id AFTER s
            ALTER COLUMN id AFTER id
            ALTER COLUMN id AFTER nope
            ALTER COLUMN st.b FIRST
            ALTER COLUMN nope COMMENT 'x'
            ALTER COLUMN id TYPE BIGINT
            ALTER COLUMN id TYPE STRING
            ALTER COLUMN id TYPE INT
            ALTER COLUMN st TYPE STRUCT<a: INT>
            ALTER COLUMN arr TYPE ARRAY<INT>
            ALTER COLUMN m TYPE INT
            ALTER COLUMN n DROP NOT NULL
            ALTER COLUMN id SET DEFAULT 5
            ALTER COLUMN id DROP DEFAULT
            ALTER COLUMN id COMMENT 'i', id FIRST
            ALTER COLUMN id COMMENT 'i' FIRST
            CHANGE COLUMN id id INT COMMENT 'changed'
            CHANGE COLUMN id id2 INT
            CHANGE COLUMN id id INT COMMENT 'c' AFTER s
            REPLACE COLUMNS (id INT COMMENT 'new', s STRING)
            REPLACE COLUMNS (id INT, id INT)
            CLUSTER BY NONE
            CLUSTER BY (id, st.a)
            CLUSTER BY (nope)
            CLUSTER BY (id, id)
            CLUSTER BY (arr)
            CLUSTER BY (id, s, n, st.a, st.b)
            CLUSTER BY (s)
            CLUSTER BY NONE
            ALTER COLUMN id SYNC IDENTITY
            SET LOCATION '/nowhere'
            ADD PARTITION (p = 1)
            DROP PARTITION (p = 1)
            PARTITION (p = 1) RENAME TO PARTITION (p = 2)
            RECOVER PARTITIONS
            SET SERDEPROPERTIES ('a' = 'b')
            SET FILEFORMAT parquet
            DEFAULT COLLATION UTF8_LCASE
            """)
        ),
    ),
    "properties": Script(
        (
            _made("id INT, p INT", {"own": "1"}, "PARTITIONED BY (p)"),
            "INSERT INTO {t} VALUES (1, 2)",
        ),
        tuple(
            _lines("""
            SET TBLPROPERTIES ('a' = 'b', 'DELTA.APPENDONLY' = 'true')
            SET TBLPROPERTIES ('comment' = 'ç')
            SET TBLPROPERTIES ('delta.nope' = 'true')
            SET TBLPROPERTIES ('delta.constraints.x' = 'id > 0')
            SET TBLPROPERTIES ('location' = '/x')
            SET TBLPROPERTIES ('delta.columnMapping.maxColumnId' = '9')
            SET TBLPROPERTIES ('clusteringColumns' = 'id')
            SET TBLPROPERTIES ('delta.columnMapping.mode' = 'id')
            SET TBLPROPERTIES ('delta.feature.nope' = 'supported')
            SET TBLPROPERTIES ('delta.feature.deletionVectors' = 'maybe')
            SET TBLPROPERTIES ('delta.feature.clustering' = 'supported')
            SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')
            SET TBLPROPERTIES ('delta.feature.deletionVectors' = 'supported')
            SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')
            SET TBLPROPERTIES ('delta.enableChangeDataCapture' = 'false')
            SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'nope')
            SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'p')
            UNSET TBLPROPERTIES ('nope')
            UNSET TBLPROPERTIES IF EXISTS ('nope', 'Delta.AppendOnly', 'comment')
            UNSET TBLPROPERTIES ('location')
            SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')
            SET TBLPROPERTIES ('delta.columnMapping.mode' = 'id')
            CLUSTER BY (id)
            """)
        ),
    ),
    "mapped": Script(
        (
            _made(
                _NESTED,
                {
                    "delta.columnMapping.mode": "name",
                    "delta.dataSkippingStatsColumns": "id,st.a,s",
                },
            ),
            _ROW,
        ),
        tuple(
            _lines("""
            DROP COLUMN st.b
            DROP COLUMNS (arr.element.z, m.value.z)
            DROP COLUMN arr.element
            DROP COLUMN st.c.d
            DROP COLUMN st.c
            DROP COLUMN st.a
            DROP COLUMN st
            DROP COLUMN IF EXISTS nope
            DROP COLUMNS IF EXISTS (nope, n)
            DROP COLUMN s.x
            RENAME COLUMN id TO key
            RENAME COLUMN arr.element.x TO xx
            RENAME COLUMN arr.element TO xx
            RENAME COLUMN m.value.y TO yy
            RENAME COLUMN s TO `a b.c`
            RENAME COLUMN key TO m
            ADD COLUMN s INT FIRST
            REPLACE COLUMNS (s INT, `a b.c` STRING, m MAP<STRING, STRUCT<yy: INT>>, KEY INT)
            REPLACE COLUMNS (s INT, other INT)
            DROP COLUMN s
            """)
        ),
    ),
    "widened": Script(
        (
            _made(
                "id INT, s STRING, b BYTE, f FLOAT, dt DATE, dec DECIMAL(5,2), arr ARRAY<INT>, "
                "m MAP<INT, SHORT>, st STRUCT<a: SHORT>, v VARCHAR(5), c CHAR(5)",
                {"delta.enableTypeWidening": "true"},
            ),
        ),
        tuple(
            _lines("""
            ALTER COLUMN id TYPE BIGINT
            ALTER COLUMN id TYPE INT
            ALTER COLUMN b TYPE DOUBLE
            ALTER COLUMN dt TYPE TIMESTAMP_NTZ
            ALTER COLUMN dt TYPE TIMESTAMP
            ALTER COLUMN dec TYPE DECIMAL(10,4)
            ALTER COLUMN dec TYPE DECIMAL(10,3)
            ALTER COLUMN arr.element TYPE BIGINT
            ALTER COLUMN m.key TYPE BIGINT
            ALTER COLUMN m.value TYPE INT
            ALTER COLUMN st.a TYPE INT
            ALTER COLUMN id TYPE DOUBLE
            ALTER COLUMN s TYPE BINARY
            ALTER COLUMN v TYPE VARCHAR(9)
            ALTER COLUMN v TYPE VARCHAR(3)
            ALTER COLUMN v TYPE STRING
            ALTER COLUMN c TYPE CHAR(9)
            ALTER COLUMN s TYPE VARCHAR(9)
            ALTER COLUMN m.key COMMENT 'x'
            CHANGE COLUMN st.a a BIGINT COMMENT 'wide'
            ALTER COLUMN id COMMENT 'ii', s AFTER b, f FIRST
            """)
        ),
    ),
    "ruled": Script(
        (
            _made(
                "id INT, s STRING, g INT GENERATED ALWAYS AS (id + 1), st STRUCT<a: INT, b: INT>, "
                "k INT",
                {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
            ),
            "INSERT INTO {t} (id, s, st, k) SELECT 1, 'a', named_struct('a', 1, 'b', 2), 3",
        ),
        tuple(
            _lines("""
            ADD CONSTRAINT c1 CHECK (length(s)<10 AND s!='x y' or k <=> -1e3 /* hi */)
            ADD CONSTRAINT c2 CHECK (st.a > 0 and `st`.b is not null)
            ADD CONSTRAINT C1 CHECK (id > 5)
            ADD CONSTRAINT c3 CHECK (id > 5)
            ADD CONSTRAINT c3 CHECK (nope > 5)
            ADD CONSTRAINT c3 CHECK (id)
            ADD CONSTRAINT c3 CHECK (id >)
            ADD CONSTRAINT c3 CHECK (id = 1) ENFORCED
            ADD CHECK (id = 1)
            ADD CONSTRAINT c3 UNIQUE (id)
            ADD CONSTRAINT `we ird` CHECK (id = 1)
            DROP COLUMN s
            RENAME COLUMN s TO t
            ALTER COLUMN s COMMENT 'fine'
            DROP COLUMN id
            RENAME COLUMN id TO t
            ALTER COLUMN id TYPE BIGINT
            RENAME COLUMN st.a TO aa
            RENAME COLUMN st TO tt
            DROP COLUMN st.b
            DROP COLUMN st
            ALTER COLUMN k TYPE BIGINT
            ALTER COLUMN g TYPE BIGINT
            ALTER COLUMN st.a TYPE BIGINT
            DROP CONSTRAINT nope
            DROP CONSTRAINT IF EXISTS nope
            DROP CONSTRAINT C1
            DROP CONSTRAINT c2 CASCADE
            RENAME COLUMN s TO t
            DROP COLUMN g
            """)
        ),
    ),
    "laid out": Script(
        (
            _made(
                "id INT, p STRING, q INT, d INT",
                {
                    "delta.columnMapping.mode": "name",
                    "delta.feature.allowColumnDefaults": "supported",
                },
                "PARTITIONED BY (p)",
            ),
        ),
        tuple(
            _lines("""
            DROP COLUMN p
            DROP COLUMN P
            RENAME COLUMN p TO pp
            ALTER COLUMN pp COMMENT 'pc'
            ALTER COLUMN pp FIRST
            CLUSTER BY (id)
            CLUSTER BY NONE
            ALTER COLUMN d SET DEFAULT 5
            ALTER COLUMN d SET DEFAULT 'x'
            ALTER COLUMN d SET DEFAULT nope
            ALTER COLUMN d SET DEFAULT (select 1)
            ALTER COLUMN q SET DEFAULT abs( - 7)
            ALTER COLUMN q DROP DEFAULT
            ADD COLUMN z INT DEFAULT 3
            DROP COLUMNS (id, q, d)
            """)
        ),
    ),
    "clustered": Script(
        (
            _made(
                "id INT, p STRING, st STRUCT<a: INT, b: INT>",
                {"delta.columnMapping.mode": "name"},
                "CLUSTER BY (id, st.a)",
            ),
        ),
        tuple(
            _lines("""
            DROP COLUMN id
            DROP COLUMN st.a
            RENAME COLUMN id TO key
            RENAME COLUMN st TO su
            CLUSTER BY (su)
            CLUSTER BY (key, su.b)
            SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'p')
            CLUSTER BY (key)
            CLUSTER BY (p)
            """)
        ),
    ),
    "identity": Script(
        (
            _made(
                "id BIGINT GENERATED BY DEFAULT AS IDENTITY, "
                "aid BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY -3), "
                "v INT",
                {"delta.columnMapping.mode": "name"},
            ),
            "INSERT INTO {t} (id, aid, v) VALUES (7, 2, 1), (20, 9, 2)",
        ),
        tuple(
            _lines("""
            ALTER COLUMN id SYNC IDENTITY
            CHANGE COLUMN aid SYNC IDENTITY
            ALTER v SYNC IDENTITY
            ALTER COLUMN nope SYNC IDENTITY
            ALTER COLUMN id TYPE INT
            ALTER COLUMN id DROP NOT NULL
            ALTER COLUMN id COMMENT 'fine'
            ALTER COLUMN id AFTER v
            ALTER COLUMN id SET DEFAULT 3
            RENAME COLUMN id TO key
            REPLACE COLUMNS (key BIGINT, aid BIGINT, v INT)
            DROP COLUMN aid
            """)
        ),
    ),
}
