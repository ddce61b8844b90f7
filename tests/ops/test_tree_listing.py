from __future__ import annotations

import os
from pathlib import Path

from pyspark_delta.kernel.ops.convert.tree_listing import is_hidden_path, list_tree, listed_trees


def _made(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1234")
        os.utime(file, ns=(5_000_000, 5_999_999))


def _paths(root: Path, directory: str = "") -> list[str]:
    return [path for files in list_tree(str(root), directory) for path, _, _ in files]


def test_files_come_by_directory_with_size_and_milliseconds(tmp_path: Path) -> None:
    root = tmp_path / "tä ble 100%"
    _made(root, "p=2/b", "p=2/a", "p=1/c", "d")
    assert list(list_tree(str(root))) == [
        [("d", 4, 5)],
        [("p=1/c", 4, 5)],
        [("p=2/a", 4, 5), ("p=2/b", 4, 5)],
    ]
    assert _paths(root, "p=2") == ["p=2/a", "p=2/b"]
    assert _paths(root, "gone") == []
    assert [files[0][0] for files in listed_trees(str(root), ["p=2", "p=1"])] == ["p=2/a", "p=1/c"]


def test_hidden_names_are_passed_over_unless_they_spell_a_partition(tmp_path: Path) -> None:
    root = tmp_path / "tä ble 100%"
    kept = ("_p=1/f", ".q=1/g", "sub/h", "_x=1.parquet")
    hidden = (
        "_SUCCESS",
        "_temporary/0/f",
        "_delta_log/0.json",
        ".hidden/f",
        "p=1/.f.crc",
        "p=1/.part=0.parquet.crc",
        "p=1/f._COPYING_",
    )
    _made(root, *kept, *hidden)
    assert sorted(_paths(root)) == sorted(kept)
    assert [is_hidden_path(path) for path in kept] == [False] * len(kept)
    assert [is_hidden_path(path) for path in hidden] == [True] * len(hidden)


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    root = tmp_path / "tä ble 100%"
    _made(root, "p=1/f", "p=2/g")
    _made(tmp_path / "else where", "h")
    (root / "p=1" / "up").symlink_to(root)
    (root / "p=1" / "side").symlink_to(root / "p=2")
    (root / "p=2" / "back").symlink_to(root / "p=1")
    (root / "p=3").symlink_to(tmp_path / "else where")
    (root / "link").symlink_to(root / "p=1" / "f")
    (root / "dangling").symlink_to(root / "nothing")
    assert _paths(root) == ["link", "p=1/f", "p=1/side/g", "p=2/g", "p=2/back/f", "p=3/h"]
