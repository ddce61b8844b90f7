"""What a scan may open: files below the table's root, and below roots that are allowed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.scan.locations import FEW_FILES, Locations
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.uris import resolve_action_path


def resolved(locations: Locations, *paths: str) -> list[tuple[str, bool]]:
    found = locations.resolve(pa.chunked_array([list(paths)], pa.string()))
    return [(row["location"], row["isAbsolute"]) for row in found.to_pylist()]


def test_relative_paths_are_decoded_once() -> None:
    locations = Locations(MemoryStore("t", "tä ble 100%"))
    assert resolved(locations, "a.parquet", "p=x%2520y/ä%20b.parquet", "..a/b..c") == [
        ("a.parquet", False),
        ("p=x%20y/ä b.parquet", False),
        ("..a/b..c", False),
    ]


def test_an_absolute_path_inside_of_the_table_is_one_of_its_files(table_path: Path) -> None:
    store = LocalStore(str(table_path))
    locations = Locations(store)
    assert resolved(locations, f"{store.root_uri}/a%20b.parquet") == [("a b.parquet", False)]


@pytest.mark.parametrize(
    "path",
    [
        "../outside.parquet",
        "a/../../outside.parquet",
        "%2e%2e/outside.parquet",
        "..%2Foutside.parquet",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        "s3://bucket/x",
        "",
        ".",
        "..",
        "a//b",
        "a/",
        "a/./b",
        "a\\..\\b",
        "a%00b",
        "a%",
        "a%zz",
        "memory:x",
        "memory://other/x",
    ],
)
def test_a_path_that_leads_out_of_the_table_is_refused(path: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolved(Locations(MemoryStore("t", "tä ble 100%")), "good.parquet", path)
    assert caught.value.condition == "DELTA_UNSAFE_PATH"


def test_a_file_outside_is_found_below_an_allowed_root(tmp_path: Path) -> None:
    clone, source = (LocalStore(str(tmp_path / name)) for name in ("clö ne", "söurce 100%"))
    source.create("p=1/a b.parquet", b"bytes")
    uri = source.address("p=1/a b.parquet")
    with pytest.raises(UnsafePathError, match="outside of the table"):
        resolved(Locations(clone), uri)
    locations = Locations(clone, [source])
    ((location, is_absolute),) = resolved(locations, uri)
    assert is_absolute
    store, path = locations.located(location, is_absolute)
    assert store.read(path) == b"bytes"
    assert locations.open("own.parquet") == (clone, "own.parquet")


def test_an_allowed_root_may_be_of_another_kind(tmp_path: Path) -> None:
    source = MemoryStore("söurce")
    locations = Locations(LocalStore(str(tmp_path)), [source])
    uri = source.address("a b.parquet")
    assert resolved(locations, uri) == [(uri, True)]
    assert locations.open(uri) == (source, "a b.parquet")


@pytest.mark.parametrize("path", ["../x", "/x", "memory://söurce/../x", "memory://other/x"])
def test_an_allowed_root_does_not_open_what_is_beside_it(path: str) -> None:
    locations = Locations(MemoryStore("t", "tä ble 100%"), [MemoryStore("söurce", "below")])
    with pytest.raises(UnsafePathError):
        resolved(locations, path)


@settings(max_examples=200)
@given(st.lists(st.text("ab./%:2e\\ ä", max_size=8), max_size=4))
def test_many_paths_at_once_are_judged_as_each_alone(paths: list[str]) -> None:
    store = MemoryStore("t", "tä ble 100%")
    try:
        alone = [resolve_action_path(path, store.root_uri) for path in paths]
        expected = [(found.path, False) for found in alone if not found.is_absolute]
    except UnsafePathError:
        expected = []
    if len(expected) < len(paths):
        with pytest.raises(UnsafePathError):
            resolved(Locations(store), *paths)
    else:
        assert resolved(Locations(store), *paths) == expected


def test_directories_are_checked_for_links_always_and_files_where_they_are_few_or_it_matters(
    table_path: Path,
) -> None:
    outside = table_path.parent / "out side"
    outside.mkdir()
    (outside / "f").write_bytes(b"x")
    store = LocalStore(table_path)
    store.create("p=1/a", b"x")
    store.create("b", b"x")
    locations = Locations(store)

    def check(*paths: str, is_many: bool, every_file: bool) -> None:
        more = [f"p=1/{number}" for number in range(FEW_FILES if is_many else 0)]
        files = locations.resolve(pa.array([*more, *paths]))
        locations.check_links(files, every_file=every_file)

    (table_path / "within").symlink_to("p=1")
    for is_many in (False, True):
        for every_file in (False, True):
            check("p=1/a", "b", "within/a", is_many=is_many, every_file=every_file)
    (table_path / "link").symlink_to(outside)
    (table_path / "p=1" / "file").symlink_to(outside / "f")
    check("p=1/file", is_many=True, every_file=False)
    for path, is_many, every_file in (
        ("link/f", False, False),
        ("link/f", True, False),
        ("p=1/file", False, False),
        ("p=1/file", True, True),
    ):
        with pytest.raises(UnsafePathError, match="symbolic link"):
            check(path, is_many=is_many, every_file=every_file)


def test_links_in_an_allowed_place_are_checked_too(table_path: Path) -> None:
    outside = table_path.parent / "out side"
    outside.mkdir()
    source = LocalStore(table_path.parent / "sö urce")
    source.create("f", b"x")
    locations = Locations(LocalStore(table_path), [source])
    locations.check_links(locations.resolve(pa.array([source.address("f")])), every_file=True)
    (table_path.parent / "sö urce" / "d").symlink_to(outside)
    many = [source.address("f"), *(source.address(f"d/{n}") for n in range(FEW_FILES))]
    for paths in (many, [source.address("d/f")]):
        with pytest.raises(UnsafePathError, match="symbolic link"):
            locations.check_links(locations.resolve(pa.array(paths)), every_file=False)
