"""What DELETE, UPDATE, MERGE and `replaceWhere` mean, said row by row in plain Python.

Rows are dictionaries.  A table holds many small worlds, told apart by the column `w`: one command
of Spark runs in all of them, and in each it is another case.  Conditions and values are written
once, as a text for Spark and a function for the model; null is `None` in both.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pyspark.sql.types import VariantVal

Row = dict[str, Any]
Joined = tuple[Row | None, Row | None]
"""A row of the target and one of the source; None where there is none."""


@dataclass(frozen=True)
class Formula:
    """SQL, and what it gives for a row of the target and one of the source."""

    sql: str
    value: Callable[[Joined], Any]


def column(side: Literal["t", "s"], name: str) -> Formula:
    """A column, or a field of a struct as `st.a`."""
    at = 0 if side == "t" else 1

    def value(joined: Joined) -> Any:
        found: Any = joined[at]
        for part in name.split("."):
            found = None if found is None else found[part]
        return found

    return Formula(f"{side}.{name}", value)


def literal(value: Any, sql: str | None = None) -> Formula:
    """A constant."""
    if sql is None:
        sql = "NULL" if value is None else repr(value)
    return Formula(sql, lambda _: value)


def _strict(sql: str, function: Callable[..., Any], *parts: Formula) -> Formula:
    """A function that is null as soon as one of its arguments is."""

    def value(joined: Joined) -> Any:
        values = [part.value(joined) for part in parts]
        return None if None in values else function(*values)

    return Formula(sql, value)


def compared(left: Formula, sign: str, right: Formula) -> Formula:
    """A comparison; `<=>` takes null for a value."""
    sql = f"({left.sql} {sign} {right.sql})"
    if sign == "<=>":
        return Formula(sql, lambda joined: left.value(joined) == right.value(joined))
    functions: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        ">=": lambda a, b: a >= b,
    }
    return _strict(sql, functions[sign], left, right)


def plus(left: Formula, right: Formula) -> Formula:
    """A sum."""
    return _strict(f"({left.sql} + {right.sql})", lambda a, b: a + b, left, right)


def is_null(part: Formula) -> Formula:
    """IS NULL."""
    return Formula(f"({part.sql} IS NULL)", lambda joined: part.value(joined) is None)


def both(left: Formula, right: Formula) -> Formula:
    """AND of three values."""

    def value(joined: Joined) -> bool | None:
        found = (left.value(joined), right.value(joined))
        return False if False in found else None if None in found else True

    return Formula(f"({left.sql} AND {right.sql})", value)


def either(left: Formula, right: Formula) -> Formula:
    """OR of three values."""

    def value(joined: Joined) -> bool | None:
        found = (left.value(joined), right.value(joined))
        return True if True in found else None if None in found else False

    return Formula(f"({left.sql} OR {right.sql})", value)


def negated(part: Formula) -> Formula:
    """NOT of three values."""
    return _strict(f"(NOT {part.sql})", lambda a: not a, part)


def by_world(side: str, formulas: Sequence[Formula]) -> Formula:
    """Another formula in each world, told by the world of a side's row; one alone is for all."""
    if len(formulas) == 1:
        return formulas[0]
    at = 0 if side == "t" else 1

    def value(joined: Joined) -> Any:
        row = joined[at]
        assert row is not None
        return formulas[row["w"]].value(joined)

    cases = " ".join(f"WHEN {world} THEN {each.sql}" for world, each in enumerate(formulas))
    return Formula(f"(CASE {side}.w {cases} END)", value)


@dataclass(frozen=True)
class Clause:
    """A WHEN of a MERGE; `sets` are values by column, None for all of the source's."""

    when: Literal["matched", "not matched", "not matched by source"]
    action: Literal["update", "delete", "insert"]
    condition: Formula | None = None
    sets: Mapping[str, Formula] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A change of the table; `rows` are new ones, or the source of a MERGE."""

    kind: Literal["append", "delete", "update", "replace", "merge"]
    condition: Formula | None = None
    sets: Mapping[str, Formula] = field(default_factory=dict)
    on: Formula | None = None
    clauses: Sequence[Clause] = ()
    rows: Sequence[Row] = ()


@dataclass
class Outcome:
    """The table after a command, its changes, and how many rows were of which kind."""

    rows: list[Row]
    changes: list[tuple[str, Row]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def run(command: Command, rows: Sequence[Row], columns: Sequence[str]) -> Outcome:
    """What the command makes of `rows`; every world by itself comes to the same."""
    if command.kind == "merge":
        return _merged(command, rows, columns)
    done = Outcome([])
    for row in rows:
        if command.kind == "append" or not is_hit(command, row):
            done.rows.append(row)
        elif command.kind == "update":
            _update(done, row, (row, None), command.sets)
        else:
            _delete(done, row)
    for row in command.rows:
        _insert(done, row)
    return done


def is_hit(command: Command, row: Row) -> bool:
    """Whether the condition of a DELETE, an UPDATE or a `replaceWhere` holds for a row."""
    return command.condition is None or command.condition.value((row, None)) is True


def _insert(done: Outcome, row: Row) -> None:
    done.rows.append(row)
    done.changes.append(("insert", row))
    done.counts["inserted"] += 1


def _delete(done: Outcome, row: Row) -> None:
    done.changes.append(("delete", row))
    done.counts["deleted"] += 1


def _update(done: Outcome, row: Row, joined: Joined, sets: Mapping[str, Formula]) -> None:
    new = assigned(row, {name: formula.value(joined) for name, formula in sets.items()})
    done.rows.append(new)
    done.changes += [("update_preimage", row), ("update_postimage", new)]
    done.counts["updated"] += 1


def assigned(row: Row, values: Mapping[str, Any]) -> Row:
    """A row with other values, `st.a` meaning a field of a struct."""
    made = dict(row)
    for name, value in values.items():
        outer, _, inner = name.partition(".")
        if inner:
            made[outer] = {**(made[outer] or {"a": None, "b": None}), inner: value}
        else:
            made[outer] = value
    return made


def _merged(command: Command, rows: Sequence[Row], columns: Sequence[str]) -> Outcome:
    assert command.on is not None
    done = Outcome([])
    met: set[int] = set()
    by_world: dict[Any, list[tuple[int, Row]]] = {}
    for number, source in enumerate(command.rows):
        by_world.setdefault(source["w"], []).append((number, source))
    for row in rows:
        found = [
            (number, source)
            for number, source in by_world.get(row["w"], [])
            if command.on.value((row, source)) is True
        ]
        met.update(number for number, _ in found)
        assert len(found) <= 1, "the cases are made so that a row is matched once"
        if found:
            joined: Joined = (row, found[0][1])
            clause = _fired(command.clauses, "matched", joined)
        else:
            joined = (row, None)
            clause = _fired(command.clauses, "not matched by source", joined)
        if clause is None:
            done.rows.append(row)
        elif clause.action == "delete":
            _delete(done, row)
        else:
            _update(done, row, joined, _sets(clause, columns))
    for number, source in enumerate(command.rows):
        if number in met:
            continue
        clause = _fired(command.clauses, "not matched", (None, source))
        if clause is not None:
            values = {n: f.value((None, source)) for n, f in _sets(clause, columns).items()}
            _insert(done, {**dict.fromkeys(columns), **values})
    return done


def _fired(clauses: Iterable[Clause], when: str, joined: Joined) -> Clause | None:
    return next(
        (
            clause
            for clause in clauses
            if clause.when == when
            and (clause.condition is None or clause.condition.value(joined) is True)
        ),
        None,
    )


def _sets(clause: Clause, columns: Sequence[str]) -> Mapping[str, Formula]:
    if clause.sets is not None:
        return clause.sets
    return {name: column("s", name) for name in columns}


def frozen(row: Mapping[str, Any]) -> str:
    """A row as a text that is the same for equal rows."""
    return repr(plain_row(row))


def plain_row(row: Mapping[str, Any]) -> Row:
    """A row of values in the one form that all sides have, its columns by name."""
    return {key: _plain(row[key]) for key in sorted(row)}


def _plain(value: Any) -> Any:
    """A value in that form; Spark gives times without their zone."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, VariantVal):
        return {"metadata": bytes(value.metadata), "value": bytes(value.value)}
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def as_bag(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Rows, and how often there is each."""
    return Counter(frozen(row) for row in rows)


def without_side(formula: Formula) -> Formula:
    """For DELETE and UPDATE: the same without the table's name before columns."""
    return replace(formula, sql=re.sub(r"\bt\.", "", formula.sql))


def some_rows(rng: random.Random, worlds: int, most: int, payload: Callable[[], Any]) -> list[Row]:
    """Up to `most` rows for each world, with nulls, and with keys that come twice."""
    made = []
    for world in range(worlds):
        for _ in range(rng.randint(0, most)):
            made.append(
                {
                    "w": world,
                    "k": rng.choice([None, *range(6)]),
                    "x": rng.choice([None, *range(-3, 4)]),
                    "p": rng.choice([None, "a", "b", "c d%"]),
                    "st": rng.choice(
                        [None, {"a": rng.randint(0, 3), "b": rng.choice([None, "u", "v"])}]
                    ),
                    "v": rng.choice([None, payload()]),
                }
            )
    return made


def source_rows(
    rng: random.Random, worlds: int, most: int, payload: Callable[[], Any]
) -> list[Row]:
    """Rows of a source: in each world no key but null comes twice."""
    kept, seen = [], set()
    for row in some_rows(rng, worlds, most, payload):
        key = (row["w"], row["k"])
        if row["k"] is None or key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


def random_condition(rng: random.Random, sides: str, depth: int = 2) -> Formula:
    """A condition over the columns of some sides, `"t"`, `"s"` or `"ts"`."""
    if depth and rng.random() < 0.5:
        left = random_condition(rng, sides, depth - 1)
        right = random_condition(rng, sides, depth - 1)
        return rng.choice([both(left, right), either(left, right), negated(left)])
    side: Any = rng.choice(sides)
    kind = rng.randint(0, 5)
    if kind == 0:
        return is_null(column(side, rng.choice(["x", "p", "k", "st", "v"])))
    if kind == 1:
        text = rng.choice(["a", "b", "c d%"])
        return compared(column(side, "p"), rng.choice(["=", "<>", "<=>"]), literal(text))
    if kind == 2:
        number = literal(rng.randint(0, 3))
        return compared(column(side, "st.a"), rng.choice(["=", "<", ">="]), number)
    name = rng.choice(["x", "k", "w"])
    sign = rng.choice(["=", "<>", "<", ">=", "<=>"])
    if len(sides) > 1 and rng.random() < 0.4:
        return compared(column("t", name), sign, column("s", name))
    return compared(column(side, name), sign, literal(rng.randint(-2, 4)))


def random_conditions(rng: random.Random, sides: str, depth: int, worlds: int) -> Formula:
    """As `random_condition`, one for each of so many worlds."""
    found = [random_condition(rng, sides, depth) for _ in range(worlds)]
    return by_world("s" if sides == "s" else "t", found)


def random_sets(rng: random.Random, sides: str, worlds: int = 1) -> dict[str, Formula]:
    """Assignments for an update: the same columns in every world, with values of its own."""
    names = rng.sample(["p", "st.a", "v", "x"], rng.randint(1, 3))
    values = [_random_values(rng, rng.choice(sides)) for _ in range(worlds)]
    return {name: by_world("t", [each[name] for each in values]) for name in names}


def _random_values(rng: random.Random, side: Any) -> dict[str, Formula]:
    return {
        "x": rng.choice([plus(column(side, "x"), literal(1)), literal(7), column(side, "k")]),
        "p": rng.choice([literal("b"), literal(None), column(side, "p")]),
        "st.a": rng.choice([literal(9), column(side, "x"), column(side, "st.a")]),
        "v": column(side, "v"),
    }


def random_command(
    rng: random.Random, worlds: int, payload: Callable[[], Any], *, is_apart: bool = False
) -> Command:
    """A DELETE, an UPDATE, a MERGE, new rows for others or beside them.

    When `is_apart`, another in each world: these share only how many clauses of which kind there
    are, and the columns they set.
    """
    apart = worlds if is_apart else 1
    kind = rng.choice(["append", "replace", "delete", "update", "merge", "merge", "merge"])
    if kind == "append":
        return Command("append", rows=some_rows(rng, worlds, 3, payload))
    if kind == "delete":
        return Command("delete", condition=random_conditions(rng, "t", 2, apart))
    if kind == "replace":
        made = Command("replace", condition=random_conditions(rng, "t", 2, apart))
        # Only rows that the condition holds for may take the place of others.
        rows = [row for row in some_rows(rng, worlds, 3, payload) if is_hit(made, row)]
        return replace(made, rows=rows)
    if kind == "update":
        condition = random_conditions(rng, "t", 2, apart)
        return Command("update", condition=condition, sets=random_sets(rng, "t", apart))
    on = both(
        compared(column("t", "w"), "=", column("s", "w")),
        compared(column("t", "k"), "=", column("s", "k")),
    )
    if rng.random() < 0.3:
        on = both(on, random_conditions(rng, "ts", 1, apart))
    return Command(
        "merge",
        on=on,
        clauses=tuple(_random_clauses(rng, apart)),
        rows=source_rows(rng, worlds, 5, payload),
    )


def _random_clauses(rng: random.Random, apart: int) -> Iterable[Clause]:
    """At least one clause; of each kind only the last may be without a condition."""
    wanted = rng.sample(
        ["matched", "not matched", "not matched by source"], rng.choice([1, 2, 2, 3])
    )
    for when in ("matched", "not matched", "not matched by source"):
        if when not in wanted:
            continue
        sides = {"matched": "ts", "not matched": "s", "not matched by source": "t"}[when]
        count = rng.randint(1, 2)
        for i in range(count):
            has_condition = i < count - 1 or rng.random() < 0.5
            condition = random_conditions(rng, sides, 1, apart) if has_condition else None
            yield _random_clause(rng, when, sides, condition, apart)


def _random_clause(
    rng: random.Random, when: Any, sides: str, condition: Formula | None, apart: int
) -> Clause:
    if when == "not matched":
        sets: dict[str, Formula] | None = None
        if rng.random() < 0.5:
            sets = {name: column("s", name) for name in ("w", "k", "x", "p")}
            added = [plus(column("s", "x"), literal(100 + world)) for world in range(apart)]
            sets["x"] = by_world("s", added)
        return Clause(when, "insert", condition, sets)
    if rng.random() < 0.35:
        return Clause(when, "delete", condition)
    if when == "matched" and rng.random() < 0.4:
        return Clause(when, "update", condition, None)
    return Clause(when, "update", condition, random_sets(rng, sides, apart))
