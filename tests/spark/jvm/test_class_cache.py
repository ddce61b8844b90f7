"""The cache of the hooks' bytecode, which is run: only the user's own whole file counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_delta.spark.jvm.classes import _keep, _kept

CODE = {"pyspark_delta.Bridge": bytes(range(256)) * 40, "delta.DefaultSource": b"\xca\xfe"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cä che 100%" / "key.zip"


def test_what_is_kept_is_found_again(place: Path) -> None:
    assert _kept(place) is None
    _keep(place, CODE)
    assert _kept(place) == CODE
    assert [each.name for each in place.parent.iterdir()] == [place.name]
    assert place.stat().st_mode & 0o077 == 0


def test_a_file_that_others_may_write_is_not_run(place: Path) -> None:
    _keep(place, CODE)
    place.chmod(0o620)
    assert _kept(place) is None
    _keep(place, CODE)
    assert _kept(place) == CODE


def test_a_damaged_file_is_made_again(place: Path) -> None:
    _keep(place, CODE)
    whole = place.read_bytes()
    for size in range(0, len(whole), 7):
        place.write_bytes(whole[:size])
        assert _kept(place) is None
    for position in range(0, len(whole), 3):
        place.write_bytes(
            whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :]
        )
        assert _kept(place) is None
    _keep(place, CODE)
    assert _kept(place) == CODE


def test_a_place_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    _keep(tmp_path / "file" / "key.zip", CODE)
    assert _kept(tmp_path / "file" / "key.zip") is None
