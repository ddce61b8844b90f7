"""Logs that were cleaned up: their oldest commits are of versions that cannot be put together."""

from __future__ import annotations

from pyspark_delta.kernel.protocol.actions import CommitInfo, Protocol
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.checkpoints import checkpoint
from tests.support.clock import FrozenClock
from tests.support.log_builder import LogBuilder, add, metadata

_OWN_TIMES = {"delta.enableInCommitTimestamps": "true"}


def cleaned_log(*, with_own_times: bool = False) -> LogBuilder:
    """A log of the commits 5 to 12 with a checkpoint of version 9, and a change feed.

    Version n has one file, `n`, and was made n seconds after 1970 began: by its file's time, or
    `with_own_times` by what its commit says, while files' times say a day later.
    """
    clock = FrozenClock(start_ms=86_400_000 if with_own_times else 0)
    builder = LogBuilder(MemoryStore(now_ms=clock))
    own = _OWN_TIMES if with_own_times else {}
    features = ("changeDataFeed", *(("inCommitTimestamp",) if with_own_times else ()))
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    recording = metadata(configuration={"delta.enableChangeDataFeed": "true", **own})
    for version in range(13):
        info = CommitInfo(in_commit_timestamp=1000 * version if with_own_times else None)
        made = (protocol, recording) if version == 0 else ()
        builder.commit(info.json, *made, add(str(version)))
        clock.advance(seconds=1)
    checkpoint(builder.store, 9)
    for version in range(5):
        builder.store.delete(commit_path(version))
    return builder
