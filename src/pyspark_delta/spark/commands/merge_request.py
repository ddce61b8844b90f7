"""What a MERGE was told, whoever told it: the builder, `mergeInto` or a statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame

from pyspark_delta.spark.commands.merge_clauses import MergeClause


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """A MERGE.

    `called` is what expressions may call the table, its parts in order; empty for nothing.
    `evolves` says that the table's schema may follow the source's.  `own_columns` are the sets of
    columns that other frames over the table have, which expressions may be made of.
    """

    source: DataFrame = field(hash=False)
    condition: Column = field(hash=False)
    clauses: tuple[MergeClause, ...]
    called: tuple[str, ...] = ()
    evolves: bool = False
    own_columns: tuple[Any, ...] = field(default=(), hash=False)
