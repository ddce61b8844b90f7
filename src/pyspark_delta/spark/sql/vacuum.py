"""VACUUM: the statement, and the command that it asks for.

>>> statement = parse_vacuum("VACUUM db.t DRY RUN RETAIN 168 HOURS LITE")
>>> statement.table, statement.lite, statement.hours, statement.dry_run
(('db', 't'), True, 168.0, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pyspark_delta.spark.commands.vacuum import VacuumRequest, vacuum_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import statement_error
from pyspark_delta.spark.sql.grammar import Piece, StatementReader
from pyspark_delta.spark.sql.optimized_table import optimized_table
from pyspark_delta.spark.sql.requests import Request, resolvable


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
    log = optimized_table(spark, statement.table, "VACUUM")
    asked = VacuumRequest(
        retention_hours=statement.hours,
        dry_run=statement.dry_run,
        lite=statement.lite,
        inventory=_inventory(request, statement.inventory),
    )
    return vacuum_table(spark, log, asked)


def _inventory(request: Request, said: tuple[str, ...] | Piece | None) -> DataFrame | None:
    if said is None:
        return None
    if isinstance(said, Piece):
        text = said.text
    else:
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in said)
        text = f"SELECT * FROM {quoted}"
    return request.run(resolvable(request.spark, text))
