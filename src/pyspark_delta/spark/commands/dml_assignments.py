"""SET: which columns and fields get which values, and rows with these values in place.

A value is cast to its column's type by Spark's store assignment policy; what is assigned to a field
leaves the struct's other fields as they are.  Columns that are generated and not assigned to are
computed anew from the new values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.table import InvalidPredicateError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.identity_columns import check_update
from pyspark_delta.kernel.protocol.types import (
    DataType,
    StructField,
    StructType,
    column_name,
)
from pyspark_delta.spark.column_alignment import column
from pyspark_delta.spark.commands.merge_values import Conversions, Typed
from pyspark_delta.spark.exact_names import is_exact, is_spelled
from pyspark_delta.spark.jvm.analysis_errors import analysis_error
from pyspark_delta.spark.jvm.attribute_names import is_default_keyword, parse_attribute_name
from pyspark_delta.spark.jvm.conditions import (
    is_deterministic,
    is_repeatable,
    other_rows_needed,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import sql_of
from pyspark_delta.spark.jvm.named_rows import Called, without_name
from pyspark_delta.spark.store_assignment import ValueCasts
from pyspark_delta.spark.table_rows import generated_values, table_rows
from pyspark_delta.spark.table_sql import TableSql, default_values
from pyspark_delta.spark.types import from_spark

_VALUE, _OLD, _UPDATED = "__delta_value_", "__delta_old_", "__delta_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A value for a column, or for a field inside of one; None is the column's own default."""

    path: tuple[str, ...]
    value: Column | None = field(hash=False)


Given = Mapping[str, Column] | Sequence[tuple[str, Column]]
"""Values by the names, as SQL spells them, of columns and fields."""

Cast = Callable[[Column, DataType, DataType, str], Column]
"""A value of the first type as one of the second, for the column or field of that name."""


def parse_assignments(
    jvm: JvmSession, given: Given, schema: StructType, alias: Called = None
) -> list[Assignment]:
    """What `{"s.a": value}` means; names are as in SQL, `alias` may stand before them.

    The value DEFAULT stands for what the column gets when nobody gives one.
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
    """The new values of columns by name; `is_repeatable` says that they come out so each time.

    `data` are rows with these values beside them, for who asks what the values are made of.
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
    """The new values of all columns that are assigned to, over the columns of `rows`.

    Fields of structs go by position, unless `structs_by_name`: so do those of the API, and not
    those of a statement.  SchemaError for a column that is not there, is assigned to twice, or
    takes no values; Spark's AnalysisException for a value that makes no sense over `rows`.
    """
    schema = metadata.schema
    if "identityColumns" in supported_features(protocol):
        check_update(schema, (each.path[0] for each in assignments))
    if not assignments:
        return NewValues(columns={}, is_repeatable=True, data=rows)
    with_values = _with_defaults(jvm, schema, assignments)
    chosen = _with_values(jvm, rows, [value for _, value in with_values])
    if not is_deterministic(chosen):
        raise InvalidPredicateError(
            "INVALID_NON_DETERMINISTIC_EXPRESSIONS",
            operation="UPDATE",
            sqlExprs=", ".join(sql_of(jvm, value) for _, value in with_values),
        )
    types = [f.data_type for f in from_spark(chosen.schema).fields[-len(with_values) :]]
    cast = _casts_by_name(jvm) if structs_by_name else ValueCasts(jvm, metadata).cast
    wanted = [
        _Wanted(path=path, value=value, data_type=data_type, whole_path=path)
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
    """`rows` with new values, generated columns and the table's rules in the plan.

    `updated` says which of them are updated, None stands for all; the others stay as they are.
    `hidden` are a row's id and version, which `rows` have too: the id of an updated row stays, its
    version is the commit's.
    """
    schema = metadata.schema
    features = supported_features(protocol)
    generated = generated_values(jvm, schema) if "generatedColumns" in features else {}
    computed = {name: made for name, made in generated.items() if name not in values}

    def chosen(new: Column, old: Column, flag: Column | None) -> Column:
        return new if flag is None else F.when(flag, new).otherwise(old)

    flag = None if updated is None else F.coalesce(updated, F.lit(False))
    selected = [
        (chosen(values[f.name], column(f.name), flag) if f.name in values else column(f.name))
        for f in schema
    ]
    names = [f"{_OLD}{f.name}" if f.name in computed else f.name for f in schema]
    ids = [
        chosen(F.lit(None).cast("bigint"), column(name), flag) if i else column(name)
        for i, name in enumerate(hidden.names)
    ]
    made = rows.select(
        *[value.alias(name) for value, name in zip(selected, names, strict=True)],
        *[value.alias(name) for value, name in zip(ids, hidden.names, strict=True)],
        *([] if flag is None or not computed else [flag.alias(_UPDATED)]),
    )
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

    Refused are values that are made of many rows, or make many: UPDATE looks at each row alone.
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
    """Casts as MERGE has them: structs must have the same fields, in whatever order."""
    conversions = Conversions.of(jvm, evolves=False)

    def cast(value: Column, own: DataType, wanted: DataType, name: str) -> Column:
        return conversions.stored(Typed(value, own), wanted, name)

    return cast


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """An assignment inside of some struct: `path` is the rest of the way, `whole_path` all."""

    path: tuple[str, ...]
    value: Column = field(hash=False)
    data_type: DataType
    whole_path: tuple[str, ...]

    def inside(self) -> _Wanted:
        return _Wanted(
            path=self.path[1:],
            value=self.value,
            data_type=self.data_type,
            whole_path=self.whole_path,
        )


def _assigned(
    cast: Cast,
    schema: StructType,
    wanted: Sequence[_Wanted],
    current: Callable[[str], Column],
    parents: tuple[str, ...],
) -> dict[str, Column]:
    """The new value of each field of `schema` that is assigned to, in whole or in part."""
    for each in wanted:
        if schema.get(each.path[0]) is None:
            beside = [column_name((*parents, f.name)) for f in schema]
            raise _missing((*parents, each.path[0]), beside)
    found = {}
    for f in schema:
        own = _of(wanted, f)
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
    cast: Cast,
    f: StructField,
    wanted: Sequence[_Wanted],
    value: Column,
    parents: tuple[str, ...],
) -> Column:
    """The struct `value` with new values for some of its fields; a null becomes a struct, too."""
    if not isinstance(f.data_type, StructType):
        raise SchemaError("DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")
    inner = f.data_type
    new = _assigned(cast, inner, [each.inside() for each in wanted], value.getField, parents)
    return F.struct(*[new.get(g.name, value.getField(g.name)).alias(g.name) for g in inner])


def _of(wanted: Sequence[_Wanted], f: StructField) -> list[_Wanted]:
    return [each for each in wanted if each.path[0].lower() == f.name.lower()]


def _with_defaults(
    jvm: JvmSession, schema: StructType, assignments: Sequence[Assignment]
) -> list[tuple[tuple[str, ...], Column]]:
    """Each path with its value, columns' defaults put in."""
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
