"""Constraints on every row of a table: NOT NULL fields, CHECK constraints, invariants.

This module reads constraints from metadata and writes them there; writers check the rows.  The SQL
in them is text and is not parsed.  PROTOCOL.md, "Column Invariants" and "CHECK Constraints".

>>> table_checks({"delta.constraints.adult": "age >= 18"})
(Check(name='adult', expression='age >= 18'),)
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark_delta.errors import ConstraintError, SchemaError
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.properties import CONSTRAINT_PREFIX
from pyspark_delta.kernel.protocol.types import StructType, column_name, walk_fields
from pyspark_delta.kernel.sql.lexer import tokens

INVARIANTS = "delta.invariants"
ASSUME_DROP_IF_EXISTS = "spark.databricks.delta.constraints.assumesDropIfExists.enabled"
# delta-spark writes the length check of CHAR and VARCHAR columns under this name.
_RESERVED_NAMES = frozenset({"__char_varchar_string_length_check__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull:
    """A field that must have a value, by its path of struct names."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A condition that must be true, not merely not false, for every row.

    The name of an invariant is empty: it belongs to a column, not to the table.
    """

    name: str
    expression: str


Constraint = NotNull | Check


def constraint_text(written: str) -> str:
    """The condition of a CHECK constraint in its stored form: its tokens, separated by blanks.

    delta-spark stores it so, and both must store the same text for a condition.

    >>> constraint_text("length(s)<4 /* short */ AND st.a>=1.5 or s!='a  b'")
    "length ( s ) < 4 AND st . a >= 1.5 or s != 'a  b'"
    """
    return " ".join(token.text for token in tokens(written))


def table_constraints(metadata: Metadata) -> tuple[Constraint, ...]:
    """All constraints on new rows of the table, in the order in which they are checked."""
    return (
        *not_null_fields(metadata.schema),
        *table_checks(metadata.configuration),
        *invariants(metadata.schema),
    )


def not_null_fields(schema: StructType) -> tuple[NotNull, ...]:
    """The fields that may not be null: top-level ones and those nested in structs alone.

    Inside of arrays and maps NOT NULL cannot be enforced; `schema_checks` rejects it there.
    """
    fields = walk_fields(schema, structs_only=True)
    return tuple(NotNull(path=path) for path, f in fields if not f.nullable)


def table_checks(configuration: StringMap) -> tuple[Check, ...]:
    """The CHECK constraints among a table's properties, by name."""
    conditions = {
        key[len(CONSTRAINT_PREFIX) :]: expression
        for key, expression in configuration.items()
        if key.lower().startswith(CONSTRAINT_PREFIX) and expression is not None
    }
    return tuple(Check(name=name, expression=conditions[name]) for name in sorted(conditions))


def with_constraint(configuration: StringMap, name: str, expression: str) -> dict[str, str | None]:
    """`configuration` with one more CHECK constraint; its name must be new, ignoring case."""
    if not name or name.lower() in _RESERVED_NAMES:
        raise ConstraintError("DELTA_INVALID_CONSTRAINT_NAME", name=name)
    for old in table_checks(configuration):
        if old.name.lower() == name.lower():
            raise ConstraintError(
                "DELTA_CONSTRAINT_ALREADY_EXISTS", constraintName=name, oldConstraint=old.expression
            )
    return {**configuration, CONSTRAINT_PREFIX + name.lower(): expression}


def without_constraint(
    configuration: StringMap, name: str, *, if_exists: bool = False, table: str = "the table"
) -> dict[str, str | None]:
    """`configuration` without a CHECK constraint; when there is none, only with `if_exists`."""
    key = (CONSTRAINT_PREFIX + name).lower()
    left = {other: value for other, value in configuration.items() if other.lower() != key}
    if len(left) == len(configuration) and not if_exists:
        raise ConstraintError(
            "DELTA_CONSTRAINT_DOES_NOT_EXIST",
            constraintName=name,
            tableName=table,
            config=ASSUME_DROP_IF_EXISTS,
            confValue="true",
        )
    return left


def has_invariants(schema: StructType) -> bool:
    """Whether any column has an invariant, legal or not."""
    return any(INVARIANTS in f.metadata for _, f in walk_fields(schema))


def invariants(schema: StructType) -> tuple[Check, ...]:
    """The invariants of columns; SchemaError for one that cannot be parsed.

    A writer must enforce every invariant, so none may be ignored.
    """
    reachable = {path for path, _ in walk_fields(schema, structs_only=True)}
    checks = []
    for path, f in walk_fields(schema):
        if INVARIANTS not in f.metadata:
            continue
        if path not in reachable:
            raise SchemaError("DELTA_UNSUPPORTED_INVARIANT_NON_STRUCT")
        expression = _invariant_expression(column_name(path), f.metadata[INVARIANTS])
        checks.append(Check(name="", expression=expression))
    return tuple(checks)


def _invariant_expression(column: str, text: object) -> str:
    # {"expression": {"expression": "x > 3"}}: the outer key names the kind of rule.
    try:
        rule = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        rule = None
    if not isinstance(rule, dict):
        raise SchemaError(
            "DELTA_INVALID_INVARIANT", columnName=column, reason="it is not a JSON object"
        )
    inner = rule.get("expression")
    if not isinstance(inner, dict) or not isinstance(inner.get("expression"), str):
        raise SchemaError("DELTA_UNRECOGNIZED_INVARIANT")
    return str(inner["expression"])
