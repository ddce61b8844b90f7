"""A statement with its arguments in place: `:name`, `?` and IDENTIFIER(...) become text.

One way for all verbs of Delta's own, before anything of them is read.  Statements that Spark's
parser knows get the text that Spark itself makes of them, unless their reader asks that parser
with the arguments.  delta-spark 4.4 binds no arguments at all on Spark 4.1 and later.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.errors import ParseException

from pyspark_delta.kernel.scan.string_literals import string_value
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.catalog import parse_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parameters import constant_text, literal_text, substituted
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.sql.heads import Head, head
from pyspark_delta.spark.sql.markers import (
    Edit,
    NameCall,
    Rewritten,
    markers,
    name_calls,
    rewritten,
)
from pyspark_delta.spark.sql.words import words

_OWN_VERBS = frozenset(
    {
        "OPTIMIZE",
        "VACUUM",
        "REORG TABLE",
        "CONVERT TO DELTA",
        "RESTORE",
        "GENERATE",
        "DESCRIBE DETAIL",
        "DESC DETAIL",
        "DESCRIBE HISTORY",
        "DESC HISTORY",
        "COMMENT ON COLUMN",
    }
)
# Verbs that are Spark's too, and the words that make a statement Delta's own.
_OWN_PHRASES = {
    "CREATE TABLE": (("SHALLOW", "CLONE"),),
    "REPLACE TABLE": (("SHALLOW", "CLONE"),),
    "ALTER TABLE": (("DROP", "FEATURE"), ("SYNC", "IDENTITY")),
    "ANALYZE TABLE": (("DELTA", "STATISTICS"),),
}
# Their readers give the arguments to Spark's parser.
_BOUND_BY_PARSER = frozenset(
    {
        "INSERT INTO",
        "INSERT OVERWRITE",
        "UPDATE",
        "DELETE",
        "MERGE",
        "TRUNCATE TABLE",
        "ALTER TABLE",
        "COMMENT ON TABLE",
        "EXPLAIN",
    }
)


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement that needs no arguments any more, but for those that are `left`."""

    written: Rewritten
    head: Head
    left: Any = None

    @property
    def sql(self) -> str:
        """The text to read."""
        return self.written.text


def bound_statement(jvm: JvmSession, sql: str, found: Head, args: Any) -> BoundStatement:
    """The statement with its arguments in place; as it is where there is nothing to do."""
    if not args and found.target:
        return BoundStatement(Rewritten(sql), found)
    if _is_own(sql, found):
        written = _bound(jvm, sql, args)
    elif found.verb in _BOUND_BY_PARSER and (found.target or not name_calls(sql)):
        return BoundStatement(Rewritten(sql), found, args)
    else:
        written = _bound_by_spark(jvm, sql, found, args)
    if not written.edits:
        return BoundStatement(written, found, args)
    return BoundStatement(written, head(written.text) or found)


def _is_own(sql: str, found: Head) -> bool:
    if found.verb in _OWN_VERBS:
        return True
    phrases = _OWN_PHRASES.get(found.verb, ())
    if not phrases:
        return False
    texts = [word.text.upper() for word in words(sql)]
    return any(pair in phrases for pair in pairwise(texts))


def _bound(jvm: JvmSession, sql: str, args: Any) -> Rewritten:
    """A statement of Delta's own: both kinds of edits in one step, so that places stay known."""
    values, calls = _values(jvm, sql, args) if args else [], name_calls(sql)
    names = [_named(jvm, call, values) for call in calls]
    free = [
        value for value in values if not any(name.start < value.start < name.end for name in names)
    ]
    return rewritten(sql, [*names, *free])


def _values(jvm: JvmSession, sql: str, args: Any) -> list[Edit]:
    edits: list[Edit] = []
    for mark in markers(sql):
        if mark.name is not None and isinstance(args, dict) and mark.name in args:
            value = args[mark.name]
        elif mark.name is None and isinstance(args, list) and len(edits) < len(args):
            value = args[len(edits)]
        else:
            shown = mark.name if mark.name is not None else f"_{mark.start}"
            raise analysis_error(jvm, "UNBOUND_SQL_PARAMETER", name=shown)
        edits.append(Edit(mark.start, mark.end, literal_text(jvm, value)))
    return edits


def _named(jvm: JvmSession, call: NameCall, values: list[Edit]) -> Edit:
    """The name that IDENTIFIER(...) stands for, in backticks."""
    start = call.end - 1 - len(call.argument)
    own = [
        Edit(value.start - start, value.end - start, value.text)
        for value in values
        if start <= value.start < call.end
    ]
    expression = rewritten(call.argument, own).text
    texts = [word.text for word in words(expression) if word.is_text]
    if texts and len(texts) == len(list(words(expression))):
        name = "".join(map(string_value, texts))
    else:
        name = constant_text(jvm, expression)
    return Edit(call.start, call.end, ".".join(map(quoted_name, parse_name(jvm, name))))


def _bound_by_spark(jvm: JvmSession, sql: str, found: Head, args: Any) -> Rewritten:
    """A statement that Spark's grammar has; itself where Spark is to say what is wrong with it."""
    text = sql
    if args:
        try:
            text = substituted(jvm, sql, args)
        except ParseException:
            return Rewritten(sql)
    for call in name_calls(text) if not found.target else ():
        edit = _named(jvm, call, [])
        named = text[: edit.start] + edit.text + text[edit.end :]
        begins = head(named)
        if begins is not None and begins.target:
            text = named  # of all calls this one is what the statement is about
            break
    return Rewritten(sql) if text == sql else Rewritten(text, (Edit(0, len(sql), text),))
