"""How a statement begins: its verb, and the table it is about.

Found in the first words alone, so that a statement that is not ours is hardly looked at.

>>> head("INSERT INTO TABLE a.`b c` VALUES (1)")
Head(verb='INSERT INTO', target=('a', 'b c'))
>>> head("select 1") is None
True
>>> head("WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id")
Head(verb='MERGE', target=('t',))
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from pyspark_delta.spark.sql.words import Word, words


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a statement that may concern a Delta table.

    `target` is empty where the words do not tell it.
    """

    verb: str
    target: tuple[str, ...] = ()


# The words of a verb; those in brackets may be left out.  What follows them is the target's name.
_VERBS: dict[str, tuple[str, ...]] = {
    "CREATE TABLE": (
        "CREATE",
        "[OR]",
        "[REPLACE]",
        "[EXTERNAL]",
        "TABLE",
        "[IF]",
        "[NOT]",
        "[EXISTS]",
    ),
    "REPLACE TABLE": ("REPLACE", "TABLE"),
    "INSERT INTO": ("INSERT", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "INTO", "[TABLE]"),
    "INSERT OVERWRITE": ("INSERT", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "OVERWRITE", "[TABLE]"),
    "CONVERT TO DELTA": ("CONVERT", "TO", "DELTA"),
    "RESTORE": ("RESTORE", "[TABLE]"),
    "GENERATE": ("GENERATE",),
    "DROP TABLE": ("DROP", "TABLE", "[IF]", "[EXISTS]"),
    "OPTIMIZE": ("OPTIMIZE",),
    "VACUUM": ("VACUUM",),
    "REORG TABLE": ("REORG", "TABLE"),
    "UPDATE": ("UPDATE",),
    "DELETE": ("DELETE", "FROM"),
    "MERGE": ("MERGE", "[WITH]", "[SCHEMA]", "[EVOLUTION]", "INTO"),
    "TRUNCATE TABLE": ("TRUNCATE", "TABLE"),
    "ALTER TABLE": ("ALTER", "TABLE"),
    "COMMENT ON TABLE": ("COMMENT", "ON", "TABLE"),
    "COMMENT ON COLUMN": ("COMMENT", "ON", "COLUMN"),
    "LOAD DATA": ("LOAD", "DATA"),
    "MSCK REPAIR TABLE": ("MSCK", "REPAIR", "TABLE"),
    "ANALYZE TABLE": ("ANALYZE", "TABLE"),
    "DESCRIBE DETAIL": ("DESCRIBE", "DETAIL"),
    "DESC DETAIL": ("DESC", "DETAIL"),
    "DESCRIBE HISTORY": ("DESCRIBE", "HISTORY"),
    "DESC HISTORY": ("DESC", "HISTORY"),
    "DESCRIBE": ("DESCRIBE", "[TABLE]", "[EXTENDED]", "[FORMATTED]"),
    "DESC": ("DESC", "[TABLE]", "[EXTENDED]", "[FORMATTED]"),
    "SHOW COLUMNS": ("SHOW", "COLUMNS"),
    "SHOW PARTITIONS": ("SHOW", "PARTITIONS"),
    "SHOW TBLPROPERTIES": ("SHOW", "TBLPROPERTIES"),
    "SHOW CREATE TABLE": ("SHOW", "CREATE", "TABLE"),
    "EXPLAIN": ("EXPLAIN",),
}
# What a statement may begin with before it says what it changes.
_QUERIES = ("WITH", "FROM")
_CHANGES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.IGNORECASE)
_FIRST_WORDS = frozenset(pattern[0] for pattern in _VERBS.values())


def head(sql: str) -> Head | None:
    """How `sql` begins; None when nothing in it can be about changing or showing a table."""
    stream = words(sql)
    first = next(stream, None)
    if first is not None and first.text.upper() in _QUERIES:
        first = _verb_behind(sql, stream)
    if first is None or first.text.upper() not in _FIRST_WORDS:
        return None
    start = [first, *_some(stream, 24)]
    for verb, pattern in _VERBS.items():
        left = _after(start, pattern)
        if left is not None:
            return Head(verb, _name(left))
    return None


def _verb_behind(sql: str, stream: Iterator[Word]) -> Word | None:
    """The word that changes a table, behind queries that the statement begins with."""
    if _CHANGES.search(sql) is None:
        return None
    depth = 0
    for word in stream:
        depth += (word.text == "(") - (word.text == ")")
        if depth == 0 and _CHANGES.fullmatch(word.text):
            return word
    return None


def _some(stream: Iterator[Word], count: int) -> list[Word]:
    return [word for _, word in zip(range(count), stream, strict=False)]


def _after(start: list[Word], pattern: tuple[str, ...]) -> list[Word] | None:
    """The words behind a verb; None when `start` does not begin with it."""
    position = 0
    for wanted in pattern:
        is_here = position < len(start) and start[position].text.upper() == wanted.strip("[]")
        if is_here:
            position += 1
        elif not wanted.startswith("["):
            return None
    return start[position:]


def _name(left: list[Word]) -> tuple[str, ...]:
    """The dotted name that `left` begins with; empty for none, or for a call like IDENTIFIER()."""
    parts: list[str] = []
    for word, following in zip(left[::2], chain(left[1::2], [None]), strict=False):
        if not word.is_name:
            return ()
        parts.append(word.value)
        if following is None or following.text != ".":
            if (
                following is not None
                and following.text == "("
                and word.text.upper() == "IDENTIFIER"
            ):
                return ()
            return tuple(parts)
    return ()
