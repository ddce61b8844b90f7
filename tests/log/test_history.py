"""Which version a time means, in logs whose oldest commits are only that."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import VersionNotFoundError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import CommitInfo, Protocol
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.cleaned_logs import cleaned_log
from tests.support.log_builder import LogBuilder, metadata


@pytest.mark.parametrize("with_own_times", [False, True])
def test_a_start_is_looked_for_among_all_commits(with_own_times: bool) -> None:
    log = TableLog(cleaned_log(with_own_times=with_own_times).store)
    for version in range(5, 13):
        assert log.version_from(1000 * version - 1) == version
        assert log.version_from(1000 * version) == version
    assert log.version_from(0) == 5
    assert log.version_from("1970-01-01 02:00:07.5", zone="+02:00") == 8
    # A snapshot needs more than a commit.
    assert log.version_at(9000) == 9
    with pytest.raises(VersionNotFoundError) as caught:
        log.version_at(8999)
    assert caught.value.condition == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"


@pytest.mark.parametrize("with_own_times", [False, True])
def test_a_start_after_the_last_commit_is_refused_or_the_next_version(with_own_times: bool) -> None:
    log = TableLog(cleaned_log(with_own_times=with_own_times).store)
    with pytest.raises(VersionNotFoundError) as caught:
        log.version_from(12_001)
    assert caught.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    assert log.version_from(12_001, can_exceed_latest=True) == 13
    assert log.version_from(12_000, can_exceed_latest=True) == 12


def test_a_start_at_the_time_that_commits_began_to_tell_theirs_is_that_commit() -> None:
    """Files' times, here late ones, have no say from then on."""
    builder = LogBuilder(MemoryStore(now_ms=lambda: 9000)).create()
    own = metadata(
        configuration={
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "1",
            "delta.inCommitTimestampEnablementTimestamp": "5000",
        }
    )
    protocol = Protocol(
        min_reader_version=1, min_writer_version=7, writer_features=("inCommitTimestamp",)
    )
    builder.commit(CommitInfo(in_commit_timestamp=5000).json, protocol, own)
    builder.commit(CommitInfo(in_commit_timestamp=6000).json)
    log = TableLog(builder.store)
    assert [log.version_from(time) for time in (4999, 5000, 5001, 6000)] == [0, 1, 2, 2]
