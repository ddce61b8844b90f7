"""SQL that a table keeps: CHECK constraints, generation expressions, default values.

Whoever can write a table's log chooses this text, and every later writer evaluates it.  So it is
read by Spark's parser as one expression, and held to allow lists before anything is looked up: of
functions (`allowed_functions`) and of Catalyst's classes.  Columns of the table and Spark's own
functions of one row are on them; functions of the session, queries, variables are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from pyspark.errors import PySparkException

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import ConstraintError, SchemaError
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.generated_columns import (
    generated_columns,
    generation_expression,
)
from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType, StructType, type_name
from pyspark_delta.spark.allowed_functions import is_of_many_rows, refusal
from pyspark_delta.spark.column_alignment import bare_type
from pyspark_delta.spark.jvm.catalyst import can_default, can_up_cast
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.sql_text import (
    Expression,
    Resolved,
    is_builtin,
    parse_expression,
    resolve,
)

# Beyond this nobody wrote it by hand, and a parser must not be kept busy.
_LONGEST = 100_000
_DEEPEST = 200
_LONGEST_SHOWN = 500
# What Spark's parser may make of the text.  Not here, so refused: queries, windows, parameters,
# IDENTIFIER(), stars, and whatever a later grammar brings.
_PARSED_NODES = """
    Alias CaseWhen Cast Coalesce Collate Concat CreateNamedStruct CurrentDate CurrentPath
    CurrentTime CurrentTimestamp CurrentUser LambdaFunction Literal Lower NamePlaceholder
    NamedArgumentExpression Overlay SemiStructuredExtract StringLocate StringTrim StringTrimLeft
    StringTrimRight Substring TimestampAdd TimestampDiff UnresolvedAttribute UnresolvedCollation
    UnresolvedExtractValue UnresolvedFunction UnresolvedNamedLambdaVariable

    And EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In IsNotNull IsNotUnknown$$anon$2
    IsNull IsUnknown$$anon$1 LessThan LessThanOrEqual Like LikeAll LikeAny Not NotLikeAll NotLikeAny
    Or RLike

    Add BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Divide IntegralDivide Multiply Remainder
    ShiftLeft ShiftRight ShiftRightUnsigned Subtract UnaryMinus UnaryPositive
"""
# What a name, or a function without arguments, may turn out to be.  Not here, so refused: variables
# of the session, columns of other plans, metadata of files.
_RESOLVED_LEAVES = """
    AttributeReference CommonExpressionRef Literal NamedLambdaVariable ResolvedCollation

    ArraysZip Concat CreateArray CreateMap CreateNamedStruct MapConcat

    CurrentCatalog CurrentDatabase CurrentDate CurrentPath CurrentTime CurrentTimeZone
    CurrentTimestamp CurrentUser EulerNumber LocalTimestamp MonotonicallyIncreasingID Now Pi
    SparkPartitionID SparkVersion Uuid
"""
# The same for all rows of a query, and others in the next.
_CHANGING_NODES = frozenset(
    {
        "CurrentBatchTimestamp",
        "CurrentCatalog",
        "CurrentDatabase",
        "CurrentDate",
        "CurrentPath",
        "CurrentTime",
        "CurrentTimeZone",
        "CurrentTimestamp",
        "CurrentUser",
        "LocalTimestamp",
        "Now",
        "SessionUser",
    }
)
_AGGREGATE = "AggregateExpression"
_USER_DEFINED = re.compile(
    r"UDF|UDAF|UDTF|UserDefined|ScalaAggregator|V2Aggregator|ApplyFunctionExpression|SQL\w*Function"
)
_SELECT = re.compile(r"\bselect\b", re.IGNORECASE)
_UNRESOLVED_COLUMN = re.compile(r"UNRESOLVED_(COLUMN|FIELD)|FIELD_NOT_FOUND|MISSING_ATTRIBUTES")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSql:
    """One text of a table's, and what it is the rule of: a constraint's or a column's name."""

    name: str
    text: str


# What to raise about a text: (the text, what is wrong with it).
Refusal = Callable[[TableSql, str], DeltaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How the refusals of one kind of text are called.

    With `keeps_sparks` what Spark makes no sense of is told in Spark's words.
    """

    user_defined: Refusal
    aggregate: Refusal
    unsupported: Refusal
    wrong_column: Refusal
    malformed: Refusal
    keeps_sparks: bool = False


_CHECK = _Kind(
    user_defined=lambda sql, part: ConstraintError("DELTA_UDF_IN_CHECK_CONSTRAINT", expr=part),
    aggregate=lambda sql, part: ConstraintError(
        "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT", sqlExpr=part
    ),
    unsupported=lambda sql, part: ConstraintError(
        "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=part
    ),
    wrong_column=lambda sql, part: ConstraintError(
        "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES", colName=part
    ),
    malformed=lambda sql, part: ConstraintError(
        "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=part
    ),
)
_GENERATED = _Kind(
    user_defined=lambda sql, part: SchemaError("DELTA_UDF_IN_GENERATED_COLUMN", udfExpr=part),
    aggregate=lambda sql, part: SchemaError("DELTA_AGGREGATE_IN_GENERATED_COLUMN", sqlExpr=part),
    unsupported=lambda sql, part: SchemaError(
        "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN", expression=part
    ),
    wrong_column=lambda sql, part: SchemaError(
        "DELTA_INVALID_GENERATED_COLUMN_REFERENCES", columnName=sql.name
    ),
    malformed=lambda sql, part: SchemaError(
        "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN", expression=part
    ),
)


def _bad_default(why: str) -> Refusal:
    return lambda sql, part: SchemaError(
        "DELTA_INVALID_COLUMN_DEFAULT", columnName=sql.name, reason=f"{part} {why}"
    )


_DEFAULT = _Kind(
    user_defined=_bad_default("is a user-defined function"),
    aggregate=_bad_default("is an aggregate"),
    unsupported=_bad_default("cannot be used there"),
    wrong_column=_bad_default("is not a constant"),
    malformed=_bad_default("is not an expression"),
)


# What a statement brings is refused as Spark refuses it, before any table has it.
_NEW_CHECK = replace(
    _CHECK,
    wrong_column=lambda sql, part: ConstraintError(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=part, proposal="the table's columns"
    ),
)


def _unfit(sql: TableSql, reason: str) -> DeltaError:
    return SchemaError(
        "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        fieldName=sql.name,
        expressionStr=sql.text,
        reason=reason,
    )


_NEW_GENERATED = replace(
    _GENERATED,
    user_defined=lambda sql, part: _unfit(sql, f"{part} is not a built-in function"),
    unsupported=lambda sql, part: (
        _unfit(sql, "it holds a query")
        if _SELECT.search(sql.text)
        else _GENERATED.unsupported(sql, part)
    ),
    keeps_sparks=True,
)


def _bad_new_default(kind: str) -> Refusal:
    return lambda sql, part: SchemaError(
        f"INVALID_DEFAULT_VALUE.{kind}", colName=sql.name, defaultValue=sql.text, what=part
    )


_NEW_DEFAULT = _Kind(
    user_defined=_bad_new_default("UNRESOLVED_EXPRESSION"),
    aggregate=_bad_new_default("NOT_CONSTANT"),
    unsupported=lambda sql, part: _bad_new_default(
        "SUBQUERY_EXPRESSION" if _SELECT.search(sql.text) else "UNRESOLVED_EXPRESSION"
    )(sql, part),
    wrong_column=_bad_new_default("NOT_CONSTANT"),
    malformed=_bad_new_default("UNRESOLVED_EXPRESSION"),
)


def check_conditions(
    jvm: JvmSession, schema: StructType, checks: Sequence[TableSql]
) -> list[Expression]:
    """Conditions over the table's columns, ready for the plan."""
    parsed, resolved = _understood(jvm, schema, checks, _CHECK)
    for sql, found in zip(checks, resolved, strict=True):
        if found.data_type != BOOLEAN:
            raise ConstraintError(
                "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", name=sql.name, expr=sql.text
            )
    return parsed


def new_check(jvm: JvmSession, schema: StructType, check: TableSql) -> Expression:
    """A condition that a table is to have from now on: the same row must always give the same."""
    parsed, resolved = _understood(jvm, schema, [check], _NEW_CHECK)
    if resolved[0].data_type != BOOLEAN:
        raise ConstraintError(
            "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", name=check.name, expr=check.text
        )
    if not resolved[0].is_deterministic:
        raise ConstraintError(
            "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT", expr=check.text
        )
    return parsed[0]


def generation_expressions(
    jvm: JvmSession, plain_columns: StructType, columns: Sequence[TableSql]
) -> list[Expression]:
    """What gives generated columns their values, out of columns that are not generated."""
    return _understood(jvm, plain_columns, columns, _GENERATED)[0]


def check_generated_columns(jvm: JvmSession, schema: StructType) -> None:
    """Refuse a new table whose generated columns would not get values of their own type.

    Values must be the same whenever they are computed, from columns that are not generated.
    """
    columns = generated_columns(schema)
    texts = [TableSql(name=f.name, text=generation_expression(f) or "") for f in columns]
    plain = StructType(tuple(f for f in schema if f not in columns))
    _, resolved = _understood(jvm, plain, texts, _GENERATED)
    for f, sql, found in zip(columns, texts, resolved, strict=True):
        if not found.is_deterministic:
            raise SchemaError(
                "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN", expr=sql.text
            )
        if found.nodes & _CHANGING_NODES:
            raise _GENERATED.unsupported(sql, sql.text)
        if found.data_type is None or bare_type(found.data_type) != bare_type(f.data_type):
            raise SchemaError(
                "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
                columnName=f.name,
                columnType=type_name(f.data_type),
                expressionType=_shown(found),
            )


def check_new_generated_columns(jvm: JvmSession, schema: StructType) -> None:
    """Refuse generated columns of a statement that Spark refuses before Delta sees them."""
    columns = generated_columns(schema)
    names = {f.name.lower() for f in columns}
    plain = StructType(tuple(f for f in schema if f not in columns))
    for f in columns:
        sql = TableSql(name=f.name, text=generation_expression(f) or "")
        if (default := current_default(f)) is not None:
            raise SchemaError(
                "GENERATED_COLUMN_WITH_DEFAULT_VALUE",
                colName=f.name,
                defaultValue=default,
                genExpr=sql.text,
            )
        parsed = _parsed(jvm, sql, _NEW_GENERATED)
        named = names.intersection(path[0].lower() for path in parsed.paths)
        if named:
            is_own = f.name.lower() in named
            raise _unfit(sql, f"it refers to {'itself' if is_own else 'a generated column'}")
        found = _resolved(jvm, plain, [sql], [parsed], _NEW_GENERATED)[0]
        if not found.is_deterministic:
            raise _unfit(sql, "it may differ each time")
        if found.data_type is None or not can_up_cast(jvm, found.data_type, f.data_type):
            raise _unfit(sql, f"its type is {_shown(found)}, not {type_name(f.data_type)}")


def default_values(jvm: JvmSession, columns: Sequence[TableSql]) -> list[Expression]:
    """Default values; they refer to no column, and are one value for all rows of a query."""
    parsed, resolved = _understood(jvm, StructType(), columns, _DEFAULT)
    for sql, found in zip(columns, resolved, strict=True):
        if not found.is_deterministic:
            raise _bad_new_default("NOT_CONSTANT")(sql, sql.text)
    return parsed


def check_default(jvm: JvmSession, default: TableSql, wanted: DataType) -> None:
    """Refuse a default that a column of the type `wanted` cannot store."""
    found = _understood(jvm, StructType(), [default], _NEW_DEFAULT)[1][0]
    if not found.is_deterministic:
        raise _bad_new_default("NON_DETERMINISTIC")(default, default.text)
    own = found.data_type
    if own is None or not can_default(jvm, default.text, own, wanted):
        raise SchemaError(
            "INVALID_DEFAULT_VALUE.DATA_TYPE",
            colName=default.name,
            defaultValue=default.text,
            expectedType=type_name(wanted),
            actualType=_shown(found),
        )


def named_columns(jvm: JvmSession, text: str) -> list[tuple[str, ...]]:
    """The columns and fields that a text refers to; none when it cannot be read at all."""
    parsed = parse_expression(jvm, text) if _is_readable(text) else None
    # A name that SQL needs backticks for has them only here and there in Spark's spelling.
    return [] if parsed is None else list(parsed.paths)


def _understood(
    jvm: JvmSession, schema: StructType, texts: Sequence[TableSql], kind: _Kind
) -> tuple[list[Expression], list[Resolved]]:
    parsed = [_parsed(jvm, sql, kind) for sql in texts]
    return parsed, _resolved(jvm, schema, texts, parsed, kind)


def _parsed(jvm: JvmSession, sql: TableSql, kind: _Kind) -> Expression:
    """The text read, and nothing in it that must not even be looked up."""
    parsed = parse_expression(jvm, sql.text) if _is_readable(sql.text) else None
    if parsed is None or parsed.is_named:
        raise kind.malformed(sql, sql.text)
    _check_aggregates(sql, parsed.nodes, kind)
    if not parsed.nodes <= _names(_PARSED_NODES):
        raise kind.unsupported(sql, sql.text)
    for call in sorted(parsed.calls, key=lambda call: call.name):
        name = call.builtin_name
        if not is_builtin(jvm, call):
            raise kind.user_defined(sql, call.name)
        reason = refusal(name, call.arguments)
        # Spark has its own words for those; what it lets pass is refused by `_check_resolved`.
        if reason is not None and not is_of_many_rows(name):
            raise kind.unsupported(sql, f"{name} in {_cut(sql.text)} ({reason})")
    return parsed


def _is_readable(text: str) -> bool:
    return len(text) <= _LONGEST and _depth(text) <= _DEEPEST


def _depth(text: str) -> int:
    """How many brackets are open at once."""
    steps = (1 if mark in "([" else -1 for mark in text if mark in "([])")
    return max(accumulate(steps), default=0)


def _check_aggregates(sql: TableSql, nodes: Collection[str], kind: _Kind) -> None:
    if _AGGREGATE in nodes:
        raise kind.aggregate(sql, sql.text)


def _check_resolved(sql: TableSql, parsed: Expression, found: Resolved, kind: _Kind) -> None:
    _check_aggregates(sql, found.nodes, kind)
    # A function of the session that has the name of one of Spark's.
    if any(_USER_DEFINED.search(node) for node in found.nodes):
        raise kind.user_defined(sql, sql.text)
    is_of_one_row = not any(is_of_many_rows(call.builtin_name) for call in parsed.calls)
    if found.operators or not is_of_one_row or not found.leaves <= _names(_RESOLVED_LEAVES):
        raise kind.unsupported(sql, sql.text)


def _resolved(
    jvm: JvmSession,
    schema: StructType,
    texts: Sequence[TableSql],
    parsed: Sequence[Expression],
    kind: _Kind,
) -> list[Resolved]:
    is_last = len(parsed) == 1
    try:
        resolved = resolve(jvm, schema, parsed)
        # What one of them needs is part of the plan of all.
        if is_last or not any(found.operators for found in resolved):
            for sql, read, found in zip(texts, parsed, resolved, strict=True):
                _check_resolved(sql, read, found, kind)
            return resolved
    except JAVA_FAILURES as error:
        if is_last:
            refused = _refusal(texts[0], error, kind)
            raise refused from (None if refused is error else error)
    # Together they cost one analysis; apart they tell which one is wrong.
    pairs = zip(texts, parsed, strict=True)
    return [_resolved(jvm, schema, [sql], [one], kind)[0] for sql, one in pairs]


def _refusal(sql: TableSql, error: Exception, kind: _Kind) -> Exception:
    if kind.keeps_sparks and isinstance(error, PySparkException):
        return error
    if isinstance(error, PySparkException) and _UNRESOLVED_COLUMN.match(error.getCondition() or ""):
        return kind.wrong_column(sql, _named(error.getMessageParameters()))
    return kind.unsupported(sql, sql.text)


@cache
def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _named(parameters: Mapping[str, str] | None) -> str:
    found = parameters or {}
    return found.get("objectName") or found.get("fieldName") or "a column"


def _shown(found: Resolved) -> str:
    return "a type that no table has" if found.data_type is None else type_name(found.data_type)
