"""Checks and parses SQL stored in tables: CHECK constraints, generation expressions, defaults.

Anyone who can write a table's log chooses this text, and every later writer evaluates it.  So
Spark's parser reads it as one expression, and it is checked against allow lists before any name is
resolved: of functions (`function_allow_list`) and of Catalyst's classes.  The lists have columns of
the table and Spark's own functions of one row.  They do not have functions of the session, queries,
or variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from pyspark.errors import PySparkException

from pyspark_delta.errors import ConstraintError, DeltaError, SchemaError
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.generated_columns import generated_columns, generation_expression
from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType, StructType, type_name
from pyspark_delta.spark.jvm.expressions.catalyst import can_default, can_up_cast
from pyspark_delta.spark.jvm.expressions.sql_text import (
    Expression,
    Resolved,
    is_builtin,
    parse_expression,
    resolve,
)
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.rules.alignment import bare_type
from pyspark_delta.spark.rules.function_allow_list import is_of_many_rows, refusal

# No text written by hand is longer, and a longer one would keep the parser busy.
_LONGEST = 100_000
_DEEPEST = 200
_LONGEST_IN_ERROR = 500
# Catalyst nodes that the text may have before resolution.  All others raise: queries, windows,
# parameters, IDENTIFIER(), stars, and anything from a later grammar.
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
# Nodes that a name, or a function without arguments, may resolve to.  All others raise: variables
# of the session, columns of other plans, metadata of files.
_RESOLVED_LEAVES = """
    AttributeReference CommonExpressionRef Literal NamedLambdaVariable ResolvedCollation

    ArraysZip Concat CreateArray CreateMap CreateNamedStruct MapConcat

    CurrentCatalog CurrentDatabase CurrentDate CurrentPath CurrentTime CurrentTimeZone
    CurrentTimestamp CurrentUser EulerNumber LocalTimestamp MonotonicallyIncreasingID Now Pi
    SparkPartitionID SparkVersion Uuid
"""
# Nodes whose value is the same for all rows of a query, but differs between queries.
_CHANGING_NODES = """
    CurrentBatchTimestamp CurrentCatalog CurrentDatabase CurrentDate CurrentPath CurrentTime
    CurrentTimeZone CurrentTimestamp CurrentUser LocalTimestamp Now SessionUser
"""
_AGGREGATE = "AggregateExpression"
_USER_DEFINED = re.compile(
    r"UDF|UDAF|UDTF|UserDefined|ScalaAggregator|V2Aggregator|ApplyFunctionExpression|SQL\w*Function"
)
_SELECT = re.compile(r"\bselect\b", re.IGNORECASE)
_UNRESOLVED_COLUMN = re.compile(r"UNRESOLVED_(COLUMN|FIELD)|FIELD_NOT_FOUND|MISSING_ATTRIBUTES")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSql:
    """A SQL text of a table, and its owner: the name of a constraint or a column."""

    name: str
    text: str


# Makes the error for a text from the text and the part of it, or the reason, that is at fault.
Refusal = Callable[[TableSql, str], DeltaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The errors of one kind of text.

    With `keeps_sparks`, Spark's own error is raised for a text that Spark cannot resolve.
    """

    user_defined: Refusal
    aggregate: Refusal
    unsupported: Refusal
    wrong_column: Refusal
    malformed: Refusal
    keeps_sparks: bool = False


def _bad_part(error: type[DeltaError], condition: str, parameter: str) -> Refusal:
    return lambda sql, part: error(condition, **{parameter: part})


def _bad_default(why: str) -> Refusal:
    return lambda sql, part: SchemaError(
        "DELTA_INVALID_COLUMN_DEFAULT", columnName=sql.name, reason=f"{part} {why}"
    )


def _bad_new_default(kind: str) -> Refusal:
    return lambda sql, part: SchemaError(
        f"INVALID_DEFAULT_VALUE.{kind}", colName=sql.name, defaultValue=sql.text, what=part
    )


def _bad_new_generation(sql: TableSql, reason: str) -> DeltaError:
    return SchemaError(
        "UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
        fieldName=sql.name,
        expressionStr=sql.text,
        reason=reason,
    )


_BAD_CHECK = _bad_part(
    ConstraintError, "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", "expression"
)
_CHECK = _Kind(
    user_defined=_bad_part(ConstraintError, "DELTA_UDF_IN_CHECK_CONSTRAINT", "expr"),
    aggregate=_bad_part(ConstraintError, "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT", "sqlExpr"),
    unsupported=_BAD_CHECK,
    wrong_column=_bad_part(ConstraintError, "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES", "colName"),
    malformed=_BAD_CHECK,
)
_BAD_GENERATION = _bad_part(
    SchemaError, "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN", "expression"
)
_GENERATED = _Kind(
    user_defined=_bad_part(SchemaError, "DELTA_UDF_IN_GENERATED_COLUMN", "udfExpr"),
    aggregate=_bad_part(SchemaError, "DELTA_AGGREGATE_IN_GENERATED_COLUMN", "sqlExpr"),
    unsupported=_BAD_GENERATION,
    wrong_column=lambda sql, part: SchemaError(
        "DELTA_INVALID_GENERATED_COLUMN_REFERENCES", columnName=sql.name
    ),
    malformed=_BAD_GENERATION,
)
_DEFAULT = _Kind(
    user_defined=_bad_default("is a user-defined function"),
    aggregate=_bad_default("is an aggregate"),
    unsupported=_bad_default("cannot be used there"),
    wrong_column=_bad_default("is not a constant"),
    malformed=_bad_default("is not an expression"),
)
# Text in a statement raises Spark's own errors, before it is stored in a table.
_NEW_CHECK = replace(
    _CHECK,
    wrong_column=lambda sql, part: ConstraintError(
        "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName=part, proposal="the table's columns"
    ),
)
_NEW_GENERATED = replace(
    _GENERATED,
    user_defined=lambda sql, part: _bad_new_generation(sql, f"{part} is not a built-in function"),
    unsupported=lambda sql, part: (
        _bad_new_generation(sql, "it holds a query")
        if _SELECT.search(sql.text)
        else _BAD_GENERATION(sql, part)
    ),
    keeps_sparks=True,
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
    """Conditions over the table's columns, as expressions for a plan."""
    return _conditions(jvm, schema, checks, _CHECK)[0]


def new_check(jvm: JvmSession, schema: StructType, check: TableSql) -> Expression:
    """A condition that is added to a table: it must be deterministic."""
    parsed, resolved = _conditions(jvm, schema, [check], _NEW_CHECK)
    if not resolved[0].is_deterministic:
        raise ConstraintError(
            "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT", expr=check.text
        )
    return parsed[0]


def generation_expressions(jvm: JvmSession, schema: StructType) -> dict[str, Expression]:
    """The expressions of generated columns by name, over the columns that are not generated."""
    plain, texts = _generated(schema)
    if not texts:
        return {}
    parsed, _ = _understood(jvm, plain, texts, _GENERATED)
    return {sql.name: found for sql, found in zip(texts, parsed, strict=True)}


def check_generated_columns(jvm: JvmSession, schema: StructType) -> None:
    """Raise for a new table whose generated columns would not have values of their own type.

    The expressions must be deterministic, over columns that are not generated.
    """
    plain, texts = _generated(schema)
    _, resolved = _understood(jvm, plain, texts, _GENERATED)
    for sql, found in zip(texts, resolved, strict=True):
        wanted = schema[sql.name].data_type
        if not found.is_deterministic:
            raise SchemaError(
                "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN", expr=sql.text
            )
        if found.nodes & _names(_CHANGING_NODES):
            raise _GENERATED.unsupported(sql, sql.text)
        if found.data_type is None or bare_type(found.data_type) != bare_type(wanted):
            raise SchemaError(
                "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH",
                columnName=sql.name,
                columnType=type_name(wanted),
                expressionType=_type_name(found),
            )


def check_new_generated_columns(jvm: JvmSession, schema: StructType) -> None:
    """Raise for generated columns in a statement that Spark rejects before Delta sees them."""
    plain, texts = _generated(schema)
    names = {sql.name.lower() for sql in texts}
    for sql in texts:
        f = schema[sql.name]
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
            other = "itself" if f.name.lower() in named else "a generated column"
            raise _bad_new_generation(sql, f"it refers to {other}")
        found = _resolved(jvm, plain, [sql], [parsed], _NEW_GENERATED)[0]
        if not found.is_deterministic:
            raise _bad_new_generation(sql, "it may differ each time")
        if found.data_type is None or not can_up_cast(jvm, found.data_type, f.data_type):
            types = f"{_type_name(found)}, not {type_name(f.data_type)}"
            raise _bad_new_generation(sql, f"its type is {types}")


def default_values(jvm: JvmSession, columns: Sequence[TableSql]) -> list[Expression]:
    """Default values; they use no columns, and are one value for all rows of a query."""
    parsed, resolved = _understood(jvm, StructType(), columns, _DEFAULT)
    for sql, found in zip(columns, resolved, strict=True):
        if not found.is_deterministic:
            raise _bad_new_default("NOT_CONSTANT")(sql, sql.text)
    return parsed


def check_default(jvm: JvmSession, default: TableSql, wanted: DataType) -> None:
    """Raise for a default that a column of type `wanted` cannot store."""
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
            actualType=_type_name(found),
        )


def named_columns(jvm: JvmSession, text: str) -> list[tuple[str, ...]]:
    """The columns and fields that a text refers to; none if it cannot be parsed."""
    parsed = parse_expression(jvm, text) if _is_readable(text) else None
    # In Spark's text, a name that needs backticks does not always have them.
    return [] if parsed is None else list(parsed.paths)


def _conditions(
    jvm: JvmSession, schema: StructType, checks: Sequence[TableSql], kind: _Kind
) -> tuple[list[Expression], list[Resolved]]:
    parsed, resolved = _understood(jvm, schema, checks, kind)
    for sql, found in zip(checks, resolved, strict=True):
        if found.data_type != BOOLEAN:
            raise ConstraintError(
                "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", name=sql.name, expr=sql.text
            )
    return parsed, resolved


def _generated(schema: StructType) -> tuple[StructType, list[TableSql]]:
    """The columns that are not generated, and the expressions of those that are."""
    columns = generated_columns(schema)
    plain = StructType(tuple(f for f in schema if f not in columns))
    return plain, [TableSql(name=f.name, text=generation_expression(f) or "") for f in columns]


def _understood(
    jvm: JvmSession, schema: StructType, texts: Sequence[TableSql], kind: _Kind
) -> tuple[list[Expression], list[Resolved]]:
    parsed = [_parsed(jvm, sql, kind) for sql in texts]
    return parsed, _resolved(jvm, schema, texts, parsed, kind)


def _parsed(jvm: JvmSession, sql: TableSql, kind: _Kind) -> Expression:
    """Parse the text, and raise for parts that must not be resolved."""
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
        # Spark has its own errors for those; `_check_resolved` raises for those that Spark accepts.
        if reason is not None and not is_of_many_rows(name):
            text = sql.text
            if len(text) > _LONGEST_IN_ERROR:
                text = f"{text[:_LONGEST_IN_ERROR]}..."
            raise kind.unsupported(sql, f"{name} in {text} ({reason})")
    return parsed


def _is_readable(text: str) -> bool:
    """Whether a text is short, and has few open parentheses at any place."""
    steps = (1 if mark in "([" else -1 for mark in text if mark in "([])")
    return len(text) <= _LONGEST and max(accumulate(steps), default=0) <= _DEEPEST


def _check_aggregates(sql: TableSql, nodes: Collection[str], kind: _Kind) -> None:
    if _AGGREGATE in nodes:
        raise kind.aggregate(sql, sql.text)


def _check_resolved(sql: TableSql, parsed: Expression, found: Resolved, kind: _Kind) -> None:
    _check_aggregates(sql, found.nodes, kind)
    # A function of the session with the name of one of Spark's.
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
        # The plan nodes that one expression needs are those of the whole plan.
        if is_last or not any(found.operators for found in resolved):
            for sql, read, found in zip(texts, parsed, resolved, strict=True):
                _check_resolved(sql, read, found, kind)
            return resolved
    except JAVA_FAILURES as error:
        if is_last:
            refused = _refusal(texts[0], error, kind)
            raise refused from (None if refused is error else error)
    # Together they take one analysis; one by one they show which is wrong.
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


def _named(parameters: Mapping[str, str] | None) -> str:
    found = parameters or {}
    return found.get("objectName") or found.get("fieldName") or "a column"


def _type_name(found: Resolved) -> str:
    return "a type that no table has" if found.data_type is None else type_name(found.data_type)
