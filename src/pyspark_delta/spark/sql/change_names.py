"""`t CHANGES FROM VERSION 1 TO VERSION 2` in a statement: a call of the function that gives them.

Spark knows the words, and asks the catalog for a connector of changes, which its own has not.

>>> call = change_calls("SELECT * FROM a.t CHANGES FROM VERSION 1 EXCLUSIVE TO VERSION '3' WHERE x")
>>> [(each.name, each.start, each.end) for each in call]
[(('a', 't'), '1', '3')]
>>> call[0].shown
"pyspark_delta_changes('`a`.`t`', 1, 3, false, true, false, 'dropCarryovers') AS `t`"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.kernel.scan.string_literals import string_literal, string_value
from pyspark_delta.spark.asked_changes import DROP_COPIES, deduplication
from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.sql.words import Word, words
from pyspark_delta.spark.table_functions import BETWEEN

_LIKELY = re.compile(r"\bCHANGES\s+FROM\b", re.IGNORECASE)
_KINDS = ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
_INCLUSION = ("INCLUSIVE", "EXCLUSIVE")
# What may follow a table, and is not its alias.
_FOLLOWING = re.compile(
    "WHERE|JOIN|LEFT|RIGHT|INNER|FULL|CROSS|NATURAL|ON|USING|GROUP|ORDER|SORT|CLUSTER|DISTRIBUTE|"
    "HAVING|LIMIT|OFFSET|UNION|EXCEPT|MINUS|INTERSECT|LATERAL|TABLESAMPLE|PIVOT|UNPIVOT|WINDOW|"
    "WHEN|QUALIFY|SEMI|ANTI|TO|WITH"
)
# What may follow a number or a text inside of a value.
_GOES_ON = re.compile("AND|OR|(?:YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND)S?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCall:
    """One such clause: the words from `first` up to `last` are it, the table's name included."""

    name: tuple[str, ...]
    start: str
    end: str | None
    start_inclusive: bool
    end_inclusive: bool
    computes_updates: bool
    leaves_out: str
    has_alias: bool
    begins: int
    ends: int

    @property
    def shown(self) -> str:
        """The call that stands for the clause."""
        name = ".".join(_quoted(part) for part in self.name)
        told = (self.start_inclusive, self.end_inclusive, self.computes_updates)
        flags = ", ".join(str(each).lower() for each in told)
        text, mode = string_literal(name), string_literal(self.leaves_out)
        call = f"{BETWEEN}({text}, {self.start}, {self.end or 'NULL'}, {flags}, {mode})"
        return call if self.has_alias else f"{call} AS {_quoted(self.name[-1])}"


def with_change_calls(spark: SparkSession, sql: str) -> str:
    """`sql` with calls in the places of clauses about Delta tables; itself when it has none."""
    if _LIKELY.search(sql) is None:
        return sql
    parts: list[str] = []
    done = 0
    for call in change_calls(sql):
        table = look_up_relation(spark, call.name)
        if table is not None and table.is_delta:
            # Said here, because the function is called by Java, which tells only of our errors.
            shown = ".".join(call.name)
            deduplication(JvmSession(spark), shown, call.leaves_out, call.computes_updates)
            parts += (sql[done : call.begins], call.shown)
            done = call.ends
    return "".join((*parts, sql[done:])) if parts else sql


def change_calls(sql: str) -> list[ChangeCall]:
    """The clauses of a statement, in order."""
    found = list(words(sql))
    calls = []
    for i in range(1, len(found) - 3):
        if _texts(found, i, 2) == ["CHANGES", "FROM"] and found[i + 2].text.upper() in _KINDS:
            call = _Reader(found, i).call()
            if call is not None:
                calls.append(call)
    return calls


class _Reader:
    """The words of one clause, from the word CHANGES on."""

    def __init__(self, found: Sequence[Word], at: int) -> None:
        self._found = found
        self._at = at
        self._first = at
        while self._first > 0 and found[self._first - 1].is_name:
            self._first -= 1
            if self._first == 0 or found[self._first - 1].text != ".":
                break
            self._first -= 1

    def call(self) -> ChangeCall | None:
        name = tuple(word.value for word in self._found[self._first : self._at : 2])
        if not name:
            return None
        begins = self._found[self._first].start
        self._at += 2
        start, start_inclusive = self._bound()
        end, end_inclusive = None, True
        if self._next() == "TO":
            self._at += 1
            end, end_inclusive = self._bound()
        options = self._options()
        updates = options.get("computeupdates", "false").lower()
        if updates not in ("true", "false"):
            return None  # Spark says what is wrong with it
        ends = self._found[self._at - 1].end
        following = self._next()
        has_alias = following == "AS" or (
            self._at < len(self._found)
            and self._found[self._at].is_name
            and not _FOLLOWING.fullmatch(following)
        )
        return ChangeCall(
            name=name,
            start=start,
            end=end,
            start_inclusive=start_inclusive,
            end_inclusive=end_inclusive,
            computes_updates=updates == "true",
            leaves_out=options.get("deduplicationmode", DROP_COPIES),
            has_alias=has_alias,
            begins=begins,
            ends=ends,
        )

    def _bound(self) -> tuple[str, bool]:
        """The value of a bound as SQL, and whether it is part of the range."""
        is_version = self._next() in ("VERSION", "SYSTEM_VERSION")
        self._at += 1
        first = self._at
        depth = 0
        while self._at < len(self._found):
            text = self._next()
            depth += text == "("
            if depth == 0 and self._at > first and self._ends_value(text):
                break
            if text == ")":
                if depth == 0:
                    break
                depth -= 1
            self._at += 1
        value = " ".join(word.text for word in self._found[first : self._at])
        if is_version:
            value = value.strip("'\"")
        elif self._at == first + 1 and self._found[first].is_text:
            value = f"TIMESTAMP {value}"
        inclusion = self._next()
        if inclusion in _INCLUSION:
            self._at += 1
        return value, inclusion != "EXCLUSIVE"

    def _ends_value(self, text: str) -> bool:
        """Whether a word cannot be part of the value before it."""
        if text in (",", ";", "AS", *_INCLUSION) or _FOLLOWING.fullmatch(text):
            return True
        before, word = self._found[self._at - 1], self._found[self._at]
        is_whole = before.is_text or before.text == ")" or before.text.isdigit()
        return word.is_name and is_whole and not _GOES_ON.fullmatch(text)

    def _options(self) -> dict[str, str]:
        """Pass WITH (key = value, ...), and give the values by their keys in small letters."""
        if _texts(self._found, self._at, 2) != ["WITH", "("]:
            return {}
        self._at += 2
        pairs: list[list[str]] = [[]]
        while self._at < len(self._found) and self._next() != ")":
            word = self._found[self._at]
            self._at += 1
            if word.text == ",":
                pairs.append([])
            elif word.text != "=":
                pairs[-1].append(string_value(word.text) if word.is_text else word.value)
        self._at += 1
        return {pair[0].lower(): pair[1] for pair in pairs if len(pair) == 2}

    def _next(self) -> str:
        return self._found[self._at].text.upper() if self._at < len(self._found) else ""


def _texts(found: Sequence[Word], at: int, count: int) -> list[str]:
    return [word.text.upper() for word in found[at : at + count]]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
