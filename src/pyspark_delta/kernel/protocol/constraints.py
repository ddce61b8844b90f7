"""What every row of a table must satisfy: NOT NULL fields, CHECK constraints, invariants.

Here constraints are read from and written to metadata; rows are checked where rows are written.
The SQL inside is text and is not parsed.  PROTOCOL.md, "Column Invariants" and "CHECK Constraints".

>>> check_constraints({"delta.constraints.adult": "age >= 18"})
(Check(name='adult', expression='age >= 18'),)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_delta.errors.table import ConstraintError, SchemaError
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.properties import CONSTRAINT_PREFIX
from pyspark_delta.kernel.protocol.types import (
    StructField,
    StructType,
    column_name,
    walk_fields,
)

INVARIANTS = "delta.invariants"
ASSUME_DROP_IF_EXISTS = "spark.databricks.delta.constraints.assumesDropIfExists.enabled"
# delta-spark writes the length check of CHAR and VARCHAR columns under this name.
_RESERVED_NAMES = frozenset({"__char_varchar_string_length_check__"})


@dataclass(frozen=True, slots=True)
class NotNull:
    """A field, given by its path of struct names, that must have a value."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true, not merely not false, for every row.

    The name of an invariant is empty: it hangs on a column, not on the table.
    """

    name: str
    expression: str


Constraint = NotNull | Check


def table_constraints(metadata: Metadata) -> tuple[Constraint, ...]:
    """All that a new row of the table must satisfy, in the order in which it is checked."""
    return (
        *not_null_fields(metadata.schema),
        *check_constraints(metadata.configuration),
        *invariants(metadata.schema),
    )


def not_null_fields(schema: StructType) -> tuple[NotNull, ...]:
    """The fields that may not be null: top-level ones and those nested in structs alone.

    Inside of arrays and maps NOT NULL cannot be enforced; `schema_checks` refuses it there.
    """
    return tuple(NotNull(path) for path, f in _struct_fields(schema) if not f.nullable)


def check_constraints(configuration: StringMap) -> tuple[Check, ...]:
    """The CHECK constraints among a table's properties, by name."""
    found = {
        key[len(CONSTRAINT_PREFIX) :]: expression
        for key, expression in configuration.items()
        if key.lower().startswith(CONSTRAINT_PREFIX) and expression is not None
    }
    return tuple(Check(name, found[name]) for name in sorted(found))


def with_constraint(configuration: StringMap, name: str, expression: str) -> dict[str, str | None]:
    """`configuration` with one more CHECK constraint; its name must be new, ignoring case."""
    if not name or name.lower() in _RESERVED_NAMES:
        raise ConstraintError("DELTA_INVALID_CONSTRAINT_NAME", name=name)
    for old in check_constraints(configuration):
        if old.name.lower() == name.lower():
            raise ConstraintError(
                "DELTA_CONSTRAINT_ALREADY_EXISTS",
                constraintName=name,
                oldConstraint=old.expression,
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
    """Whether any column carries an invariant, legal or not."""
    return any(INVARIANTS in f.metadata for _, f in walk_fields(schema))


def invariants(schema: StructType) -> tuple[Check, ...]:
    """The conditions that hang on columns; SchemaError for one that cannot be understood.

    A writer must uphold every invariant, so none may be passed over.
    """
    reachable = {path for path, _ in _struct_fields(schema)}
    found = []
    for path, f in walk_fields(schema):
        if INVARIANTS not in f.metadata:
            continue
        if path not in reachable:
            raise SchemaError("DELTA_UNSUPPORTED_INVARIANT_NON_STRUCT")
        found.append(Check("", _invariant_expression(column_name(path), f.metadata[INVARIANTS])))
    return tuple(found)


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


def _struct_fields(
    struct: StructType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Fields that can be reached without going through an array or a map."""
    for f in struct.fields:
        here = (*path, f.name)
        yield here, f
        if isinstance(f.data_type, StructType):
            yield from _struct_fields(f.data_type, here)
