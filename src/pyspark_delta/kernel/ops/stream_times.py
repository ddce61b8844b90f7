"""When the commits that a stream reads were made, by the times of their files.

Files' times may stand still or go back.  What is told of them rises with the versions, as in a
batch read: times are pushed up where needed, from `COMMITS_BEFORE` commits before a batch on.
In-commit timestamps go before these times, and are no matter of this module's.
"""

from __future__ import annotations

from pyspark_delta.kernel.log.history import COMMITS_BEFORE
from pyspark_delta.kernel.log.segment import list_log
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.timestamps import Commit, monotonic
from pyspark_delta.kernel.storage.base import LogStore

# A batch seldom begins further behind the last commit than the commits before it reach.
_REMEMBERED = 2 * COMMITS_BEFORE


class CommitTimes:
    """The times of commits, asked for in turn.  Not for several threads.

    The log is listed once, and again where commits were passed over; who follows it pays a look at
    each new commit, and memory for the last few.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        # Times of the files from version `_first` to before `_next`, oldest first, but for gaps.
        self._files: dict[int, int] = {}
        self._first = self._next = 0
        self._oldest = 0
        self._told: Commit | None = None

    def begin_batch(self, version: int) -> None:
        """A batch begins with that version.

        Its times depend on where it begins and not on what was read before: asked for again by
        another run, it has the same.
        """
        self._oldest = max(version - COMMITS_BEFORE, 0)
        self._told = None

    def time_of(self, version: int) -> int:
        """The time of a commit of the batch; FileMissingError when the commit is not there."""
        if self._told is None or self._told[0] != version - 1:
            self._look_before(version)
            before = [each for each in self._files.items() if self._oldest <= each[0] < version]
            self._told = monotonic(before)[-1] if before else None
        time = self._file_time(version)
        if self._told is not None:
            time = max(time, self._told[1] + 1)
        self._told = (version, time)
        return time

    def _look_before(self, version: int) -> None:
        """Know the files of the commits that have a say in the time of `version`."""
        if self._first <= self._oldest and version <= self._next:
            return
        listed = list_log(self._store, self._oldest).commits
        self._files = {
            file.version: file.info.modified_ms for file in listed if file.version < version
        }
        self._first, self._next = self._oldest, version

    def _file_time(self, version: int) -> int:
        if version not in self._files:
            self._files[version] = self._store.stat(commit_path(version)).modified_ms
            self._next = version + 1
            self._forget()
        return self._files[version]

    def _forget(self) -> None:
        while len(self._files) > _REMEMBERED:
            oldest = next(iter(self._files))
            del self._files[oldest]
            self._first = oldest + 1
