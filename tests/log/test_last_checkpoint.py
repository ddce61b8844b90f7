"""The hint `_last_checkpoint`: what is written, what is trusted, what is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.log.last_checkpoint import (
    LastCheckpoint,
    V2CheckpointHint,
    format_last_checkpoint,
    json_checksum,
    parse_last_checkpoint,
    read_last_checkpoint,
    write_last_checkpoint,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol, SidecarFile
from pyspark_delta.kernel.protocol.paths import LAST_CHECKPOINT
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.faulty import Fault, FaultRule, FaultStore

SPEC_SAMPLE = """{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2,
 "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"""
HINT = LastCheckpoint(
    version=10,
    size=4,
    parts=2,
    size_in_bytes=77,
    num_of_add_files=1,
    checkpoint_schema={"type": "struct", "fields": [{"name": f"c{n}"} for n in range(12)]},
    tags={"ä": "b c"},
)


def test_the_checksum_is_that_of_the_protocol_text() -> None:
    assert json_checksum(json.loads(SPEC_SAMPLE)) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_a_hint_reads_back_as_it_was_written() -> None:
    store = MemoryStore()
    write_last_checkpoint(store, HINT)
    found = read_last_checkpoint(store)
    assert found is not None
    assert found.checksum == json.loads(store.read(LAST_CHECKPOINT))["checksum"]
    assert {**found.to_json_value(), "checksum": None} == {**HINT.to_json_value(), "checksum": None}


def test_the_fields_that_old_readers_need_stand_first() -> None:
    assert format_last_checkpoint(HINT).startswith('{"version":10,"size":4,"parts":2,')


def test_a_v2_hint_keeps_its_actions_and_sidecars() -> None:
    v2 = V2CheckpointHint(
        path="00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        size_in_bytes=5,
        modification_time=6,
        non_file_actions=(Protocol(), Metadata(id="t")),
        sidecar_files=(SidecarFile(path="s.parquet", size_in_bytes=1, modification_time=2),),
    )
    hint = LastCheckpoint(version=10, size=4, v2_checkpoint=v2)
    found = parse_last_checkpoint(format_last_checkpoint(hint).encode())
    assert found is not None
    assert found.v2_checkpoint == v2


def test_what_would_make_the_hint_long_is_left_out() -> None:
    v2 = V2CheckpointHint(
        path="x.json",
        size_in_bytes=5,
        modification_time=6,
        non_file_actions=tuple(Metadata(id=str(n)) for n in range(31)),
        sidecar_files=tuple(
            SidecarFile(path=f"{n}.parquet", size_in_bytes=1, modification_time=2)
            for n in range(31)
        ),
    )
    wide = {"type": "struct", "fields": ["x" * 20_000]}
    value = json.loads(
        format_last_checkpoint(
            LastCheckpoint(version=1, size=1, checkpoint_schema=wide, v2_checkpoint=v2)
        )
    )
    assert "checkpointSchema" not in value
    assert set(value["v2Checkpoint"]) == {"path", "sizeInBytes", "modificationTime"}


def test_a_checksum_sorted_by_path_is_accepted_too() -> None:
    # More than ten elements: here delta-spark and the letter of the protocol differ.
    value = json.loads(format_last_checkpoint(HINT))
    pairs = {'"version"': "10", **{f'"a"+{n}': str(n) for n in range(12)}}
    assert sorted(f"{k}={v}" for k, v in pairs.items()) != [
        f"{k}={pairs[k]}" for k in sorted(pairs)
    ]
    assert parse_last_checkpoint(json.dumps(value).encode()) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "null",
        "{}",
        '{"version":-1,"size":1}',
        '{"version":1.5,"size":1}',
        '{"version":"x","size":1}',
        '{"version":true,"size":1}',
        '{"version":9223372036854775808,"size":1}',
        '{"version":' + "9" * 5000 + "}",
        '{"version":1,"size":-2}',
        '{"version":1,"size":1,"parts":0}',
        '{"version":1,"size":1,"parts":4294967296}',
        '{"version":1,"size":1,"version":2}',
        '{"version":1,"size":1,"x":{"a":1,"a":1}}',
        '{"version":1,"size":NaN}',
        '{"version":1,"size":1,"checksum":"00000000000000000000000000000000"}',
        '{"version":1,"size":1,"checksum":7}',
        '{"version":1,"size":1,"checkpointSchema":[]}',
        '{"version":1,"size":1,"tags":"x"}',
        '{"version":1,"size":1,"v2Checkpoint":{"path":"a/../b","sizeInBytes":1,'
        '"modificationTime":1}}',
        '{"version":1,"size":1,"v2Checkpoint":{"path":"b"}}',
        '{"version":1,"size":1,"x":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"version":1,"size":1,"x":"\\ud800","checksum":"0"}',
    ],
)
def test_a_hint_that_is_not_one_counts_as_absent(text: str) -> None:
    assert parse_last_checkpoint(text.encode()) is None


def test_bytes_that_are_not_text_count_as_absent() -> None:
    assert parse_last_checkpoint(b"\xff\xfe\x00{") is None


def test_fields_of_other_writers_do_not_matter() -> None:
    found = parse_last_checkpoint(b'{"version":3,"size":-1,"parts":null,"size_in_bytes":9}')
    assert found is not None
    assert (found.version, found.size, found.parts) == (3, -1, None)


def test_a_missing_hint_is_none() -> None:
    assert read_last_checkpoint(MemoryStore()) is None


def test_a_torn_read_is_tried_once_more() -> None:
    inner = MemoryStore()
    write_last_checkpoint(inner, HINT)
    torn = FaultRule(operation="read", path="*", fault=Fault.TRUNCATED_READ)
    found = read_last_checkpoint(FaultStore(inner, [torn]))
    assert found is not None
    assert found.version == 10
    assert read_last_checkpoint(FaultStore(inner, [torn, torn])) is None


def test_a_hint_can_never_make_a_table_unreadable() -> None:
    inner = MemoryStore()
    write_last_checkpoint(inner, HINT)
    assert read_last_checkpoint(FaultStore(inner, [("read", "*", Fault.ERROR_BEFORE)])) is None


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    parse_last_checkpoint(data)
    parse_last_checkpoint(b'{"version":1,"size":1,' + data + b"}")


@given(st.integers(0, 200), st.integers(0, 255))
def test_one_changed_byte_is_noticed(position: int, byte: int) -> None:
    data = bytearray(format_last_checkpoint(HINT).encode())
    before = data[position]
    data[position] = byte
    found = parse_last_checkpoint(bytes(data))
    assert byte == before or found is None or found.version == 10
