"""Offsets in a checkpoint: delta-spark's JSON, letter by letter, and what is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import StreamError
from pyspark_delta.kernel.ops.stream.changes import AdmissionLimits
from pyspark_delta.kernel.ops.stream.offsets import (
    BASE_INDEX,
    METADATA_CHANGE_INDEX,
    POST_METADATA_CHANGE_INDEX,
    DeltaSourceOffset,
    parse_offset,
)

SPECIAL = (BASE_INDEX, METADATA_CHANGE_INDEX, POST_METADATA_CHANGE_INDEX)


@given(
    version=st.integers(0, 2**62),
    index=st.one_of(st.integers(0, 2**40), st.sampled_from(SPECIAL)),
    is_initial=st.booleans(),
)
def test_an_offset_comes_back_from_its_json(version: int, index: int, is_initial: bool) -> None:
    offset = DeltaSourceOffset(table_id="t-ä", version=version, index=index, is_initial=is_initial)
    assert parse_offset(offset.to_json(), "t-ä") == offset


def test_the_json_is_delta_sparks() -> None:
    def text(index: int) -> str:
        return DeltaSourceOffset(table_id="a-b", version=7, index=index, is_initial=True).to_json()

    head = '"reservoirId":"a-b","reservoirVersion":7,"index":'
    assert text(3) == '{"sourceVersion":1,' + head + '3,"isStartingVersion":true}'
    assert text(BASE_INDEX) == '{"sourceVersion":1,' + head + '-1,"isStartingVersion":true}'
    assert text(-20) == '{"sourceVersion":3,' + head + '-20,"isStartingVersion":true}'
    assert text(-19) == '{"sourceVersion":3,' + head + '-19,"isStartingVersion":true}'


def test_the_base_of_the_newer_format_is_understood_too() -> None:
    fields = {"sourceVersion": 3, "reservoirId": "a", "reservoirVersion": 1, "index": -100}
    found = parse_offset(json.dumps({**fields, "isStartingVersion": False}), "a")
    assert found.index == BASE_INDEX


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"reservoirId": "other"}, "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"),
        ({"sourceVersion": 4}, "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"),
        ({"sourceVersion": 2}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": 0}, "DELTA_INVALID_SOURCE_VERSION"),
        ({"sourceVersion": "1"}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"sourceVersion": True}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"reservoirVersion": -1}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"reservoirVersion": 2**70}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"index": -7}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"index": 2**63 - 101}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"index": None}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"isStartingVersion": "true"}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
        ({"reservoirId": None}, "DELTA_INVALID_SOURCE_OFFSET_FORMAT"),
    ],
)
def test_what_is_no_offset_of_this_table_is_refused(
    change: dict[str, object], condition: str
) -> None:
    fields = {
        "sourceVersion": 1,
        "reservoirId": "a",
        "reservoirVersion": 1,
        "index": 0,
        "isStartingVersion": False,
    }
    with pytest.raises(StreamError) as caught:
        parse_offset(json.dumps({**fields, **change}), "a")
    assert caught.value.condition == condition


@pytest.mark.parametrize("text", ["", "no", "[1]", "3", "[" * 100_000, '{"a":'])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(StreamError) as caught:
        parse_offset(text, "a")
    assert caught.value.condition == "DELTA_INVALID_SOURCE_OFFSET_FORMAT"


def test_limits_admit_one_file_whatever_its_size() -> None:
    limits = AdmissionLimits(max_files=None, max_bytes=5)
    assert [limits.admit(size) for size in (100, 1)] == [True, False]
    limits = AdmissionLimits(max_files=2, max_bytes=None)
    assert [limits.admit(10**12) for _ in range(3)] == [True, True, False]
    limits = AdmissionLimits(max_files=10, max_bytes=5)
    assert [limits.admit(2) for _ in range(4)] == [True, True, True, False]
    limits = AdmissionLimits(max_files=None, max_bytes=None)
    assert [limits.admit(10**12) for _ in range(1001)] == [True] * 1000 + [False]


def test_files_that_belong_together_are_admitted_as_one() -> None:
    limits = AdmissionLimits(max_files=2, max_bytes=None)
    assert limits.admit_commit([1, 1, 1])
    assert not limits.admit_commit([1])
    limits = AdmissionLimits(max_files=3, max_bytes=None)
    assert limits.admit(1)
    assert not limits.admit_commit([1, 1, 1])
    assert AdmissionLimits(max_files=1, max_bytes=None).admit_commit([])
    limits = AdmissionLimits(max_files=3, max_bytes=None)
    limits.pass_mark()
    assert not limits.admit_commit([1, 1], marks=2)
    limits = AdmissionLimits(max_files=4, max_bytes=None)
    limits.pass_mark()
    assert limits.admit_commit([1, 1], marks=2)
    assert not limits.has_room
