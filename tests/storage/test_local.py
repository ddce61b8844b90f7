from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_delta.errors import (
    FileAlreadyExistsError,
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
    UnsafePathError,
)
from pyspark_delta.kernel.storage.local import STAGING_PREFIX, LocalStore
from tests.contracts.log_store import COMMIT, LogStoreContract, names
from tests.support.refusing_disks import closed_directory, limited_files, small_disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tä ble 100%"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root, fsync=False)


class TestLocalStore(LogStoreContract):
    @pytest.fixture
    def store(self, root: Path) -> LocalStore:
        return LocalStore(root, fsync=False)


class TestDurableLocalStore(LogStoreContract):
    @pytest.fixture
    def store(self, root: Path) -> LocalStore:
        return LocalStore(root, fsync=True)


def test_a_root_is_literal_and_its_uri_encoded_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "tä ble 100%#?")
    store.create("f", b"x")
    assert (tmp_path / "tä ble 100%#?" / "f").read_bytes() == b"x"
    assert store.root_uri.endswith("/t%C3%A4%20ble%20100%25%23%3F")
    assert store.root_path == str(tmp_path / "tä ble 100%#?")
    assert store.address("a b%") == store.root_uri + "/a%20b%25"


def test_the_file_system_root_is_a_root() -> None:
    store = LocalStore("/", fsync=False)
    assert store.root_uri == "file:///"
    assert store.address("a b") == "file:///a%20b"
    assert store.exists("etc/passwd")


def test_new_files_follow_the_umask(store: LocalStore, root: Path) -> None:
    old = os.umask(0o027)
    try:
        store.create("f", b"")
    finally:
        os.umask(old)
    assert (root / "f").stat().st_mode & 0o777 == 0o640


def test_unfinished_files_of_a_dead_writer_are_not_seen(store: LocalStore, root: Path) -> None:
    store.create(COMMIT, b"x")
    (root / "_delta_log" / f"{STAGING_PREFIX}1-abc").write_bytes(b"half")
    assert STAGING_PREFIX.startswith(".")
    assert [info.path for info in store.list_from("_delta_log/")] == [COMMIT]
    assert names(store, "") == [COMMIT]


def test_no_write_leaves_anything_beside_its_file(store: LocalStore, root: Path) -> None:
    store.create("d/f", b"1")
    store.overwrite("d/f", b"2")
    with pytest.raises(FileAlreadyExistsError):
        store.create("d/f", b"3")
    (root / "d" / "taken").mkdir()
    with pytest.raises(FileAlreadyExistsError):
        store.create("d/taken", b"4")
    with pytest.raises(StorageError):
        store.overwrite("d/taken", b"5")
    with pytest.raises(StorageError):
        store.create("d/" + "x" * 300, b"6")
    assert sorted(os.listdir(root / "d")) == ["f", "taken"]


def test_a_write_that_fails_leaves_no_directory_where_there_was_none(
    store: LocalStore, root: Path
) -> None:
    def failing() -> Iterator[bytes]:
        yield b"half"
        raise LookupError

    with pytest.raises(LookupError):
        store.create_from("_delta_log/0.json", failing())
    assert not (root / "_delta_log").exists()
    (root / "_delta_log").mkdir(parents=True)
    with pytest.raises(LookupError):
        store.create_from("_delta_log/0.json", failing())
    assert list((root / "_delta_log").iterdir()) == []


def test_a_file_that_is_too_large_is_refused_and_not_there(store: LocalStore, root: Path) -> None:
    store.make_directory("_delta_log")
    with limited_files(100), pytest.raises(StorageRefusedError) as caught:
        store.create(COMMIT, bytes(1000))
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert list((root / "_delta_log").iterdir()) == []


def test_a_directory_without_permission_refuses(store: LocalStore, root: Path) -> None:
    store.create("_delta_log/0", b"")
    with closed_directory(root / "_delta_log"), pytest.raises(StorageRefusedError):
        store.create(COMMIT, b"x")


def test_a_full_disk_and_a_read_only_one_refuse(tmp_path: Path) -> None:
    with small_disk(tmp_path / "dä ta 100%", size="64k") as disk:
        store = LocalStore(disk.path)
        store.create("_delta_log/0", b"")
        disk.fill()
        for code in (errno.ENOSPC, errno.EROFS):
            with pytest.raises(StorageRefusedError) as caught:
                store.create(COMMIT, bytes(10_000))
            assert os.strerror(code) in str(caught.value)
            disk.make_read_only()


def test_a_directory_that_cannot_be_made_durable_leaves_the_outcome_open(
    root: Path,
) -> None:
    class FullStore(LocalStore):
        def _sync_directory(self, directory: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = FullStore(root)
    (root / "_delta_log").mkdir(parents=True)
    with pytest.raises(StorageError) as caught:
        store.create(COMMIT, b"x")
    assert not isinstance(caught.value, NothingWrittenError)
    assert store.read(COMMIT) == b"x"


def test_a_write_below_a_file_is_a_typed_error(store: LocalStore) -> None:
    store.create("f", b"x")
    for action in (store.create, store.overwrite):
        with pytest.raises(StorageError) as caught:
            action("f/below", b"y")
        assert not isinstance(caught.value, FileMissingError)
        assert caught.value.parameters["operation"] == action.__name__
    for read in (store.read, store.stat, store.arrow_file):
        with pytest.raises(FileMissingError):
            read("f/below")


def test_what_is_not_a_regular_file_is_missing(store: LocalStore, root: Path) -> None:
    store.make_directory("d")
    os.mkfifo(root / "d" / "pipe")
    for action in (store.read, store.stat, store.arrow_file):
        with pytest.raises(FileMissingError):
            action("d/pipe")
    assert store.list_from("d/") == []


def test_a_link_out_of_the_table_is_refused(store: LocalStore, root: Path) -> None:
    outside = root.parent / "out side"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.create("p=1/f", b"x")
    (root / "file link").symlink_to(outside / "secret")
    (root / "dir link").symlink_to(outside)
    (root / "p=1" / "up").symlink_to("../../out side")
    for path in ("file link", "dir link/secret", "p=1/up/secret"):
        assert not store.contains(path)
        for action in (store.read, store.stat, store.exists, store.arrow_file):
            with pytest.raises(UnsafePathError):
                action(path)
    for path in ("dir link/new", "dir link/secret", "p=1/up/secret"):
        for write in (store.create, store.overwrite):
            with pytest.raises(UnsafePathError):
                write(path, b"overwritten")
        with pytest.raises(UnsafePathError):
            store.delete(path)
    with pytest.raises(UnsafePathError):
        store.list_from("dir link/")
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_inside_the_table_is_followed_by_reads(store: LocalStore, root: Path) -> None:
    store.create("p=1/f", b"x")
    (root / "again").symlink_to("p=1")
    assert store.read("again/f") == b"x"


def test_a_table_behind_a_link_is_inside(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "alias").symlink_to(root)
    store = LocalStore(tmp_path / "alias")
    store.create("p=1/f", b"x")
    (root / "link").symlink_to("p=1/f")
    assert store.read("p=1/f") == store.read("link") == b"x"


def test_a_recursive_listing_follows_no_link(store: LocalStore, root: Path) -> None:
    store.create("p=1/f", b"x")
    (root / "loop").symlink_to(root)
    (root / "file").symlink_to(root / "p=1" / "f")
    assert names(store, "") == ["p=1/f"]
    assert names(store, "loop") == []
    assert names(store, "loop/p=1") == []


def test_deleting_a_link_spares_what_it_points_to(store: LocalStore, root: Path) -> None:
    outside = root.parent / "kept"
    outside.write_bytes(b"x")
    root.mkdir()
    (root / "link").symlink_to(outside)
    store.delete("link")
    assert outside.read_bytes() == b"x"
    assert not (root / "link").is_symlink()


def test_names_that_are_not_utf8_can_be_listed_and_deleted(store: LocalStore, root: Path) -> None:
    store.make_directory("d")
    Path(os.fsdecode(os.fsencode(root) + b"/d/\xff")).write_bytes(b"x")
    (found,) = store.list_recursive("d")
    assert store.read(found.path) == b"x"
    assert store.address(found.path).endswith("/d/%FF")
    store.delete(found.path)
    assert names(store, "") == []


def test_a_durable_create_flushes_the_file_before_and_the_directory_after(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalStore(root).make_directory("_delta_log")
    real, steps = os.fsync, []

    def spy(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        name = path.rpartition("/")[2]
        kind = "staged" if name.startswith(STAGING_PREFIX) else name
        steps.append((kind, (root / COMMIT).exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", spy)
    LocalStore(root, fsync=True).create(COMMIT, b"x")
    assert steps == [("staged", False), ("_delta_log", True)]
    steps.clear()
    LocalStore(root, fsync=False).create("_delta_log/1.json", b"x")
    assert steps == []


RACED_PATHS = [f"_delta_log/{version:020d}.json" for version in range(100)]


def _content(writer: int) -> bytes:
    return b"%d\n" % writer * 3000


def _race(root: str, writer: int, gate: object, wins: object) -> None:
    store = LocalStore(root, fsync=False)
    won = []
    gate.wait()  # type: ignore[attr-defined]
    for path in RACED_PATHS:
        try:
            store.create(path, _content(writer))
        except FileAlreadyExistsError:
            continue
        won.append(path)
    wins.put((writer, won))  # type: ignore[attr-defined]


def test_of_eight_processes_one_wins_each_path(root: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.storage.test_local"])
    gate, wins = context.Barrier(8), context.Queue()
    processes = [
        context.Process(target=_race, args=(str(root), writer, gate, wins)) for writer in range(8)
    ]
    for process in processes:
        process.start()
    results = dict(wins.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(path for won in results.values() for path in won) == RACED_PATHS
    store = LocalStore(root)
    for writer, won in results.items():
        for path in won:
            assert store.read(path) == _content(writer)
    assert sorted(os.listdir(root / "_delta_log")) == [
        path.rpartition("/")[2] for path in RACED_PATHS
    ]


def _write_for_ever(root: str) -> None:
    store = LocalStore(root, fsync=False)
    for version in range(1_000_000):
        store.create(f"_delta_log/{version:020d}.json", _content(version))


def test_a_killed_writer_leaves_whole_files_only(root: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.storage.test_local"])
    process = context.Process(target=_write_for_ever, args=(str(root),))
    process.start()
    store = LocalStore(root)
    deadline = time.monotonic() + 30
    while len(store.list_from(COMMIT)) < 50 and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    found = store.list_from(COMMIT)
    assert len(found) >= 50
    for version, info in enumerate(found):
        assert store.read(info.path) == _content(version)


def test_hadoops_checksum_of_a_file_goes_when_the_file_is_overwritten(tmp_path: Path) -> None:
    root = tmp_path / "tä ble 100%"
    store = LocalStore(str(root))
    store.overwrite("_delta_log/_last_checkpoint", b"old")
    beside = root / "_delta_log" / "._last_checkpoint.crc"
    beside.write_bytes(b"crc of old")
    store.overwrite("_delta_log/_last_checkpoint", b"new")
    assert not beside.exists()


def test_hadoops_checksum_of_a_file_goes_with_the_file(store: LocalStore, root: Path) -> None:
    for name in ("d/f", "d/.f.crc", "d/.g.crc"):
        store.create(name, b"x")
    store.delete("d/f")
    assert [each.name for each in (root / "d").iterdir()] == [".g.crc"]


def test_a_tree_has_empty_directories_and_follows_no_link(store: LocalStore, root: Path) -> None:
    store.create("d/f", b"x")
    (root / "empty/deep").mkdir(parents=True)
    (root / "linked").symlink_to(root / "d", target_is_directory=True)
    (root / "d/link").symlink_to(root / "d/f")
    found = {each.path: each for each in store.list_tree(lambda name: False)}
    assert sorted(found) == ["", "d", "empty", "empty/deep"]
    assert [info.path for info in found["d"].files] == ["d/f"]
    assert [path for path, each in sorted(found.items()) if each.has_others] == ["", "d"]
    assert not store.delete_directory("linked")
    assert not store.delete_directory("empty")
    assert store.delete_directory("empty/deep")
    assert store.delete_directory("empty")
    assert sorted(each.name for each in root.iterdir()) == ["d", "linked"]
    assert store.crosses_link("linked/f")
    assert not store.crosses_link("d/f")
