"""Data as rows of a table: what is missing filled in, what the table forbids refused.

The data's types fit already (`protocol.schema_merge`, `store_assignment`).  Rules and values are
part of the plan; only a rule that cannot be understood is refused here.  PROTOCOL.md, "Column
Invariants", "CHECK Constraints", "Generated Columns", "Default Columns", "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.table import InvalidPredicateError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.constraints import (
    check_constraints,
    invariants,
    not_null_fields,
)
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import (
    generated_columns,
    generation_expression,
)
from pyspark_delta.kernel.protocol.identity_columns import check_explicit_insert, is_identity
from pyspark_delta.kernel.protocol.schema_merge import missing_not_null_columns
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType, column_name
from pyspark_delta.spark.char_varchar import length_checks
from pyspark_delta.spark.column_alignment import aligned, bare_type, column
from pyspark_delta.spark.identity_values import identity_value, moved_identity
from pyspark_delta.spark.jvm.catalyst import StorePolicy, null_safe_equal, stored_as
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.sql_text import Expression, expression, parse_expression
from pyspark_delta.spark.row_checks import (
    RowCheck,
    Rule,
    check_rule,
    checked,
    length_rule,
    not_null_rule,
    typed_violations,
)
from pyspark_delta.spark.store_assignment import store_assigned
from pyspark_delta.spark.table_sql import (
    TableSql,
    check_conditions,
    default_values,
    generation_expressions,
)
from pyspark_delta.spark.types import from_spark

__all__ = [
    "RowCheck",
    "filled_columns",
    "generated_values",
    "moved_identity",
    "store_assigned",
    "table_rows",
    "typed_violations",
]

_NOTHING = StructType()


def table_rows(
    jvm: JvmSession,
    data: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    *,
    checks: Sequence[RowCheck] = (),
    hidden: StructType = _NOTHING,
    keeps_identity: bool = False,
    where: Column | None = None,
) -> DataFrame:
    """The table's columns in order, with its rules and `checks` in the plan.

    `data` has some of them, by name.  A row that breaks a rule fails the job that writes it:
    `typed_violations` around that job gives the error.  Columns of `hidden`, which `data` has too,
    come last as they are.  `keeps_identity` says that the numbers of identity columns in `data`
    are those that the table gave its rows.  `where` says which rows are to be written: no rule is
    for the others.
    """
    schema, own = metadata.schema, from_spark(data.schema)
    features = supported_features(protocol)
    if "identityColumns" in features and not keeps_identity:
        check_explicit_insert(schema, own.names)
    for path in missing_not_null_columns(schema, own):
        raise SchemaError("DELTA_MISSING_NOT_NULL_COLUMN_VALUE", columnName=column_name(path))
    generated = _generated(jvm, schema) if "generatedColumns" in features else {}
    computed = {name: made for name, made in generated.items() if name not in own}
    given = {name: made for name, made in generated.items() if name in own}
    rules = [*_table_rules(jvm, metadata), *_given_rules(jvm, given), *_more_rules(jvm, checks)]
    plain = StructType(tuple(f for f in schema if f.name not in computed))
    values = _values(jvm, plain, own, features)
    rows = aligned(data, StructType((*plain, *hidden)), values)
    rows = _completed(jvm, rows, metadata, computed, hidden, nulls_for_empty=bool(rules))
    return checked(rows, rules, where)


def filled_columns(metadata: Metadata, protocol: Protocol) -> frozenset[str]:
    """The columns that data may lack because the table gives them a value other than null."""
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
    made = _generated(jvm, schema)
    return {f.name: _as_stored(jvm, made[f.name].column, f) for f in schema if f.name in made}


def _generated(jvm: JvmSession, schema: StructType) -> dict[str, Expression]:
    """How generated columns get their values, by name."""
    columns = generated_columns(schema)
    if not columns:
        return {}
    texts = [TableSql(name=f.name, text=generation_expression(f) or "") for f in columns]
    plain = StructType(tuple(f for f in schema if f not in columns))
    made = generation_expressions(jvm, plain, texts)
    return {sql.name: how for sql, how in zip(texts, made, strict=True)}


def _values(
    jvm: JvmSession, schema: StructType, own: StructType, features: frozenset[str]
) -> dict[str, Column]:
    """Values of columns that the data lacks, where they are not null."""
    missing = [f for f in schema if f.name not in own]
    values = {
        f.name: identity_value(jvm, f)
        for f in missing
        if "identityColumns" in features and is_identity(f)
    }
    texts = [
        (f, TableSql(name=f.name, text=text))
        for f in missing
        if f.name not in values and (text := current_default(f)) is not None
    ]
    made = default_values(jvm, [sql for _, sql in texts])
    for (f, _), default in zip(texts, made, strict=True):
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
        return (
            F.nullif(value, F.lit("")).alias(f.name) if f.name in empties else value.alias(f.name)
        )

    return rows.select(*[made(f) for f in metadata.schema], *map(column, hidden.names))


def _as_stored(jvm: JvmSession, value: Column, f: StructField) -> Column:
    wanted = bare_type(f.data_type)
    return stored_as(jvm, value, wanted, StorePolicy.ANSI, name=f.name, can_overflow=False)


def _table_rules(jvm: JvmSession, metadata: Metadata) -> list[Rule]:
    """What the table itself asks of rows, in the order in which delta-spark checks it."""
    schema = metadata.schema
    constraints = [
        TableSql(name=check.name, text=check.expression)
        for check in check_constraints(metadata.configuration)
    ]
    conditions = [TableSql(name="", text=check.expression) for check in invariants(schema)]
    lengths = list(length_checks(jvm, schema))
    parsed = iter(check_conditions(jvm, schema, [*constraints, *conditions, *lengths]))
    return [
        *[check_rule(sql.name, next(parsed)) for sql in constraints],
        *[not_null_rule(field.path) for field in not_null_fields(schema)],
        *[
            check_rule(f"EXPRESSION({found.sql})", found)
            for _ in conditions
            for found in [next(parsed)]
        ],
        *[length_rule(sql.name, next(parsed)) for sql in lengths],
    ]


def _given_rules(jvm: JvmSession, given: Mapping[str, Expression]) -> Iterator[Rule]:
    """A generated column that the data brings must hold what it would be given."""
    for name, made in given.items():
        is_same = null_safe_equal(jvm, column(name), made.column)
        yield check_rule("Generated Column", expression(jvm, is_same))


def _more_rules(jvm: JvmSession, checks: Sequence[RowCheck]) -> Iterator[Rule]:
    for check in checks:
        if isinstance(check.condition, str):
            found = parse_expression(jvm, check.condition)
            if found is None:
                raise InvalidPredicateError(
                    "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT", expression=check.condition
                )
            yield check_rule(check.name, found)
        else:
            yield check_rule(check.name, expression(jvm, check.condition))
