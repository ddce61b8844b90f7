"""Statements with the arguments of `spark.sql` in place: as plans, and as text."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.catalyst import constant, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession

_PARSER = "org.apache.spark.sql.catalyst.parser"


def are_arguments(args: object) -> bool:
    """Whether these can be arguments of a statement; Spark says what is wrong with others."""
    return args is None or isinstance(args, (dict, list))


def parsed_plan(jvm: JvmSession, sql: str, args: Any = None) -> Any:
    """The plan of a statement, nothing of it looked up; Spark's ParseException when it is none.

    `args` are values by name, or in the order of their marks.
    """
    parser = jvm.session.sessionState().sqlParser()
    if not args:
        return parser.parsePlan(sql)
    return parser.parsePlanWithParameters(sql, _context(jvm, args))


def substituted(jvm: JvmSession, sql: str, args: Any) -> str:
    """A statement of Spark's with its arguments written into it, as Spark does it.

    Spark's ParseException when it is none, an AnalysisException for an argument that is missing.
    """
    handler = jvm.java_class(f"{_PARSER}.ParameterHandler")
    return str(handler.substituteParameters(sql, _context(jvm, args))._1())


def literal_text(jvm: JvmSession, value: Any) -> str:
    """A value as SQL writes it."""
    return str(_literal(jvm, value).sql())


def constant_text(jvm: JvmSession, expression: str) -> str:
    """The text that an expression without columns is; Spark's error when it is none."""
    found = expression_of(jvm, constant(jvm, F.expr(expression)))
    told = {"name": "IDENTIFIER", "expr": f'"{expression.strip()}"'}
    if found.nodeName() != "Literal":
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NOT_CONSTANT", **told)
    if found.value() is None:
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.NULL", **told)
    data_type = str(found.dataType().sql())
    if data_type != "STRING":
        told["dataType"] = f'"{data_type}"'
        raise analysis_error(jvm, "NOT_A_CONSTANT_STRING.WRONG_TYPE", **told)
    return str(found.value().toString())


def _context(jvm: JvmSession, args: Any) -> Any:
    if isinstance(args, dict):
        named = {name: _literal(jvm, value) for name, value in args.items()}
        return jvm.java_class(f"{_PARSER}.NamedParameterContext")(jvm.scala_map(named))
    listed = jvm.seq([_literal(jvm, value) for value in args])
    return jvm.java_class(f"{_PARSER}.PositionalParameterContext")(listed)


def _literal(jvm: JvmSession, value: Any) -> Any:
    """A value as Catalyst's literal, computed where it is an expression."""
    found = expression_of(jvm, F.lit(value))
    if found.nodeName() == "Literal":
        return found
    return expression_of(jvm, constant(jvm, F.lit(value)))
