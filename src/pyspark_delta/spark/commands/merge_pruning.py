"""Files of a target that no clause can be for: by what clauses ask, and by the source's keys.

Where all clauses are for pairs that match, what their conditions ask of the target's row leaves
out files, whatever the source is.

The values that the source's keys have leave out files that no source row can match.  Before the
join that is only for a small source beside a large target, and for columns that tell
files apart: those that partition the table, and those whose values lie together in files.  The
values become a part of the condition, so that Spark's own pushdown prunes partitions, skips files
and row groups.

After the join it is for files that others have added meanwhile, and only when the MERGE would
conflict with them.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.stats import parse_bound, parse_stats
from pyspark_delta.kernel.protocol.types import BINARY, DOUBLE, FLOAT, StructField, is_atomic
from pyspark_delta.kernel.scan.binding import bind
from pyspark_delta.kernel.scan.plan import mapping_mode, select_files
from pyspark_delta.kernel.scan.predicates import (
    TRUE,
    Predicate,
    compare,
    conjunction,
    disjunction,
)
from pyspark_delta.spark.commands.merge_resolution import Resolution
from pyspark_delta.spark.commands.merge_source import MergeSource
from pyspark_delta.spark.expressions import predicate_of
from pyspark_delta.spark.jvm.failures import GATEWAY_FAILURES
from pyspark_delta.spark.jvm.frame_facts import is_steady
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import (
    filters_on,
    is_in,
    key_filters,
    key_pairs,
    values_of,
)
from pyspark_delta.spark.reader import session_zone

# More values than this say little that files could be told apart by, and cost to compare.
_MOST_VALUES = 10_000
# A column whose values are in more than so many of the files does not tell these apart.
_WIDE = 0.5


def taken_rows(jvm: JvmSession, resolution: Resolution, snapshot: Snapshot) -> Predicate:
    """What is true for every row of the target that a clause can be for.

    TRUE where some clause is for rows that do not match: to these it matters what does.
    """
    clauses = resolution.of_kind("matched")
    if len(clauses) < len(resolution.clauses):
        return TRUE
    zone = session_zone(jvm.spark)
    asked = []
    for each in clauses.values():
        if each.condition is None:
            return TRUE
        condition = resolution.at_both.expression(each.condition)
        parts = filters_on(jvm, condition, resolution.target)
        asked.append(conjunction(predicate_of(part, time_zone=zone) for part in parts))
    schema = snapshot.metadata.schema
    return bind(disjunction(asked), schema, time_zone=zone, lenient=True).predicate


def with_known_keys(
    jvm: JvmSession, resolution: Resolution, source: DataFrame, snapshot: Snapshot
) -> Resolution:
    """The same MERGE, whose condition also says which values the target's key columns can have.

    `source` is looked at by a job, where that can leave out files.
    """
    pairs = [
        pair
        for pair in key_pairs(jvm, resolution.source, resolution.target, resolution.condition)
        if _tells_files_apart(snapshot, snapshot.metadata.schema.get(pair.name))
    ]
    if not pairs:
        return resolution
    keys = source.select(*[pair.source.alias(f"k{i}") for i, pair in enumerate(pairs)])
    try:
        found = values_of(jvm, keys, _MOST_VALUES)
    except GATEWAY_FAILURES:
        # A key that cannot be computed for some row: the join may leave that row out before.
        return resolution
    condition = resolution.condition
    for pair, values in zip(pairs, found, strict=True):
        if values is not None:
            condition = condition & is_in(jvm, pair.target, values)
    return replace(resolution, condition=condition)


def key_predicate(
    jvm: JvmSession, resolution: Resolution, source: MergeSource, snapshot: Snapshot
) -> Predicate:
    """What is true for every row that some source row can match, by the values of its keys.

    TRUE when nobody can tell: a source that may give other rows now is not looked at again.
    """
    schema = snapshot.metadata.schema
    try:
        if source.kept is None and not is_steady(jvm, source.frame):
            return TRUE
        pairs = [
            pair
            for pair in key_pairs(jvm, resolution.source, resolution.target, resolution.condition)
            if _is_exact(schema.get(pair.name))
        ]
        if not pairs:
            return TRUE
        keys = source.frame.select(*[pair.source.alias(f"k{i}") for i, pair in enumerate(pairs)])
        filters = key_filters(jvm, pairs, values_of(jvm, keys, _MOST_VALUES))
    except GATEWAY_FAILURES:
        return TRUE  # a conflict, then, and no other failure
    zone = session_zone(jvm.spark)
    found = (predicate_of(each, time_zone=zone) for each in filters)
    return bind(conjunction(found), schema, time_zone=zone, lenient=True).predicate


def _is_exact(f: StructField | None) -> bool:
    """Whether values are equal in a join where they are in statistics: not so NaN, or 0 and -0."""
    if f is None or not is_atomic(f.data_type):
        return False
    return f.data_type not in (BINARY, FLOAT, DOUBLE)


def _tells_files_apart(snapshot: Snapshot, f: StructField | None) -> bool:
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
    """A value that the column has in some file in the middle, as its statistics tell."""
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
