"""The statistics that a commit records of new files: all there are, unless the session wants none.

Commands count rows and move identity columns by what they have written; so this is for the last
moment before the commit.  What the protocol cannot do without is recorded in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from pyspark_delta.kernel.protocol.actions import Action, AddFile
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.properties import ENABLE_ROW_TRACKING, property_value
from pyspark_delta.kernel.protocol.stats import with_num_records
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

STATS_CONF = "spark.databricks.delta.stats.collect"
"""The setting of the session that says whether statistics are collected."""

_T = TypeVar("_T", Action, AddFile)


def with_recorded_stats(
    actions: Iterable[_T], txn: OptimisticTransaction, conf: Callable[[str], str | None]
) -> list[_T]:
    """`actions` as they are to be committed, by what the session says of statistics."""
    found = list(actions)
    if not any(map(_is_new, found)) or (conf(STATS_CONF) or "true").lower() == "true":
        return found
    keeps_count = _needs_counts(txn)
    return [
        replace(each, stats=_reduced(each, keeps_count))
        if isinstance(each, AddFile) and _is_new(each)
        else each
        for each in found
    ]


def _is_new(action: Action) -> bool:
    """Whether it adds a file that was not there before: what has a vector was."""
    return isinstance(action, AddFile) and action.deletion_vector is None


def _needs_counts(txn: OptimisticTransaction) -> bool:
    """Whether rows must be counted: their ids are given out by it, and Iceberg asks for it."""
    protocol, metadata = txn.protocol, txn.metadata
    return (
        is_supported(protocol, "rowTracking")
        or bool(property_value(metadata.configuration, ENABLE_ROW_TRACKING))
        or enabled_version(metadata) is not None
    )


def _reduced(file: AddFile, keeps_count: bool) -> str | None:
    count = file.num_records
    return with_num_records(None, count) if keeps_count and count is not None else None
