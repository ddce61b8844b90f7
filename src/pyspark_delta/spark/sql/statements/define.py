"""CREATE and REPLACE TABLE of a Delta table: with columns, from a query, or LIKE another table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.kernel.protocol.column_defaults import without_defaults
from pyspark_delta.kernel.protocol.column_mapping import without_mapping
from pyspark_delta.kernel.protocol.constraints import constraint_text, with_constraint
from pyspark_delta.kernel.protocol.generated_columns import with_generation_expression
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.settings import DEFAULT_SOURCE
from pyspark_delta.spark.ddl.create_table import run_create_table
from pyspark_delta.spark.jvm.catalog.entries import entry_properties
from pyspark_delta.spark.jvm.expressions.catalyst import stored_columns
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.changes import parsed_plan
from pyspark_delta.spark.jvm.parser.plans import (
    Query,
    TableDefinition,
    TableStatement,
    read_table_statement,
)
from pyspark_delta.spark.jvm.parser.tables import LikeStatement, parse_like
from pyspark_delta.spark.jvm.write.file_writer import check_new_columns
from pyspark_delta.spark.rules.expressions import TableSql, check_new_generated_columns, new_check
from pyspark_delta.spark.sql.statement import Command, Request, command
from pyspark_delta.spark.sql.statements.create_statement import sql_name
from pyspark_delta.spark.tables.names import (
    TableName,
    log_of,
    look_up,
    look_up_relation,
    settable_properties,
    update_entry,
)
from pyspark_delta.spark.write.by_name import TableRows, make_table
from pyspark_delta.spark.write.request import TableVerb

_GENERATION = "GENERATION_EXPRESSION"
_IDENTITY_START, _IDENTITY_STEP = "identity.start", "identity.step"
_IDENTITY_ALLOWS_EXPLICIT = "identity.allowExplicitInsert"
_SPARKS_COLUMN_KEYS = (_GENERATION, _IDENTITY_START, _IDENTITY_STEP, _IDENTITY_ALLOWS_EXPLICIT)
# Properties that stand for other clauses of CREATE TABLE.
_LOCATION, _COMMENT = "location", "comment"
_LIKELY_LIKE = re.compile(r"\bLIKE\b", re.IGNORECASE)


def delta_columns(schema: StructType) -> StructType:
    """The columns of a statement, with the metadata that tables have.

    Spark's parser marks generated and identity columns with its own keys, the log with Delta's.
    """
    return StructType(tuple(_delta_column(f) for f in schema))


def like_command(request: Request) -> Command | None:
    """CREATE TABLE LIKE: an empty Delta table with the columns of another table.

    None if neither the source is a Delta table nor the statement has USING delta: the statement is
    then Spark's.
    """
    spark = request.spark
    try:
        statement = parse_like(JvmSession(spark), request.sql)
    except ParseException:
        return None  # Spark has a better error
    if statement is None or statement.stored_as:
        return None
    source = look_up_relation(spark, statement.source)
    is_delta = source is not None and source.is_delta
    provider = (statement.provider or ("delta" if is_delta else "")).lower()
    if provider != "delta":
        if is_delta and source is not None:
            update_entry(spark, source)
        return None
    name = look_up(spark, statement.name)
    if name is None:
        return None

    def run() -> None:
        run_create_table(spark, name, _like_definition(spark, statement, source))

    return command(spark, run)


def define_command(request: Request) -> Command | None:
    """CREATE or REPLACE TABLE, when its provider is Delta."""
    spark = request.spark
    if _LIKELY_LIKE.search(request.sql):
        made = like_command(request)
        if made is not None:
            return made
    defined = _delta_definition(request)
    return None if defined is None else statement_command(spark, *defined)


def plan_definition(request: Request) -> tuple[str, DataFrame] | None:
    """The command and the rows of its query, for EXPLAIN; None if there is no query."""
    defined = _delta_definition(request)
    if defined is None:
        return None
    name, statement = defined
    checked = _checked(request.spark, name, statement)
    if checked.query is None:
        return None
    verb = "Replace" if statement.replaces else "Create"
    return f"{verb}TableAsSelect {name.label}", checked.query.frame(JvmSession(request.spark))


def _delta_definition(request: Request) -> tuple[TableName, TableStatement] | None:
    """The table and the statement, if that makes a Delta table of columns or of a query."""
    spark = request.spark
    default = (spark.conf.get(DEFAULT_SOURCE) or "").lower()
    if "delta" not in request.sql.lower() and default != "delta":
        return None
    jvm = JvmSession(spark)
    try:
        statement = read_table_statement(jvm, parsed_plan(jvm, request.sql, request.args))
    except ParseException:
        return None  # Spark has a better error
    if statement is None or (statement.provider or default).lower() != "delta":
        return None
    name = look_up(spark, statement.name)
    return None if name is None else (name, statement)


def statement_command(
    spark: SparkSession,
    name: TableName,
    statement: TableStatement,
    options: DeltaOptions | None = None,
) -> Command:
    """CREATE or REPLACE TABLE with columns, or with a query; `options` are those of a writer."""

    def run() -> None:
        checked = _checked(spark, name, statement)
        if checked.query is not None:
            _run_query(spark, name, checked, checked.query, options or DeltaOptions())
            return
        schema = delta_columns(checked.schema)
        check_new_generated_columns(JvmSession(spark), schema)
        run_create_table(spark, name, replace(checked, schema=schema))

    return command(spark, run)


def _checked(spark: SparkSession, name: TableName, statement: TableStatement) -> TableStatement:
    """The statement with its options and CHECKs as properties; raises for what has no place."""
    _check_supported(name, statement)
    return _with_checks(spark, _with_options(statement))


def _delta_column(f: StructField) -> StructField:
    metadata = f.metadata
    kept = {key: value for key, value in metadata.items() if key not in _SPARKS_COLUMN_KEYS}
    plain = StructField(f.name, f.data_type, f.nullable, kept)
    if _GENERATION in metadata:
        return with_generation_expression(plain, metadata[_GENERATION])
    if _IDENTITY_START in metadata:
        return with_identity(
            plain,
            start=metadata[_IDENTITY_START],
            step=metadata[_IDENTITY_STEP],
            allow_explicit_insert=metadata[_IDENTITY_ALLOWS_EXPLICIT],
        )
    return plain


def _like_definition(
    spark: SparkSession, statement: LikeStatement, source: TableName | None
) -> TableDefinition:
    """The statement with the columns, partitions, comment and properties of the other table."""
    if source is not None and source.is_delta:
        return _like_delta(spark, statement, source)
    if source is None or source.entry is None:
        # A temporary view, or no table: then Spark raises the error.
        columns = spark.table(sql_name(statement.source)).schema
        schema = without_defaults(stored_columns(JvmSession(spark), columns))
        return replace(statement, schema=schema)
    entry = source.entry
    properties = {} if entry.is_view else entry_properties(JvmSession(spark), entry)
    return replace(
        statement,
        # The columns of a view carry the defaults of its table, but the view has none.
        schema=without_defaults(entry.schema) if entry.is_view else entry.schema,
        partition_by=entry.partition_schema.names,
        comment=entry.comment,
        properties={**properties, **statement.properties},
    )


def _like_delta(
    spark: SparkSession, statement: LikeStatement, source: TableName
) -> TableDefinition:
    snapshot = log_of(spark, source).update()
    metadata = snapshot.metadata
    return replace(
        statement,
        schema=without_mapping(metadata.schema),
        partition_by=metadata.partition_columns,
        comment=metadata.description,
        properties={**settable_properties(metadata.configuration), **statement.properties},
        protocol=snapshot.protocol,
    )


def _run_query(
    spark: SparkSession,
    name: TableName,
    statement: TableStatement,
    query: Query,
    options: DeltaOptions,
) -> None:
    data = query.frame(JvmSession(spark))
    if statement.if_not_exists and name.entry is not None:
        check_new_columns(data)
        return
    verb: TableVerb = "create"
    if statement.replaces:
        verb = "create or replace" if statement.creates else "replace"
    # A writer's location and comment are properties.
    lowered = {key.lower(): value for key, value in statement.properties.items()}
    rows = TableRows(
        data=data,
        options=options,
        partition_by=statement.partition_by,
        cluster_by=tuple(".".join(path) for path in statement.cluster_by),
        location=statement.location or lowered.get(_LOCATION),
        comment=statement.comment or lowered.get(_COMMENT),
        properties={
            key: value
            for key, value in statement.properties.items()
            if key.lower() not in (_LOCATION, _COMMENT)
        },
    )
    make_table(spark, name, rows, verb)


def _with_options(statement: TableStatement) -> TableStatement:
    """Add OPTIONS to the properties, under two keys each; the path becomes the location."""
    options = dict(statement.options)
    path = next((key for key in options if key.lower() == "path"), None)
    location = statement.location if path is None else options.pop(path)
    options |= {f"option.{key}": value for key, value in options.items()}
    return replace(statement, location=location, properties={**options, **statement.properties})


def _with_checks(spark: SparkSession, statement: TableStatement) -> TableStatement:
    """Add CHECK constraints as properties, which delta-spark 4.4 rejects; raises for others."""
    jvm = JvmSession(spark)
    properties: Mapping[str, str | None] = statement.properties
    for each in statement.constraints:
        if each.text is None or each.characteristic:
            raise analysis_error(
                jvm,
                "UNSUPPORTED_FEATURE.TABLE_OPERATION",
                tableName=quoted_path(statement.name),
                operation="table constraint",
            )
        name = each.name or f"{statement.name[-1]}_chk_{uuid4().hex[:7]}"
        text = constraint_text(each.text)
        properties = with_constraint(properties, name, text)
        new_check(jvm, delta_columns(statement.schema), TableSql(name=name, text=text))
    return replace(statement, properties={key: value or "" for key, value in properties.items()})


def _check_supported(name: TableName, statement: TableStatement) -> None:
    if statement.transforms:
        operation = "Partitioning by expressions"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation)
    if statement.has_buckets:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL", operation="Bucketing", tableName=name.label
        )
