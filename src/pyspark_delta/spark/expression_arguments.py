"""Conditions and values as users give them, in SQL or as columns: checked, and made columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def condition_argument(given: object, name: str = "'condition'") -> Column | None:
    """A condition; None for none.  TypeError for what is neither a text nor a column."""
    if given is None:
        return None
    if isinstance(given, str):
        return F.expr(given)
    if isinstance(given, Column):
        return given
    raise TypeError(
        f"{name} must be a Spark SQL Column or a string (expression in SQL syntax), "
        f"found to be of type {type(given)}"
    )


def values_argument(given: object, name: str = "'set'") -> dict[str, Column]:
    """New values by the names of columns; ValueError without any, TypeError for anything else."""
    if given is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a dict, found to be {type(given)}")
    return {_key(key, name): _value(value, name) for key, value in given.items()}


def _key(key: object, name: str) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(
        f"Keys of dict in {name} must contain only strings with column names, "
        f"found '{key}' of type '{type(key)}'"
    )


def _value(value: object, name: str) -> Column:
    if isinstance(value, str):
        return F.expr(value)
    if isinstance(value, Column):
        return value
    raise TypeError(
        f"Values of dict in {name} must contain only Spark SQL Columns or strings (expressions in "
        f"SQL syntax) as values, found '{value}' of type '{type(value)}'"
    )
