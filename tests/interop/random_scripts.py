"""Random scripts of statements that change rows: a seed gives the same one anywhere.

Nothing here knows what a statement should do: only that two engines must do the same.  So anything
may be in it: keys of other types, casts that overflow, sources that match twice, columns that
evolve, rules that rows break.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.interop.random_values import (
    ARRAYS,
    FLAT,
    KEYS,
    NULL,
    NUMBERS,
    STRUCTS,
    TIMES,
    VALUES,
    Column,
)

# The kinds of statements, and how often each is taken.
_STEPS = {
    "delete": 5,
    "update": 5,
    "merge": 22,
    "append": 4,
    "replace": 3,
    "overwrite": 1,
    "alter": 3,
}


@dataclass(frozen=True)
class Script:
    """Statements with `{t}` where the table is named; the settings they run under.

    :param seek: what is looked for in the table after each of them.
    """

    create: str
    fill: Sequence[str]
    steps: Sequence[str]
    seek: Sequence[str]
    conf: dict[str, str]


def script(seed: int, steps: int) -> Script:
    """The script of a seed."""
    return _Writer(random.Random(seed)).script(steps)


class _Writer:
    """Writes a script as its random numbers say."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        names = ["k", "v", "p", *rng.sample(["st", "ls", "x", "y", "zZ"], rng.randint(1, 3))]
        kinds = {
            "k": lambda: rng.choice(KEYS),
            "p": lambda: rng.choice(("STRING", "INT", "DATE", "BOOLEAN")),
            "st": lambda: STRUCTS[0],
            "ls": lambda: rng.choice((ARRAYS[0], "ARRAY<INT>", "MAP<STRING, INT>")),
        }
        self.columns = [Column(name, kinds.get(name, lambda: rng.choice(FLAT))()) for name in names]

    def script(self, steps: int) -> Script:
        create = self._create()
        fill = [self._insert(self._rng.randint(1, 5)) for _ in range(self._rng.randint(1, 3))]
        if self._chance(0.2):
            check = f"ALTER TABLE {{t}} ADD CONSTRAINT c CHECK ({self._boolean('', self.columns)})"
            fill.insert(self._rng.randint(0, 1), check)
        seek = [self._boolean("", self.columns) for _ in range(2)]
        return Script(create, fill, [self._step() for _ in range(steps)], seek, self._conf())

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _related(self, kind: str) -> str:
        """Mostly a type whose values can be compared with those of `kind`."""
        rng = self._rng
        if self._chance(0.1):
            return rng.choice(FLAT)
        if kind in NUMBERS:
            return rng.choice((*NUMBERS, "DECIMAL(4,1)", "STRING"))
        if kind in TIMES:
            return rng.choice((*TIMES, "STRING"))
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
        if self._chance(0.15):
            conf["spark.sql.session.timeZone"] = self._rng.choice(("UTC", "Asia/Kolkata"))
        if self._chance(0.05):
            conf["spark.sql.caseSensitive"] = "true"
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
                value = next(each for each in VALUES[column.type] if each != NULL)
                text += f" DEFAULT {value}"
                properties["delta.feature.allowColumnDefaults"] = "supported"
            defined.append(text)
        if self._chance(0.15):
            expression = rng.choice(("k", "p"))
            kind = next(each.type for each in self.columns if each.name == expression)
            defined.append(f"g {kind} GENERATED ALWAYS AS ({expression})")
        parts = "PARTITIONED BY (p)" if self._chance(0.35) else ""
        if not parts and self._chance(0.1):
            parts = "CLUSTER BY (k)"
        texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return (
            f"CREATE TABLE {{t}} ({', '.join(defined)}) USING delta {parts} TBLPROPERTIES ({texts})"
        )

    def _insert(self, count: int) -> str:
        names = ", ".join(f"`{each.name}`" for each in self.columns)
        return f"INSERT INTO {{t}} ({names}) {self._rows(count)}"

    def _rows(self, count: int, columns: Sequence[Column] | None = None, **given: str) -> str:
        """A query of so many rows, with these values in columns so named."""
        of = self.columns if columns is None else columns
        rows = ", ".join(
            f"({', '.join(given.get(each.name) or each.some(self._rng) for each in of)})"
            for _ in range(count)
        )
        # One task and so one file for each partition, whatever the engine's plans are.
        return f"SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}"

    def _step(self) -> str:
        (kind,) = self._rng.choices(list(_STEPS), _STEPS.values())
        step: str = getattr(self, f"_{kind}")()
        return step

    def _append(self) -> str:
        """Rows with all columns, or without some, be it the one of its partitions."""
        count = self._rng.randint(1, 2)
        if self._chance(0.6):
            return self._insert(count)
        kept = [each for each in self.columns if each.name == "k" or self._chance(0.5)]
        names = ", ".join(f"`{each.name}`" for each in kept)
        return f"INSERT INTO {{t}} ({names}) {self._rows(count, kept)}"

    def _delete(self) -> str:
        where = f" WHERE {self._boolean('', self.columns)}" if self._chance(0.95) else ""
        return f"DELETE FROM {{t}}{where}"

    def _update(self) -> str:
        sets = self._assigned("", "", self.columns, self.columns)
        where = f" WHERE {self._boolean('', self.columns)}" if self._chance(0.9) else ""
        return f"UPDATE {{t}} SET {sets}{where}"

    def _replace(self) -> str:
        """Rows for others that a condition tells; mostly such as it holds for."""
        column = self._rng.choice([each for each in self.columns if each.name in ("k", "p")])
        # Spark makes of a condition on a boolean one that delta-spark does not take.
        if column.type == "BOOLEAN":
            return self._append()
        value = self._rng.choice(VALUES[column.type])
        test = "IS NULL" if value == NULL else f"= {value}"
        given = {column.name: f"CAST({value} AS {column.type})"} if self._chance(0.8) else {}
        rows = self._rows(self._rng.randint(1, 2), **given)
        return f"INSERT INTO {{t}} REPLACE WHERE {column.name} {test} {rows}"

    def _overwrite(self) -> str:
        return f"INSERT OVERWRITE {{t}} {self._rows(self._rng.randint(1, 3))}"

    def _alter(self) -> str:
        roll = self._rng.random()
        if roll < 0.4:
            added = Column(f"a{self._rng.randint(0, 9)}", self._rng.choice(list(VALUES)))
            if all(each.name != added.name for each in self.columns):
                self.columns.append(added)
            return f"ALTER TABLE {{t}} ADD COLUMNS ({added.name} {added.type})"
        if roll < 0.6:
            return "OPTIMIZE {t}"
        if roll < 0.7:
            return "RESTORE TABLE {t} TO VERSION AS OF 1"
        name = self._rng.choice(("enableDeletionVectors", "enableChangeDataFeed"))
        value = self._rng.choice(("true", "true", "false"))
        return f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.{name}' = '{value}')"

    def _merge(self) -> str:
        source, query = self._source()
        evolution = "WITH SCHEMA EVOLUTION " if self._chance(0.4) else ""
        clauses = " ".join(self._clauses(source))
        return f"MERGE {evolution}INTO {{t}} t USING {query} s ON {self._on(source)} {clauses}"

    def _source(self) -> tuple[list[Column], str]:
        if self._chance(0.07):
            # The table itself, of each key one row, and with a column of its own.
            order = ", ".join(f"CAST({each.name} AS STRING)" for each in self.columns)
            rank = f"row_number() OVER (PARTITION BY k ORDER BY {order}) AS rn"
            query = f"(SELECT * FROM (SELECT *, {rank} FROM {{t}}) WHERE rn = 1)"
            return [*self.columns, Column("rn", "INT")], query
        source = self._source_columns()
        rows = ", ".join(f"({', '.join(row)})" for row in self._source_rows(source))
        names = ", ".join(f"`{each.name}`" for each in source)
        empty = " WHERE false" if self._chance(0.05) else ""
        return source, f"(SELECT * FROM VALUES {rows} AS r({names}){empty})"

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
                kind = rng.choice(STRUCTS)
            elif kind in ARRAYS and self._chance(0.4):
                kind = rng.choice(ARRAYS)
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
            name = f"{target if self._chance(0.9) else ''}`{column.name}`"
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
            return NULL
        if roll < 0.5 and same:
            return f"{side}`{column.name}`"
        if roll < 0.53:
            other = self._rng.choice(list(given))
            return f"{side}`{other.name}`"
        if roll < 0.7 and column.type in NUMBERS and same:
            return f"{side}`{column.name}` + {self._rng.choice(('1', '1.5', '100L'))}"
        if roll < 0.78:
            return self._computed(column, side, given)
        return self._rng.choice(VALUES[column.type])

    def _computed(self, column: Column, side: str, given: Sequence[Column]) -> str:
        """A value that rows decide on: by a condition, by what the target has, by the table."""
        value, other = (self._rng.choice(VALUES[column.type]) for _ in range(2))
        condition = self._boolean(side, given)
        return self._rng.choice(
            (
                f"CASE WHEN {condition} THEN {value} ELSE {other} END",
                f"if({condition}, {value}, NULL)",
                f"coalesce({side}`{column.name}`, {value})",
                f"coalesce(t.`{column.name}`, {value})",
                "(SELECT max(k) FROM {t})",
            )
        )

    def _boolean(self, side: str, columns: Sequence[Column], depth: int = 1) -> str:
        rng = self._rng
        if depth and self._chance(0.35):
            left = self._boolean(side, columns, depth - 1)
            right = self._boolean(side, columns, depth - 1)
            return rng.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))
        column = rng.choice(list(columns))
        name = f"{side}`{column.name}`"
        if self._chance(0.01):
            return rng.choice((f"{name} IN (SELECT k FROM {{t}})", "EXISTS (SELECT 1 FROM {t})"))
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
