"""Statistics out of the footers of others, beside those that delta-spark counts from the rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.interop.engines import Pair
from tests.interop.test_convert import convert_both
from tests.support.tables import table_log

MOMENT = datetime(2024, 1, 1, 1, 2, 3, 4567)
SECOND = MOMENT.replace(microsecond=0, tzinfo=UTC)
COLUMNS = {
    "id": pa.array([5, None, 7], pa.int64()),
    "u8": pa.array([1, 200, 3], pa.uint8()),
    "u32": pa.array([1, 2**31 + 1, 3], pa.uint32()),
    "u64": pa.array([1, 2**63 + 1, 3], pa.uint64()),
    "name": pa.array(["x" * 50, "y" * 50 + "ä", ""]),
    "ms": pa.array([SECOND, None, None], pa.timestamp("ms", "UTC")),
    "ntz": pa.array([MOMENT, datetime(1700, 1, 1), None], pa.timestamp("us")),
    "d9": pa.array([Decimal("1.10"), Decimal("-3.20"), None], pa.decimal128(9, 2)),
    "d30": pa.array([Decimal("1.10"), Decimal("-3.20"), None], pa.decimal128(30, 2)),
    "st": pa.array(
        [{"a": 1, "b": {"c": "q"}}, {"a": None, "b": None}, None],
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
    ),
    "arr": pa.array([[1], [], None], pa.list_(pa.int64())),
    "bin": pa.array([b"1", b"2", None]),
    "flag": pa.array([True, False, None]),
    "day": pa.array([date(2024, 1, 1), date(1960, 5, 5), None]),
    "f": pa.array([1.25, -7.5, None], pa.float32()),
    "nulls": pa.array([None, None, None], pa.int32()),
}
# What a footer of pyarrow's does not prove: that there is no NaN, and how many lists are null.
UNPROVEN = {("maxValues", "f"), ("nullCount", "arr")}


def _leaves(value: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, item in value.items():
        if isinstance(item, dict):
            found |= _leaves(item, (*path, key))
        else:
            found[*path, key] = item
    return found


def _stats(path: Path) -> dict[str, dict[tuple[str, ...], Any]]:
    return {
        add.path: {
            key: _moment(value) if key[-1] in ("ms", "ntz") else value
            for key, value in _leaves(json.loads(add.stats or "{}", parse_float=Decimal)).items()
        }
        for add in add_files(table_log(path).snapshot.files)
    }


def _moment(value: object) -> object:
    """A bound in time as the instant that it is, in whatever zone it is written."""
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(UTC)


def _is_bound(key: tuple[str, ...], ours: Any, counted: Any) -> bool:
    """Whether a statistic of ours says what was counted.

    Times are written in milliseconds: an upper bound may be the next one.
    """
    if key == ("maxValues", "ntz"):
        return bool(timedelta() <= ours - counted <= timedelta(milliseconds=1))
    return bool(ours == counted)


@pytest.mark.slow
def test_footers_of_others_prove_what_delta_spark_counts(pair: Pair, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    pq.write_table(pa.table(COLUMNS), plain / "a.parquet", row_group_size=2)
    pq.write_table(pa.table(COLUMNS).select(["id", "f"]), plain / "b.parquet")
    ours, theirs = convert_both(pair, plain)
    # delta-spark takes columns in the order in which its tasks happen to finish.
    assert len(pair.agree(ours).rows) == len(pair.agree(theirs).rows) == 6
    expected = _stats(theirs)
    for path, stats in _stats(ours).items():
        left_out = expected[path].keys() - stats.keys()
        assert left_out <= UNPROVEN
        assert stats.keys() <= expected[path].keys()
        wrong = {key for key in stats if not _is_bound(key, stats[key], expected[path][key])}
        assert not wrong
