"""INSERT INTO and INSERT OVERWRITE a Delta table, in all forms that Spark's parser knows."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.identity_columns import is_identity
from pyspark_delta.kernel.protocol.types import StructField
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.setting_table import AUTO_MERGE
from pyspark_delta.spark.conf.settings import (
    NULLS_FOR_MISSING_DEFAULTS,
    PARTITION_OVERWRITE_MODE,
    is_on,
)
from pyspark_delta.spark.ddl.create_table import completed_table
from pyspark_delta.spark.jvm.catalog.entries import is_temporary_view
from pyspark_delta.spark.jvm.expressions.catalyst import constant
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession, to_spark_type
from pyspark_delta.spark.jvm.parser.changes import are_arguments
from pyspark_delta.spark.jvm.parser.inserts import (
    InsertedQuery,
    ParsedInsert,
    parse_inserts,
    writes_directory,
)
from pyspark_delta.spark.rules.alignment import column
from pyspark_delta.spark.rules.expressions import TableSql, default_values
from pyspark_delta.spark.scan.frame import read_snapshot
from pyspark_delta.spark.scan.versions import one_version_each
from pyspark_delta.spark.sql.statement import Command, Request, command, inserted_table
from pyspark_delta.spark.tables.column_checks import is_exact, is_spelled
from pyspark_delta.spark.tables.names import TableName, log_of
from pyspark_delta.spark.write.by_name import TableRows, insert_rows

_NOT_A_TABLE = ("DIRECTORY", "LOCAL")
# One FROM may serve several INSERTs.
_FROM = re.compile(r"\s*(?:FROM|WITH)\b", re.IGNORECASE)


def insert_command(request: Request) -> Command | None:
    """INSERT of the rows of a query or of VALUES; None if no table is a Delta table."""
    targets = _targets(request)
    if targets is None:
        return None

    def run() -> None:
        writes = _prepared(request, targets, runs=True)
        # No INSERT of a statement reads rows that an earlier one has written.
        jvm = JvmSession(request.spark)
        with one_version_each(jvm):
            for write in writes:
                if isinstance(write, ParsedInsert):
                    write.run_by_spark(jvm)  # its table, beside a Delta table, is Spark's
                else:
                    write.run()

    return command(request.spark, run)


def plan_insert(request: Request) -> tuple[str, DataFrame] | None:
    """The command and its rows, for EXPLAIN.

    None if the table is not a Delta table, and for several tables at once.
    """
    targets = _targets(request)
    if targets is None or len(targets) > 1:
        return None
    (write,) = _prepared(request, targets, runs=False)
    if not isinstance(write, _InsertedRows):
        return None
    return (
        f"{'Overwrite' if write.overwrite else 'Append'}Data {write.table.label}",
        write.rows.data,
    )


_Target = tuple[ParsedInsert, TableName | None]


def _targets(request: Request) -> list[_Target] | None:
    """The INSERTs of a statement, each with its Delta table; None if none of them has one."""
    spark, named, jvm = request.spark, request.head.target, JvmSession(request.spark)
    if not are_arguments(request.args):
        return None
    may_be_directory = bool(named) and named[0].upper() in _NOT_A_TABLE
    if may_be_directory and writes_directory(jvm, request.sql, request.args):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation="INSERT OVERWRITE DIRECTORY"
        )
    if named and not _FROM.match(request.sql) and inserted_table(spark, named) is None:
        return None
    parsed = parse_inserts(JvmSession(request.spark), request.sql, request.args)
    if parsed is None:
        return None
    tables = [_table_of(spark, each) for each in parsed]
    if all(table is None for table in tables):
        return None
    return list(zip(parsed, tables, strict=True))


def _prepared(
    request: Request, targets: Sequence[_Target], *, runs: bool
) -> list[_InsertedRows | ParsedInsert]:
    """The writes of a statement; all of them read tables as they are before the first write."""
    spark = request.spark
    if runs:
        targets = [
            (each, None if table is None else completed_table(spark, table))
            for each, table in targets
        ]
    may_have_default = "default" in request.sql.lower()
    return [
        each
        if table is None
        else _Insert(
            spark=spark, table=table, parsed=each, may_have_default=may_have_default
        ).prepared()
        for each, table in targets
    ]


def _table_of(spark: SparkSession, parsed: ParsedInsert) -> TableName | None:
    jvm, name = JvmSession(spark), parsed.target.name
    table = inserted_table(spark, name)
    if table is not None and parsed.replace_where is not None and is_temporary_view(jvm, name):
        raise analysis_error(jvm, "VIEW_WRITE_NOT_ALLOWED", name=".".join(name))
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class _InsertedRows:
    """Rows with the table's columns, ready to be written."""

    spark: SparkSession
    table: TableName
    rows: TableRows
    overwrite: bool
    by_position: bool
    fields_by_position: bool
    replace_where: Column | None

    def run(self) -> None:
        """Write the rows."""
        insert_rows(
            self.spark,
            self.table,
            self.rows,
            overwrite=self.overwrite,
            by_position=self.by_position,
            fields_by_position=self.fields_by_position,
            replace_where=self.replace_where,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Insert:
    spark: SparkSession
    table: TableName
    parsed: ParsedInsert
    may_have_default: bool

    def prepared(self) -> _InsertedRows:
        """The rows with the table's columns."""
        parsed, metadata = self.parsed, log_of(self.spark, self.table).update().metadata
        fixed = self._fixed(metadata)
        if parsed.if_not_exists:
            raise OperationNotAllowedError(
                "UNSUPPORTED_FEATURE.INSERT_PARTITION_SPEC_IF_NOT_EXISTS",
                tableName=self.table.label,
            )
        self._check_list(metadata)
        data, by_position = self._data(metadata, fixed)
        if not by_position:
            self._check_names(metadata, data.columns)
            self._check_missing(metadata, data.columns)
        return _InsertedRows(
            spark=self.spark,
            table=self.table,
            rows=TableRows(data=data, options=self._options()),
            overwrite=parsed.overwrite or self._replaces_some,
            by_position=by_position,
            fields_by_position=not parsed.by_name,
            replace_where=self._replace_where(fixed),
        )

    def _fixed(self, metadata: Metadata) -> dict[str, Column]:
        """The values of PARTITION (...), by column name in the table's spelling."""
        parsed, jvm = self.parsed, JvmSession(self.spark)
        known = {name.lower(): name for name in metadata.partition_columns}
        for name in (*parsed.fixed, *parsed.open):
            if name.lower() not in known or self._is_misspelled(metadata, name):
                raise SchemaError("NON_PARTITION_COLUMN", columnName=quoted_name(name))
        fixed = {known[name.lower()]: text for name, text in parsed.fixed.items()}
        listed = {name.lower() for name in parsed.columns}
        for name in fixed:
            if name.lower() in listed:
                raise SchemaError("STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST", staticName=name)
        types = {f.name: to_spark_type(f.data_type) for f in metadata.schema if f.name in fixed}
        return {name: constant(jvm, F.lit(text).cast(types[name])) for name, text in fixed.items()}

    @property
    def _replaces_some(self) -> bool:
        parsed = self.parsed
        return parsed.replace_on is not None or bool(parsed.replace_using)

    def _options(self) -> DeltaOptions:
        parsed = self.parsed
        options: dict[str, str] = {}
        if parsed.evolves:
            options["mergeSchema"] = "true"
        if parsed.replace_on is not None:
            options["replaceOn"] = parsed.replace_on
            if parsed.replace_alias is not None:
                options["targetAlias"] = parsed.replace_alias
        if parsed.replace_using:
            options["replaceUsing"] = ", ".join(map(quoted_name, parsed.replace_using))
        return DeltaOptions(options)

    def _replace_where(self, fixed: Mapping[str, Column]) -> Column | None:
        parsed = self.parsed
        if parsed.replace_where is not None or not parsed.overwrite or not fixed:
            return parsed.replace_where
        if (self.spark.conf.get(PARTITION_OVERWRITE_MODE) or "").lower() == "dynamic":
            return None  # the written partitions, which include the values
        conditions = [column(name).eqNullSafe(value) for name, value in fixed.items()]
        return reduce(operator.and_, conditions)

    def _data(self, metadata: Metadata, fixed: Mapping[str, Column]) -> tuple[DataFrame, bool]:
        """The rows, and whether their columns match the table's by position."""
        parsed, jvm = self.parsed, JvmSession(self.spark)
        free = [f.name for f in metadata.schema if f.name not in fixed]
        targets = list(parsed.columns) or ([] if parsed.by_name else free)
        query, left_out = parsed.query, frozenset[str]()
        if self.may_have_default and targets:
            query, left_out = self._with_defaults(query, metadata, targets)
        data = query.frame(jvm)
        if parsed.columns:
            self._check_arity(parsed.columns, data.columns)
            data = data.toDF(*parsed.columns)
        elif not parsed.by_name:
            if not fixed and not left_out:
                return data, True
            self._check_enough(metadata, len(fixed) + len(data.columns))
            more = data.columns[len(free) :]
            data = data.toDF(*free, *more)
            if not left_out:
                values = [
                    fixed[f.name].alias(f.name) if f.name in fixed else column(f.name)
                    for f in metadata.schema
                ]
                return data.select(*values, *map(column, more)), True
        kept = [name for name in data.columns if name not in left_out]
        values = [value.alias(name) for name, value in fixed.items()]
        if values or len(kept) < len(data.columns):
            data = data.select(*map(column, kept), *values)
        return data, False

    def _with_defaults(
        self, query: InsertedQuery, metadata: Metadata, targets: Sequence[str]
    ) -> tuple[InsertedQuery, frozenset[str]]:
        """The query without DEFAULT values, and the columns that the table fills."""
        places = {i: alone for i, alone in query.defaults().items() if i < len(targets)}
        if not places:
            return query, frozenset()
        fields = {i: metadata.schema.get(targets[i]) for i in places}
        for f in fields.values():
            if f is not None and not f.nullable and not _has_value(f):
                raise SchemaError("NO_DEFAULT_COLUMN_VALUE_AVAILABLE", colName=quoted_name(f.name))
        jvm = JvmSession(self.spark)
        values = {i: F.lit(None) if f is None else _default(jvm, f) for i, f in fields.items()}
        left_out = {
            targets[i]
            for i, f in fields.items()
            if f is not None and places[i] and (is_identity(f) or generation_expression(f))
        }
        return query.with_defaults(jvm, values), frozenset(left_out)

    @property
    def _may_evolve(self) -> bool:
        return self.parsed.evolves or AUTO_MERGE.of(self.spark)

    def _check_list(self, metadata: Metadata) -> None:
        """Check that listed columns are the table's, and each is listed once."""
        columns = self.parsed.columns
        unknown = [
            name
            for name in columns
            if name not in metadata.schema or self._is_misspelled(metadata, name)
        ]
        known = [name.lower() for name in columns if name not in unknown]
        for name in columns:
            if known.count(name.lower()) > 1:
                raise SchemaError("COLUMN_ALREADY_EXISTS", columnName=quoted_name(name))
        if not self._may_evolve and unknown:
            # Spark's error for an unknown name, which lists the table's columns.
            rows = read_snapshot(self.spark, log_of(self.spark, self.table).update())
            rows.select(*map(column, columns))

    def _check_names(self, metadata: Metadata, given: Sequence[str]) -> None:
        """Check that the columns of the rows are the table's, where they match by name."""
        if self._may_evolve:
            return
        if len(given) > len(metadata.schema):
            raise self._arity("TOO_MANY", metadata.schema.names, given)
        for name in given:
            if name not in metadata.schema:
                listed = ", ".join(metadata.schema.names)
                raise SchemaError("DELTA_MISSING_COLUMN", columnName=name, columnList=listed)
        lowered = [name.lower() for name in given]
        for name in given:
            # A name that differs only in case gets its own error.
            if lowered.count(name.lower()) == 1 and self._is_misspelled(metadata, name):
                raise SchemaError(
                    "DELTA_FAILED_TO_MERGE_FIELDS",
                    currentField=metadata.schema[name].name,
                    updateField=name,
                )

    def _is_misspelled(self, metadata: Metadata, name: str) -> bool:
        return is_exact(self.spark) and not is_spelled(metadata.schema, (name,))

    def _check_enough(self, metadata: Metadata, given: int) -> None:
        if given < len(metadata.schema):
            raise SchemaError(
                "DELTA_INSERT_COLUMN_ARITY_MISMATCH",
                tableName=self.table.label,
                columnName="not enough data columns",
                numColumns=len(metadata.schema),
                insertColumns=given,
            )

    def _check_arity(self, wanted: Sequence[str], given: Sequence[str]) -> None:
        if len(wanted) != len(given):
            kind = "TOO_MANY" if len(given) > len(wanted) else "NOT_ENOUGH"
            raise self._arity(kind, wanted, given)

    def _arity(self, kind: str, wanted: Sequence[str], given: Sequence[str]) -> SchemaError:
        return SchemaError(
            f"INSERT_COLUMN_ARITY_MISMATCH.{kind}_DATA_COLUMNS",
            tableName=self.table.label,
            tableColumns=", ".join(wanted),
            dataColumns=", ".join(given),
        )

    def _check_missing(self, metadata: Metadata, given: Sequence[str]) -> None:
        """Check that columns without a value may be null, by the session and the table."""
        may_be_null = is_on(self.spark, NULLS_FOR_MISSING_DEFAULTS, default=True)
        known = {name.lower() for name in given}
        for f in metadata.schema:
            needs_value = not (may_be_null and f.nullable) and not _has_value(f)
            if f.name.lower() not in known and needs_value:
                raise SchemaError("DELTA_INSERT_COLUMN_MISMATCH", columnName=f.name)


def _has_value(f: StructField) -> bool:
    """Whether the table computes a value for the column."""
    return bool(current_default(f) or is_identity(f) or generation_expression(f))


def _default(jvm: JvmSession, f: StructField) -> Column:
    text = current_default(f)
    if text is None:
        return F.lit(None)
    (value,) = default_values(jvm, [TableSql(name=f.name, text=text)])
    return value.column.cast(to_spark_type(f.data_type))
