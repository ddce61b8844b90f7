"""Random statements that change rows, which both engines run, each on a table of its own.

Nothing here knows which engine it talks to, nor what a statement should do: only that two engines
must do the same.  So anything may be in it: keys of other types, casts that overflow, sources that
match twice, columns that evolve, rules that rows break.  A seed gives the same script anywhere.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.canonical import contents, json_rows

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_UNTOLD = re.compile(r"Cannot find main error class '(\w+)'")
_NULL = "NULL"

VALUES: dict[str, Sequence[str]] = {
    "INT": ("1", "2", "3", "4", "-7", _NULL),
    "BIGINT": ("1L", "2L", "3L", "9000000000L", _NULL),
    "SMALLINT": ("1S", "2S", "3S", _NULL),
    "TINYINT": ("1Y", "2Y", "100Y", _NULL),
    "DOUBLE": ("1.0D", "2.0D", "2.5D", "-0.0D", "0.0D", "double('NaN')", _NULL),
    "FLOAT": ("1.0F", "2.0F", "2.5F", _NULL),
    "DECIMAL(10,2)": ("1.00BD", "2.00BD", "2.50BD", "12345678.12BD", _NULL),
    "DECIMAL(4,1)": ("1.0BD", "2.0BD", "999.9BD", _NULL),
    "STRING": ("'1'", "'2'", "'3'", "'a'", "'A'", "'ä b'", "''", "'2024-01-01'", _NULL),
    "DATE": ("DATE'2024-01-01'", "DATE'2024-01-02'", "DATE'1960-05-05'", _NULL),
    "TIMESTAMP": (
        "TIMESTAMP'2024-01-01 00:00:00'",
        "TIMESTAMP'2024-01-02 03:04:05.678901'",
        "TIMESTAMP'1960-01-01 00:00:00.000001'",
        _NULL,
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ'2024-01-01 00:00:00'", _NULL),
    "BOOLEAN": ("true", "false", _NULL),
    "BINARY": ("X'01'", "X''", "X'FF00'", _NULL),
    "STRUCT<a: INT, b: STRING>": (
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', CAST(NULL AS INT), 'b', 'y')",
        _NULL,
    ),
    "STRUCT<b: STRING, a: INT>": ("named_struct('b', 'u', 'a', 2)", _NULL),
    "STRUCT<a: BIGINT, b: STRING, c: INT>": (
        "named_struct('a', 3L, 'b', 'z', 'c', 7)",
        _NULL,
    ),
    "STRUCT<a: INT>": ("named_struct('a', 5)", _NULL),
    "ARRAY<INT>": ("array(1, 2)", "array()", "array(1, NULL)", _NULL),
    "ARRAY<STRUCT<a: INT, b: STRING>>": (
        "array(named_struct('a', 1, 'b', 'x'))",
        "array()",
        _NULL,
    ),
    "ARRAY<STRUCT<b: STRING, a: INT, c: INT>>": (
        "array(named_struct('b', 'x', 'a', 4, 'c', 9))",
        _NULL,
    ),
    "MAP<STRING, INT>": ("map('k', 1)", "map()", _NULL),
}
_NUMBERS = ("INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)")
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_STRUCTS = tuple(each for each in VALUES if each.startswith("STRUCT"))
_ARRAYS = tuple(each for each in VALUES if each.startswith("ARRAY<STRUCT"))
_KEYS = ("INT", "INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP")
_FLAT = tuple(each for each in VALUES if "<" not in each)


@dataclass(frozen=True)
class Column:
    """A column of a table or of a source."""

    name: str
    type: str

    @property
    def is_struct(self) -> bool:
        return self.type.startswith("STRUCT")

    @property
    def is_flat(self) -> bool:
        return "<" not in self.type

    def some(self, rng: random.Random) -> str:
        """A value as SQL says it, of this very type."""
        return f"CAST({rng.choice(VALUES[self.type])} AS {self.type})"


@dataclass(frozen=True)
class Script:
    """Statements with `{t}` where the table is named; the settings they run under."""

    create: str
    fill: Sequence[str]
    steps: Sequence[str]
    conf: dict[str, str]


def script(seed: int, steps: int) -> Script:
    """The script of a seed."""
    return _Writer(random.Random(seed)).script(steps)


def run(spark: SparkSession, seed: int, steps: int, path: str) -> list[dict[str, Any]]:
    """Take the steps of a script: after each what it gave, and the table's rows and changes."""
    chosen = script(seed, steps)
    before = {key: spark.conf.get(key, None) for key in chosen.conf}
    for key, value in chosen.conf.items():
        spark.conf.set(key, value)
    try:
        return list(_told(spark, chosen, path))
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def _told(spark: SparkSession, chosen: Script, path: str) -> Any:
    version = -1
    for text in (chosen.create, *chosen.fill, *chosen.steps):
        told: dict[str, Any] = {"text": text}
        try:
            told["gave"] = json_rows(spark.sql(text.replace("{t}", f"delta.`{path}`")), sort=True)
        except Exception as error:
            told["error"] = _condition(error)
            told["said"] = str(error)[:600]
        if text != chosen.create or "error" not in told:
            table = spark.read.format("delta").load(path)
            told["schema"], told["rows"] = contents(table)
            newest = _newest(spark, path)
            if newest > max(version, 0) and "enableChangeDataFeed" in chosen.create:
                told["changes"] = _changes(spark, path, newest)
            version = newest
        yield told
        if "rows" not in told:
            return


def _newest(spark: SparkSession, path: str) -> int:
    found = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").select("version").collect()
    return int(found[0][0])


def _changes(spark: SparkSession, path: str, version: int) -> list[str]:
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    feed = feed.option("startingVersion", version).option("endingVersion", version)
    found = feed.load(path).drop("_commit_timestamp", "_commit_version")
    return json_rows(found, sort=True)


def _condition(error: Exception) -> str:
    """The condition that an error has, or the innermost that its text names."""
    # Where delta-spark fails to tell its own error, Spark names the condition it should have told.
    untold = _UNTOLD.search(str(error))
    if untold is not None:
        return untold[1]
    if isinstance(error, PySparkException) and error.getCondition():
        return str(error.getCondition())
    found = _CONDITION.findall(str(error))
    return found[-1] if found else type(error).__name__


class _Writer:
    """Writes a script as its random numbers say."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        names = ["k", "v", "p", *rng.sample(["st", "ls", "x", "y", "zZ"], rng.randint(1, 3))]
        kinds = {
            "k": lambda: rng.choice(_KEYS),
            "p": lambda: rng.choice(("STRING", "INT", "DATE", "BOOLEAN")),
            "st": lambda: _STRUCTS[0],
            "ls": lambda: rng.choice((_ARRAYS[0], "ARRAY<INT>", "MAP<STRING, INT>")),
        }
        self.columns = [
            Column(name, kinds.get(name, lambda: rng.choice(_FLAT))()) for name in names
        ]

    def script(self, steps: int) -> Script:
        create = self._create()
        fill = [self._insert(self._rng.randint(1, 5)) for _ in range(self._rng.randint(1, 3))]
        return Script(create, fill, [self._step() for _ in range(steps)], self._conf())

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _related(self, kind: str) -> str:
        """Mostly a type whose values can be compared with those of `kind`."""
        rng = self._rng
        if self._chance(0.1):
            return rng.choice(_FLAT)
        if kind in _NUMBERS:
            return rng.choice((*_NUMBERS, "DECIMAL(4,1)", "STRING"))
        if kind in _TIMES:
            return rng.choice((*_TIMES, "STRING"))
        return kind

    def _conf(self) -> dict[str, str]:
        conf = {}
        if self._chance(0.2):
            conf["spark.sql.ansi.enabled"] = "false"
        if self._chance(0.25):
            policies = ("LEGACY", "STRICT", "ANSI")
            conf["spark.sql.storeAssignmentPolicy"] = self._rng.choice(policies)
        if self._chance(0.2):
            conf["spark.databricks.delta.schema.autoMerge.enabled"] = "true"
        return conf

    def _create(self) -> str:
        rng = self._rng
        properties = {"delta.enableChangeDataFeed": "true"} if self._chance(0.7) else {}
        properties["delta.enableDeletionVectors"] = rng.choice(("true", "false"))
        if self._chance(0.25):
            properties["delta.columnMapping.mode"] = rng.choice(("name", "id"))
        if self._chance(0.2):
            properties["delta.enableRowTracking"] = "true"
        if self._chance(0.2):
            properties["delta.enableTypeWidening"] = "true"
        defined = []
        for column in self.columns:
            text = f"`{column.name}` {column.type}"
            if column.name not in "kp" and self._chance(0.1):
                text += " NOT NULL"
            if column.is_flat and column.name in ("x", "y") and self._chance(0.3):
                value = next(each for each in VALUES[column.type] if each != _NULL)
                text += f" DEFAULT {value}"
                properties["delta.feature.allowColumnDefaults"] = "supported"
            defined.append(text)
        if self._chance(0.15):
            expression = rng.choice(("k", "p"))
            kind = next(each.type for each in self.columns if each.name == expression)
            defined.append(f"g {kind} GENERATED ALWAYS AS ({expression})")
        parts = "PARTITIONED BY (p)" if self._chance(0.35) else ""
        texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return (
            f"CREATE TABLE {{t}} ({', '.join(defined)}) USING delta {parts} TBLPROPERTIES ({texts})"
        )

    def _insert(self, count: int) -> str:
        names = ", ".join(f"`{each.name}`" for each in self.columns)
        rows = ", ".join(
            f"({', '.join(each.some(self._rng) for each in self.columns)})" for _ in range(count)
        )
        # One task and so one file for each partition, whatever the engine's plans are.
        select = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}"
        return f"INSERT INTO {{t}} ({names}) {select}"

    def _step(self) -> str:
        kind = self._rng.choice(("delete", "update", "merge", "merge", "merge", "merge", "insert"))
        if kind == "insert":
            return self._insert(self._rng.randint(1, 2))
        if kind == "delete":
            where = f" WHERE {self._boolean('', self.columns)}" if self._chance(0.95) else ""
            return f"DELETE FROM {{t}}{where}"
        if kind == "update":
            sets = self._assigned("", "", self.columns, self.columns)
            where = f" WHERE {self._boolean('', self.columns)}" if self._chance(0.9) else ""
            return f"UPDATE {{t}} SET {sets}{where}"
        return self._merge()

    def _merge(self) -> str:
        source = self._source_columns()
        rows = ", ".join(f"({', '.join(row)})" for row in self._source_rows(source))
        names = ", ".join(f"`{each.name}`" for each in source)
        empty = " WHERE false" if self._chance(0.05) else ""
        query = f"(SELECT * FROM VALUES {rows} AS r({names}){empty})"
        evolution = "WITH SCHEMA EVOLUTION " if self._chance(0.4) else ""
        clauses = " ".join(self._clauses(source))
        return f"MERGE {evolution}INTO {{t}} t USING {query} s ON {self._on(source)} {clauses}"

    def _source_rows(self, source: Sequence[Column]) -> list[list[str]]:
        rows = [
            [each.some(self._rng) for each in source] for _ in range(self._rng.choice((1, 2, 3, 4)))
        ]
        if self._chance(0.15):
            return rows
        # Mostly no key comes twice, for a MERGE that matches twice is soon over.
        key = next(i for i, each in enumerate(source) if each.name.lower() == "k")
        return list({row[key]: row for row in rows}.values())

    def _source_columns(self) -> list[Column]:
        rng = self._rng
        source = []
        for column in self.columns:
            if column.name != "k" and self._chance(0.12):
                continue
            kind = column.type
            if column.is_struct and self._chance(0.5):
                kind = rng.choice(_STRUCTS)
            elif kind in _ARRAYS and self._chance(0.4):
                kind = rng.choice(_ARRAYS)
            elif column.is_flat and self._chance(0.25):
                kind = self._related(kind)
            name = column.name.upper() if self._chance(0.1) else column.name
            source.append(Column(name, kind))
        if self._chance(0.3):
            source.append(Column(rng.choice(("n", "m")), rng.choice(list(VALUES))))
        if self._chance(0.2):
            rng.shuffle(source)
        return source

    def _on(self, source: Sequence[Column]) -> str:
        on = self._rng.choice(("t.k = s.k", "t.k = s.k", "t.k <=> s.k", "s.k = t.k"))
        roll = self._rng.random()
        if roll < 0.1:
            return f"{on} AND {self._boolean('t.', self.columns)}"
        if roll < 0.2:
            return f"{on} AND {self._boolean('s.', source)}"
        if roll < 0.3 and any(each.name == "p" for each in source):
            return f"{on} AND t.p = s.p"
        if roll < 0.35:
            return f"{on} OR t.k IS NULL"
        return "false" if roll > 0.97 else on

    def _clauses(self, source: Sequence[Column]) -> list[str]:
        rng = self._rng
        both = [("t.", each) for each in self.columns] + [("s.", each) for each in source]
        found = []
        for is_last in self._lasts((0, 1, 1, 1, 2)):
            side, column = rng.choice(both)
            has_condition = not is_last or self._chance(0.4)
            condition = f" AND {self._boolean(side, [column])}" if has_condition else ""
            action = "DELETE"
            if self._chance(0.75):
                star = self._chance(0.5)
                sets = "*" if star else self._assigned("t.", "s.", self.columns, source)
                action = f"UPDATE SET {sets}"
            found.append(f"WHEN MATCHED{condition} THEN {action}")
        for is_last in self._lasts((0, 1, 1, 1, 2)):
            has_condition = not is_last or self._chance(0.3)
            condition = f" AND {self._boolean('s.', source)}" if has_condition else ""
            found.append(f"WHEN NOT MATCHED{condition} THEN INSERT {self._inserted(source)}")
        for is_last in self._lasts((0, 0, 0, 1, 2)):
            has_condition = not is_last or self._chance(0.7)
            condition = f" AND {self._boolean('t.', self.columns)}" if has_condition else ""
            sets = self._assigned("t.", "t.", self.columns, self.columns)
            action = "DELETE" if self._chance(0.4) else f"UPDATE SET {sets}"
            found.append(f"WHEN NOT MATCHED BY SOURCE{condition} THEN {action}")
        return found or ["WHEN NOT MATCHED THEN INSERT *"]

    def _lasts(self, counts: Sequence[int]) -> list[bool]:
        """For each of some clauses whether it is the last: only that one needs no condition."""
        count = self._rng.choice(counts)
        return [i == count - 1 for i in range(count)]

    def _inserted(self, source: Sequence[Column]) -> str:
        if self._chance(0.6):
            return "*"
        chosen = [each for each in self.columns if each.name == "k" or self._chance(0.7)]
        values = [self._value(each, "s.", source) for each in chosen]
        return f"({', '.join(f'`{c.name}`' for c in chosen)}) VALUES ({', '.join(values)})"

    def _assigned(
        self, target: str, side: str, columns: Sequence[Column], given: Sequence[Column]
    ) -> str:
        # Tables are partitioned by `p`, and keys that change make the next MERGEs more telling.
        chosen = self._rng.sample(list(columns), self._rng.randint(1, min(3, len(columns))))
        texts = []
        for column in chosen:
            name = f"{target}`{column.name}`"
            if column.is_struct and self._chance(0.5):
                value = self._rng.choice(("1", "NULL", "'q'", "2L"))
                texts.append(f"{name}.{self._rng.choice(('a', 'b'))} = {value}")
            else:
                texts.append(f"{name} = {self._value(column, side, given)}")
        return ", ".join(texts)

    def _value(self, column: Column, side: str, given: Sequence[Column]) -> str:
        same = [each for each in given if each.name == column.name]
        roll = self._rng.random()
        if roll < 0.07:
            return _NULL
        if roll < 0.5 and same:
            return f"{side}`{column.name}`"
        if roll < 0.53:
            other = self._rng.choice(list(given))
            return f"{side}`{other.name}`"
        if roll < 0.7 and column.type in _NUMBERS and same:
            return f"{side}`{column.name}` + {self._rng.choice(('1', '1.5', '100L'))}"
        return self._rng.choice(VALUES[column.type])

    def _boolean(self, side: str, columns: Sequence[Column], depth: int = 1) -> str:
        rng = self._rng
        if depth and self._chance(0.35):
            left = self._boolean(side, columns, depth - 1)
            right = self._boolean(side, columns, depth - 1)
            return rng.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
        column = rng.choice(list(columns))
        name = f"{side}`{column.name}`"
        if column.is_struct:
            return rng.choice((f"{name} IS NULL", f"{name}.a = 1", f"{name}.b <> 'x'"))
        if not column.is_flat:
            return rng.choice((f"{name} IS NOT NULL", f"size({name}) > 0"))
        # Mostly a value of the column's own type, at times one that must be cast.
        values = VALUES[column.type if self._chance(0.9) else self._related(column.type)]
        value, other = rng.choice(values), rng.choice(values)
        return rng.choice(
            (
                f"{name} = {value}",
                f"{name} <=> {value}",
                f"{name} <> {value}",
                f"{name} < {value}",
                f"{name} >= {value}",
                f"{name} IN ({value}, {other})",
                f"{name} NOT IN ({value}, {other})",
                f"{name} BETWEEN {value} AND {other}",
                f"{name} IS NULL",
                f"{name} IS NOT NULL",
                f"coalesce({name}, {value}) = {value}",
                f"length(CAST({name} AS STRING)) > 1",
            )
        )
