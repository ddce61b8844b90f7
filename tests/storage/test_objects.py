from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore.exceptions
import obstore.store
import pytest

from pyspark_delta.errors import (
    DeltaError,
    FileAlreadyExistsError,
    FileMissingError,
    NothingWrittenError,
    StorageError,
    StorageRefusedError,
)
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.objects import REASONS, ObjectStore, translation
from pyspark_delta.kernel.storage.resolve import store_for
from pyspark_delta.kernel.txn.commit import FileSystemCommitter
from tests.contracts.log_store import COMMIT, LogStoreContract
from tests.storage.s3_server import S3Server, running_s3

ACCESS_KEY = "AKIAPLANTEDPLANTED"
SECRET = "planted/secret+value="
TABLE = "s3a://bucket/tä ble 100%25"


class TestObjectStoreOnLocalFiles(LogStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        root = tmp_path / "tä ble 100%"
        root.mkdir()
        return ObjectStore(root.as_uri(), obstore.store.LocalStore(root))


class TestObjectStoreInMemory(LogStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return ObjectStore("memory://tests", obstore.store.MemoryStore())

    def test_a_store_can_be_pickled(self, store: LogStore) -> None:
        # Its client lives in one process: a copy elsewhere would be another, empty store.
        with pytest.raises(TypeError, match="MemoryStore"):
            pickle.dumps(store)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def s3_table(server: S3Server, **options: str) -> LogStore:
    return store_for(
        TABLE,
        {
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.endpoint": server.endpoint,
            "fs.s3a.path.style.access": "true",
            **options,
        },
    )


class TestObjectStoreOnS3(LogStoreContract):
    @pytest.fixture
    def store(self, s3: S3Server) -> LogStore:
        return s3_table(s3)


def test_the_root_has_one_spelling(s3: S3Server) -> None:
    store = s3_table(s3)
    assert store.root_uri == "s3://bucket/t%C3%A4%20ble%20100%25"
    store.create("f", b"x")
    assert s3.objects == {"tä ble 100%/f": b"x"}


def test_asking_for_one_object_is_not_cheaper_than_a_listing(s3: S3Server) -> None:
    assert s3_table(s3).probes_cheaply is False


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_commit_is_sent_once(s3: S3Server, status: int) -> None:
    s3.answers = [(status, "")]
    with pytest.raises(StorageError) as caught:
        s3_table(s3).create(COMMIT, b"x")
    assert not isinstance(caught.value, FileAlreadyExistsError)
    assert str(status) in caught.value.parameters["reason"]
    assert len(s3.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "<Error><Code>InvalidRequest</Code></Error>", StorageRefusedError),
        (400, "", StorageRefusedError),
        (401, "", StorageRefusedError),
        (403, "<Error><Code>AccessDenied</Code></Error>", StorageRefusedError),
        (404, "<Error><Code>NoSuchBucket</Code></Error>", StorageRefusedError),
        (405, "", StorageRefusedError),
        (413, "", StorageRefusedError),
        (400, "<Error><Code>RequestTimeout</Code></Error>", NothingWrittenError),
        (429, "", NothingWrittenError),
        (408, "", StorageError),
        (409, "<Error><Code>ConditionalRequestConflict</Code></Error>", StorageError),
        (500, "Server returned non-2xx status code: 403", StorageError),
        (503, "<Error><Code>SlowDown</Code></Error>", StorageError),
    ],
)
def test_an_answer_says_what_is_certain_about_a_commit(
    s3: S3Server, status: int, body: str, kind: type[StorageError]
) -> None:
    s3.answers = [(status, body)]
    with pytest.raises(StorageError) as caught:
        s3_table(s3).create(COMMIT, b"x")
    assert type(caught.value) is kind
    assert str(status) in caught.value.parameters["reason"]
    assert len(s3.requests) == 1


@pytest.mark.parametrize("status", [400, 403])
def test_a_commit_that_a_store_refuses_is_sent_once_and_not_unknown(
    s3: S3Server, status: int
) -> None:
    store = s3_table(s3)
    store.create(COMMIT, b"{}\n")
    # Whoever may not write may not read either: looking for the commit would tell nothing.
    body = "<Error><Code>AccessDenied</Code></Error>"
    s3.refusals = dict.fromkeys(("PUT", "GET", "HEAD"), (status, body))
    s3.requests.clear()
    with pytest.raises(StorageRefusedError) as caught:
        FileSystemCommitter(store).commit(1, b"{}\n", "me")
    assert caught.value.condition == "DELTA_STORAGE_REFUSED"
    assert str(status) in str(caught.value)
    assert [method for method, _ in s3.requests] == ["PUT"]


def test_a_lost_answer_to_a_commit_is_not_asked_for_again(s3: S3Server) -> None:
    s3.answers = [None]
    store = s3_table(s3)
    with pytest.raises(StorageError) as caught:
        store.create(COMMIT, b"x")
    assert not isinstance(caught.value, FileAlreadyExistsError)
    assert len(s3.requests) == 1
    assert store.read(COMMIT) == b"x"


def test_reads_and_overwrites_are_repeated(s3: S3Server) -> None:
    store = s3_table(s3)
    s3.answers = [(503, "")]
    store.overwrite("f", b"x")
    s3.answers = [(503, "")]
    assert store.read("f") == b"x"
    assert len(s3.requests) == 4


def test_a_refused_precondition_means_that_the_file_exists(s3: S3Server) -> None:
    s3.answers = [(412, "<Error><Code>PreconditionFailed</Code></Error>")]
    with pytest.raises(FileAlreadyExistsError):
        s3_table(s3).create(COMMIT, b"x")


def test_a_conflict_of_conditional_writes_is_undecided(s3: S3Server) -> None:
    s3.answers = [(409, "<Error><Code>ConditionalRequestConflict</Code></Error>")]
    with pytest.raises(StorageError) as caught:
        s3_table(s3).create(COMMIT, b"x")
    assert not isinstance(caught.value, FileAlreadyExistsError)
    assert "409" in caught.value.parameters["reason"]


def test_a_missing_bucket_is_not_a_missing_file(s3: S3Server) -> None:
    body = "<Error><Code>NoSuchBucket</Code></Error>"
    store = s3_table(s3)
    for action in (lambda: store.read("f"), lambda: store.create("f", b"")):
        s3.answers = [(404, body)]
        with pytest.raises(StorageError) as caught:
            action()
        assert not isinstance(caught.value, FileMissingError)
        assert "NoSuchBucket" in str(caught.value)


def test_a_listing_continues_over_pages(s3: S3Server) -> None:
    s3.page = 7
    store = s3_table(s3)
    for version in range(30):
        store.create(f"_delta_log/{version:020d}.json", b"")
    s3.requests.clear()
    found = store.list_from("_delta_log/00000000000000000020.json")
    assert [info.path[-7:-5] for info in found] == [f"{version:02d}" for version in range(20, 30)]
    assert len(s3.requests) == 2  # the pages from 20 on, and none before


def test_a_crowded_sub_directory_is_stepped_over(s3: S3Server) -> None:
    store = s3_table(s3)
    log = "tä ble 100%/_delta_log"
    s3.objects.update({f"{log}/_sidecars/{n:05d}.parquet": b"" for n in range(5000)})
    s3.objects.update({f"{log}/{n:020d}.json": b"" for n in range(3)})
    s3.objects[f"{log}/_later"] = b""
    found = store.list_from("_delta_log/00000000000000000001.json")
    assert [info.path for info in found] == [
        "_delta_log/00000000000000000001.json",
        "_delta_log/00000000000000000002.json",
        "_delta_log/_later",
    ]
    assert len(s3.requests) == 2


def test_stepping_over_misses_nothing(s3: S3Server) -> None:
    store = s3_table(s3)
    top = "tä ble 100%"
    s3.objects.update({f"{top}/a/{n:05d}": b"" for n in range(2500)})
    for name in ("a!", "a-b", "a.txt", "a0", "ab", "b"):
        s3.objects[f"{top}/{name}"] = b""
    assert [info.path for info in store.list_from("")] == ["a!", "a-b", "a.txt", "a0", "ab", "b"]


def test_every_foreign_exception_becomes_a_storage_error() -> None:
    kinds = [kind for kind in vars(obstore.exceptions).values() if isinstance(kind, type)]
    assert len(kinds) >= 12
    assert set(kinds) <= set(REASONS)
    for kind in [*kinds, ValueError, PermissionError, RuntimeError, TypeError, LookupError]:
        for operation in ("read", "create", "delete"):
            error = translation(kind("text"), operation, "s3://b/f")
            assert isinstance(error, StorageError)
            assert "text" not in str(error)


def test_the_exceptions_that_have_a_meaning_keep_it() -> None:
    known = obstore.exceptions
    assert isinstance(translation(known.NotFoundError(), "read", "f"), FileMissingError)
    assert isinstance(translation(FileNotFoundError(), "stat", "f"), FileMissingError)
    for kind in (known.AlreadyExistsError, known.PreconditionError):
        assert isinstance(translation(kind(), "create", "f"), FileAlreadyExistsError)
        assert not isinstance(translation(kind(), "read", "f"), FileAlreadyExistsError)


FORBIDDEN = f"""<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code>
<Message>planted {SECRET}</Message><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId>
<StringToSign>{SECRET}</StringToSign><SignatureProvided>{SECRET}</SignatureProvided></Error>"""


def test_no_text_of_a_store_shows_a_secret(s3: S3Server) -> None:
    store = s3_table(s3, **{"fs.s3a.session.token": "planted-token"})
    texts = [repr(store), str(store), store.root_uri, store.address("f"), f"{store!r:>9}"]
    actions: list[Any] = [
        lambda: store.read("f"),
        lambda: store.read_range("f", 0, 1),
        lambda: store.create("f", b"x"),
        lambda: store.create_from("f", [b"x"]),
        lambda: store.overwrite("f", b"x"),
        lambda: store.list_from("f"),
        lambda: list(store.list_recursive("")),
        lambda: store.delete_many(["f", "g"]),
    ]
    for action in actions:
        s3.answers = [(403, FORBIDDEN)]
        with pytest.raises(StorageError) as caught:
            action()
        assert "403" in caught.value.parameters["reason"]
        texts.append("".join(traceback.format_exception(caught.value)))
        texts.append(repr(caught.value.parameters))
    for text in texts:
        assert "planted" not in text.lower()


def test_a_store_that_cannot_be_made_says_why_without_its_secrets() -> None:
    for location, options in [
        ("s3://bucket/t", {"secret_access_key": SECRET, "no_such_option": SECRET}),
        ("az://container/t", {"account_name": "account", "account_key": SECRET}),
        ("gs://bucket/t", {"service_account_key": "{" + SECRET}),
    ]:
        with pytest.raises(StorageError) as caught:
            store_for(location, options)
        assert "planted" not in "".join(traceback.format_exception(caught.value))
        assert location in str(caught.value)
    with pytest.raises(StorageError, match="no_such_option"):
        store_for("s3://bucket/t", {"no_such_option": "x"})


def test_an_unreachable_store_is_a_typed_error(s3: S3Server) -> None:
    # A socket that somebody still waits on takes connections, and then breaks them.
    s3.shutdown()
    s3.server_close()
    with pytest.raises(NothingWrittenError) as caught:
        s3_table(s3).create(COMMIT, b"x")
    assert not isinstance(caught.value, StorageRefusedError)
    assert "refused" in caught.value.parameters["reason"].lower()


def test_names_that_a_store_cannot_hold_are_a_typed_error(s3: S3Server) -> None:
    store = s3_table(s3)
    for path in ("line\nbreak", "bell\a", "\udcff"):
        with pytest.raises(DeltaError):
            store.create(path, b"")
    assert s3.objects == {}


def test_a_forked_child_is_told_instead_of_hanging(s3: S3Server) -> None:
    store = s3_table(s3)
    store.create("f", b"x")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.read("f")
        except StorageError as error:
            os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as answer:
        assert b"forked" in answer.read()
    os.waitpid(child, 0)
