"""What a transaction looked at: the part of the past that its commit depends on.

A read is a predicate and the files it gave.  A read is by file, or by row: a command that judges
each row by itself depends, of the files that it looked through, on the rows that it changed alone.
Files are Arrow columns, held and not copied.

>>> ReadSet(root_uri="memory://t").is_empty
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames import STRING_MAP, canonical_paths
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.scan.predicates import Predicate, conjunction

READ_SCHEMA = pa.schema([("path", pa.string()), ("partitionValues", STRING_MAP)])
"""The columns of a file that a read keeps."""

NO_ROWS = DeletionVector()


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedRows:
    """The rows of one file that a command depends on.

    `changed` are those that its commit takes out of the file; `needed` are others that decided
    what it did, such as rows that kept a row of a source from being inserted.
    """

    changed: DeletionVector = NO_ROWS
    needed: DeletionVector = NO_ROWS

    @property
    def all(self) -> DeletionVector:
        """Both."""
        return self.changed.union(self.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read: the condition, whole, and the files that it left, a table of `READ_SCHEMA`.

    `predicate` is None for files that were asked for by name: others like them do not matter.
    `narrow` gives a predicate that must be true as well for a row to matter, and is asked only
    when there would be a conflict without it; None when there is no such thing.
    """

    predicate: Predicate | None
    files: pa.Table = field(hash=False)
    by_row: bool = False
    narrow: Callable[[], Predicate] | None = field(default=None, hash=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class ReadSet:
    """Every read of one transaction.

    `whole_table` is stronger than a predicate that is TRUE: no file at all may have gone.
    `app_ids` are the applications whose last version was asked for.  `touched` are rows by the
    canonical paths of their files.  `time_zone` is the one of timestamps among partition values
    that do not say theirs: others' files are judged by it, as the files that were read.
    """

    root_uri: str
    time_zone: str = "UTC"
    reads: tuple[Read, ...] = ()
    whole_table: bool = False
    app_ids: frozenset[str] = frozenset()
    touched: Mapping[str, TouchedRows] = field(default_factory=dict, hash=False)

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The condition of each read that had one; TRUE for a read of everything."""
        return tuple(read.predicate for read in self.reads if read.predicate is not None)

    @property
    def is_empty(self) -> bool:
        """Whether the commit depends on no file, there or not there."""
        return not self.predicates and not any(read.files.num_rows for read in self.reads)

    @cached_property
    def paths(self) -> pa.Array:
        """The files' paths as replay compares them."""
        return self._paths_of(self.reads)

    @cached_property
    def paths_by_file(self) -> pa.Array:
        """Those of files that were read as a whole."""
        return self._paths_of(read for read in self.reads if not read.by_row)

    @cached_property
    def paths_by_row(self) -> pa.Array:
        """Those of files that were read row by row, some of them perhaps as a whole as well."""
        return self._paths_of(read for read in self.reads if read.by_row)

    def holds(self, paths: pa.Array) -> pa.Array:
        """Which of `paths`, canonical ones, were read."""
        return pc.is_in(paths, value_set=self.paths)

    def partition_values(self, path: str) -> Mapping[str, str | None]:
        """The partition values of a file that was read, for a message."""
        position = pc.index(self.paths, path).as_py()
        for read in self.reads:
            if position < read.files.num_rows:
                return dict(read.files.column("partitionValues")[position].as_py() or ())
            position -= read.files.num_rows
        return {}

    def without(self, paths: pa.Array) -> ReadSet:
        """The reads as if `paths` had not been there."""
        kept = []
        for read in self.reads:
            names = canonical_paths(read.files.column("path").combine_chunks(), self.root_uri)
            files = read.files.filter(pc.invert(pc.is_in(names, value_set=paths)))
            kept.append(replace(read, files=files))
        return replace(self, reads=tuple(kept))

    @property
    def can_narrow(self) -> bool:
        """Whether more can be learnt about the rows that matter."""
        return any(read.narrow is not None for read in self.reads)

    def narrowed(self) -> ReadSet:
        """The reads with all that can be learnt about the rows that matter."""
        return replace(self, reads=tuple(map(_narrowed, self.reads)))

    def _paths_of(self, reads: Iterable[Read]) -> pa.Array:
        chunks = [chunk for read in reads for chunk in read.files.column("path").chunks]
        return canonical_paths(pa.concat_arrays(chunks) if chunks else _NO_PATHS, self.root_uri)


_NO_PATHS = pa.nulls(0, pa.string())


def _narrowed(read: Read) -> Read:
    if read.narrow is None or read.predicate is None:
        return read
    return replace(read, predicate=conjunction([read.predicate, read.narrow()]), narrow=None)
