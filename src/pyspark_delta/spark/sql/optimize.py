"""OPTIMIZE and REORG TABLE: the statements, and the commands that they ask for.

>>> parse_optimize("OPTIMIZE db.t WHERE p = 1 ZORDER BY (a, s.b)")
OptimizeStatement(table=('db', 't'), is_full=False, where='p = 1', z_order_by=(('a',), ('s', 'b')))
>>> parse_reorg("REORG TABLE t WHERE p > 2 APPLY (PURGE)")
ReorgStatement(table=('t',), where='p > 2', iceberg_version=None)
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError
from pyspark_delta.spark.commands.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.commands.reorg import run_purge
from pyspark_delta.spark.sql.grammar import StatementReader
from pyspark_delta.spark.sql.optimized_table import optimized_table
from pyspark_delta.spark.sql.requests import Request

_NEWEST_ICEBERG = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeStatement:
    """What OPTIMIZE says; a table is a path, or the parts of a name."""

    table: str | tuple[str, ...]
    is_full: bool = False
    where: str | None = None
    z_order_by: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorgStatement:
    """What REORG TABLE says; `iceberg_version` is that of UPGRADE UNIFORM, None for PURGE."""

    table: str | tuple[str, ...]
    where: str | None = None
    iceberg_version: int | None = None


def parse_optimize(sql: str) -> OptimizeStatement:
    """The statement that `sql` is; StatementSyntaxError where it is none."""
    read = StatementReader(sql)
    read.expect("OPTIMIZE")
    table = read.place()
    is_full = read.takes("FULL")
    where = read.until("ZORDER", "BY").text if read.takes("WHERE") else None
    columns: list[tuple[str, ...]] = []
    if read.takes("ZORDER", "BY"):
        in_brackets = read.takes("(")
        columns.append(read.name())
        while read.takes(","):
            columns.append(read.name())
        if in_brackets:
            read.expect(")")
    read.end()
    return OptimizeStatement(table=table, is_full=is_full, where=where, z_order_by=tuple(columns))


def parse_reorg(sql: str) -> ReorgStatement:
    """The statement that `sql` is; StatementSyntaxError where it is none."""
    read = StatementReader(sql)
    read.expect("REORG", "TABLE")
    table = read.place()
    where = read.until("APPLY").text if read.takes("WHERE") else None
    read.expect("APPLY", "(")
    version: int | None = None
    if where is None and read.takes("UPGRADE", "UNIFORM"):
        read.expect("(", "ICEBERG_COMPAT_VERSION", "=")
        version = read.whole_number()
        read.expect(")")
    else:
        read.expect("PURGE")
    read.expect(")")
    read.end()
    return ReorgStatement(table=table, where=where, iceberg_version=version)


def run_optimize_statement(request: Request) -> DataFrame:
    """Run OPTIMIZE."""
    statement = parse_optimize(request.sql)
    log = optimized_table(request.spark, statement.table, "OPTIMIZE")
    asked = OptimizeRequest(
        where=_given(statement.where), z_order_by=statement.z_order_by, is_full=statement.is_full
    )
    return run_optimize(request.spark, log, asked).frame(request.spark)


def run_reorg_statement(request: Request) -> DataFrame:
    """Run REORG TABLE; Iceberg's metadata, for which UPGRADE UNIFORM is, are not written here.

    delta-spark refuses that too where it has no converter, though it has changed the table by then.
    """
    statement = parse_reorg(request.sql)
    log = optimized_table(request.spark, statement.table, "REORG")
    version = statement.iceberg_version
    if version is not None and not 1 <= version <= _NEWEST_ICEBERG:
        raise PropertyError(
            "DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED",
            version=version,
            maxVersion=_NEWEST_ICEBERG,
        )
    if version is not None:
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
    return run_purge(request.spark, log, *_given(statement.where)).frame(request.spark)


def _given(where: str | None) -> tuple[str, ...]:
    return () if where is None else (where,)
