"""MERGE scripts that both engines run, each in its own session on a table of its own.

Nothing here knows which engine it talks to.  A step is a MERGE into `t` from `s`; it gives one row,
or the condition that it is refused with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

# A builder of either engine: their classes share nothing but the names of their methods.
Merge = Any
Step = Callable[[Callable[..., Merge]], Merge]

_CONDITION = re.compile(r"\[(DELTA_[\w.]+)\]")
_LABEL = "spark.databricks.delta.commitInfo.userMetadata"
# One task for each scan and shuffle: how many files are left must not depend on the machine.
_ONE_TASK = {"spark.sql.files.minPartitionNum": "1", "spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A table and what is merged into it, step by step.

    `rows` is the query that the table's rows come from, by way of one file for each partition;
    `partition_by` is for those tables that shall have some.
    """

    columns: str
    rows: str
    steps: Mapping[str, Step] = field(hash=False)
    partition_by: str
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)


def create(
    spark: SparkSession, script: str, properties: Mapping[str, str], partitioned: bool, path: str
) -> None:
    """Make the table of a script, and give it its rows."""
    chosen = SCRIPTS[script]
    listed = {**chosen.properties, **properties}
    texts = ", ".join(f"'{key}' = '{value}'" for key, value in listed.items())
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({chosen.columns}) USING delta "
        + (f"PARTITIONED BY ({chosen.partition_by}) " if partitioned else "")
        + (f"TBLPROPERTIES ({texts})" if texts else "")
    )
    rows = spark.sql(chosen.rows).coalesce(1)
    rows.write.format("delta").mode("append").save(path)


def run(spark: SparkSession, tables: Any, script: str, path: str) -> dict[str, Any]:
    """Take the steps of a script; what each gave.

    :param tables: the engine's `DeltaTable`.
    """
    before = {key: spark.conf.get(key, None) for key in (*_ONE_TASK, _LABEL)}
    for key, value in _ONE_TASK.items():
        spark.conf.set(key, value)
    told = {}
    try:
        for label, step in SCRIPTS[script].steps.items():
            # The history says which commit is whose.
            spark.conf.set(_LABEL, label)
            told[label] = _outcome(spark, tables, step, path)
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
    return told


def _outcome(spark: SparkSession, tables: Any, step: Step, path: str) -> Any:
    # A handle for each step: delta-spark's keeps what it once saw of the table.
    target = tables.forPath(spark, path).alias("t")

    def merge(source: str, condition: str = "t.id = s.id") -> Merge:
        return target.merge(spark.sql(source).coalesce(1).alias("s"), condition)

    try:
        return step(merge).execute().collect()[0].asDict()
    except Exception as error:
        # What a task refused is somewhere in a text of Java's.
        told = getattr(error, "condition", None) or _CONDITION.search(str(error))
        if told is None:
            raise
        return told if isinstance(told, str) else told[1]


def _values(names: str, *rows: str) -> str:
    return f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS s({names})"


def _three(*rows: str) -> str:
    return _values("id, v, p", *rows)


_SMALL = Script(
    columns="id LONG, v STRING, p STRING",
    # A key that is null, and two partitions.
    rows="SELECT if(id = 9, null, id) AS id, concat('v', id) AS v, if(id < 5, 'a', 'b') AS p "
    "FROM range(10)",
    partition_by="p",
    steps={
        "upsert": lambda merge: (
            merge(_three("3L, 's3', 'a'", "20L, 's20', 'b'", "null, 'null', 'c'"))
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
        ),
        "several conditions": lambda merge: (
            merge(_three("0L, 'x', 'a'", "1L, 'y', 'a'", "6L, 'z', 'b'", "7L, 'z', null"))
            .whenMatchedUpdate("s.v = 'x' AND t.p IN ('a', 'b')", {"v": "concat(t.v, s.v)"})
            .whenMatchedDelete("t.id > 6")
            .whenMatchedUpdate(set={"t.p": "'c'", "v": "null"})
        ),
        "insert only": lambda merge: merge(
            _three("3L, 'not', 'a'", "21L, 's21', 'b'", "22L, 's22', 'd'")
        ).whenNotMatchedInsert(values={"id": "s.id", "p": "s.p"}),
        "delete": lambda merge: merge(
            _three("21L, 'x', 'a'", "22L, 'x', 'a'", "2L, 'x', 'a'")
        ).whenMatchedDelete(),
        "more than once": lambda merge: merge(
            _three("4L, 'x', 'a'", "4L, 'y', 'a'")
        ).whenMatchedUpdateAll(),
        "rows that no source row matches": lambda merge: (
            merge(_three("0L, 'x', 'a'", "4L, 'y', 'b'", "30L, 'z', 'a'"))
            .whenMatchedUpdate("s.v = 'y'", {"v": "s.v"})
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceUpdate("t.id > 5", {"v": "concat(t.v, '-')"})
            .whenNotMatchedBySourceDelete("t.p = 'c'")
        ),
    },
)

_MORE = Script(
    columns=_SMALL.columns,
    rows=_SMALL.rows,
    partition_by="p",
    steps={
        "nothing matches": lambda merge: merge(
            _three("99L, 'x', 'a'", "null, 'n', 'a'")
        ).whenMatchedUpdateAll(),
        "an empty source": lambda merge: (
            merge(_three("1L, 'x', 'a'") + " WHERE id > 5")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
        ),
        "all are there": lambda merge: merge(_three("1L, 'x', 'a'")).whenNotMatchedInsertAll(),
        "null equals null": lambda merge: (
            merge(_three("null, 'null', 'b'"), "t.id <=> s.id")
            .whenMatchedUpdate(set={"v": "concat(t.v, s.v)"})
            .whenNotMatchedInsertAll()
        ),
        "insert only, by two clauses": lambda merge: (
            merge(_three("1L, 'x', 'a'", "20L, 'x', 'a'", "21L, 'y', 'b'", "22L, 'z', 'b'"))
            .whenNotMatchedInsert("s.v = 'x'", {"id": "s.id", "v": "'first'", "p": "s.p"})
            .whenNotMatchedInsert("s.v = 'y'", {"id": "-s.id", "p": "s.p"})
        ),
        "insert only, on a constant": lambda merge: merge(
            _three("1L, 'once more', 'a'"), "false"
        ).whenNotMatchedInsertAll(),
        "one partition": lambda merge: (
            merge(_three("1L, 'of a', 'a'", "6L, 'of b', 'b'"), "t.id = s.id AND t.p = 'b'")
            .whenMatchedUpdate(set={"v": "s.v"})
            .whenNotMatchedInsert(values={"id": "s.id + 50", "v": "s.v", "p": "'b'"})
        ),
        "a row moves": lambda merge: merge(
            _three("6L, 'moved', 'a'", "7L, 'moved', 'é %41'")
        ).whenMatchedUpdateAll(),
        # No clause that inserts: seen with partitions, row tracking and a feed, without vectors,
        # delta-spark 4.4.0 then loses the new row, of which its feed tells.
        "more than once, and deleted": lambda merge: merge(
            _three("8L, 'x', 'a'", "8L, 'y', 'a'", "60L, 'z', 'a'")
        ).whenMatchedDelete(),
        "more than once, and no clause for it": lambda merge: merge(
            _three("4L, 'x', 'a'", "4L, 'y', 'a'")
        ).whenMatchedDelete("s.v = 'nobody'"),
        "only rows without a match": lambda merge: (
            merge(_three("0L, 'x', 'a'", "1L, 'x', 'a'", "2L, 'x', 'a'"))
            .whenNotMatchedBySourceUpdate("t.id = 3", {"v": "'alone'"})
            .whenNotMatchedBySourceUpdate("t.id = 4", {"p": "'alone'"})
            .whenNotMatchedBySourceDelete("t.id < 6")
        ),
        "a condition with functions": lambda merge: (
            merge(
                _three("2L, 'V2', 'a'", "50L, 'V50', 'a'"),
                "lower(s.v) = t.v AND t.id BETWEEN 0 AND 100 AND NOT (t.p <=> 'x')",
            )
            .whenMatchedUpdate("t.v LIKE 'v%' OR length(s.v) IN (1, 2)", {"v": "upper(t.v)"})
            .whenNotMatchedInsert("s.v IS NOT NULL", {"id": "s.id", "v": "s.v"})
        ),
        "all rows go": lambda merge: merge(_three("0L, 'x', 'a'"), "true").whenMatchedDelete(),
    },
)

_EVOLVED = Script(
    columns="id LONG, v STRING, s STRUCT<a: INT, b: STRUCT<c: STRING>>, l ARRAY<STRUCT<x: INT>>",
    rows="SELECT id, concat('v', id) AS v, named_struct('a', cast(id AS INT), 'b', "
    "named_struct('c', 'c')) AS s, array(named_struct('x', 1)) AS l FROM range(4)",
    partition_by="v",
    steps={
        "a new column by a star": lambda merge: (
            merge("SELECT id, 'new' AS v, id * 1.5D AS w FROM range(3, 5)")
            .withSchemaEvolution()
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
        ),
        "only inserted": lambda merge: (
            merge("SELECT id, date'2024-02-29' AS d, 'X' AS V FROM range(3, 6)")
            .withSchemaEvolution()
            .whenNotMatchedInsertAll()
        ),
        "a new field": lambda merge: (
            merge(
                "SELECT id, named_struct('b', named_struct('d', 7L, 'c', 'C'), 'a', 5) AS s "
                "FROM range(2, 7)"
            )
            .withSchemaEvolution()
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
        ),
        "a new field in an array": lambda merge: (
            merge("SELECT 0L AS id, array(named_struct('x', 2, 'y', 'why')) AS l")
            .withSchemaEvolution()
            .whenMatchedUpdateAll()
        ),
        "a column that a clause names": lambda merge: (
            merge("SELECT 1L AS id, 'left' AS other, 'taken' AS named")
            .withSchemaEvolution()
            .whenMatchedUpdate(set={"named": "s.named"})
            .whenNotMatchedInsert(values={"id": "s.id"})
        ),
        "rows that no source row matches": lambda merge: (
            merge("SELECT 1L AS id, true AS flag")
            .withSchemaEvolution()
            .whenMatchedUpdateAll()
            .whenNotMatchedBySourceUpdate("t.id = 2", {"v": "'alone'"})
            .whenNotMatchedBySourceDelete("t.id = 3")
        ),
        "none is asked for": lambda merge: merge(
            "SELECT 1L AS id, 'x' AS fresh"
        ).whenMatchedUpdateAll(),
        "a value that is cast": lambda merge: (
            merge("SELECT 1 AS id, 5 AS v, '2.5' AS w").withSchemaEvolution().whenMatchedUpdateAll()
        ),
        "a value too large": lambda merge: merge(
            "SELECT 1L AS id, 5000000000L AS big"
        ).whenMatchedUpdate(set={"s.a": "s.big"}),
    },
)

_FILLED = Script(
    columns="n BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH 5 INCREMENT BY 10), "
    "id LONG NOT NULL, twice LONG GENERATED ALWAYS AS (id * 2), v STRING DEFAULT 'dé'",
    rows="SELECT id, concat('v', id) AS v FROM range(4)",
    partition_by="twice",
    properties={
        "delta.feature.allowColumnDefaults": "supported",
        "delta.constraints.small": "id < 100",
    },
    steps={
        "upsert": lambda merge: (
            merge("SELECT id, 'new' AS w FROM range(3, 6)")
            .whenMatchedUpdate(set={"id": "s.id + 10", "v": "s.w"})
            .whenNotMatchedInsert(values={"id": "s.id"})
        ),
        "insert only": lambda merge: merge("SELECT 6L AS id").whenNotMatchedInsert(
            values={"id": "s.id", "v": "'given'"}
        ),
        "numbers given": lambda merge: merge("SELECT 7L AS id").whenNotMatchedInsert(
            values={"n": "-1L", "id": "s.id", "twice": "14L"}
        ),
        "a wrong number": lambda merge: merge("SELECT 8L AS id").whenNotMatchedInsert(
            values={"id": "s.id", "twice": "s.id"}
        ),
        "null where none may be": lambda merge: merge("SELECT 1L AS id").whenMatchedUpdate(
            set={"id": "null"}
        ),
        "too large for the table": lambda merge: merge("SELECT 1L AS id").whenMatchedUpdate(
            set={"id": "1000"}
        ),
        "an identity column": lambda merge: merge("SELECT 1L AS id").whenMatchedUpdate(
            set={"n": "1"}
        ),
        # Rows of one file: where the others are is up to the engine.
        "no match in the source": lambda merge: merge(
            "SELECT id FROM range(0, 2)"
        ).whenNotMatchedBySourceUpdate("t.id = 2", {"id": "t.id + 20", "v": "upper(t.v)"}),
    },
)

_SAMPLE = Script(
    columns=_SMALL.columns,
    rows=_SMALL.rows,
    partition_by=_SMALL.partition_by,
    steps={
        label: _SMALL.steps[label]
        for label in ("upsert", "more than once", "rows that no source row matches")
    },
)

SCRIPTS: dict[str, Script] = {
    "sample": _SAMPLE,
    "small": _SMALL,
    "more": _MORE,
    "evolved": _EVOLVED,
    "filled": _FILLED,
}
