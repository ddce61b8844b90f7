"""Which files make a version: hints, checkpoints complete and not, gaps, strays, compactions."""

from __future__ import annotations

import pytest

from pyspark_delta.errors import CorruptLogError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.log.segment import list_log, load_segment
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add

LOG = "_delta_log"


@pytest.fixture
def builder() -> LogBuilder:
    return LogBuilder(MemoryStore())


def name(version: int, rest: str) -> str:
    return f"{LOG}/{version:020d}{rest}"


def test_commits_alone_make_a_version(builder: LogBuilder) -> None:
    builder.create().commit(add("a")).commit(add("b"))
    segment = load_segment(builder.store)
    assert segment.version == 2
    assert segment.checkpoint is None
    assert [file.version for file in segment.commits] == [0, 1, 2]


def test_an_empty_directory_is_no_table(builder: LogBuilder) -> None:
    with pytest.raises(TableNotFoundError) as caught:
        load_segment(builder.store)
    assert caught.value.condition == "DELTA_TABLE_NOT_FOUND"


def test_a_gap_is_an_error_that_names_it(builder: LogBuilder) -> None:
    builder.create()
    builder.write(name(2, ".json"), b"")
    with pytest.raises(CorruptLogError) as caught:
        load_segment(builder.store)
    assert caught.value.condition == "DELTA_VERSIONS_NOT_CONTIGUOUS"
    assert caught.value.parameters["versionList"] == "[0, 2]"


def test_a_log_that_does_not_begin_at_zero_needs_a_checkpoint(builder: LogBuilder) -> None:
    builder.write(name(1, ".json"), b"")
    with pytest.raises(CorruptLogError) as caught:
        load_segment(builder.store)
    assert caught.value.condition == "DELTA_TRUNCATED_TRANSACTION_LOG"


def test_strays_are_ignored(builder: LogBuilder) -> None:
    builder.create()
    for stray in (
        "99999999999999999999.json",
        ".tmp",
        "abc.json",
        "1.json",
        "00000000000000000001.json.tmp",
    ):
        builder.write(f"{LOG}/{stray}", b"x")
    assert load_segment(builder.store).version == 0


def test_the_newest_complete_checkpoint_is_taken(builder: LogBuilder) -> None:
    for version in range(6):
        builder.commit(add(str(version)))
    builder.write(name(2, ".checkpoint.parquet"), b"x")
    builder.write(name(4, ".checkpoint.0000000001.0000000002.parquet"), b"x")
    segment = load_segment(builder.store)
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 2
    builder.write(name(4, ".checkpoint.0000000002.0000000002.parquet"), b"x")
    segment = load_segment(builder.store)
    assert segment.checkpoint is not None
    assert [f.name.part for f in segment.checkpoint.files] == [1, 2]
    assert [f.version for f in segment.commits] == [5]


def test_at_one_version_a_uuid_checkpoint_beats_parts_beats_a_classic_one(
    builder: LogBuilder,
) -> None:
    builder.create()
    uuid = "0a0b0c0d-1111-2222-3333-444455556666"
    builder.write(name(0, ".checkpoint.parquet"), b"x")
    builder.write(name(0, ".checkpoint.0000000001.0000000001.parquet"), b"x")
    assert load_segment(builder.store).checkpoint.files[0].name.part == 1  # type: ignore[union-attr]
    builder.write(name(0, f".checkpoint.{uuid}.json"), b"x")
    assert load_segment(builder.store).checkpoint.files[0].name.uuid == uuid  # type: ignore[union-attr]


def test_an_empty_checkpoint_file_does_not_count(builder: LogBuilder) -> None:
    builder.create()
    builder.write(name(0, ".checkpoint.parquet"), b"")
    assert load_segment(builder.store).checkpoint is None


@pytest.mark.parametrize(
    "hint",
    [
        b"garbage",
        b"{}",
        b"[]",
        b'{"version":-4,"size":1}',
        b'{"version":3,"size":1}',
        b'{"version":1000,"size":1}',
        b'{"version":3,"size":1,"parts":1000000000}',
    ],
)
def test_a_hint_is_never_trusted(builder: LogBuilder, hint: bytes) -> None:
    for version in range(6):
        builder.commit(add(str(version)))
    builder.write(name(2, ".checkpoint.parquet"), b"x")
    builder.write(f"{LOG}/_last_checkpoint", hint)
    segment = load_segment(builder.store)
    assert segment.version == 5
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 2


def test_a_good_hint_spares_the_listing_of_what_is_older(builder: LogBuilder) -> None:
    for version in range(6):
        builder.commit(add(str(version)))
    builder.write(name(4, ".checkpoint.parquet"), b"x")
    builder.write(f"{LOG}/_last_checkpoint", b'{"version":4,"size":1}')
    builder.store.delete(name(0, ".json"))
    assert [f.version for f in load_segment(builder.store).commits] == [5]


def test_an_older_version_uses_an_older_checkpoint(builder: LogBuilder) -> None:
    for version in range(8):
        builder.commit(add(str(version)))
    builder.write(name(2, ".checkpoint.parquet"), b"x").write(name(6, ".checkpoint.parquet"), b"x")
    builder.write(f"{LOG}/_last_checkpoint", b'{"version":6,"size":1}')
    segment = load_segment(builder.store, 4)
    assert segment.checkpoint is not None
    assert segment.checkpoint.version == 2
    assert [f.version for f in segment.commits] == [3, 4]


def test_a_version_outside_of_the_log_is_not_found(builder: LogBuilder) -> None:
    builder.create().commit()
    for version in (-1, 2):
        with pytest.raises(VersionNotFoundError) as caught:
            load_segment(builder.store, version)
        assert caught.value.parameters == {
            "userVersion": str(version),
            "earliest": "0",
            "latest": "1",
        }


def test_a_version_of_a_log_without_its_beginning_is_told_to_be_beyond_repair(
    builder: LogBuilder,
) -> None:
    builder.create().commit().commit()
    builder.store.delete(name(0, ".json"))
    for version in (0, 1):
        with pytest.raises(VersionNotFoundError) as caught:
            load_segment(builder.store, version)
        assert caught.value.condition == "DELTA_NO_RECREATABLE_HISTORY_FOUND"


def test_compactions_cover_as_many_commits_as_they_can(builder: LogBuilder) -> None:
    for version in range(8):
        builder.commit(add(str(version)))
    for first, last in ((1, 2), (1, 4), (4, 6), (6, 99)):
        builder.write(name(first, f".{last:020d}.compacted.json"), b"{}\n")
    cover = load_segment(builder.store).replay
    assert [(f.version, f.name.end_version) for f in cover] == [
        (0, None),
        (1, 4),
        (5, None),
        (6, None),
        (7, None),
    ]


def test_a_checkpoint_given_up_as_broken_is_not_chosen_again(builder: LogBuilder) -> None:
    for version in range(4):
        builder.commit(add(str(version)))
    path = name(3, ".checkpoint.parquet")
    builder.write(path, b"x")
    assert load_segment(builder.store, broken={path}).checkpoint is None


def test_a_listing_tells_the_newest_version(builder: LogBuilder) -> None:
    assert list_log(builder.store).latest_version is None
    builder.create().commit()
    assert list_log(builder.store).latest_version == 1
