"""SET of UPDATE and MERGE: parses assignments, and puts the new values into rows.

A value is cast to its column's type by Spark's store assignment policy.  An assignment to a field
leaves the other fields of its struct as they are.  Generated columns without an assignment are
computed from the new values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors import InvalidPredicateError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.identity_columns import check_update
from pyspark_delta.kernel.protocol.types import DataType, StructField, StructType, column_name
from pyspark_delta.spark.jvm.expressions.catalyst import is_default_keyword, parse_attribute_name
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark
from pyspark_delta.spark.jvm.plans.conditions import (
    is_deterministic_query,
    is_repeatable,
    other_rows_needed,
)
from pyspark_delta.spark.jvm.plans.frames import Qualifier, without_name
from pyspark_delta.spark.jvm.plans.merge import sql_of
from pyspark_delta.spark.rules.alignment import column, value_cast
from pyspark_delta.spark.rules.expressions import TableSql, default_values
from pyspark_delta.spark.rules.rows import generated_values, table_rows
from pyspark_delta.spark.rules.struct_values import Conversions, Typed
from pyspark_delta.spark.tables.column_checks import is_exact, is_spelled

_VALUE, _OLD, _UPDATED = "__delta_value_", "__delta_old_", "__delta_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A value for a column, or for a field in one; None stands for the column's default."""

    path: tuple[str, ...]
    value: Column | None = field(hash=False)


Given = Mapping[str, Column] | Sequence[tuple[str, Column]]
"""Values by the names of columns and fields, as SQL spells them."""

Cast = Callable[[Column, DataType, DataType, str], Column]
"""Casts a value from the first type to the second; the text is the column or field's name."""


def parse_assignments(
    jvm: JvmSession, given: Given, schema: StructType, alias: Qualifier = None
) -> list[Assignment]:
    """Parse `{"s.a": value}`; names are as in SQL, and may be qualified with `alias`.

    The value DEFAULT stands for the column's default value.
    """
    found = []
    exact = is_exact(jvm.spark)
    for text, value in given.items() if isinstance(given, Mapping) else given:
        path = parse_attribute_name(jvm, text)
        rests = without_name(path, alias, exact=exact)
        own = [rest for rest in rests if schema.get(rest[0]) is not None]
        path = own[0] if own else path
        if exact and not is_spelled(schema, path):
            raise _missing(path, schema.names)
        is_default = is_default_keyword(jvm, value)
        found.append(Assignment(path=path, value=None if is_default else value))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NewValues:
    """The new values of columns by name; `is_repeatable` means that they are deterministic.

    `data` are rows with these values beside them, for callers that inspect how values are computed.
    """

    columns: Mapping[str, Column] = field(hash=False)
    is_repeatable: bool
    data: DataFrame = field(hash=False)


def assigned_columns(
    jvm: JvmSession,
    rows: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    assignments: Sequence[Assignment],
    *,
    structs_by_name: bool = False,
) -> NewValues:
    """The new values of all columns with assignments, over the columns of `rows`.

    Fields of structs match by position, as in the Python API, unless `structs_by_name`, as in
    statements.  Raises SchemaError for a column that does not exist, is assigned twice, or cannot
    be assigned; Spark's AnalysisException for a value that is invalid over `rows`.
    """
    schema = metadata.schema
    if "identityColumns" in supported_features(protocol):
        check_update(schema, (each.path[0] for each in assignments))
    if not assignments:
        return NewValues(columns={}, is_repeatable=True, data=rows)
    with_values = _with_defaults(jvm, schema, assignments)
    chosen = _with_values(jvm, rows, [value for _, value in with_values])
    if not is_deterministic_query(chosen):
        raise InvalidPredicateError(
            "INVALID_NON_DETERMINISTIC_EXPRESSIONS",
            operation="UPDATE",
            sqlExprs=", ".join(sql_of(jvm, value) for _, value in with_values),
        )
    types = [f.data_type for f in from_spark(chosen.schema).fields[-len(with_values) :]]
    cast = _casts_by_name(jvm) if structs_by_name else value_cast(jvm, metadata)
    wanted = [
        _InStruct(path=path, value=value, data_type=data_type, whole_path=path)
        for (path, value), data_type in zip(with_values, types, strict=True)
    ]
    found = _assigned(cast, schema, wanted, column, ())
    return NewValues(columns=found, is_repeatable=is_repeatable(jvm, chosen), data=chosen)


def updated_rows(
    jvm: JvmSession,
    rows: DataFrame,
    metadata: Metadata,
    protocol: Protocol,
    values: Mapping[str, Column],
    *,
    hidden: StructType,
    updated: Column | None = None,
) -> DataFrame:
    """`rows` with new values, generated columns, and checks of the table's rules in the plan.

    `updated` marks the rows to update, None all of them; the others stay as they are.  `hidden` are
    the row id and version columns, which `rows` have too: an updated row keeps its id, and its
    version becomes the commit's.
    """
    schema = metadata.schema
    has_generated = "generatedColumns" in supported_features(protocol)
    generated = generated_values(jvm, schema) if has_generated else {}
    computed = {name: made for name, made in generated.items() if name not in values}
    flag = None if updated is None else F.coalesce(updated, F.lit(False))

    def chosen(new: Column, old: Column, flag: Column | None = flag) -> Column:
        return new if flag is None else F.when(flag, new).otherwise(old)

    selected = []
    for f in schema:
        old = column(f.name)
        value = chosen(values[f.name], old) if f.name in values else old
        selected.append(value.alias(f"{_OLD}{f.name}" if f.name in computed else f.name))
    for i, name in enumerate(hidden.names):
        value = chosen(F.lit(None).cast("bigint"), column(name)) if i else column(name)
        selected.append(value.alias(name))
    if flag is not None and computed:
        selected.append(flag.alias(_UPDATED))
    made = rows.select(*selected)
    if computed:
        marked = None if flag is None else column(_UPDATED)
        made = made.select(
            *[
                chosen(computed[f.name], column(f"{_OLD}{f.name}"), marked).alias(f.name)
                if f.name in computed
                else column(f.name)
                for f in schema
            ],
            *map(column, hidden.names),
        )
    return table_rows(jvm, made, metadata, protocol, hidden=hidden, keeps_identity=True)


def _with_values(jvm: JvmSession, rows: DataFrame, values: Sequence[Column]) -> DataFrame:
    """`rows` with values beside their columns.

    Raises for aggregates and generators: UPDATE computes each row by itself.
    """
    listed = ", ".join(sql_of(jvm, value) for value in values)
    of_many = InvalidPredicateError(
        "UNSUPPORTED_EXPR_FOR_OPERATOR", operation="UPDATE", invalidExprSqls=listed
    )
    try:
        chosen = rows.select("*", *[value.alias(f"{_VALUE}{i}") for i, value in enumerate(values)])
    except AnalysisException as error:
        if error.getCondition() == "MISSING_GROUP_BY":
            raise of_many from error
        raise
    node = other_rows_needed(chosen)
    if node == "Generate":
        raise analysis_error(jvm, "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT", plan="UPDATE")
    if node is not None:
        raise of_many
    return chosen


def _casts_by_name(jvm: JvmSession) -> Cast:
    """Casts as in MERGE: structs must have the same fields, in any order."""
    conversions = Conversions.of(jvm, evolves=False)

    def cast(value: Column, own: DataType, wanted: DataType, name: str) -> Column:
        return conversions.stored(Typed(column=value, data_type=own), wanted, name)

    return cast


@dataclass(frozen=True, slots=True, kw_only=True)
class _InStruct:
    """An assignment in a struct: `path` is relative to the struct, `whole_path` to the row."""

    path: tuple[str, ...]
    value: Column = field(hash=False)
    data_type: DataType
    whole_path: tuple[str, ...]


def _assigned(
    cast: Cast,
    schema: StructType,
    wanted: Sequence[_InStruct],
    current: Callable[[str], Column],
    parents: tuple[str, ...],
) -> dict[str, Column]:
    """The new value of each field of `schema` with an assignment, in whole or in part."""
    for each in wanted:
        if schema.get(each.path[0]) is None:
            beside = [column_name((*parents, f.name)) for f in schema]
            raise _missing((*parents, each.path[0]), beside)
    found = {}
    for f in schema:
        own = [each for each in wanted if each.path[0].lower() == f.name.lower()]
        if not own:
            continue
        whole = [each for each in own if len(each.path) == 1]
        if whole and len(own) > 1:
            raise SchemaError(
                "DELTA_CONFLICT_SET_COLUMN",
                columnList=", ".join(column_name(each.whole_path) for each in own),
            )
        if whole:
            found[f.name] = cast(whole[0].value, whole[0].data_type, f.data_type, f.name)
        else:
            found[f.name] = _rebuilt(cast, f, own, current(f.name), (*parents, f.name))
    return found


def _missing(path: Sequence[str], known: Sequence[str]) -> SchemaError:
    return SchemaError(
        "DELTA_MISSING_SET_COLUMN", columnName=column_name(path), columnList=", ".join(known)
    )


def _rebuilt(
    cast: Cast, f: StructField, wanted: Sequence[_InStruct], value: Column, parents: tuple[str, ...]
) -> Column:
    """The struct `value` with new values in some fields; a null struct becomes one with nulls."""
    if not isinstance(f.data_type, StructType):
        raise SchemaError("DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")
    inner = f.data_type
    below = [replace(each, path=each.path[1:]) for each in wanted]
    new = _assigned(cast, inner, below, value.getField, parents)
    return F.struct(*[new.get(g.name, value.getField(g.name)).alias(g.name) for g in inner])


def _with_defaults(
    jvm: JvmSession, schema: StructType, assignments: Sequence[Assignment]
) -> list[tuple[tuple[str, ...], Column]]:
    """Each path with its value; DEFAULT is replaced by the column's default."""
    found = []
    for each in assignments:
        value = each.value
        if value is None:
            f = schema.get(each.path[0]) if len(each.path) == 1 else None
            text = None if f is None else current_default(f)
            if f is not None and text is None and not f.nullable:
                raise SchemaError("NO_DEFAULT_COLUMN_VALUE_AVAILABLE", colName=f.name)
            value = F.lit(None)
            if text is not None:
                (made,) = default_values(jvm, [TableSql(name=each.path[0], text=text)])
                value = made.column
        found.append((each.path, value))
    return found
