"""`ActionFrame`: the actions of one commit, or of several in a row, as Arrow tables.

PROTOCOL.md, "Action Reconciliation": of two actions about one file the newer counts; within one
commit a remove counts more than an add, and the last of two adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.actions import Action

# Where in a key the bytes of its digest begin, counted from its end: the UUID of a name such as
# `part-00000-<uuid>-c000.snappy.parquet`, or of `<uuid>.parquet`.  The first two are nearly always
# enough, at half the time.
_WINDOWS = (-44, -36, -28, -20)
_FEW_WINDOWS = _WINDOWS[:2]
# A plain number: pyarrow imports pandas, where it is installed, to make a scalar of one.
_MIX = -7046029254386353131


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFrame:
    """The actions of one commit, or of several consecutive ones.

    `others` holds protocol, metaData, txn and domainMetadata actions, oldest first.  Once it
    `is_reconciled`, no key occurs twice in `adds` and `removes` together.
    """

    adds: pa.Table
    removes: pa.Table
    add_keys: pa.Array
    remove_keys: pa.Array
    others: tuple[Action, ...]
    is_reconciled: bool = True

    @property
    def num_rows(self) -> int:
        """How many file actions the frame holds."""
        return int(self.adds.num_rows + self.removes.num_rows)

    @property
    def keys(self) -> pa.Array:
        """The key of every file action in the frame."""
        return pa.concat_arrays([self.add_keys, self.remove_keys])

    def reconciled(self) -> ActionFrame:
        """The frame with one action for each key."""
        if self.is_reconciled:
            return self
        add_keys, adds = _unique(self.add_keys, self.adds)
        remove_keys, removes = _unique(self.remove_keys, self.removes)
        if len(remove_keys) and len(add_keys):
            removed = pc.is_in(add_keys, value_set=remove_keys)
            if removed.true_count:
                keep = pc.invert(removed)
                add_keys, adds = add_keys.filter(keep), adds.filter(keep)
        return ActionFrame(
            adds=adds,
            removes=removes,
            add_keys=add_keys,
            remove_keys=remove_keys,
            others=self.others,
        )


def have_no_key_in_common(frames: Sequence[ActionFrame]) -> bool:
    """Whether no file key occurs twice, neither within a frame nor in two of them.

    Most logs only append: one pass over all keys then spares comparing each frame with all others.
    """
    parts = [keys for frame in frames for keys in (frame.add_keys, frame.remove_keys)]
    return _are_distinct(pa.chunked_array(parts, pa.string()))


def _unique(keys: pa.Array, table: pa.Table) -> tuple[pa.Array, pa.Table]:
    """The last row of each key, in the order of the rows."""
    if _are_distinct(pa.chunked_array([keys])):
        return keys, table
    rows = pa.table({"key": keys, "row": pa.array(range(len(keys)), pa.int64())})
    last = rows.group_by("key", use_threads=False).aggregate([("row", "max")])
    order = last.column("row_max").combine_chunks().sort()
    return keys.take(order), table.take(order)


def _are_distinct(keys: pa.ChunkedArray) -> bool:
    """Whether all keys are distinct."""
    # Equal keys have equal digests, so distinct digests prove distinct keys, at a fraction of the
    # memory that a table of all keys takes: file names hold a UUID near their end.
    if len(keys) and pc.min(pc.binary_length(keys)).as_py() >= -_WINDOWS[0]:
        for windows in (_FEW_WINDOWS, _WINDOWS):
            digests = [_digests(chunk, windows) for chunk in keys.chunks if len(chunk)]
            if len(pc.unique(pa.chunked_array(digests))) == len(keys):
                return True
    return len(pc.unique(keys)) == len(keys)


def _digests(keys: pa.Array, windows: Sequence[int]) -> pa.Array:
    """A number for each key, made of the eight bytes at each of `windows`."""
    binary = keys.cast(pa.binary())
    digest: pa.Array | None = None
    for start in windows:
        piece = pc.binary_slice(binary, start, start + 8)
        # Eight bytes each, one behind the other: as good as a column of numbers.
        number = pa.Array.from_buffers(pa.int64(), len(piece), [None, piece.buffers()[2]])
        digest = number if digest is None else pc.add(pc.multiply(digest, _MIX), number)
    return digest
