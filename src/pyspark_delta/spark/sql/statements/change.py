"""UPDATE, DELETE, MERGE and TRUNCATE TABLE of a Delta table, named directly or through a view.

For EXPLAIN, names are resolved and rules are checked as in the commands, so it raises the same
errors; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors import (
    DeltaError,
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.dml.assignments import (
    Given,
    assigned_columns,
    parse_assignments,
    updated_rows,
)
from pyspark_delta.spark.dml.delete import run_delete, run_truncate
from pyspark_delta.spark.dml.rows import dml_condition
from pyspark_delta.spark.dml.update import run_update
from pyspark_delta.spark.files.stage import hidden_columns
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.jvm.expressions.catalyst import (
    Moment,
    expression_of,
    is_default_keyword,
    parse_attribute_name,
    with_renamed_columns,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.changes import (
    ParsedChange,
    ParsedDelete,
    ParsedMerge,
    ParsedTruncate,
    ParsedUpdate,
    are_arguments,
    parse_change,
)
from pyspark_delta.spark.jvm.plans.frames import Qualifier, empty_frame, named_rows, without_name
from pyspark_delta.spark.jvm.plans.merge import has_subquery
from pyspark_delta.spark.jvm.plans.views import ViewColumns
from pyspark_delta.spark.merge.columns import evolve
from pyspark_delta.spark.merge.join import MergeRows
from pyspark_delta.spark.merge.names import MergeNames, resolve_merge
from pyspark_delta.spark.merge.request import (
    MERGE_SCHEMA,
    MergeRequest,
    check_clauses,
    is_insert_only,
)
from pyspark_delta.spark.merge.run import merge_into
from pyspark_delta.spark.scan.frame import located_rows, read_snapshot
from pyspark_delta.spark.sql.statement import (
    ChangedTable,
    Command,
    Request,
    changed_table,
    counts_schema,
    inserted_table,
)
from pyspark_delta.spark.tables.names import TableName, log_of, table_root, update_entry


def _delete(spark: SparkSession, target: ChangedTable, parsed: ParsedDelete) -> DataFrame:
    log = log_of(spark, target.table)
    return run_delete(spark, log, parsed.condition, alias=target.called).frame(spark)


def _merge(spark: SparkSession, target: ChangedTable, parsed: ParsedMerge) -> DataFrame:
    table, request = target.table, _merge_request(spark, target, parsed)
    evolved = partial(update_entry, spark, table)
    return merge_into(spark, log_of(spark, table), request, evolved).counts.frame(spark)


def _truncate(spark: SparkSession, target: ChangedTable, parsed: ParsedTruncate) -> DataFrame:
    if parsed.has_partition:
        raise OperationNotAllowedError("DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED")
    run_truncate(spark, log_of(spark, target.table))
    return empty_frame(JvmSession(spark))


def _update(spark: SparkSession, target: ChangedTable, parsed: ParsedUpdate) -> DataFrame:
    log = log_of(spark, target.table)
    done = run_update(
        spark, log, parsed.assignments, parsed.condition, alias=target.called, structs_by_name=True
    )
    return done.frame(spark)


_AFFECTED = counts_schema("num_affected_rows")
# What runs each kind of statement, and the columns of its result.
_RUNNERS: dict[type, tuple[Callable[[SparkSession, ChangedTable, Any], DataFrame], StructType]] = {
    ParsedUpdate: (_update, _AFFECTED),
    ParsedDelete: (_delete, _AFFECTED),
    ParsedMerge: (_merge, MERGE_SCHEMA),
    ParsedTruncate: (_truncate, StructType()),
}


def through_view(
    spark: SparkSession,
    view: ViewColumns,
    called: Qualifier,
    parsed: ParsedChange,
    *,
    schema: StructType,
    path: str,
) -> ParsedChange:
    """Rewrite a statement on a view to one on the table at `path` with that schema.

    The view has other columns or names than the table; `called` is the statement's name for it.
    Columns that the view hides cannot be used, and keep their values.  A column of the table may be
    in the view under the name of another one.  As with delta-spark, a view column that the table
    lacks makes the statement fail, used or not, and MERGE accepts only views of whole tables.  But
    where delta-spark writes the columns of such a view into the table, with null for hidden ones,
    here the table keeps its values.
    """
    jvm = JvmSession(spark)
    reader = _ViewNames(jvm=jvm, view=view, called=called)
    if isinstance(parsed, ParsedDelete | ParsedUpdate):
        reader.check(parsed)
    own = {name.lower() for name in schema.names}
    unknown = [name for name in view.columns if name.lower() not in own]
    if not isinstance(parsed, ParsedDelete | ParsedUpdate):
        if unknown or len(view.columns) < len(own):
            names = ", ".join(view.columns)
            raise SchemaError(
                "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", schemaDiff=f"the view has {names}"
            )
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=path)
    if unknown:
        raise SchemaError(
            "DELTA_CANNOT_RESOLVE_COLUMN", columnName=unknown[0], schema=", ".join(schema.names)
        )
    if not reader.can_rename(parsed):
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=path)
    return reader.renamed(parsed)


def change_command(request: Request) -> Command | None:
    """The statement as a command; None if its table is not a Delta table."""
    found = _target_and_statement(request)
    if found is None:
        return None
    target, parsed = found
    run, schema = _RUNNERS[type(parsed)]
    return Command(run=lambda: run(request.spark, target, parsed), schema=schema)


def api_change_command(spark: SparkSession, parsed: ParsedChange, verb: str) -> Command | None:
    """A change that an API made, whose plan has the form of a statement's."""
    target = _changed_target(spark, parsed.target.name, verb)
    if target is None:
        return None
    target, parsed = _on_table(spark, target, parsed)
    run, schema = _RUNNERS[type(parsed)]
    return Command(run=lambda: run(spark, target, parsed), schema=schema)


def plan_change(request: Request) -> tuple[str, DataFrame] | None:
    """The command and its rows, for EXPLAIN.

    None if the table is not a Delta table, or the statement reads no rows.
    """
    found = _target_and_statement(request)
    if found is None:
        return None
    target, parsed = found
    if isinstance(parsed, ParsedTruncate):
        return None
    spark, log, name = request.spark, log_of(request.spark, target.table), target.table.label
    if isinstance(parsed, ParsedDelete):
        rows = _plan_delete(spark, log, parsed.condition, target.called)
        return f"DeleteCommand {name}", rows
    if isinstance(parsed, ParsedUpdate):
        rows = _plan_update(spark, log, parsed.assignments, parsed.condition, target.called)
        return f"UpdateCommand {name}", rows
    merge = _merge_request(spark, target, parsed)
    return f"MergeIntoCommand {name}", _plan_merge(spark, log, merge)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ViewNames:
    """Maps the names of one view to those of its table."""

    jvm: JvmSession
    view: ViewColumns
    called: Qualifier

    def check(self, parsed: ParsedDelete | ParsedUpdate) -> None:
        """Raise Spark's AnalysisException if the columns of the view do not fit."""
        rows = named_rows(self.view.rows, self.called)
        if isinstance(parsed, ParsedUpdate):
            rows.select(*[F.col(name) for name, _ in parsed.assignments])
        for value in _assigned_values(parsed):
            if not is_default_keyword(self.jvm, value):
                rows.select(value)
        if parsed.condition is not None:
            rows.where(parsed.condition)

    def can_rename(self, parsed: ParsedDelete | ParsedUpdate) -> bool:
        """Whether each column of the view is one of the table's, and all names can be replaced.

        Names in a subquery cannot be replaced.
        """
        if None in self.view.columns.values():
            return False
        if all(name.lower() == own.lower() for name, own in self._column_pairs):
            return True
        given = [
            *_assigned_values(parsed),
            *([] if parsed.condition is None else [parsed.condition]),
        ]
        return not any(has_subquery(self.jvm, expression_of(self.jvm, each)) for each in given)

    def renamed(self, parsed: ParsedDelete | ParsedUpdate) -> ParsedChange:
        """The statement with the table's names."""
        given = parsed.condition
        condition = None if given is None else with_renamed_columns(self.jvm, given, self._own_name)
        if isinstance(parsed, ParsedDelete):
            return replace(parsed, condition=condition)
        assignments = tuple(
            (self._assigned(name), with_renamed_columns(self.jvm, value, self._own_name))
            for name, value in parsed.assignments
        )
        return replace(parsed, condition=condition, assignments=assignments)

    @property
    def _column_pairs(self) -> list[tuple[str, str]]:
        return [(name, own) for name, own in self.view.columns.items() if own is not None]

    def _assigned(self, text: str) -> str:
        return ".".join(map(quoted_name, self._own_name(parse_attribute_name(self.jvm, text))))

    def _own_name(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        known = {name.lower(): own for name, own in self._column_pairs}
        for path in (parts, *without_name(parts, self.called)):
            own = known.get(path[0].lower())
            if own is not None:
                return (own, *path[1:])
        return parts


def _assigned_values(parsed: ParsedDelete | ParsedUpdate) -> Sequence[Column]:
    return [value for _, value in parsed.assignments] if isinstance(parsed, ParsedUpdate) else []


def _target_and_statement(request: Request) -> tuple[ChangedTable, ParsedChange] | None:
    """The table, with its name in the statement, and the parsed statement on the table."""
    spark, verb, named = request.spark, request.head.verb, request.head.target
    target = _changed_target(spark, named, verb) if named else None
    if (target is None and named) or not are_arguments(request.args):
        return None
    parsed = parse_change(JvmSession(request.spark), request.sql, request.args)
    if parsed is None:
        return None
    if target is None:
        # The name is IDENTIFIER(...), which the parser has evaluated.
        target = _changed_target(spark, parsed.target.name, verb)
    return None if target is None else _on_table(spark, target, parsed)


def _on_table(
    spark: SparkSession, target: ChangedTable, parsed: ParsedChange
) -> tuple[ChangedTable, ParsedChange]:
    """The table with its name in the statement, and the statement on the table behind a view."""
    if not log_of(spark, target.table).table_exists:
        raise _no_table(spark, target.table)
    if parsed.target.alias is not None:
        target = replace(target, called=(parsed.target.alias,))
    if target.view is not None:
        snapshot = log_of(spark, target.table).update()
        parsed = through_view(
            spark,
            target.view,
            target.called,
            parsed,
            schema=snapshot.metadata.schema,
            path=snapshot.store.root_uri,
        )
    return target, parsed


def _no_table(spark: SparkSession, name: TableName) -> DeltaError:
    root = None if name.path is None else table_root(spark, name.path)
    if root is None:
        return TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=name.label)
    return OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=root)


def _changed_target(spark: SparkSession, name: Sequence[str], verb: str) -> ChangedTable | None:
    if verb.startswith("TRUNCATE"):
        table = inserted_table(spark, name)
        return None if table is None else ChangedTable(table=table, called=())
    return changed_table(spark, name, verb)


def _merge_request(spark: SparkSession, target: ChangedTable, parsed: ParsedMerge) -> MergeRequest:
    return MergeRequest(
        source=parsed.source_rows(JvmSession(spark)),
        condition=parsed.condition,
        clauses=parsed.clauses,
        called=target.called,
        evolves=parsed.evolves,
    )


def _plan_delete(
    spark: SparkSession, log: DeltaLog, condition: Column | None, alias: Qualifier
) -> DataFrame:
    """The rows that a DELETE would remove."""
    txn, snapshot = _start(log)
    rows = named_rows(read_snapshot(spark, snapshot), alias)
    if condition is None:
        return rows
    options = WriteOptions.parse({}, conf_of(spark))
    where = dml_condition(
        JvmSession(spark), txn, condition, "DELETE", alias, allows_exists=options.allows_exists
    )
    return rows.where(where.column)


def _plan_update(
    spark: SparkSession, log: DeltaLog, given: Given, condition: Column | None, alias: Qualifier
) -> DataFrame:
    """The rows that an UPDATE would change, with their new values."""
    jvm = JvmSession(spark)
    txn, snapshot = _start(log)
    rows = named_rows(read_snapshot(spark, snapshot), alias)
    assignments = parse_assignments(jvm, given, txn.schema, alias)
    if condition is not None:
        rows = rows.where(dml_condition(jvm, txn, condition, "UPDATE", alias).column)
    values = assigned_columns(
        jvm, rows, txn.metadata, txn.protocol, assignments, structs_by_name=True
    )
    return updated_rows(jvm, rows, txn.metadata, txn.protocol, values.columns, hidden=StructType())


def _plan_merge(spark: SparkSession, log: DeltaLog, request: MergeRequest) -> DataFrame:
    """The join of the source with the table, and its new rows."""
    check_clauses(request.clauses)
    jvm = JvmSession(spark)
    txn, snapshot = _start(log)
    names = MergeNames(
        jvm=jvm,
        txn=txn,
        request=request,
        options=WriteOptions.parse({}, conf_of(spark)),
        source=request.source,
        target=located_rows(jvm, txn, snapshot.adds).frame,
        has_old_values=False,
        moment=Moment(jvm),
    )
    resolution = resolve_merge(names)
    evolve(txn, resolution.schema)
    rows = MergeRows(names=names, resolution=resolution, hidden=hidden_columns(txn))
    return rows.inserted() if is_insert_only(request.clauses) else rows.joined(snapshot.num_files)


def _start(log: DeltaLog) -> tuple[OptimisticTransaction, Snapshot]:
    txn = log.start_transaction()
    assert txn.snapshot is not None  # the caller has found the table
    return txn, txn.snapshot
