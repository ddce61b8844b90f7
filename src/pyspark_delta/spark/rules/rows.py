"""Data as rows of a table: missing columns are filled, rows that break a rule make the job fail.

The data's types fit already (`kernel.protocol.schema_merge`, `alignment`).  A rule is a Catalyst
condition in the plan that makes the rows.  Where it is not true, the plan raises an error whose
message is JSON with the facts, and `typed_violations` makes our error from it.  No row enters
Python, and only a rule that cannot be parsed raises here.  PROTOCOL.md, "Column Invariants", "CHECK
Constraints", "Generated Columns", "Default Columns", "Identity Columns".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import ConstraintError, DeltaError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.constraints import invariants, not_null_fields, table_checks
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.identity_columns import (
    check_explicit_insert,
    identity_info,
    is_identity,
)
from pyspark_delta.kernel.protocol.schema_merge import missing_not_null_columns
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    STRING,
    StructField,
    StructType,
    column_name,
)
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.conf.settings import CHAR_VARCHAR_AS_STRING, is_on
from pyspark_delta.spark.jvm.expressions.catalyst import (
    StorePolicy,
    null_safe_equal,
    num_partitions,
    stored_as,
)
from pyspark_delta.spark.jvm.expressions.sql_text import Expression, expression, raw_type
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES, innermost, messages
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark
from pyspark_delta.spark.rules.alignment import aligned, bare_type, column
from pyspark_delta.spark.rules.expressions import (
    TableSql,
    check_conditions,
    default_values,
    generation_expressions,
)

_LIMITED_TYPE = re.compile(r"(?:var)?char\((\d+)\)")
_NO_COLUMNS = StructType()
_MARK = "pyspark-delta-violation:"
_LINES = "values"  # the parameter with a line for each column
_LONGEST_VALUE = 1000
_IDENTITY_OVERFLOW = "DELTA_IDENTITY_COLUMN_OVERFLOW"
# Conditions that a plan may raise, and their classes.
_CLASSES: Mapping[str, type[DeltaError]] = {
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": ConstraintError,
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": ConstraintError,
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": ConstraintError,
    _IDENTITY_OVERFLOW: SchemaError,
}
# Spark's row numbers: the partition id, followed by 33 bits for the row in the partition.
_ROW_BITS = (1 << 33) - 1
_LAST_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck:
    """A condition that must be true for every written row; null is not true.

    `condition` is over the table's logical columns.  `name` is the `constraintName` of the
    DELTA_VIOLATE_CONSTRAINT_WITH_VALUES that a violation raises.
    """

    name: str
    condition: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A condition, and the expression that raises the error for a row where it is not true."""

    condition: Column
    violation: Column


def table_rows(
    jvm: JvmSession,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    *,
    checks: Sequence[RowCheck] = (),
    hidden: StructType = _NO_COLUMNS,
    keeps_identity: bool = False,
    where: Column | None = None,
) -> DataFrame:
    """The table's columns in order, with its rules and `checks` in the plan.

    `data` has some of them, by name.  A row that breaks a rule fails the job that writes it:
    `typed_violations` around that job gives the error.  Columns of `hidden`, which `data` has too,
    come last as they are.  With `keeps_identity` the numbers of identity columns in `data` are the
    table's own.  Rules apply only to rows for which `where` is true.
    """
    schema, own = metadata.schema, from_spark(data.schema)
    features = supported_features(protocol)
    if "identityColumns" in features and not keeps_identity:
        check_explicit_insert(schema, own.names)
    for path in missing_not_null_columns(schema, own):
        raise SchemaError("DELTA_MISSING_NOT_NULL_COLUMN_VALUE", columnName=column_name(path))
    generated = generation_expressions(jvm, schema) if "generatedColumns" in features else {}
    computed = {name: made for name, made in generated.items() if name not in own}
    # A generated column that is in the data must have the value that the table computes.
    required = [
        RowCheck(name="Generated Column", condition=null_safe_equal(jvm, column(name), made.column))
        for name, made in generated.items()
        if name in own
    ]
    rules = _table_rules(jvm, metadata)
    rules += [_check_rule(c.name, expression(jvm, c.condition)) for c in (*required, *checks)]
    plain = StructType(tuple(f for f in schema if f.name not in computed))
    values = _missing_values(jvm, plain, own, features)
    rows = aligned(data, StructType((*plain, *hidden)), values)
    rows = _completed(jvm, rows, metadata, computed, hidden, nulls_for_empty=bool(rules))
    return _checked(rows, rules, where)


def filled_columns(metadata: Metadata, protocol: Protocol) -> frozenset[str]:
    """The columns that data may lack because the table computes a value for them."""
    features = supported_features(protocol)
    return frozenset(
        f.name
        for f in metadata.schema
        if current_default(f) is not None
        or ("generatedColumns" in features and generation_expression(f) is not None)
        or ("identityColumns" in features and is_identity(f))
    )


def generated_values(jvm: JvmSession, schema: StructType) -> dict[str, Column]:
    """The values of generated columns by name, over the table's other columns, as stored."""
    made = generation_expressions(jvm, schema)
    return {f.name: _as_stored(jvm, made[f.name].column, f) for f in schema if f.name in made}


def identity_value(jvm: JvmSession, f: StructField) -> Column:
    """The next numbers of an identity column, one for each row.

    Each task gives its rows every n-th number, n being the number of partitions of its stage: no
    two rows have the same, whatever the planner does, and a task that is repeated repeats its
    numbers.  Gaps are allowed.
    Between this column and the writer only steps that keep rows in their task, and shuffles, are
    allowed; `coalesce` is not, because it puts several partitions into one task.
    """
    info = identity_info(f)
    first = info.next_value
    if not -_LAST_LONG - 1 <= first <= _LAST_LONG:
        raise SchemaError(_IDENTITY_OVERFLOW, colName=f.name)
    # Outside a task, where Spark evaluates constant rows during planning, there is one partition.
    partitions = F.coalesce(num_partitions(jvm), F.lit(1)).cast("bigint")
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_BITS))
    index = F.try_add(F.spark_partition_id().cast("bigint"), F.try_multiply(partitions, row))
    step = F.lit(info.step).cast("bigint")
    value = F.try_add(F.lit(first).cast("bigint"), F.try_multiply(step, index))
    return F.coalesce(value, _raised(_IDENTITY_OVERFLOW, colName=f.name).cast("bigint"))


@contextmanager
def typed_violations(translate: Callable[[DeltaError], DeltaError] | None = None) -> Iterator[None]:
    """Raise our error for a job that failed because a row violates a rule.

    `translate` may replace it by another error, as for replaceWhere.  Any other failure is raised
    as Spark's error for its cause, without the wrapping error of the task.
    """
    try:
        yield
    except JAVA_FAILURES as error:
        for message in messages(error):
            if (found := _violation(message)) is not None:
                raise (translate(found) if translate else found) from error
        inner = innermost(error)
        if inner is error:
            raise
        raise inner from error


def _table_rules(jvm: JvmSession, metadata: Metadata) -> list[_Rule]:
    """The rules of the table, in the order in which delta-spark checks them."""
    schema = metadata.schema
    constraints = [
        TableSql(name=check.name, text=check.expression)
        for check in table_checks(metadata.configuration)
    ]
    conditions = [TableSql(name="", text=check.expression) for check in invariants(schema)]
    lengths = list(_length_checks(jvm, schema))
    texts = [*constraints, *conditions, *lengths]
    parsed = iter(check_conditions(jvm, schema, texts) if texts else ())
    return [
        *[_check_rule(sql.name, next(parsed)) for sql in constraints],
        *[_not_null_rule(field.path) for field in not_null_fields(schema)],
        *[
            _check_rule(f"EXPRESSION({found.sql})", found)
            for _ in conditions
            for found in [next(parsed)]
        ],
        *[_length_rule(sql.name, next(parsed)) for sql in lengths],
    ]


def _not_null_rule(path: Sequence[str]) -> _Rule:
    """Requires a value in a field, and in every struct around it."""
    found = reduce(lambda parent, name: parent.getField(name), path[1:], column(path[0]))
    return _Rule(
        condition=found.isNotNull(),
        violation=_raised("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", columnName=column_name(path)),
    )


def _check_rule(name: str, condition: Expression) -> _Rule:
    """Requires a condition; the error shows the row's values of its columns."""
    values = [value.alias(own) for own, value in condition.columns]
    return _Rule(
        condition=condition.column,
        violation=_raised(
            "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
            constraintName=name,
            expression=condition.sql,
            values=F.struct(*values) if values else "",
        ),
    )


def _length_rule(name: str, condition: Expression) -> _Rule:
    """Requires that a text fits its CHAR or VARCHAR; the error shows the column's value."""
    return _Rule(
        condition=condition.column,
        violation=_raised(
            "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", value=column(name), expr=condition.sql
        ),
    )


def _raised(condition: str, **parameters: str | Column) -> Column:
    """An expression that raises a DeltaError; parameters may be values of the row."""
    texts = {name: value for name, value in parameters.items() if isinstance(value, str)}
    values = [value.alias(name) for name, value in parameters.items() if not isinstance(value, str)]
    facts = F.lit(json.dumps({"condition": condition, **texts}))
    of_row = F.to_json(F.struct(*values), {"ignoreNullFields": "false"}) if values else F.lit("{}")
    # Spark moves deterministic expressions below joins and filters, where there are rows that are
    # not written, and replaces a rule that is never true by its error.  The partition id, which the
    # message does not show, makes the expression nondeterministic, so it stays in place.
    nothing = F.left(F.spark_partition_id().cast("string"), F.lit(0))
    return F.raise_error(
        F.concat(F.lit(f"{_MARK}["), facts, F.lit(","), of_row, F.lit("]"), nothing)
    )


def _checked(data: DataFrame, rules: Sequence[_Rule], where: Column | None = None) -> DataFrame:
    """`data` unchanged, in a plan that fails at the first row that violates one of `rules`.

    Rows for which `where` is not true are not checked.
    """
    if not rules:
        return data
    # The partition id keeps the condition in place, as for errors (`_raised`).
    outcome = F.spark_partition_id() >= 0
    for rule in reversed(rules):
        broken = rule.violation.cast("boolean")
        outcome = F.when(rule.condition, outcome).otherwise(broken)
    if where is not None:
        outcome = F.when(where, outcome).otherwise(F.lit(True))
    return data.where(outcome)


def _length_checks(jvm: JvmSession, schema: StructType) -> Iterator[TableSql]:
    """Conditions on the length of CHAR(n) and VARCHAR(n), one for each column that has some.

    Both are stored as strings, and Spark's field metadata has the declared type.  CHAR is not
    padded on write, because Spark pads it on read.  No conditions where Spark is set to treat both
    as STRING.  Names in the conditions are quoted.
    """
    if is_on(jvm.spark, CHAR_VARCHAR_AS_STRING):
        return
    for f in schema:
        if not isinstance(limits := f.metadata.get(CHAR_VARCHAR_KEY), str):
            continue
        if condition := _fits_condition(quoted_name(f.name), raw_type(jvm, limits), 0):
            yield TableSql(name=f.name, text=condition)


def _fits_condition(value: str, declared: Any, depth: int) -> str | None:
    """The condition on `value`, whose type is in Spark's JSON form; None for none."""
    if isinstance(declared, str):
        limit = _LIMITED_TYPE.fullmatch(declared)
        return f"({value} IS NULL OR length({value}) <= {limit[1]})" if limit else None
    kind = declared.get("type")
    parts: list[str | None] = []
    if kind == "struct":
        fields = [(f"{value}.{quoted_name(f['name'])}", f["type"]) for f in declared["fields"]]
        parts = [_fits_condition(inner, own, depth) for inner, own in fields]
    elif kind == "array":
        parts = [_all_fit(value, declared["elementType"], depth)]
    elif kind == "map":
        keys = _all_fit(f"map_keys({value})", declared["keyType"], depth)
        parts = [keys, _all_fit(f"map_values({value})", declared["valueType"], depth)]
    return " AND ".join(part for part in parts if part) or None


def _all_fit(values: str, declared: Any, depth: int) -> str | None:
    item = f"x{depth}"
    inner = _fits_condition(item, declared, depth + 1)
    return f"({values} IS NULL OR forall({values}, {item} -> {inner}))" if inner else None


def _missing_values(
    jvm: JvmSession, schema: StructType, own: StructType, features: frozenset[str]
) -> dict[str, Column]:
    """Values of columns that the data lacks, where they are not null."""
    missing = [f for f in schema if f.name not in own]
    values = {
        f.name: identity_value(jvm, f)
        for f in missing
        if "identityColumns" in features and is_identity(f)
    }
    with_default = [f for f in missing if f.name not in values and current_default(f) is not None]
    if with_default:
        texts = [TableSql(name=f.name, text=current_default(f) or "") for f in with_default]
        for f, default in zip(with_default, default_values(jvm, texts), strict=True):
            values[f.name] = _as_stored(jvm, default.column, f)
    return values


def _completed(
    jvm: JvmSession,
    rows: DataFrame,
    metadata: Metadata,
    computed: Mapping[str, Expression],
    hidden: StructType,
    *,
    nulls_for_empty: bool,
) -> DataFrame:
    """`rows` with their computed columns.

    An empty text in a partition column is stored as null, so rules must see null
    (`nulls_for_empty`).
    """
    partitions = {f.name for f in metadata.partition_schema if f.data_type == STRING}
    empties = partitions if nulls_for_empty else frozenset()
    if not computed and not empties:
        return rows

    def made(f: StructField) -> Column:
        how = computed.get(f.name)
        value = column(f.name) if how is None else _as_stored(jvm, how.column, f)
        return (F.nullif(value, F.lit("")) if f.name in empties else value).alias(f.name)

    return rows.select(*[made(f) for f in metadata.schema], *map(column, hidden.names))


def _as_stored(jvm: JvmSession, value: Column, f: StructField) -> Column:
    wanted = bare_type(f.data_type)
    return stored_as(jvm, value, wanted, StorePolicy.ANSI, name=f.name, can_overflow=False)


def _violation(text: str) -> DeltaError | None:
    start = text.find(_MARK)
    if start < 0:
        return None
    decoder = json.JSONDecoder(parse_float=Decimal)  # a float would lose digits
    try:
        (facts, values), _ = decoder.raw_decode(text, start + len(_MARK))
        condition = facts.pop("condition")
        texts = {
            name: _lines(value) if name == _LINES else _text(value)
            for name, value in values.items()
        }
        return _CLASSES[condition](condition, **facts, **texts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f" - {name} : {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, str | Decimal):
        text = str(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
