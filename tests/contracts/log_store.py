"""The promises of `LogStore`.  A store's tests subclass `LogStoreContract` and give `store`."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import (
    FileAlreadyExistsError,
    FileMissingError,
    StorageError,
    UnsafePathError,
)
from pyspark_delta.kernel.storage.base import LogStore

COMMIT = "_delta_log/00000000000000000000.json"

ODD_NAMES = [
    "p=a%20b/part 1.parquet",
    "p=100%/x.parquet",
    "p=ü/é 😀.parquet",
    "a+b&c=d;e,f@g$h!i'j(k).parquet",
    "hash#question?.parquet",
    'p=%2F/quote"<>|[]{}^`~*.parquet',
    "back\\slash.parquet",
    "..dots/...parquet",
]

UNSAFE_PATHS = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "a/./b",
    "a//b",
    "a/",
    "nul\0",
    "..\\outside",
    "a\\..\\..\\outside",
    "\ud800",
]


class LogStoreContract:
    """What every store must do.  Each test gets a store whose root is empty."""

    def test_what_was_created_can_be_read(self, store: LogStore) -> None:
        store.create(COMMIT, b"line\n")
        assert store.read(COMMIT) == b"line\n"
        assert store.size(COMMIT) == 5
        assert store.exists(COMMIT)

    def test_an_empty_file_is_a_file(self, store: LogStore) -> None:
        store.create(COMMIT, b"")
        assert store.read(COMMIT) == b""
        assert store.stat(COMMIT).size == 0
        assert store.read_range(COMMIT, 0, 0) == b""

    def test_create_leaves_an_existing_file_alone(self, store: LogStore) -> None:
        store.create(COMMIT, b"first")
        with pytest.raises(FileAlreadyExistsError) as caught:
            store.create(COMMIT, b"second")
        assert store.read(COMMIT) == b"first"
        assert COMMIT in caught.value.parameters["path"]
        assert isinstance(caught.value, FileExistsError)
        assert names(store, "") == [COMMIT]

    def test_a_streamed_create_has_one_winner_too(self, store: LogStore) -> None:
        store.create_from(COMMIT, (b"%d\n" % n for n in range(1000)))
        assert store.read(COMMIT).splitlines()[-1] == b"999"
        with pytest.raises(FileAlreadyExistsError):
            store.create_from(COMMIT, iter([b"second"]))
        assert store.size(COMMIT) == sum(len(b"%d\n" % n) for n in range(1000))

    def test_a_stream_of_nothing_is_an_empty_file(self, store: LogStore) -> None:
        store.create_from(COMMIT, [])
        assert store.read(COMMIT) == b""

    def test_a_stream_that_breaks_off_leaves_nothing(self, store: LogStore) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"half"
            raise LookupError("the writer's own")

        with pytest.raises(LookupError):
            store.create_from(COMMIT, chunks())
        assert not store.exists(COMMIT)
        assert names(store, "") == []
        store.create(COMMIT, b"whole")

    def test_overwrite_replaces_and_creates(self, store: LogStore) -> None:
        store.overwrite("_delta_log/_last_checkpoint", b"old and long")
        store.overwrite("_delta_log/_last_checkpoint", b"new")
        assert store.read("_delta_log/_last_checkpoint") == b"new"
        assert names(store, "") == ["_delta_log/_last_checkpoint"]

    def test_readers_beside_an_overwrite_see_whole_files(self, store: LogStore) -> None:
        old, new = b"a" * 100_000, b"b" * 50_000
        store.overwrite("f", old)
        done = threading.Event()
        seen: set[bytes] = set()

        def read() -> None:
            while not done.is_set():
                seen.add(store.read("f"))

        reader = threading.Thread(target=read)
        reader.start()
        for round_ in range(20):
            store.overwrite("f", new if round_ % 2 else old)
        done.set()
        reader.join()
        assert seen <= {old, new}

    def test_of_many_threads_one_wins_each_path(self, store: LogStore) -> None:
        paths = [f"_delta_log/{version:020d}.json" for version in range(5)]
        wins: list[tuple[str, int]] = []

        def race(writer: int) -> None:
            for path in paths:
                try:
                    store.create(path, b"%d" % writer * 1000)
                except FileAlreadyExistsError:
                    continue
                wins.append((path, writer))

        threads = [threading.Thread(target=race, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(path for path, _ in wins) == paths
        for path, writer in wins:
            assert store.read(path) == b"%d" % writer * 1000

    def test_a_range_is_exact_or_an_error(self, store: LogStore) -> None:
        store.create("f", b"0123456789")
        assert store.read_range("f", 0, 10) == b"0123456789"
        assert store.read_range("f", 4, 3) == b"456"
        assert store.read_range("f", 10, 0) == b""
        for start, length in [(5, 6), (10, 1), (11, 0), (0, 2**40), (2**40, 1), (-1, 2), (3, -1)]:
            with pytest.raises(StorageError):
                store.read_range("f", start, length)

    def test_an_absent_file_is_missing_in_every_way(self, store: LogStore) -> None:
        store.create("d/f", b"x")
        actions: list[Callable[[str], object]] = [
            store.read,
            store.size,
            store.stat,
            store.arrow_file,
            lambda path: store.read_range(path, 0, 1),
            lambda path: store.read_range(path, 0, 0),
            lambda path: store.read_many([path, path]),
        ]
        for path in ("absent", "no/such/directory/f", "d"):
            assert not store.exists(path)
            for action in actions:
                with pytest.raises(FileMissingError) as caught:
                    action(path)
                assert isinstance(caught.value, FileNotFoundError)

    def test_many_files_come_in_the_order_asked_for(self, store: LogStore) -> None:
        contents = {f"d/{n:03d}": b"%d" % n for n in range(40)}
        for path, data in contents.items():
            store.create(path, data)
        backwards = sorted(contents, reverse=True)
        assert store.read_many(backwards) == [contents[path] for path in backwards]
        assert store.read_many([]) == []

    def test_stat_tells_size_and_time(self, store: LogStore) -> None:
        store.create("f", b"12345")
        info = store.stat("f")
        assert (info.path, info.size) == ("f", 5)
        assert info.modified_ms > 1_500_000_000_000
        assert store.list_from("f") == [info]

    def test_list_from_is_sorted_flat_and_inclusive(self, store: LogStore) -> None:
        for version in (10, 2, 1, 3):
            store.create(f"_delta_log/{version:020d}.json", b"x" * version)
        store.create("_delta_log/00000000000000000002.checkpoint.parquet", b"c")
        store.create("_delta_log/_sidecars/00000000000000000009.json", b"s")
        store.create("_delta_log_not/00000000000000000009.json", b"s")
        store.create("00000000000000000009.json", b"s")
        found = store.list_from("_delta_log/00000000000000000002.json")
        assert [(info.path, info.size) for info in found] == [
            ("_delta_log/00000000000000000002.json", 2),
            ("_delta_log/00000000000000000003.json", 3),
            ("_delta_log/00000000000000000010.json", 10),
        ]
        found = store.list_from("_delta_log/00000000000000000002")
        assert found[0].path == "_delta_log/00000000000000000002.checkpoint.parquet"
        assert len(store.list_from("_delta_log/")) == 5
        assert [info.path for info in store.list_from("")] == ["00000000000000000009.json"]

    def test_a_directory_that_is_absent_has_no_files(self, store: LogStore) -> None:
        assert store.list_from("_delta_log/00000000000000000000.json") == []
        assert store.list_from("a/b/c") == []
        assert names(store, "a") == []
        store.create("a/b", b"")
        assert store.list_from("a/b/c") == []
        assert store.list_from("a/c") == []

    def test_a_listing_shows_what_was_just_written(self, store: LogStore) -> None:
        for version in range(12):
            store.create(f"_delta_log/{version:020d}.json", b"")
            assert len(store.list_from(COMMIT)) == version + 1
            store.delete(f"_delta_log/{version:020d}.json")
            store.create(f"_delta_log/{version:020d}.json", b"")

    def test_list_recursive_shows_every_file_below(self, store: LogStore) -> None:
        paths = ["a", "p=1/b", "p=1/q=2/c", "p=10/d", "_delta_log/e", "p=1/.hidden", "p=1/_x/f"]
        for path in paths:
            store.create(path, path.encode())
        assert names(store, "") == sorted(paths)
        below = ["p=1/.hidden", "p=1/_x/f", "p=1/b", "p=1/q=2/c"]
        assert names(store, "p=1") == names(store, "p=1/") == below
        assert {info.size for info in store.list_recursive("p=1/q=2")} == {len("p=1/q=2/c")}

    @pytest.mark.parametrize("splits", [[], ["p=1/b"], ["a", "p=1/zz", "p=10/d", "q"]])
    def test_a_tree_is_listed_by_directory_without_hidden_names(
        self, store: LogStore, splits: list[str]
    ) -> None:
        shown = ["a", "p=1/b", "p=1/q=2/c", "p=10/d é%"]
        for path in (*shown, "_delta_log/e", "p=1/.hidden", "p=1/_x/f", "_y/deep/g"):
            store.create(path, path.encode())
        found = {each.path: each for each in store.list_tree(lambda n: n[0] in "_.", splits)}
        assert sorted(found) == ["", "p=1", "p=1/q=2", "p=10"]
        assert sorted(info.path for each in found.values() for info in each.files) == shown
        assert [info.path for info in found["p=1"].files] == ["p=1/b"]
        assert found["p=10"].files[0].size == len("p=10/d é%".encode())
        assert found[""].has_others
        assert found["p=1"].has_others

    def test_a_directory_goes_only_if_it_is_empty(self, store: LogStore) -> None:
        store.create("d/e/f", b"x")
        assert not store.delete_directory("d")
        assert not store.delete_directory("d/e")
        assert not store.delete_directory("absent")
        assert names(store, "") == ["d/e/f"]
        with pytest.raises(UnsafePathError):
            store.delete_directory("../outside")

    def test_delete_is_done_when_the_file_is_gone(self, store: LogStore) -> None:
        for path in ("a", "b", "d/c"):
            store.create(path, b"x")
        store.delete("a")
        store.delete("a")
        store.delete("no/such/directory")
        store.delete_many(["b", "never there", "d/c", "b"])
        store.delete_many([])
        assert names(store, "") == []
        store.create("a", b"again")

    def test_making_a_directory_makes_no_file(self, store: LogStore) -> None:
        store.make_directory("_delta_log")
        store.make_directory("_delta_log")
        store.make_directory("deep/er/still")
        assert names(store, "") == []
        assert not store.exists("_delta_log")
        store.create(COMMIT, b"x")

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_names_are_taken_literally(self, store: LogStore, name: str) -> None:
        store.create(name, name.encode())
        assert store.read(name) == name.encode()
        assert names(store, "") == [name]
        directory, slash, _ = name.rpartition("/")
        assert [info.path for info in store.list_from(directory + slash)] == [name]
        store.delete(name)
        assert not store.exists(name)

    @pytest.mark.parametrize("path", UNSAFE_PATHS)
    def test_a_path_that_is_not_inside_is_refused(self, store: LogStore, path: str) -> None:
        actions: list[Callable[[str], object]] = [
            store.read,
            store.stat,
            store.exists,
            store.size,
            store.delete,
            store.arrow_file,
            lambda path: store.read_range(path, 0, 1),
            lambda path: store.read_many([path, path]),
            lambda path: store.create(path, b""),
            lambda path: store.create_from(path, []),
            lambda path: store.overwrite(path, b""),
            lambda path: store.delete_many([path]),
        ]
        if path not in ("", "a/"):  # the root, and a directory
            actions += [store.list_from, lambda path: list(store.list_recursive(path))]
        for action in actions:
            with pytest.raises(UnsafePathError):
                action(path)

    def test_parquet_is_read_through_an_arrow_file(self, store: LogStore) -> None:
        table = pa.table({"id": list(range(1000)), "v": [f"row {n}" for n in range(1000)]})
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=100)
        store.create("p=1 %/part.parquet", sink.getvalue())
        source = store.arrow_file("p=1 %/part.parquet")
        assert source.size() == len(sink.getvalue())
        file = pq.ParquetFile(source)
        assert file.metadata.num_row_groups == 10
        assert file.read_row_group(7, columns=["id"])["id"].to_pylist() == list(range(700, 800))
        assert file.read().equals(table)

    def test_a_store_can_be_pickled(self, store: LogStore) -> None:
        store.create("f", b"x")
        copy = pickle.loads(pickle.dumps(store))
        assert copy.root_uri == store.root_uri
        assert copy.read("f") == b"x"

    def test_the_root_is_one_plain_uri(self, store: LogStore) -> None:
        assert "://" in store.root_uri
        assert store.root_uri.isascii()
        assert " " not in store.root_uri
        assert not store.root_uri.endswith("/")
        assert store.root_uri in repr(store)


def names(store: LogStore, prefix: str) -> list[str]:
    """Every path below `prefix`, sorted."""
    return sorted(info.path for info in store.list_recursive(prefix))
