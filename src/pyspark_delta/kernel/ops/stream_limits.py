"""How much one batch of a stream may hold.

A file is admitted while there is room before it, so the first one always is, whatever its size.

>>> limits = AdmissionLimits(max_files=None, max_bytes=10)
>>> limits.admit(100), limits.admit(1)
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT_MAX_FILES = 1000
_NO_LIMIT = 2**63 - 1


class AdmissionLimits:
    """What is left of a batch's limits.  Without any, a thousand files are enough for one."""

    def __init__(self, *, max_files: int | None, max_bytes: int | None) -> None:
        if max_files is None:
            max_files = DEFAULT_MAX_FILES if max_bytes is None else _NO_LIMIT
        self._files_left = max_files
        self._bytes_left = _NO_LIMIT if max_bytes is None else max_bytes
        self._has_commit = False

    @property
    def has_room(self) -> bool:
        """Whether another file is admitted."""
        return self._files_left > 0 and self._bytes_left > 0

    def admit(self, size: int) -> bool:
        """Whether a file of that size is part of the batch."""
        has_room = self.has_room
        self._take(1, size)
        return has_room

    def admit_commit(self, sizes: Sequence[int], *, marks: int = 0) -> bool:
        """Whether files that must not be parted are all part of the batch.

        The first commit of a batch always is, else a stream could stand still.  `marks` are entries
        that stand for no file; delta-spark counts them here, and only here.
        """
        count, size = len(sizes) + marks, sum(sizes)
        if not count:
            return True
        fits = self._files_left >= count and self._bytes_left >= size
        is_admitted = fits or not self._has_commit
        self._take(count, size)
        return is_admitted

    def pass_mark(self) -> None:
        """Take an entry that stands for no file: it costs nothing, but the batch has begun."""
        self._has_commit = True

    def _take(self, files: int, size: int) -> None:
        self._files_left -= files
        self._bytes_left -= size
        self._has_commit = True
