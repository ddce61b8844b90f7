"""Typed statistics as text again: every value reads back as itself."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.kernel.log.checkpoints.parsed_columns import typed_stats
from pyspark_delta.kernel.log.checkpoints.stats_text import stats_texts

BOUNDS = pa.struct(
    [
        ("b", pa.int8()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("small", pa.decimal128(38, 20)),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("day", pa.date32()),
        ("s", pa.string()),
        ('a "key" ü', pa.struct([("q", pa.int64())])),
    ]
)
STATS = pa.struct([("numRecords", pa.int64()), ("minValues", BOUNDS), ("tightBounds", pa.bool_())])
# Python has no dates as far away as some of these.
_NUMBERS = {
    pa.date32(): pa.int32(),
    pa.timestamp("us", "UTC"): pa.int64(),
    pa.timestamp("us"): pa.int64(),
}
PLAIN = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct([(f.name, _NUMBERS.get(f.type, f.type)) for f in BOUNDS])),
        ("tightBounds", pa.bool_()),
    ]
)
MICROS = st.integers(-(10**17), 10**18)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.integers(-128, 127),
    "x": st.floats(),
    "f": st.floats(width=32),
    "d": st.decimals("-9999.99", "9999.99", places=2),
    "small": st.decimals(-1, 1, places=20),
    "t": MICROS,
    "n": MICROS,
    "day": st.integers(-1_000_000, 10_000_000),
    "s": st.text(max_size=8),
    'a "key" ü': st.fixed_dictionaries({"q": st.none() | st.integers(-(2**63), 2**63 - 1)}),
}
ROWS = st.none() | st.fixed_dictionaries(
    {
        "numRecords": st.none() | st.integers(0, 2**63 - 1),
        "minValues": st.none()
        | st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()}),
        "tightBounds": st.none() | st.booleans(),
    }
)


@settings(max_examples=50)
@given(st.lists(ROWS, max_size=6))
def test_every_value_reads_back_as_itself(rows: list[Any]) -> None:
    typed = pa.array(rows, STATS)
    texts = stats_texts(typed)
    assert [text is None for text in texts.to_pylist()] == [row is None for row in rows]
    read = typed_stats(texts, STATS)
    assert repr(read.cast(PLAIN).to_pylist()) == repr(typed.cast(PLAIN).to_pylist())


def test_text_is_json_without_nulls() -> None:
    texts = [
        '{"numRecords":5,"minValues":{"b":3,"d":12.34,"s":"\\"é\\u001F","day":"2024-02-29"}}',
        None,
        "{}",
        '{"numRecords":0,"minValues":{"f":"NaN","day":"+10000-01-01","d":-0.50}}',
        '{"minValues":{"x":"-Infinity","t":"0001-01-01T00:00:00.000000Z"},"tightBounds":true}',
        '{"minValues":{"small":-0.00000000000000000001,"n":"2024-01-01T00:00:00.123456"}}',
    ]
    again = stats_texts(typed_stats(pa.array(texts), STATS)).to_pylist()
    assert [text and json.loads(text) for text in again] == [
        text and json.loads(text) for text in texts
    ]
    assert '"small":-0.00000000000000000001' in again[-1]
    assert all("null" not in (text or "") for text in again)


def test_a_slice_gives_its_own_rows() -> None:
    typed = pa.array([{"numRecords": n} for n in range(5)], STATS)
    assert stats_texts(typed.slice(2, 2)).to_pylist() == ['{"numRecords":2}', '{"numRecords":3}']
