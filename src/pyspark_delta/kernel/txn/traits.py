"""What the checks of a commit must know about its operation, by the operation's name.

Names, parameters and metrics of operations are in `protocol.operations`; here is which rules bend
for which of them.  A name that the table does not list has no traits.

>>> traits_of("RESTORE").readds_files, traits_of("WRITE").readds_files
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from pyspark_delta.kernel.protocol.operations import Operation

BACKFILL = "ROW TRACKING BACKFILL"
UNBACKFILL = "ROW TRACKING UNBACKFILL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One row.

    `replaces_table` makes a new table in the place of the old one.  `drops_features` may lower the
    protocol, where its user asks for that.  `changes_partitioning` may give the table other
    partition columns.  `readds_files` adds files that have been in a table before, so that bounds
    beside a vector may be tight, and a table that takes no new vectors may have them.
    """

    replaces_table: bool = False
    drops_features: bool = False
    changes_partitioning: bool = False
    readds_files: bool = False


_NONE = Traits()
_REPLACE = Traits(replaces_table=True, changes_partitioning=True)
_READDS = Traits(readds_files=True)

TRAITS: Mapping[str, Traits] = {
    "WRITE": Traits(changes_partitioning=True),
    "STREAMING UPDATE": Traits(changes_partitioning=True),
    "REPLACE TABLE": _REPLACE,
    "REPLACE TABLE AS SELECT": _REPLACE,
    "CREATE OR REPLACE TABLE": _REPLACE,
    "CREATE OR REPLACE TABLE AS SELECT": _REPLACE,
    "RESTORE": Traits(changes_partitioning=True, readds_files=True, drops_features=True),
    "CLONE": Traits(changes_partitioning=True, readds_files=True, drops_features=True),
    "RENAME COLUMN": Traits(changes_partitioning=True),
    "DROP FEATURE": Traits(drops_features=True),
    "COMPUTE STATS": _READDS,
    BACKFILL: _READDS,
    UNBACKFILL: _READDS,
}


def traits_of(name: str | None) -> Traits:
    """The traits of the operation called `name`."""
    return _NONE if name is None else TRAITS.get(name, _NONE)


def as_operation(operation: Operation | str) -> Operation:
    """The operation of that name without parameters, for a caller who has none to record."""
    if isinstance(operation, Operation):
        return operation
    kind = OPERATIONS.get(operation)
    if kind is None:
        return Operation(name=operation)
    return Operation(name=operation, metrics=kind.metrics, changes_data=kind.changes_data)
