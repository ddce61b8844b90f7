from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_delta.errors import StorageError, UnsupportedSchemeError
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.objects import ObjectStore
from pyspark_delta.kernel.storage.resolve import Location, canonical_uri, parse_location, store_for


def test_spellings_of_a_local_path_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    full = f"{os.getcwd()}/tä ble 100%25"
    encoded = full.replace("%", "%25").replace(" ", "%20")
    spellings = [
        full,
        full + "/",
        full.replace("/tä", "//tä"),
        "tä ble 100%25",
        "./x/../tä ble 100%25",
        f"file:{encoded}",
        f"file://{encoded}/",
        f"FILE://{encoded}",
        f"file://localhost{encoded}",
        f"file:{encoded.replace('ä', '%C3%A4')}",
    ]
    assert {canonical_uri(spelling) for spelling in spellings} == {LocalStore(full).root_uri}


@pytest.mark.parametrize("name", ["100%", "a#b", "a?b=c", "a b", "%41", "a:b", "a@b", "c:\\x"])
def test_a_plain_path_is_literal(tmp_path: Path, name: str) -> None:
    store = store_for(str(tmp_path / name), fsync=False)
    assert isinstance(store, LocalStore)
    store.create("f", b"x")
    assert (tmp_path / name / "f").read_bytes() == b"x"
    assert parse_location(store.root_uri).path == str(tmp_path / name)


def test_a_file_uri_is_decoded_once(tmp_path: Path) -> None:
    store_for(f"file://{tmp_path}/a%2520b", fsync=False).create("f", b"x")
    assert (tmp_path / "a%20b" / "f").exists()


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("s3://b/t", Location(scheme="s3", authority="b", path="/t")),
        ("s3a://b/a%20t/", Location(scheme="s3", authority="b", path="/a t")),
        ("s3n://b", Location(scheme="s3", authority="b", path="/")),
        ("S3://b//x///y", Location(scheme="s3", authority="b", path="/x/y")),
        ("gs://b/ä", Location(scheme="gs", authority="b", path="/ä")),
        ("az://c/t", Location(scheme="az", authority="c", path="/t")),
        ("adl://c/t", Location(scheme="adl", authority="c", path="/t")),
        (
            "abfs://c@a.dfs.core.windows.net/t",
            Location(scheme="abfss", authority="c@a.dfs.core.windows.net", path="/t"),
        ),
        ("memory://name/t", Location(scheme="memory", authority="name", path="/t")),
        ("file:///", Location(scheme="file", authority="", path="/")),
        ("data:set", Location(scheme="file", authority="", path=f"{os.getcwd()}/data:set")),
    ],
)
def test_an_address_has_three_parts(text: str, location: Location) -> None:
    assert parse_location(text) == location
    assert parse_location(location.uri) == location


@pytest.mark.parametrize(
    "text",
    ["hdfs://host/t", "http://host/t", "https://u:planted@h/t?sig=planted", "dbfs:/t", "x+y:/t"],
)
def test_other_schemes_have_no_store(text: str) -> None:
    with pytest.raises(UnsupportedSchemeError) as caught:
        store_for(text)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b",
        "file:relative",
        "file://host/t",
        "file:///a%",
        "file:///a%zz",
        "file:///a%00b",
        "file:///a?b",
        "file:///a#b",
        "s3:///t",
        "s3:/t",
        "s3://b/../t",
        "s3://b/%2e%2e/t",
        "s3://b/t?X-Amz-Security-Token=planted",
        "s3://AKIA:planted@b/t",
        "s3://AKIA:plan/planted@b/t",
        "s3://planted@b/t",
        "abfss://c:planted@a.dfs.core.windows.net/t",
        "memory:///t",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(StorageError) as caught:
        store_for(text)
    assert caught.value.condition == "DELTA_STORAGE_INVALID_LOCATION"
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/tä ble 100%25",
        "s3a://bucket",
        "gs://bucket/t",
        "abfss://c@account.dfs.core.windows.net/t",
        "abfss://c@account.dfs.core.chinacloudapi.cn/t",
        "abfss://workspace@onelake.dfs.fabric.microsoft.com/t",
        "az://container/t",
    ],
)
def test_object_stores_are_opened_without_a_connection(location: str) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "planted",
        "aws_secret_access_key": "planted",
        "fs.azure.account.key.account.dfs.core.windows.net": "cGxhbnRlZA==",
        "azure_storage_account_name": "account",
        "google_bearer_token": "planted",
    }
    kind = location[:2]
    vendor = {"s3": "aws", "gs": "google"}.get(kind, "azure")
    store = store_for(
        location, {key: value for key, value in options.items() if vendor in key.lower()}
    )
    assert isinstance(store, ObjectStore)
    assert store.root_uri == canonical_uri(location)
    assert "planted" not in repr(store)


def test_memory_stores_are_found_by_name() -> None:
    store = store_for("memory://resolve/tä ble 100%25")
    assert isinstance(store, MemoryStore)
    store.create("f", b"x")
    assert MemoryStore("resolve").read("tä ble 100%/f") == b"x"
