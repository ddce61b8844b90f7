"""Files of some partitions, chosen by a text that looks at partition columns alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column

from pyspark_delta.errors.table import InvalidPredicateError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.kernel.scan.plan import select_files
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.dml_rows import dml_condition, files_by_partition
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parsed_predicates import ParsedPredicate, parse_predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPartitions:
    """Files of partitions, a table of add actions, and the conditions as the history has them."""

    files: pa.Table = field(hash=False)
    predicates: tuple[str, ...]


def files_of_partitions(
    jvm: JvmSession, txn: OptimisticTransaction, where: Sequence[str], operation: str
) -> ChosenPartitions:
    """The live files of the partitions for which all of `where` is true.

    It may name no column that does not partition the table.
    """
    assert txn.snapshot is not None
    if not where:
        return ChosenPartitions(files=txn.snapshot.adds, predicates=())
    parsed = [_parsed(jvm, text, txn.metadata.partition_columns) for text in where]
    whole = reduce(Column.__and__, (each.column for each in parsed))
    condition = dml_condition(jvm, txn, whole, operation, None)
    # Not a read of the transaction: others may do with files as they like that are left alone.
    candidates = select_files(txn.snapshot, condition.where.bound)
    chosen = files_by_partition(jvm, txn, condition, candidates)
    assert chosen is not None  # it names partition columns alone
    return ChosenPartitions(files=chosen, predicates=tuple(each.text for each in parsed))


def _parsed(jvm: JvmSession, text: str, partition_columns: Sequence[str]) -> ParsedPredicate:
    parsed = parse_predicate(jvm, text)
    if parsed is None:
        raise InvalidPredicateError("DELTA_FAILED_RECOGNIZE_PREDICATE", predicate=text)
    if parsed.has_subquery:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES")
    known = {name.lower() for name in partition_columns}
    for path in parsed.columns:
        if len(path) != 1 or path[0].lower() not in known:
            raise InvalidPredicateError(
                "DELTA_NON_PARTITION_COLUMN_REFERENCE",
                columnName=column_name(path),
                columnList=", ".join(partition_columns),
            )
    return parsed
