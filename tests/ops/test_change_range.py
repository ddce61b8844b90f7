"""The versions of a range of changes in a log that was cleaned up."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.feed import ChangeBounds
from tests.support.cleaned_logs import cleaned_log


@pytest.mark.parametrize("with_own_times", [False, True])
@pytest.mark.parametrize(("start_ms", "first"), [(0, 5), (7500, 8), (8500, 9), (9001, 10)])
def test_a_range_begins_with_the_first_commit_at_its_time(
    start_ms: int, first: int, with_own_times: bool
) -> None:
    log = TableLog(cleaned_log(with_own_times=with_own_times).store)
    assert ChangeBounds(start_time=start_ms).versions(log, 12) == (first, 12)


def test_a_range_ends_with_a_version_that_can_be_put_together() -> None:
    log = TableLog(cleaned_log().store)
    assert ChangeBounds(start_time=7500, end_time=10_500).versions(log, 12) == (8, 10)
    with pytest.raises(DeltaError) as caught:
        ChangeBounds(start_time=7500, end_time=8500).versions(log, 12)
    assert caught.value.condition == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
