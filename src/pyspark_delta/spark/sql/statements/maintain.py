"""OPTIMIZE, REORG TABLE, VACUUM, RESTORE, GENERATE and ANALYZE TABLE: parsed and run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from pyspark_delta.errors import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.ops.footers.stats import run_compute_stats
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import statement_error
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
    command,
    counts_schema,
    delta_target,
    only_delta,
    optimized_table,
)
from pyspark_delta.spark.tables.locations import allowed_stores
from pyspark_delta.spark.tables.names import log_of, update_entry

Place = str | tuple[str, ...]
"""A table by its path, or by the parts of its name."""
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
    return command(
        spark, lambda: run_compute_stats(log, Locations(log.store, allowed_stores(spark)))
    )


def generate_command(request: Request) -> Command:
    """GENERATE."""
    mode, table = parse_generate(request.sql)
    log = optimized_table(request.spark, table, "GENERATE")
    return command(request.spark, lambda: run_generate(log, mode))


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


def parse_optimize(sql: str) -> tuple[Place, OptimizeRequest]:
    """The table of OPTIMIZE, and its options; StatementSyntaxError for any other text.

    >>> table, request = parse_optimize("OPTIMIZE db.t WHERE p = 1 ZORDER BY (a, s.b)")
    >>> table, request.where, request.z_order_by, request.is_full
    (('db', 't'), ('p = 1',), (('a',), ('s', 'b')), False)
    """
    read = StatementReader(sql)
    read.expect("OPTIMIZE")
    table = read.place()
    is_full = read.takes("FULL")
    where = (read.until("ZORDER", "BY").text,) if read.takes("WHERE") else ()
    columns: list[tuple[str, ...]] = []
    if read.takes("ZORDER", "BY"):
        in_brackets = read.takes("(")
        columns.append(read.name())
        while read.takes(","):
            columns.append(read.name())
        if in_brackets:
            read.expect(")")
    read.end()
    return table, OptimizeRequest(where=where, z_order_by=tuple(columns), is_full=is_full)


def parse_reorg(sql: str) -> tuple[Place, tuple[str, ...], int | None]:
    """The table of REORG TABLE, its conditions, and the version of Iceberg that it upgrades to.

    The version is None for PURGE; StatementSyntaxError for any other text.

    >>> parse_reorg("REORG TABLE t WHERE p > 2 APPLY (PURGE)")
    (('t',), ('p > 2',), None)
    """
    read = StatementReader(sql)
    read.expect("REORG", "TABLE")
    table = read.place()
    where = (read.until("APPLY").text,) if read.takes("WHERE") else ()
    read.expect("APPLY", "(")
    version: int | None = None
    if not where and read.takes("UPGRADE", "UNIFORM"):
        read.expect("(", "ICEBERG_COMPAT_VERSION", "=")
        version = read.whole_number()
        read.expect(")")
    else:
        read.expect("PURGE")
    read.expect(")")
    read.end()
    return table, where, version


def optimize_command(request: Request) -> Command:
    """OPTIMIZE."""
    spark = request.spark
    table, optimize = parse_optimize(request.sql)
    log = optimized_table(spark, table, "OPTIMIZE")
    return Command(
        run=lambda: run_optimize(spark, log, optimize).frame(spark), schema=OPTIMIZE_SCHEMA
    )


def reorg_command(request: Request) -> Command:
    """REORG TABLE; raises for UPGRADE UNIFORM, because no Iceberg metadata is written here.

    delta-spark without a converter raises for it too, but only after it has changed the table.
    """
    spark = request.spark
    table, where, version = parse_reorg(request.sql)
    log = optimized_table(spark, table, "REORG")
    if version is not None and not 1 <= version <= _NEWEST_ICEBERG:
        raise PropertyError(
            "DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED",
            version=version,
            maxVersion=_NEWEST_ICEBERG,
        )
    if version is not None:
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumStatement:
    """VACUUM, parsed: its table, the names of its clauses in order, and its inventory.

    `table` is a path or the parts of a name, `inventory` a table's name or a query.
    """

    table: Place
    clauses: tuple[str, ...]
    inventory: tuple[str, ...] | Piece | None
    request: VacuumRequest


def parse_vacuum(sql: str) -> VacuumStatement:
    """Parse VACUUM; StatementSyntaxError for any other text.

    Clauses may be in any order, each of them once.

    >>> statement = parse_vacuum("VACUUM db.t DRY RUN RETAIN 168 HOURS LITE")
    >>> found = statement.request
    >>> statement.table, found.lite, found.retention_hours, found.dry_run
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
    vacuum = VacuumRequest(retention_hours=hours, dry_run="DRY RUN" in clauses, lite=lite)
    return VacuumStatement(table=table, clauses=tuple(clauses), inventory=inventory, request=vacuum)


def vacuum_command(request: Request) -> Command:
    """VACUUM."""
    spark = request.spark
    statement = parse_vacuum(request.sql)
    _check_clauses(request, statement)
    log = optimized_table(spark, statement.table, "VACUUM")

    def run() -> DataFrame:
        rows = _inventory(request, statement.inventory)
        return vacuum_table(spark, log, replace(statement.request, inventory=rows))

    return Command(run=run, schema=VACUUM_SCHEMA)


def _check_clauses(request: Request, statement: VacuumStatement) -> None:
    """Raise Spark's error for a clause that is there twice, or that another one excludes."""
    jvm, sql = JvmSession(request.spark), request.sql
    for name in statement.clauses:
        if statement.clauses.count(name) > 1:
            raise statement_error(jvm, sql, 0, "DUPLICATE_CLAUSES", {"clauseName": name})
    if statement.request.lite and statement.inventory is not None:
        message = "Inventory option is not compatible with LITE"
        raise statement_error(jvm, sql, 0, "_LEGACY_ERROR_TEMP_0035", {"message": message})


def _inventory(request: Request, source: tuple[str, ...] | Piece | None) -> DataFrame | None:
    """The rows of VACUUM ... USING INVENTORY, from a query or a table by its name."""
    if source is None:
        return None
    text = source.text if isinstance(source, Piece) else f"SELECT * FROM {quoted_path(source)}"
    return request.run(text)
