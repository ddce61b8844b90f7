"""A statement's plan as Spark's parser reads it, with the arguments of `spark.sql` in place."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

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
    if isinstance(args, dict):
        named = {name: _literal(jvm, value) for name, value in args.items()}
        context = jvm.java_class(f"{_PARSER}.NamedParameterContext")(jvm.scala_map(named))
    else:
        listed = jvm.seq([_literal(jvm, value) for value in args])
        context = jvm.java_class(f"{_PARSER}.PositionalParameterContext")(listed)
    return parser.parsePlanWithParameters(sql, context)


def _literal(jvm: JvmSession, value: Any) -> Any:
    """A value as Catalyst's literal, computed where it is an expression."""
    found = expression_of(jvm, F.lit(value))
    if found.nodeName() == "Literal":
        return found
    return expression_of(jvm, constant(jvm, F.lit(value)))
