"""The messages of Delta's protocol on the wire."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_delta.errors import PropertyError
from pyspark_delta.spark.connect.messages import decoded, encoded
from tests.support.delta_server import CLIENT_PACKAGES, ROOT, client_environment


@pytest.mark.skipif(
    not CLIENT_PACKAGES.is_dir(), reason="the packages of a Spark Connect client are not installed"
)
def test_messages_agree_with_protocol_buffers_own_library() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect.protobuf_agreement"],
        cwd=ROOT,
        env=client_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_fields_that_are_unknown_are_left_out() -> None:
    newer = encoded("MergeAction", {"update_star_except_action": {"columns": ["a"]}})
    assert decoded("Assignment", newer + encoded("Assignment", {"field": b"x"})) == {"field": b"x"}


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\x80" * 11, b"\x0b", b"\x08\x01", b"\x0a\x02\x0a\x7f"],
    ids=["no size", "too short", "endless number", "a group", "a number for a text", "nested"],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(PropertyError) as caught:
        decoded("DeltaRelation", data)
    assert caught.value.condition == "DELTA_ILLEGAL_OPTION"


def test_messages_within_messages_have_an_end() -> None:
    data = b""
    for _ in range(200):
        data = encoded("Relation", {"subquery_alias": {"alias": "t"}}) + _field(16, _field(1, data))
    with pytest.raises(PropertyError):
        decoded("Relation", data)


def _field(number: int, data: bytes) -> bytes:
    def varint(value: int) -> bytes:
        made = bytearray()
        while value > 0x7F:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*made, value])

    return varint(number << 3 | 2) + varint(len(data)) + data
