"""VACUUM: the statement, and the command that it asks for.

>>> statement = parse_vacuum("VACUUM db.t DRY RUN RETAIN 168 HOURS LITE")
>>> statement.table, statement.lite, statement.hours, statement.dry_run
(('db', 't'), True, 168.0, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import is_path_name
from pyspark_delta.spark.commands.vacuum import VacuumRequest, vacuum_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import statement_error
from pyspark_delta.spark.sql.grammar import Piece, StatementReader
from pyspark_delta.spark.sql.optimized_table import optimized_table
from pyspark_delta.spark.sql.requests import Request, resolvable
from pyspark_delta.spark.table_access import ancestors, open_log


class VacuumClauseError(Exception):
    """Clauses that must not stand together; `condition` is Spark's name for it."""

    def __init__(self, condition: str, parameters: Mapping[str, str]) -> None:
        super().__init__(condition, parameters)
        self.condition, self.parameters = condition, parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumStatement:
    """What a statement says; a table is a path, or the parts of a name.

    `lite` is None where neither LITE nor FULL stands; an inventory is a table's name or a query.
    """

    table: str | tuple[str, ...]
    lite: bool | None = None
    inventory: tuple[str, ...] | Piece | None = None
    hours: float | None = None
    dry_run: bool = False


def parse_vacuum(sql: str) -> VacuumStatement:
    """The statement that `sql` is; StatementSyntaxError where it is none.

    Clauses come in any order, each of them once.
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


def run_vacuum_statement(request: Request) -> DataFrame:
    """Run VACUUM."""
    spark, sql = request.spark, request.sql
    try:
        statement = parse_vacuum(sql)
    except VacuumClauseError as error:
        jvm = JvmSession(spark)
        raise statement_error(jvm, sql, 0, error.condition, error.parameters) from None
    log = _log(spark, statement.table)
    asked = VacuumRequest(
        retention_hours=statement.hours,
        dry_run=statement.dry_run,
        lite=statement.lite,
        inventory=_inventory(request, statement.inventory),
    )
    return vacuum_table(spark, log, asked)


def _log(spark: SparkSession, table: str | tuple[str, ...]) -> DeltaLog:
    """The log of the table; for a directory in one, delta-spark's name of the error."""
    try:
        return optimized_table(spark, table, "VACUUM")
    except TableNotFoundError as error:
        if not isinstance(table, str) and is_path_name(table) and _is_inside(spark, table[-1]):
            name = error.parameters["tableName"]
            raise TableNotFoundError(
                "DELTA_TABLE_ONLY_OPERATION", tableName=name, operation="VACUUM"
            ) from None
        raise


def _is_inside(spark: SparkSession, path: str) -> bool:
    """Whether a path is below the root of a table."""
    with suppress(StorageError):
        return any(open_log(spark, place).table_exists for place in ancestors(path))
    return False


def _inventory(request: Request, said: tuple[str, ...] | Piece | None) -> DataFrame | None:
    if said is None:
        return None
    if isinstance(said, Piece):
        text = said.text
    else:
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in said)
        text = f"SELECT * FROM {quoted}"
    return request.run(resolvable(request.spark, text))
