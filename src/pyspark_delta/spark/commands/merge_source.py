"""The source of a MERGE: whether it is small beside its target, and may be asked twice.

A small source is sent to every task, and a large target stays where it is.  Its keys say, before
that, which files of the target can match.  An outer join cannot send it, so the source rows that
match nothing are then found by a second, small join.  For all of this the source must give the
same rows again; one that may not is kept first, on disk where memory is short.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from pyspark_delta.spark.jvm.frame_facts import (
    broadcast_threshold,
    is_steady,
    size_in_bytes,
    stored_bytes,
)
from pyspark_delta.spark.jvm.gateway import JvmSession

SMALL_TARGET = 32 << 20
"""Up to this size a target can be moved about at no cost that anybody could feel."""

# Sizes from here on are no sizes: Spark does not know.
_UNKNOWN = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """A source as a MERGE reads it.

    `is_small` says that it fits into every task and gives the same rows each time.  `kept` is what
    must be given back afterwards, None for nothing.
    """

    frame: DataFrame = field(hash=False)
    is_small: bool = False
    kept: DataFrame | None = field(default=None, hash=False)


def merge_source(
    jvm: JvmSession, source: DataFrame, target_bytes: int, *, keeps: bool = False
) -> MergeSource:
    """Look at a source, and keep its rows where that is needed; `keeps` says that it is."""
    threshold = broadcast_threshold(jvm)
    if not keeps:
        if target_bytes <= SMALL_TARGET or threshold <= 0:
            return MergeSource(frame=source)
        size = size_in_bytes(source)
        if threshold < size < _UNKNOWN:
            return MergeSource(frame=source)
        if size <= threshold and is_steady(jvm, source):
            return MergeSource(frame=source, is_small=True)
    kept = source.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    is_small = target_bytes > SMALL_TARGET and stored_bytes(jvm, kept) <= threshold
    return MergeSource(frame=kept, is_small=is_small, kept=kept)
