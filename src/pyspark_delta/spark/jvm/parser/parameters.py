"""Statements of `spark.sql` with their arguments substituted, as plans and as text."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pyspark_delta.spark.jvm.expressions.catalyst import constant, expression_of
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession

_PARSER = "org.apache.spark.sql.catalyst.parser"


def are_arguments(args: object) -> bool:
    """Whether these are valid arguments of a statement; Spark raises for others."""
    return args is None or isinstance(args, (dict, list))


def parsed_plan(jvm: JvmSession, sql: str, args: Any = None) -> Any:
    """The unresolved plan of a statement; Spark's ParseException for a syntax error.

    `args` are values by name, or in the order of their placeholders.
    """
    parser = jvm.parser
    if not args:
        return parser.parsePlan(sql)
    return parser.parsePlanWithParameters(sql, _context(jvm, args))


def substituted(jvm: JvmSession, sql: str, args: Any) -> str:
    """A Spark statement with its arguments substituted, as Spark does it.

    Raises Spark's ParseException for a syntax error, an AnalysisException for a missing argument.
    """
    handler = jvm.java_class(f"{_PARSER}.ParameterHandler")
    return str(handler.substituteParameters(sql, _context(jvm, args))._1())


def literal_text(jvm: JvmSession, value: Any) -> str:
    """A value as a SQL literal."""
    return str(_literal(jvm, value).sql())


def constant_text(jvm: JvmSession, expression: str) -> str:
    """The text that an expression without columns evaluates to; Spark's error for another type."""
    found = expression_of(jvm, constant(jvm, F.expr(expression)))
    facts = {"name": "IDENTIFIER", "expr": f'"{expression.strip()}"'}
    if found.nodeName() != "Literal":
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NOT_CONSTANT", **facts)
    if found.value() is None:
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NULL", **facts)
    data_type = str(found.dataType().sql())
    if data_type != "STRING":
        facts["dataType"] = f'"{data_type}"'
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.WRONG_TYPE", **facts)
    return str(found.value().toString())


def _context(jvm: JvmSession, args: Any) -> Any:
    if isinstance(args, dict):
        named = {name: _literal(jvm, value) for name, value in args.items()}
        return jvm.java_class(f"{_PARSER}.NamedParameterContext")(jvm.scala_map(named))
    listed = jvm.seq([_literal(jvm, value) for value in args])
    return jvm.java_class(f"{_PARSER}.PositionalParameterContext")(listed)


def _literal(jvm: JvmSession, value: Any) -> Any:
    """A value as Catalyst's literal; an expression is evaluated."""
    found = expression_of(jvm, F.lit(value))
    if found.nodeName() == "Literal":
        return found
    return expression_of(jvm, constant(jvm, F.lit(value)))
