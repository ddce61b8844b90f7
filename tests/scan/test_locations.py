"""What a scan may open: files below the table's root, and below roots that are allowed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_delta.errors import UnsafePathError
from pyspark_delta.kernel.scan.locations import Locations
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
