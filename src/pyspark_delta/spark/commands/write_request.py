"""What a caller wants written and how: the one argument of `run_write` beside table and data.

>>> WriteRequest(mode="append").options
{}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column

SaveMode = Literal["append", "overwrite", "error", "ignore"]
TableOperation = Literal[
    "CREATE TABLE AS SELECT",
    "REPLACE TABLE AS SELECT",
    "CREATE OR REPLACE TABLE AS SELECT",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A write that makes or replaces a table of the catalog, and is recorded as that.

    `properties` are the table's own, beside `delta.*` options of the writer.  `is_v1_overwrite`
    says that `saveAsTable` in mode overwrite asked for it.
    """

    operation: TableOperation
    is_managed: bool
    table_name: str
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_v1_overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """How rows go into a table.

    `options` are the writer's, in any case.  `casts` makes the data's types the table's by
    Spark's store assignment policy, as table writes do and `save` does not; `by_position` takes
    columns in the table's order instead of by name, `fields_by_position` only fields of structs.
    `replace_where` and `dynamic_partitions` say which rows an overwrite replaces, as the options
    of that name do.
    """

    mode: SaveMode = "error"
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    casts: bool = False
    by_position: bool = False
    fields_by_position: bool = False
    replace_where: Column | str | None = None
    dynamic_partitions: bool = False
    as_table: TableWrite | None = None

    @property
    def replaces_definition(self) -> bool:
        """Whether the table becomes another one, which leaves nothing of the old."""
        return self.as_table is not None and not self.as_table.is_v1_overwrite
