"""Names in the log directory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.kernel.protocol.paths import (
    LogFileKind,
    LogName,
    checksum_path,
    classic_checkpoint_path,
    commit_path,
    compacted_path,
    multipart_checkpoint_path,
    parse_log_name,
    sidecar_path,
    uuid_checkpoint_path,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
VERSIONS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000007.json", LogName(kind=LogFileKind.COMMIT, version=7)),
        ("00000000000000000007.crc", LogName(kind=LogFileKind.CHECKSUM, version=7)),
        (
            "00000000000000000010.checkpoint.parquet",
            LogName(kind=LogFileKind.CLASSIC_CHECKPOINT, version=10),
        ),
        (
            "00000000000000000010.checkpoint.0000000002.0000000003.parquet",
            LogName(kind=LogFileKind.MULTIPART_CHECKPOINT, version=10, part=2, parts=3),
        ),
        (
            f"00000000000000000010.checkpoint.{UUID}.json",
            LogName(kind=LogFileKind.UUID_CHECKPOINT, version=10, uuid=UUID, format="json"),
        ),
        (
            "00000000000000000004.00000000000000000006.compacted.json",
            LogName(kind=LogFileKind.COMPACTED, version=4, end_version=6),
        ),
    ],
)
def test_the_protocols_names_are_understood(name: str, expected: LogName) -> None:
    assert parse_log_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_last_checkpoint",
        "7.json",
        "00000000000000000007.json.tmp",
        ".00000000000000000007.json.crc",
        "00000000000000000007.JSON",
        "99999999999999999999.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٧.json",
        "00000000000000000007.checkpoint.json",
        "00000000000000000010.checkpoint.2.3.parquet",
        "00000000000000000010.checkpoint.not-a-uuid.parquet",
        "00000000000000000007.json\n",
        f"00000000000000000007.{UUID}.json",
    ],
)
def test_other_names_have_no_meaning(name: str) -> None:
    assert parse_log_name(name) is None


@given(VERSIONS)
def test_names_and_paths_read_back_as_what_they_were_made_of(version: int) -> None:
    def parsed(path: str) -> LogName | None:
        assert path.startswith("_delta_log/")
        return parse_log_name(path.rpartition("/")[2])

    assert parsed(commit_path(version)) == LogName(kind=LogFileKind.COMMIT, version=version)
    assert parsed(checksum_path(version)) == LogName(kind=LogFileKind.CHECKSUM, version=version)
    assert parsed(classic_checkpoint_path(version)) == LogName(
        kind=LogFileKind.CLASSIC_CHECKPOINT, version=version
    )
    assert parsed(multipart_checkpoint_path(version, 1, 12)) == LogName(
        kind=LogFileKind.MULTIPART_CHECKPOINT, version=version, part=1, parts=12
    )
    assert parsed(uuid_checkpoint_path(version, UUID, "parquet")) == LogName(
        kind=LogFileKind.UUID_CHECKPOINT, version=version, uuid=UUID, format="parquet"
    )
    assert parsed(compacted_path(version, version)) == LogName(
        kind=LogFileKind.COMPACTED, version=version, end_version=version
    )


@given(VERSIONS, VERSIONS)
def test_names_sort_as_versions_do(one: int, other: int) -> None:
    assert (commit_path(one) < commit_path(other)) == (one < other)


def test_sidecars_have_a_directory_of_their_own() -> None:
    assert sidecar_path("x.parquet") == "_delta_log/_sidecars/x.parquet"


@given(st.text(max_size=80))
def test_no_name_is_too_strange_to_look_at(name: str) -> None:
    parse_log_name(name)
