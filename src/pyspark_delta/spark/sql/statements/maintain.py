"""OPTIMIZE, REORG TABLE, VACUUM, RESTORE, GENERATE and ANALYZE TABLE: parsed and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.errors import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.ops.footers.stats import run_compute_stats
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import statement_error
from pyspark_delta.spark.jvm.plans.frames import empty_frame
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest, run_optimize
from pyspark_delta.spark.maintenance.restore import (
    RESTORE_COLUMNS,
    run_generate,
    run_purge,
    run_restore,
)
from pyspark_delta.spark.maintenance.vacuum import VACUUM_SCHEMA, VacuumRequest, vacuum_table
from pyspark_delta.spark.results.optimize import OPTIMIZE_SCHEMA
from pyspark_delta.spark.scan.load import AsOf
from pyspark_delta.spark.sql.grammar import Piece, StatementReader, read_as_of
from pyspark_delta.spark.sql.statement import (
    Command,
    Request,
    counts_schema,
    delta_target,
)
from pyspark_delta.spark.sql.targets import only_delta, optimized_table
from pyspark_delta.spark.tables.locations import allowed_stores
from pyspark_delta.spark.tables.names import log_of, update_entry

_NEWEST_ICEBERG = 2


def is_delta_analyze(sql: str) -> bool:
    """Whether the statement is ANALYZE TABLE t COMPUTE DELTA STATISTICS.

    Without the keyword DELTA the statement is Spark's own.

    >>> is_delta_analyze("ANALYZE TABLE t COMPUTE DELTA STATISTICS")
    True
    >>> is_delta_analyze("ANALYZE TABLE t COMPUTE STATISTICS")
    False
    """
    read = StatementReader(sql)
    read.expect("ANALYZE", "TABLE")
    read.name()
    if not read.takes("COMPUTE", "DELTA", "STATISTICS"):
        return False
    read.end()
    return True


def analyze_command(request: Request) -> Command | None:
    """ANALYZE TABLE of the log's statistics; None for Spark's own ANALYZE TABLE."""
    if not request.head.target or not is_delta_analyze(request.sql):
        return None
    name = delta_target(request)
    if name is None:
        return None
    spark, log = request.spark, log_of(request.spark, name)

    def run() -> DataFrame:
        run_compute_stats(log, Locations(log.store, allowed_stores(spark)))
        return empty_frame(JvmSession(spark))

    return Command(run=run)


def generate_command(request: Request) -> Command:
    """GENERATE."""
    mode, table = parse_generate(request.sql)
    log = optimized_table(request.spark, table, "GENERATE")

    def run() -> DataFrame:
        run_generate(log, mode)
        return empty_frame(JvmSession(request.spark))

    return Command(run=run)


def parse_generate(sql: str) -> tuple[str, tuple[str, ...]]:
    """The mode and the table of GENERATE; StatementSyntaxError for any other text.

    >>> parse_generate("GENERATE symlink_format_manifest FOR TABLE db.t")
    ('symlink_format_manifest', ('db', 't'))
    """
    read = StatementReader(sql)
    read.expect("GENERATE")
    mode = read.word()
    read.expect("FOR", "TABLE")
    table = read.name()
    read.end()
    return mode, table


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeStatement:
    """OPTIMIZE, parsed; `table` is a path or the parts of a name."""

    table: str | tuple[str, ...]
    is_full: bool = False
    where: str | None = None
    z_order_by: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorgStatement:
    """REORG TABLE, parsed; `iceberg_version` is set for UPGRADE UNIFORM, None for PURGE."""

    table: str | tuple[str, ...]
    where: str | None = None
    iceberg_version: int | None = None


def parse_optimize(sql: str) -> OptimizeStatement:
    """Parse OPTIMIZE; StatementSyntaxError for any other text.

    >>> parse_optimize("OPTIMIZE db.t WHERE p = 1 ZORDER BY (a, s.b)").z_order_by
    (('a',), ('s', 'b'))
    >>> parse_optimize("OPTIMIZE db.t WHERE p = 1 ZORDER BY a")
    OptimizeStatement(table=('db', 't'), is_full=False, where='p = 1', z_order_by=(('a',),))
    """
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
    """Parse REORG TABLE; StatementSyntaxError for any other text.

    >>> parse_reorg("REORG TABLE t WHERE p > 2 APPLY (PURGE)")
    ReorgStatement(table=('t',), where='p > 2', iceberg_version=None)
    """
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


def optimize_command(request: Request) -> Command:
    """OPTIMIZE."""
    statement = parse_optimize(request.sql)
    log = optimized_table(request.spark, statement.table, "OPTIMIZE")
    optimize = OptimizeRequest(
        where=_conditions(statement.where),
        z_order_by=statement.z_order_by,
        is_full=statement.is_full,
    )
    spark = request.spark
    return Command(
        run=lambda: run_optimize(spark, log, optimize).frame(spark), schema=OPTIMIZE_SCHEMA
    )


def reorg_command(request: Request) -> Command:
    """REORG TABLE; raises for UPGRADE UNIFORM, because no Iceberg metadata is written here.

    delta-spark without a converter raises for it too, but only after it has changed the table.
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
    spark, where = request.spark, _conditions(statement.where)
    return Command(run=lambda: run_purge(spark, log, *where).frame(spark), schema=OPTIMIZE_SCHEMA)


def restore_command(request: Request) -> Command:
    """RESTORE."""
    table, as_of = parse_restore(request.sql)
    name = only_delta(request.spark, table, "RESTORE")

    def run() -> DataFrame:
        counts = run_restore(request.spark, log_of(request.spark, name), as_of)
        update_entry(request.spark, name)
        return counts

    return Command(run=run, schema=counts_schema(*RESTORE_COLUMNS))


def parse_restore(sql: str) -> tuple[tuple[str, ...], AsOf]:
    """The table and the version of RESTORE [TABLE] t [TO] VERSION | TIMESTAMP AS OF x.

    StatementSyntaxError for any other text.

    >>> parse_restore("RESTORE TABLE db.t TO FOR TIMESTAMP AS OF '2024-01-01'")
    (('db', 't'), AsOf(version=None, timestamp='2024-01-01'))
    """
    read = StatementReader(sql)
    read.expect("RESTORE")
    read.takes("TABLE")
    table = read.name()
    read.takes("TO")
    as_of = read_as_of(read)
    if as_of is None:
        raise read.error()
    read.end()
    return table, as_of


class VacuumClauseError(Exception):
    """Clauses that exclude each other; `condition` is Spark's name of the error."""

    def __init__(self, condition: str, parameters: Mapping[str, str]) -> None:
        super().__init__(condition, parameters)
        self.condition, self.parameters = condition, parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumStatement:
    """VACUUM, parsed; `table` is a path or the parts of a name.

    `lite` is None without LITE or FULL; `inventory` is a table's name or a query.
    """

    table: str | tuple[str, ...]
    lite: bool | None = None
    inventory: tuple[str, ...] | Piece | None = None
    hours: float | None = None
    dry_run: bool = False


def parse_vacuum(sql: str) -> VacuumStatement:
    """Parse VACUUM; StatementSyntaxError for any other text.

    Clauses may be in any order, each of them once.

    >>> statement = parse_vacuum("VACUUM db.t DRY RUN RETAIN 168 HOURS LITE")
    >>> statement.table, statement.lite, statement.hours, statement.dry_run
    (('db', 't'), True, 168.0, True)
    """
    read = StatementReader(sql)
    read.expect("VACUUM")
    table = read.place()
    lite: bool | None = None
    inventory: tuple[str, ...] | Piece | None = None
    hours: float | None = None
    clauses: list[str] = []
    while True:
        if read.is_next("LITE") or read.is_next("FULL"):
            lite = read.word().upper() == "LITE"
            clauses.append("LITE/FULL")
        elif read.takes("USING", "INVENTORY"):
            inventory = read.bracketed() if read.is_next("(") else read.name()
            clauses.append("INVENTORY")
        elif read.takes("RETAIN"):
            hours = read.number()
            read.expect("HOURS")
            clauses.append("RETAIN")
        elif read.takes("DRY", "RUN"):
            clauses.append("DRY RUN")
        else:
            break
    read.end()
    for name in clauses:
        if clauses.count(name) > 1:
            raise VacuumClauseError("DUPLICATE_CLAUSES", {"clauseName": name})
    if lite and inventory is not None:
        message = "Inventory option is not compatible with LITE"
        raise VacuumClauseError("_LEGACY_ERROR_TEMP_0035", {"message": message})
    return VacuumStatement(
        table=table,
        lite=lite,
        inventory=inventory,
        hours=hours,
        dry_run="DRY RUN" in clauses,
    )


def vacuum_command(request: Request) -> Command:
    """VACUUM."""
    spark, sql = request.spark, request.sql
    try:
        statement = parse_vacuum(sql)
    except VacuumClauseError as error:
        jvm = JvmSession(spark)
        raise statement_error(jvm, sql, 0, error.condition, error.parameters) from None
    log = optimized_table(spark, statement.table, "VACUUM")

    def run() -> DataFrame:
        vacuum = VacuumRequest(
            retention_hours=statement.hours,
            dry_run=statement.dry_run,
            lite=statement.lite,
            inventory=_inventory(request, statement.inventory),
        )
        return vacuum_table(spark, log, vacuum)

    return Command(run=run, schema=VACUUM_SCHEMA)


def _conditions(where: str | None) -> tuple[str, ...]:
    return () if where is None else (where,)


def _inventory(request: Request, source: tuple[str, ...] | Piece | None) -> DataFrame | None:
    """The rows of VACUUM ... USING INVENTORY, from a query or a table by its name."""
    if source is None:
        return None
    text = source.text if isinstance(source, Piece) else f"SELECT * FROM {quoted_path(source)}"
    return request.run(text)
