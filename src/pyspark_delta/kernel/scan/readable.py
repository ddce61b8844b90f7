"""`ReadableSnapshot`: a version of a table that can be read as Arrow.

The log knows which files are live; this adds what a scan makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.scan.arrow_reader import read_batches, read_table
from pyspark_delta.kernel.scan.file_reader import DEFAULT_BATCH_SIZE
from pyspark_delta.kernel.scan.plan import ScanPlan, plan_scan
from pyspark_delta.kernel.scan.predicates import Predicate
from pyspark_delta.kernel.storage.base import LogStore


class ReadableSnapshot(Snapshot):
    """A table at one version, and its rows."""

    def plan(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> ScanPlan:
        """Which files hold the rows for which `filter` is true, and what to read of them."""
        return plan_scan(self, columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)

    def to_batches(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which `filter` (SQL text, or a predicate) is true, in batches.

        `columns` are names of the table, all of them when there are none.  Files that the log
        places outside of the table are refused, unless they are below one of `allowed_roots`.
        `time_zone` is where the filter's days begin, and where partition values were written that
        are timestamps and do not say so.
        """
        return read_batches(
            self,
            columns,
            filter,
            batch_size=batch_size,
            allowed_roots=allowed_roots,
            time_zone=time_zone,
        )

    def to_table(
        self,
        columns: Iterable[str] | None = None,
        filter: str | Predicate | None = None,
        *,
        allowed_roots: Sequence[LogStore] = (),
        time_zone: str = "UTC",
    ) -> pa.Table:
        """As `to_batches`, all rows at once."""
        return read_table(self, columns, filter, allowed_roots=allowed_roots, time_zone=time_zone)
