"""replaceOn and replaceUsing: the rows of a table that a row of the data matches."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.dml_files import DmlFiles
from pyspark_delta.spark.commands.overwritten_rows import rows_matching
from pyspark_delta.spark.commands.replaced_rows import Replaced
from pyspark_delta.spark.commands.write_options import WriteOptions, using_columns

_TARGET, _SOURCE = "__delta_target", "__delta_source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A join of the table, under a name, with the data."""

    alias: str
    source: DataFrame = field(hash=False)
    condition: Column = field(hash=False)


def match_condition(
    asked: WriteOptions, source: DataFrame, data: DataFrame, txn: OptimisticTransaction
) -> Match:
    """The join that the options mean.

    `source` has its columns as the user named them, `data` as they go into the table.
    """
    if asked.replace_on is not None:
        condition = F.expr(asked.replace_on)
        return Match(alias=asked.target_alias or _TARGET, source=source, condition=condition)
    condition = F.lit(True)
    for name in using_columns(asked.replace_using or ""):
        _check_column(name, txn.schema, "table")
        _check_column(name, data.columns, "data")
        quoted = "`" + name.replace("`", "``") + "`"
        condition = condition & (F.col(f"{_TARGET}.{quoted}") == F.col(f"{_SOURCE}.{quoted}"))
    return Match(alias=_TARGET, source=data.alias(_SOURCE), condition=condition)


def matched(files: DmlFiles, match: Match) -> Replaced:
    """The rows that the data takes the place of."""
    try:
        return rows_matching(files, match.source, match.condition, match.alias)
    except AnalysisException as error:
        raise _unresolved(error) from error


def _check_column(name: str, columns: StructType | list[str], where: str) -> None:
    names = columns.names if isinstance(columns, StructType) else columns
    if name.lower() not in (each.lower() for each in names):
        raise SchemaError(
            "UNRESOLVED_INSERT_REPLACE_USING_COLUMN",
            colName=name,
            relationType=where,
            suggestion=", ".join(names),
        )


def _unresolved(error: AnalysisException) -> Exception:
    """Our error for a condition whose names mean nothing, or too much."""
    condition = error.getCondition() or ""
    facts = error.getMessageParameters() or {}
    if condition.startswith("AMBIGUOUS_REFERENCE"):
        return SchemaError(
            "DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION", columnNames=facts.get("name")
        )
    if condition.startswith("UNRESOLVED_COLUMN"):
        return SchemaError(
            "DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION",
            columnNames=facts.get("objectName"),
        )
    return error
