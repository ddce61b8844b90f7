"""ZCubes: sets of files that one OPTIMIZE of a clustered table ordered together.

Tags of a file say which cube it is in, and by which columns that was ordered.  A cube grows with
every OPTIMIZE until it is large enough to be left alone, so that new rows cost work in proportion
to themselves.  Who orders the rows is elsewhere.  PROTOCOL.md, "Clustered Table".

>>> ZCube(id="1", columns=("a", "b")).tags
{'ZCUBE_ID': '1', 'ZCUBE_ZORDER_BY': '["a","b"]'}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.ops.bin_packing import num_bytes, plan_in_order
from pyspark_delta.kernel.protocol.codec import dumps

PROVIDER = "liquid"
"""Who ordered a file, as its action says."""

_ID, _ORDERED_BY = "ZCUBE_ID", "ZCUBE_ZORDER_BY"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ZCube:
    """A set of files that are ordered together, by columns under the names that users know."""

    id: str
    columns: tuple[str, ...]

    @property
    def tags(self) -> dict[str, str]:
        """What an action says of a file in the cube."""
        return {_ID: self.id, _ORDERED_BY: dumps(list(self.columns))}


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeSizes:
    """A cube of `sealed` bytes is left alone; new ones get about `target` bytes."""

    sealed: int = 100 * _GIB
    target: int = 150 * _GIB

    @property
    def largest(self) -> int:
        """How many bytes go into a new cube."""
        return max(self.sealed, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """How many files there are, and how large they are together."""

    num_files: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """Bins of files, each to become a cube, and what was found on the way.

    `in_cubes` are files in cubes by the same columns, or in any cube when all are ordered anew;
    `others` are the rest.
    """

    bins: tuple[pa.Table, ...] = field(hash=False)
    in_cubes: FileCount
    others: FileCount
    num_cubes: int
    merged: FileCount


def plan_clustering(
    files: pa.Table, columns: Sequence[str], sizes: CubeSizes, *, is_full: bool = False
) -> ClusteringPlan:
    """Which files of a clustered table are ordered, and which of them together.

    Files in no cube, and cubes by `columns` that are not large enough yet.  One such cube alone
    has nothing to be merged with.  With `is_full`, cubes by other columns as well.
    """
    ids = _tag(files, _ID)
    by = _tag(files, _ORDERED_BY)
    ids = pc.if_else(pc.is_valid(by), ids, pa.scalar(None, pa.string()))
    order = pc.sort_indices(pc.fill_null(ids, ""))  # files in no cube first
    files, ids, by = files.take(order), ids.take(order), by.take(order)
    is_free = pc.is_null(ids)
    is_same = pc.and_(pc.invert(is_free), _is_by(by, columns))
    provider = files.column("clusteringProvider").combine_chunks()
    is_ours = pc.fill_null(pc.equal(provider, PROVIDER), True)
    is_candidate = pc.and_(is_ours, pc.or_(is_free, is_same))
    is_small = pc.and_(is_candidate, pc.invert(_is_in_large(files, ids, is_candidate, sizes)))
    is_other = pc.invert(is_candidate)
    if is_full and pc.any(is_other).as_py():
        # The small ones first: cubes stay together.
        places = pa.concat_arrays([pc.indices_nonzero(is_small), pc.indices_nonzero(is_other)])
        chosen = files.take(places)
    elif _num_cubes(ids.filter(is_small)) < 2 and not pc.any(pc.and_(is_free, is_small)).as_py():
        chosen = files.slice(0, 0)
    else:
        chosen = files.filter(is_small)
    counted = pc.invert(is_free) if is_full else is_same
    return ClusteringPlan(
        bins=tuple(plan_in_order(chosen, sizes.largest)),
        in_cubes=_count(files.filter(counted)),
        others=_count(files.filter(pc.invert(counted))),
        num_cubes=_num_cubes(ids.filter(counted)),
        merged=_count(chosen),
    )


def _tag(files: pa.Table, key: str) -> pa.Array:
    """The tag of each file, null where it has none."""
    found = pc.map_lookup(files.column("tags"), pa.scalar(key), "first")
    return found.combine_chunks().cast(pa.string())


def _is_by(ordered_by: pa.Array, columns: Sequence[str]) -> pa.Array:
    """Whether each text spells these columns; many files share few texts."""
    same = [text for text in pc.unique(ordered_by).to_pylist() if _columns(text) == list(columns)]
    return pc.is_in(ordered_by, value_set=pa.array(same, pa.string()))


def _columns(text: str | None) -> object:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None  # whoever wrote that ordered by columns that nobody knows


def _is_in_large(
    files: pa.Table, ids: pa.Array, is_candidate: pa.Array, sizes: CubeSizes
) -> pa.Array:
    """Whether each file is in a cube that has grown as large as cubes do."""
    known = pc.and_(is_candidate, pc.is_valid(ids))
    cubes = pa.table({"id": ids.filter(known), "size": files.column("size").filter(known)})
    totals = cubes.group_by("id").aggregate([("size", "sum")])
    large = totals.filter(pc.greater_equal(totals.column("size_sum"), sizes.sealed)).column("id")
    return pc.and_(known, pc.is_in(ids, value_set=large.combine_chunks()))


def _num_cubes(ids: pa.Array) -> int:
    return len(pc.unique(ids.drop_null()))


def _count(files: pa.Table) -> FileCount:
    return FileCount(num_files=files.num_rows, num_bytes=num_bytes(files))
