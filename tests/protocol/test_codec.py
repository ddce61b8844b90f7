"""JSON in and out as delta-spark has it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.codec import (
    MalformedRecordError,
    boolean,
    dumps,
    integer,
    raw_map,
    string_map,
    string_tuple,
    text,
)
from tests.support.schemas import JSON_VALUES


def test_json_is_compact_and_keeps_letters_as_they_are() -> None:
    assert (
        dumps({"a": [1, True, None, 1.5], "ä": "日本 😀"})
        == '{"a":[1,true,null,1.5],"ä":"日本 😀"}'
    )


def test_control_characters_are_escaped_in_upper_case_hex_as_jackson_does() -> None:
    assert dumps('\x1f\x0b\n\t"\\/') == '"\\u001F\\u000B\\n\\t\\"\\\\/"'


def test_a_backslash_before_what_looks_like_an_escape_stays_text() -> None:
    assert dumps("\\u001f") == '"\\\\u001f"'
    assert dumps("\\\x1f") == '"\\\\\\u001F"'


def test_half_of_a_surrogate_pair_is_escaped_so_that_it_can_be_encoded() -> None:
    written = dumps({"a": "\ud800é"})
    assert written == '{"a":"\\uD800é"}'
    assert written.encode()
    assert json.loads(written) == {"a": "\ud800é"}


@given(JSON_VALUES | st.text(st.characters()))
def test_whatever_is_written_reads_back(value: object) -> None:
    assert json.loads(dumps(value)) == value


@pytest.mark.parametrize(
    ("value", "expected"), [(5, 5), ("5", 5), ("-5", -5), (5.0, 5), (-(2**63), -(2**63))]
)
def test_whole_numbers_are_read_as_other_writers_spell_them(value: object, expected: int) -> None:
    assert integer(value, "size") == expected


@pytest.mark.parametrize(
    "value",
    [True, "1_000", " 5", "٥", "", "x", "1e3", 1.5, 2**63, "9" * 30, float("inf"), None, [1]],
)
def test_what_is_no_whole_number_of_64_bits_is_malformed(value: object) -> None:
    with pytest.raises(MalformedRecordError, match="size"):
        integer(value, "size")


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (text, 5),
        (boolean, "true"),
        (boolean, 1),
        (string_map, [1]),
        (raw_map, "x"),
        (string_tuple, "x"),
        (string_tuple, ["a", 1]),
    ],
)
def test_a_value_of_another_kind_is_malformed_and_names_its_key(
    read: object, value: object
) -> None:
    with pytest.raises(MalformedRecordError, match="the key"):
        read(value, "the key")  # type: ignore[operator]


def test_values_of_a_string_map_may_be_null_and_others_become_their_text() -> None:
    assert string_map({"a": None, "b": 1, "c": True, "d": "x"}, "tags") == {
        "a": None,
        "b": "1",
        "c": "true",
        "d": "x",
    }
