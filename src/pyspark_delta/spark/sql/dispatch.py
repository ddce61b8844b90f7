"""Finds the command of a statement about Delta tables; all others are Spark's, unchanged.

One row per verb; its function returns None when the statement is Spark's.

Before that `:name`, `?` and IDENTIFIER(...) become text.  Spark's parser does not know Delta's own
statements, so their arguments are bound here, in one way for all of them, before they are parsed.
Spark itself substitutes the arguments of statements that its parser knows; some readers pass the
arguments to that parser instead.  delta-spark 4.4 binds no arguments at all on Spark 4.1 and later.

`t CHANGES FROM ...` is written so that Spark's parser takes it, which fails for a time that is more
than a literal, and takes only quoted values of options.

>>> changes_clause("a.t CHANGES FROM VERSION 1 EXCLUSIVE WITH (computeUpdates = true)")
"CHANGES FROM VERSION 1 EXCLUSIVE WITH (computeUpdates = 'true')"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta.kernel.sql.lexer import Token, TokenKind, tokens
from pyspark_delta.kernel.sql.quoting import quoted_path, string_literal
from pyspark_delta.spark.jvm.catalog.entries import parse_name
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.changes import (
    are_arguments,
    constant_text,
    literal_text,
    substituted,
)
from pyspark_delta.spark.jvm.parser.plans import syntax_error
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.statement import Command, Head, Request, head
from pyspark_delta.spark.sql.statements.alter import alter_command, column_comment_command
from pyspark_delta.spark.sql.statements.change import change_command
from pyspark_delta.spark.sql.statements.clone import clone_command, convert_command
from pyspark_delta.spark.sql.statements.define import define_command
from pyspark_delta.spark.sql.statements.describe import (
    describe_command,
    detail_command,
    history_command,
)
from pyspark_delta.spark.sql.statements.drop import drop_command, refused_command
from pyspark_delta.spark.sql.statements.explain import explain_command
from pyspark_delta.spark.sql.statements.insert import insert_command
from pyspark_delta.spark.sql.statements.maintain import (
    analyze_command,
    generate_command,
    optimize_command,
    reorg_command,
    restore_command,
    vacuum_command,
)
from pyspark_delta.spark.sql.statements.show import show_command

_IDENTIFIER = re.compile(r"\bIDENTIFIER\b", re.IGNORECASE)
_OWN_VERBS = (
    *("OPTIMIZE", "VACUUM", "REORG TABLE", "CONVERT TO DELTA", "RESTORE", "GENERATE"),
    *("DESCRIBE DETAIL", "DESCRIBE HISTORY", "COMMENT ON COLUMN"),
)
# Verbs that Spark has too, and the words that make a statement Delta's.
_OWN_PHRASES = {
    "CREATE TABLE": (("SHALLOW", "CLONE"),),
    "REPLACE TABLE": (("SHALLOW", "CLONE"),),
    "ALTER TABLE": (("DROP", "FEATURE"), ("SYNC", "IDENTITY")),
    "ANALYZE TABLE": (("DELTA", "STATISTICS"),),
}
# Their readers pass the arguments to Spark's parser.
_BOUND_BY_PARSER = (
    *("INSERT INTO", "INSERT OVERWRITE", "UPDATE", "DELETE", "MERGE", "TRUNCATE TABLE"),
    *("ALTER TABLE", "COMMENT ON TABLE", "EXPLAIN"),
)
_LIKELY_CHANGES = re.compile(r"\bCHANGES\s+FROM\b", re.IGNORECASE)
_VERSIONS, _TIMES = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
_INCLUSION = ("INCLUSIVE", "EXCLUSIVE")
# Words that may follow a bound of CHANGES, and are not the table's alias.
_FOLLOWING = re.compile(
    "WHERE|JOIN|LEFT|RIGHT|INNER|FULL|CROSS|NATURAL|ON|USING|GROUP|ORDER|SORT|CLUSTER|DISTRIBUTE|"
    "HAVING|LIMIT|OFFSET|UNION|EXCEPT|MINUS|INTERSECT|LATERAL|TABLESAMPLE|PIVOT|UNPIVOT|WINDOW|"
    "WHEN|QUALIFY|SEMI|ANTI|TO|WITH"
)
# Words that may follow a number or a text inside a value.
_GOES_ON = re.compile("AND|OR|(?:YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND)S?")


def find_command(spark: SparkSession, sql: str, args: Any) -> Command | None:
    """The command of a statement about Delta tables; None for a statement of Spark's."""
    found = head(sql)
    if found is None or not are_arguments(args):
        return None
    jvm = JvmSession(spark)
    bound = bound_statement(jvm, sql, found, args)
    request = Request(spark=spark, sql=bound.sql, head=bound.head, args=bound.left)
    try:
        return _COMMANDS[bound.head.verb](request)
    except StatementSyntaxError as error:
        place = bound.written.place(error.start)
        raise syntax_error(jvm, sql, place, error.found) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A parameter `:name` or `?`; the name of the latter is None."""

    start: int
    end: int
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCall:
    """IDENTIFIER(...): its position, and the text in its parentheses."""

    start: int
    end: int
    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement of the text from `start` to before `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A statement after its edits."""

    text: str
    edits: tuple[Edit, ...] = ()

    def place(self, position: int) -> int:
        """The position in the original statement of a position in the text."""
        moved = 0
        for edit in self.edits:
            new_start = edit.start + moved
            if position < new_start:
                break
            if position < new_start + len(edit.text):
                return edit.start
            moved += len(edit.text) - (edit.end - edit.start)
        return position - moved


def markers(sql: str) -> list[Marker]:
    """The markers of a statement, in order.

    A colon directly after a value selects a field of it, and two colons are a cast.

    >>> sql = "RESTORE t TO VERSION AS OF :v -- not :this"
    >>> [(mark.name, sql[mark.start : mark.end]) for mark in markers(sql)]
    [('v', ':v')]
    """
    found = list(tokens(sql))
    marks = []
    for i, word in enumerate(found):
        if word.text == "?":
            marks.append(Marker(start=word.start, end=word.end, name=None))
        elif word.text == ":" and i + 1 < len(found) and found[i + 1].is_name:
            before = found[i - 1] if i else None
            if before is None or before.end < word.start or not _is_value(before):
                marks.append(
                    Marker(start=word.start, end=found[i + 1].end, name=found[i + 1].value)
                )
    return marks


def name_calls(sql: str) -> list[NameCall]:
    """The calls of IDENTIFIER(...) in the statement, in order."""
    if _IDENTIFIER.search(sql) is None:
        return []
    found = list(tokens(sql))
    calls = []
    for word, following in pairwise(found):
        if word.text.upper() == "IDENTIFIER" and following.text == "(":
            read = StatementReader(sql[following.start :])
            try:
                inside = read.bracketed()
            except StatementSyntaxError:
                break  # not closed: the parser of the statement raises the error
            end = following.start + inside.start + len(inside.text) + 1
            calls.append(NameCall(start=word.start, end=end, argument=inside.text))
    return calls


def rewritten(sql: str, edits: Iterable[Edit]) -> Rewritten:
    """Apply edits, which must not overlap, to a statement.

    >>> version = Edit(start=27, end=29, text="12")
    >>> bound = rewritten("RESTORE t TO VERSION AS OF :v -- not :this", [version])
    >>> bound.text, bound.place(30)
    ('RESTORE t TO VERSION AS OF 12 -- not :this', 30)
    """
    ordered = tuple(sorted(edits, key=lambda edit: edit.start))
    parts: list[str] = []
    done = 0
    for edit in ordered:
        parts += (sql[done : edit.start], edit.text)
        done = edit.end
    return Rewritten(text="".join((*parts, sql[done:])), edits=ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStatement:
    """A statement with all arguments bound except those in `left`."""

    written: Rewritten
    head: Head
    left: Any = None

    @property
    def sql(self) -> str:
        """The text to parse."""
        return self.written.text


def bound_statement(jvm: JvmSession, sql: str, found: Head, args: Any) -> BoundStatement:
    """Bind the arguments of a statement; it is unchanged if there are none."""
    if not args and found.target:
        return BoundStatement(written=Rewritten(text=sql), head=found)
    if _is_delta_statement(sql, found):
        written = _bound_here(jvm, sql, args)
    elif found.verb in _BOUND_BY_PARSER and (found.target or not name_calls(sql)):
        return BoundStatement(written=Rewritten(text=sql), head=found, left=args)
    else:
        written = _bound_by_spark(jvm, sql, found, args)
    if not written.edits:
        return BoundStatement(written=written, head=found, left=args)
    return BoundStatement(written=written, head=head(written.text) or found)


def with_plain_changes(sql: str, time_of: Callable[[str], str]) -> str:
    """`sql` with clauses that Spark parses; `sql` itself if it has none.

    `time_of` evaluates the text of an expression to the text of a time.
    """
    if _LIKELY_CHANGES.search(sql) is None:
        return sql
    found = list(tokens(sql))
    parts: list[str] = []
    done = 0
    for i in range(1, len(found) - 3):
        is_clause = _texts(found, i, 2) == ["CHANGES", "FROM"]
        if is_clause and found[i + 2].text.upper() in (*_VERSIONS, *_TIMES):
            reader = _ChangesReader(found, i, time_of)
            parts += (sql[done : found[i].start], reader.clause())
            done = reader.end
    return "".join((*parts, sql[done:]))


def changes_clause(sql: str) -> str:
    """The first clause of a statement as Spark parses it; its times are literals."""
    found = list(tokens(sql))
    start = next(i for i in range(len(found)) if _texts(found, i, 2) == ["CHANGES", "FROM"])
    return _ChangesReader(found, start, str).clause()


def _create(request: Request) -> Command | None:
    cloned = clone_command(request)
    return define_command(request) if cloned is None else cloned


def _analyze(request: Request) -> Command | None:
    """Collect the log's statistics; those in the catalog would bypass the log."""
    collected = analyze_command(request)
    if collected is None:
        refused_command(request)
    return collected


def _is_value(word: Token) -> bool:
    return (
        word.is_name
        or word.kind in (TokenKind.NUMBER, TokenKind.STRING)
        or word.text in (")", "]", ":")
    )


def _is_delta_statement(sql: str, found: Head) -> bool:
    if found.verb in _OWN_VERBS:
        return True
    phrases = _OWN_PHRASES.get(found.verb, ())
    if not phrases:
        return False
    texts = [word.text.upper() for word in tokens(sql)]
    return any(pair in phrases for pair in pairwise(texts))


def _bound_here(jvm: JvmSession, sql: str, args: Any) -> Rewritten:
    """Bind a statement of Delta's: both kinds of edits in one step, to keep positions."""
    values, calls = _value_edits(jvm, sql, args) if args else [], name_calls(sql)
    names = [_name_edit(jvm, call, values) for call in calls]
    free = [
        value for value in values if not any(name.start < value.start < name.end for name in names)
    ]
    return rewritten(sql, [*names, *free])


def _value_edits(jvm: JvmSession, sql: str, args: Any) -> list[Edit]:
    edits: list[Edit] = []
    for mark in markers(sql):
        if mark.name is not None and isinstance(args, dict) and mark.name in args:
            value = args[mark.name]
        elif mark.name is None and isinstance(args, list) and len(edits) < len(args):
            value = args[len(edits)]
        else:
            name = mark.name if mark.name is not None else f"_{mark.start}"
            raise analysis_error(jvm, "UNBOUND_SQL_PARAMETER", name=name)
        edits.append(Edit(start=mark.start, end=mark.end, text=literal_text(jvm, value)))
    return edits


def _name_edit(jvm: JvmSession, call: NameCall, values: list[Edit]) -> Edit:
    """Replace IDENTIFIER(...) by the name that it evaluates to, in backticks."""
    start = call.end - 1 - len(call.argument)
    own = [
        Edit(start=value.start - start, end=value.end - start, text=value.text)
        for value in values
        if start <= value.start < call.end
    ]
    expression = rewritten(call.argument, own).text
    inside = list(tokens(expression))
    if inside and all(token.is_string for token in inside):
        name = "".join(token.value for token in inside)
    else:
        name = constant_text(jvm, expression)
    return Edit(start=call.start, end=call.end, text=quoted_path(parse_name(jvm, name)))


def _bound_by_spark(jvm: JvmSession, sql: str, found: Head, args: Any) -> Rewritten:
    """Bind a statement of Spark's grammar; unchanged if invalid, so that Spark raises the error."""
    text = sql
    if args:
        try:
            text = substituted(jvm, sql, args)
        except ParseException:
            return Rewritten(text=sql)
    for call in name_calls(text) if not found.target else ():
        edit = _name_edit(jvm, call, [])
        named = text[: edit.start] + edit.text + text[edit.end :]
        begins = head(named)
        if begins is not None and begins.target:
            text = named  # this call names the table of the statement
            break
    return (
        Rewritten(text=sql)
        if text == sql
        else Rewritten(text=text, edits=(Edit(start=0, end=len(sql), text=text),))
    )


class _ChangesReader:
    """Reads the words of one clause, from the word CHANGES on."""

    def __init__(self, found: Sequence[Token], at: int, time_of: Callable[[str], str]) -> None:
        self._found = found
        self._at = at
        self._time_of = time_of

    @property
    def end(self) -> int:
        """The end in the statement of what is read."""
        return self._found[self._at - 1].end

    def clause(self) -> str:
        self._at += 2
        parts = ["CHANGES FROM", self._bound()]
        if self._next() == "TO":
            self._at += 1
            parts += ["TO", self._bound()]
        return " ".join((*parts, *self._options()))

    def _bound(self) -> str:
        """The kind and the value of a bound, and whether it is part of the range."""
        kind = self._next()
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
        is_literal = self._at == first + 1 and self._found[first].is_string
        if kind in _TIMES and value and not is_literal:
            value = string_literal(self._time_of(value))
        inclusion = self._next()
        if inclusion not in _INCLUSION:
            return f"{kind} {value}"
        self._at += 1
        return f"{kind} {value} {inclusion}"

    def _ends_value(self, text: str) -> bool:
        """Whether a word cannot be a part of the preceding value."""
        if text in (",", ";", "AS", *_INCLUSION) or _FOLLOWING.fullmatch(text):
            return True
        before, word = self._found[self._at - 1], self._found[self._at]
        is_whole = before.is_string or before.text == ")" or before.text.isdigit()
        return word.is_name and is_whole and not _GOES_ON.fullmatch(text)

    def _options(self) -> list[str]:
        """WITH (key = value, ...), with its values quoted."""
        if _texts(self._found, self._at, 2) != ["WITH", "("]:
            return []
        parts: list[str] = []
        while self._at < len(self._found):
            word, before = self._found[self._at], self._found[self._at - 1].text
            is_value = before == "=" and not word.is_string
            parts.append(string_literal(word.value) if is_value else word.text)
            self._at += 1
            if word.text == ")":
                break
        return [" ".join(parts).replace("( ", "(").replace(" )", ")")]

    def _next(self) -> str:
        return self._found[self._at].text.upper() if self._at < len(self._found) else ""


def _texts(found: Sequence[Token], at: int, count: int) -> list[str]:
    return [word.text.upper() for word in found[at : at + count]]


_COMMANDS: dict[str, Callable[[Request], Command | None]] = {
    "CREATE TABLE": _create,
    "REPLACE TABLE": _create,
    "INSERT INTO": insert_command,
    "INSERT OVERWRITE": insert_command,
    "DROP TABLE": drop_command,
    "OPTIMIZE": optimize_command,
    "VACUUM": vacuum_command,
    "REORG TABLE": reorg_command,
    "CONVERT TO DELTA": convert_command,
    "RESTORE": restore_command,
    "GENERATE": generate_command,
    "DESCRIBE DETAIL": detail_command,
    "DESCRIBE HISTORY": history_command,
    "DESCRIBE": describe_command,
    "SHOW COLUMNS": show_command,
    "SHOW PARTITIONS": show_command,
    "SHOW TBLPROPERTIES": show_command,
    "SHOW CREATE TABLE": show_command,
    "UPDATE": change_command,
    "DELETE": change_command,
    "MERGE": change_command,
    "TRUNCATE TABLE": change_command,
    "ALTER TABLE": alter_command,
    "COMMENT ON TABLE": alter_command,
    "COMMENT ON COLUMN": column_comment_command,
    "LOAD DATA": refused_command,
    "MSCK REPAIR TABLE": refused_command,
    "ANALYZE TABLE": _analyze,
    "EXPLAIN": explain_command,
}
