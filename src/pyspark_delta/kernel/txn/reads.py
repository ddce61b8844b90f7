"""The reads of a transaction, on which its commit depends.

A read is a predicate and the files that it selected.  A read is by file, or by row: a command that
decides about each row by itself depends, in the files that it scanned, only on the rows that it
changed.  Files are Arrow columns, held and not copied.

>>> ReadSet(root_uri="memory://t").is_empty
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames.file_actions import STRING_MAP, canonical_paths
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.scan.predicates.tree import Predicate, conjunction

READ_SCHEMA = pa.schema([("path", pa.string()), ("partitionValues", STRING_MAP)])
"""The columns of a file that a read keeps."""

NO_ROWS = DeletionVector()
_NO_PATHS = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOfFile:
    """The rows of one file that a command depends on.

    `changed` are those that its commit deletes from the file; `needed` are others that affected
    its result, such as rows that kept a row of a source from being inserted.
    """

    changed: DeletionVector = NO_ROWS
    needed: DeletionVector = NO_ROWS

    @property
    def all(self) -> DeletionVector:
        return self.changed.union(self.needed)

    def union(self, other: RowsOfFile) -> RowsOfFile:
        changed, needed = self.changed.union(other.changed), self.needed.union(other.needed)
        return RowsOfFile(changed=changed, needed=needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read: its whole condition, and the files that it selected, a table of `READ_SCHEMA`.

    `predicate` is None for files that were read by name: other files do not matter.  `narrow`
    returns a predicate that must be true as well for a row to matter; it is called only when
    there would be a conflict without it, and is None when there is no such predicate.
    """

    predicate: Predicate | None
    files: pa.Table = field(hash=False)
    by_row: bool = False
    narrow: Callable[[], Predicate] | None = field(default=None, hash=False, compare=False)

    def narrowed(self) -> Read:
        if self.narrow is None or self.predicate is None:
            return self
        whole = conjunction([self.predicate, self.narrow()])
        return replace(self, predicate=whole, narrow=None)


@dataclass(frozen=True, kw_only=True)
class ReadSet:
    """Every read of one transaction.

    `whole_table` is stronger than a predicate that is TRUE: no file at all may be removed.
    `app_ids` are the applications whose last version was read.  `touched` are rows by the
    canonical paths of their files.  `time_zone` is that of timestamps without a zone among
    partition values, in the files that were read and in those of winners.
    """

    root_uri: str
    time_zone: str = "UTC"
    reads: tuple[Read, ...] = ()
    whole_table: bool = False
    app_ids: frozenset[str] = frozenset()
    touched: Mapping[str, RowsOfFile] = field(default_factory=dict, hash=False)

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The condition of each read that had one; TRUE for a read of everything."""
        return tuple(read.predicate for read in self.reads if read.predicate is not None)

    @property
    def is_empty(self) -> bool:
        """Whether the commit depends on no file, existing or not."""
        return not self.predicates and not any(read.files.num_rows for read in self.reads)

    @cached_property
    def paths(self) -> pa.Array:
        """The files' paths as replay compares them."""
        return self._paths_of(self.reads)

    @cached_property
    def paths_by_file(self) -> pa.Array:
        """The paths of files that were read as a whole."""
        return self._paths_of(read for read in self.reads if not read.by_row)

    @cached_property
    def paths_by_row(self) -> pa.Array:
        """The paths of files that were read by row; some may have been read as a whole as well."""
        return self._paths_of(read for read in self.reads if read.by_row)

    def partition_values(self, path: str) -> Mapping[str, str | None]:
        """The partition values of a file that was read, for a message."""
        position = pc.index(self.paths, path).as_py()
        for read in self.reads:
            if position < read.files.num_rows:
                return dict(read.files.column("partitionValues")[position].as_py() or ())
            position -= read.files.num_rows
        return {}

    def without(self, paths: pa.Array) -> ReadSet:
        kept = []
        for read in self.reads:
            names = canonical_paths(read.files.column("path").combine_chunks(), self.root_uri)
            files = read.files.filter(pc.invert(pc.is_in(names, value_set=paths)))
            kept.append(replace(read, files=files))
        return replace(self, reads=tuple(kept))

    def narrowed(self) -> ReadSet:
        return replace(self, reads=tuple(read.narrowed() for read in self.reads))

    def _paths_of(self, reads: Iterable[Read]) -> pa.Array:
        chunks = [chunk for read in reads for chunk in read.files.column("path").chunks]
        return canonical_paths(pa.concat_arrays([_NO_PATHS, *chunks]), self.root_uri)
