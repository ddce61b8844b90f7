"""What a transaction looked at: the part of the past that its commit depends on.

A read is a predicate and the files it gave.  Of the predicate only the part on partition columns
is kept: nothing else can be asked of a file that another writer added.  Files are Arrow columns,
held and not copied.

>>> ReadSet(root_uri="memory://t").is_empty
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames import STRING_MAP, canonical_paths
from pyspark_delta.kernel.scan.predicates import Predicate

READ_SCHEMA = pa.schema([("path", pa.string()), ("partitionValues", STRING_MAP)])
"""The columns of a file that a read keeps."""


@dataclass(frozen=True, kw_only=True)
class ReadSet:
    """Every read of one transaction.

    `predicates` holds the partition part of each read, TRUE for a read of everything; `files` are
    tables of `READ_SCHEMA`.  `whole_table` is stronger than a predicate that is TRUE: no file at
    all may have gone.  `app_ids` are the applications whose last version was asked for.
    """

    root_uri: str
    predicates: tuple[Predicate, ...] = ()
    files: tuple[pa.Table, ...] = ()
    whole_table: bool = False
    app_ids: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the commit depends on no file, there or not there."""
        return not self.predicates and not any(table.num_rows for table in self.files)

    @cached_property
    def paths(self) -> pa.Array:
        """The files' paths as replay compares them."""
        columns = [table.column("path") for table in self.files]
        chunks = [chunk for column in columns for chunk in column.chunks]
        return canonical_paths(pa.concat_arrays(chunks) if chunks else _NO_PATHS, self.root_uri)

    def holds(self, paths: pa.Array) -> pa.Array:
        """Which of `paths`, canonical ones, were read."""
        return pc.is_in(paths, value_set=self.paths)

    def partition_values(self, path: str) -> Mapping[str, str | None]:
        """The partition values of a file that was read, for a message."""
        position = pc.index(self.paths, path).as_py()
        for table in self.files:
            if position < table.num_rows:
                return dict(table.column("partitionValues")[position].as_py() or ())
            position -= table.num_rows
        return {}

    def without(self, paths: pa.Array) -> ReadSet:
        """The reads as if `paths` had not been there."""
        kept = []
        for table in self.files:
            names = canonical_paths(table.column("path").combine_chunks(), self.root_uri)
            kept.append(table.filter(pc.invert(pc.is_in(names, value_set=paths))))
        return replace(self, files=tuple(kept))


_NO_PATHS = pa.array([], pa.string())
