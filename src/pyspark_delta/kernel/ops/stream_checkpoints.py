"""What Spark keeps in the checkpoint of a query, as far as a Delta source has to know.

Spark numbers the sources that it makes: what a file source has seen is in `sources/0`.  Ours stand
ready in the plan and get no number, delta-spark's do.  So where one of ours comes before a source
of another format, the two engines look for that source's state in different places, would find
none there, and begin again.  Such a query stays with the engine that began it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_delta.errors.storage import FileAlreadyExistsError, FileMissingError
from pyspark_delta.errors.table import StreamError
from pyspark_delta.kernel.storage.base import LogStore

MARK = b"v1000000\nThe sources of this query are numbered as pyspark-delta numbers them.\n"
"""A state of a source that no Spark can read: of a version that there will never be."""


def guard_numbers(checkpoint: LogStore, ours: Sequence[bool]) -> None:
    """Refuse a checkpoint that delta-spark began, and mark one of ours for it.

    `ours` says of each source of the query, in its order, whether it is a Delta table.

    >>> from pyspark_delta.kernel.storage.memory import MemoryStore
    >>> store = MemoryStore()
    >>> guard_numbers(store, [False, True])
    >>> [file.path for file in store.list_recursive("")]
    []
    >>> guard_numbers(store, [True, False])
    >>> [file.path for file in store.list_recursive("")]
    ['sources/1/0']
    """
    numbers = [number for number, is_ours in enumerate(ours) if not is_ours]
    for number in numbers:
        if number < len(numbers):
            continue  # Spark gives that number here, too
        if not _is_marked(checkpoint, number) and _has_files(checkpoint, number):
            raise StreamError(
                "DELTA_STREAMING_SOURCES_NUMBERED_OTHERWISE",
                directory=checkpoint.address(f"sources/{number}"),
            )
        try:
            checkpoint.create(_mark_path(number), MARK)
        except FileAlreadyExistsError:
            continue


def is_last_batch_done(checkpoint: LogStore) -> bool:
    """Whether the last batch that the checkpoint has offsets for was committed."""
    newest = [_newest(checkpoint, name) for name in ("offsets", "commits")]
    return newest[0] is not None and newest[0] == newest[1]


def _newest(checkpoint: LogStore, name: str) -> int | None:
    names = [file.path.rpartition("/")[2] for file in checkpoint.list_from(f"{name}/")]
    numbers = [int(each) for each in names if each.isascii() and each.isdigit()]
    return max(numbers, default=None)


def _mark_path(number: int) -> str:
    return f"sources/{number}/0"


def _is_marked(checkpoint: LogStore, number: int) -> bool:
    try:
        return checkpoint.read(_mark_path(number)) == MARK
    except FileMissingError:
        return False


def _has_files(checkpoint: LogStore, number: int) -> bool:
    return next(iter(checkpoint.list_recursive(f"sources/{number}")), None) is not None
