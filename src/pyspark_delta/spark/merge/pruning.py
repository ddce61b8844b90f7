"""Prunes files of a MERGE's target, by the conditions of clauses and by the source's keys.

If all clauses are WHEN MATCHED, their conditions on the target prune files, whatever the source is.

The values of the source's keys prune files that no source row can match.  Before the join this is
done only for a small source and a large target, and for columns that separate files: partition
columns, and columns whose values are clustered in files.  The values are added to the condition, so
that Spark's own pushdown prunes partitions, and skips files and row groups.

After the join it is done for files of concurrent commits, and only if the MERGE would conflict with
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.stats import parse_bound, parse_stats
from pyspark_delta.kernel.protocol.types import BINARY, DOUBLE, FLOAT, StructField, is_atomic
from pyspark_delta.kernel.scan.plan import mapping_mode, select_files
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.tree import (
    TRUE,
    Predicate,
    compare,
    conjunction,
    disjunction,
)
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.failures import GATEWAY_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.merge import (
    KeyPair,
    filters_on,
    is_in,
    key_filters,
    key_pairs,
    values_of,
)
from pyspark_delta.spark.jvm.scan.file_index import is_steady
from pyspark_delta.spark.merge.names import Resolution
from pyspark_delta.spark.merge.request import MergeSource
from pyspark_delta.spark.scan.filters import predicate_of

# More values would hardly separate files, and cost time to compare.
_MOST_VALUES = 10_000
# A column whose values are in more than this part of the files does not separate them.
_WIDE = 0.5


def affected_rows(jvm: JvmSession, resolution: Resolution, snapshot: Snapshot) -> Predicate:
    """A predicate that is true for every row of the target that a clause can affect.

    All clauses are for rows that match, and have conditions.
    """
    zone = session_zone(jvm.spark)
    found = resolution.resolved["matched"]
    conditions = []
    for each in resolution.clauses:
        assert each.condition is not None
        parts = filters_on(jvm, found.expression(each.condition), resolution.target)
        conditions.append(conjunction(predicate_of(part, time_zone=zone) for part in parts))
    schema = snapshot.metadata.schema
    return bind(disjunction(conditions), schema, time_zone=zone, lenient=True).predicate


def with_known_keys(
    jvm: JvmSession, resolution: Resolution, source: DataFrame, snapshot: Snapshot
) -> Resolution:
    """The same MERGE, with the possible values of the target's key columns in its condition.

    A job reads `source`, if the values can prune files.
    """
    schema = snapshot.metadata.schema
    try:
        pairs, found = _key_values(
            jvm, resolution, source, lambda name: _separates_files(snapshot, schema.get(name))
        )
    except GATEWAY_FAILURES:
        # A key fails for some row, which the join may never evaluate.
        return resolution
    condition = resolution.condition
    for pair, values in zip(pairs, found, strict=True):
        if values is not None:
            condition = condition & is_in(jvm, pair.target, values)
    return replace(resolution, condition=condition)


def key_predicate(
    jvm: JvmSession, resolution: Resolution, source: MergeSource, snapshot: Snapshot
) -> Predicate:
    """A predicate for the target rows that some source row can match, by the values of its keys.

    TRUE if they are unknown: a source that may give other rows is not read again.
    """
    schema = snapshot.metadata.schema
    try:
        if source.kept is None and not is_steady(jvm, source.frame):
            return TRUE
        pairs, values = _key_values(
            jvm, resolution, source.frame, lambda name: _is_exact(schema.get(name))
        )
        if not pairs:
            return TRUE
        filters = key_filters(jvm, pairs, values)
    except GATEWAY_FAILURES:
        return TRUE  # a conflict is then raised, but no other error
    zone = session_zone(jvm.spark)
    found = (predicate_of(each, time_zone=zone) for each in filters)
    return bind(conjunction(found), schema, time_zone=zone, lenient=True).predicate


def _key_values(
    jvm: JvmSession, resolution: Resolution, source: DataFrame, is_useful: Callable[[str], bool]
) -> tuple[list[KeyPair], list[Any]]:
    """The useful keys of the condition, and the values that each has in the source."""
    pairs = key_pairs(jvm, resolution.source, resolution.target, resolution.condition)
    pairs = [pair for pair in pairs if is_useful(pair.name)]
    keys = [pair.source.alias(f"k{i}") for i, pair in enumerate(pairs)]
    return pairs, values_of(jvm, source.select(*keys), _MOST_VALUES) if keys else []


def _is_exact(f: StructField | None) -> bool:
    """Whether equality in a join agrees with statistics; it does not for NaN, or 0 and -0."""
    if f is None or not is_atomic(f.data_type):
        return False
    return f.data_type not in (BINARY, FLOAT, DOUBLE)


def _separates_files(snapshot: Snapshot, f: StructField | None) -> bool:
    if f is None or not _is_exact(f):
        return False
    if f.name in snapshot.metadata.partition_columns:
        return True
    value = _some_value(snapshot, f)
    if value is None:
        return False
    found = select_files(snapshot, compare((f.name,), "=", value))
    return bool(found.num_rows <= _WIDE * snapshot.num_files)


def _some_value(snapshot: Snapshot, f: StructField) -> str | int | float | None:
    """A value of the column in the statistics of a file in the middle."""
    files = snapshot.files_with(["stats"]).column("stats")
    text = files[len(files) // 2].as_py() if len(files) > 1 else None
    if text is None:
        return None
    name = physical_name(f, mapping_mode(snapshot.metadata))
    known = parse_stats(text)
    least = None if known is None else known.min_values.get(name)
    if least is None or parse_bound(least, f.data_type, is_max=False) is None:
        return None
    return least if isinstance(least, str | int) else float(least)
