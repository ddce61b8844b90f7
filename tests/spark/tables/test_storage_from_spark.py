"""Which store serves a location in a session, and with which credentials."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import StorageError, UnsupportedSchemeError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.objects import ObjectStore
from pyspark_delta.kernel.storage.storage_options import client_settings
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore
from pyspark_delta.spark.tables.locations import (
    ancestors,
    file_system_options,
    hadoop_location,
    is_same_location,
    open_log,
    storage_options,
    with_service_account,
)
from tests.storage.s3_server import S3Server, running_s3
from tests.support.viewfs import mounted

SECRET = "planted-secret"


class HadoopConf:
    """Hadoop's configuration of the context; what a test sets is taken back behind it."""

    def __init__(self, spark: SparkSession) -> None:
        self._java = spark.sparkContext._jsc.hadoopConfiguration()
        self._before: dict[str, str | None] = {}

    def set(self, key: str, value: str) -> None:
        self._before.setdefault(key, self._java.get(key))
        self._java.set(key, value)

    def restore(self) -> None:
        for key, value in self._before.items():
            if value is None:
                self._java.unset(key)
            else:
                self._java.set(key, value)


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[HadoopConf]:
    changed = HadoopConf(spark)
    yield changed
    changed.restore()


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def create_table(spark: SparkSession, location: str, options: dict[str, str] | None = None) -> None:
    txn = open_log(spark, location, options).start_transaction()
    txn.update_metadata(Metadata(id="1"))
    txn.commit([], "CREATE TABLE")


def test_local_paths_are_literal_with_a_scheme_and_without(
    spark: SparkSession, table_path: Path
) -> None:
    log = open_log(spark, str(table_path))
    assert isinstance(log.store, LocalStore)
    assert log.store.root_path == str(table_path)
    for scheme in ("", "file:", "file://", "FILE:"):
        assert open_log(spark, f"{scheme}{table_path}/") is log
    escaped = open_log(spark, table_path.as_uri()).store
    assert isinstance(escaped, LocalStore)
    assert escaped.root_path != str(table_path)
    assert hadoop_location(log.store.root_uri) == f"file:{table_path}"
    for bad in ("", "file://host/t", "nul\0", "nosuchscheme://host/t"):
        with pytest.raises(StorageError):
            open_log(spark, bad)


def test_relative_paths_are_where_spark_puts_them(spark: SparkSession, tmp_path: Path) -> None:
    path = f"tests-of-relative-paths/{tmp_path.name} 100%"
    store = open_log(spark, path).store
    qualified = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    system = qualified.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    assert hadoop_location(store.root_uri) == system.makeQualified(qualified).toString()


def test_the_default_file_system_serves_paths_without_a_scheme(
    spark: SparkSession, conf: HadoopConf, tmp_path: Path
) -> None:
    assert isinstance(open_log(spark, "/t").store, LocalStore)
    default = mounted(spark, tmp_path)
    conf.set("fs.defaultFS", default.removesuffix("/data"))
    store = open_log(spark, "/data/t").store
    assert isinstance(store, HadoopStore)
    assert hadoop_location(store.root_uri) == f"{default}/t"
    assert isinstance(open_log(spark, "file:/t").store, LocalStore)
    conf.set("fs.defaultFS", "nosuchscheme://host")
    with pytest.raises(StorageError):
        open_log(spark, "/t")


def test_a_log_on_s3_is_written_with_the_credentials_of_the_hadoop_configuration(
    spark: SparkSession, conf: HadoopConf, s3: S3Server
) -> None:
    for key, value in {
        "endpoint": s3.endpoint,
        "access.key": "AK",
        "secret.key": "another",
        "bucket.lake.secret.key": SECRET,
        "path.style.access": "true",
        "endpoint.region": "eu-west-1",
    }.items():
        conf.set(f"fs.s3a.{key}", value)
    location = "s3a://lake/tä ble 100%"
    create_table(spark, location)
    key = "tä ble 100%/_delta_log/00000000000000000000.json"
    assert key in s3.objects
    log = open_log(spark, location)
    assert isinstance(log.store, ObjectStore)
    assert log.update().version == 0
    assert hadoop_location(log.store.root_uri) == location
    s3.answers = [(403, f"<Error><Code>AccessDenied</Code><Message>{SECRET}</Message></Error>")]
    with pytest.raises(StorageError) as caught:
        log.store.read("f")
    shown = ["".join(traceback.format_exception(caught.value)), repr(log), repr(log.store)]
    assert not any("planted" in text for text in shown)


def test_options_of_a_read_outweigh_the_configuration(
    spark: SparkSession, conf: HadoopConf, s3: S3Server
) -> None:
    conf.set("fs.s3a.endpoint", "http://127.0.0.1:1")
    options = {
        "fs.s3a.endpoint": s3.endpoint,
        "fs.s3a.access.key": "AK",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.path.style.access": "true",
        "versionAsOf": "0",
    }
    assert "versionAsOf" not in file_system_options(options)
    create_table(spark, "s3://lake/options", options)
    assert "options/_delta_log/00000000000000000000.json" in s3.objects
    with_others = open_log(spark, "s3://lake/options", {**options, "fs.s3a.access.key": "BK"})
    assert with_others is not open_log(spark, "s3://lake/options", options)
    assert open_log(spark, "s3a://lake/options", options).update().version == 0


def test_settings_of_the_session_count_too(spark: SparkSession, s3: S3Server) -> None:
    settings = {"endpoint": s3.endpoint, "access.key": "AK", "secret.key": SECRET}
    for key, value in {**settings, "path.style.access": "true"}.items():
        spark.conf.set(f"fs.s3a.{key}", value)
    try:
        create_table(spark, "s3a://lake/session")
    finally:
        for key in (*settings, "path.style.access"):
            spark.conf.unset(f"fs.s3a.{key}")
    assert "session/_delta_log/00000000000000000000.json" in s3.objects


def test_hadoop_is_given_the_spelling_of_the_user(spark: SparkSession, conf: HadoopConf) -> None:
    for location in ("s3a://spelled/a b", "s3n://spelled/a b", "gs://spelled/a b"):
        store = open_log(spark, location).store
        assert hadoop_location(store.root_uri) == location
        assert hadoop_location(store.address("p=1%/x")) == f"{location}/p=1%/x"
    assert hadoop_location(open_log(spark, "s3://spelled/t").store.root_uri) == "s3a://spelled/t"
    conf.set("fs.s3.impl", "an.other.Client")
    assert hadoop_location(open_log(spark, "s3://spelled/t").store.root_uri) == "s3://spelled/t"
    assert hadoop_location("s3://never-opened/t") == "s3a://never-opened/t"
    conf.set("fs.azure.account.key.acc.dfs.core.windows.net", "a2V5")
    for location in (
        "abfss://box@acc.dfs.core.windows.net/t",
        "abfs://box@acc.dfs.core.windows.net/t",
        "wasbs://box@acc.blob.core.windows.net/t",
    ):
        store = open_log(spark, location).store
        assert isinstance(store, ObjectStore)
        assert hadoop_location(store.root_uri) == location


def test_each_provider_gets_its_own_keys(spark: SparkSession, conf: HadoopConf) -> None:
    jvm = JvmSession(spark)
    host = "acc.dfs.core.windows.net"
    for key, value in {
        "fs.s3a.access.key": "AK",
        "fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com",
        f"fs.azure.account.oauth2.client.id.{host}": "client",
        f"fs.azure.account.oauth2.client.secret.{host}": SECRET,
        f"fs.azure.account.oauth2.client.endpoint.{host}": "https://login.x/tenant/oauth2/token",
        "fs.gs.auth.service.account.json.keyfile": "/key.json",
    }.items():
        conf.set(key, value)

    def settings(provider: str, bucket: str) -> dict[str, str]:
        return client_settings(provider, bucket, storage_options(jvm, provider, bucket, {})).config

    s3 = settings("s3", "b")
    assert (s3["access_key_id"], s3["region"]) == ("AK", "eu-central-1")
    azure = settings("azure", f"box@{host}")
    assert {key: azure[key] for key in ("account_name", "client_id", "client_secret")} == {
        "account_name": "acc",
        "client_id": "client",
        "client_secret": SECRET,
    }
    assert azure["tenant_id"] == "tenant"
    assert settings("gs", "b")["service_account"] == "/key.json"


def test_a_google_key_in_parts_is_put_together() -> None:
    prefix = "fs.gs.auth.service.account."
    given = {
        f"{prefix}email": "me@example.com",
        f"{prefix}private.key": "-----BEGIN-----\\nabc",
        f"{prefix}private.key.id": "7",
    }
    key = json.loads(with_service_account(given)["google_service_account_key"])
    assert key["client_email"] == "me@example.com"
    assert key["private_key"] == "-----BEGIN-----\nabc"
    old = {"google.cloud.auth.service.account.json.keyfile": "/k.json"}
    assert with_service_account(old)[f"{prefix}json.keyfile"] == "/k.json"


def test_an_unknown_scheme_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(UnsupportedSchemeError, match="nosuchscheme"):
        open_log(spark, "nosuchscheme://host/t")
    for scheme in ("nosuchscheme", "s3a", "abfss", "ftp"):
        with pytest.raises(StorageError) as caught:
            open_log(spark, f"{scheme}://user:{SECRET}@host/t")
        assert "planted" not in "".join(traceback.format_exception(caught.value))


def test_places_above_a_location() -> None:
    assert list(ancestors("/a/b c/d/")) == ["/a/b c", "/a", "/"]
    assert list(ancestors("file:/a/b")) == ["file:/a", "file:/"]
    assert list(ancestors("file:///a/b")) == ["file:///a", "file:/"]
    assert list(ancestors("s3a://bucket/a/b")) == ["s3a://bucket/a", "s3a://bucket/"]
    assert list(ancestors("a/b")) == ["a"]
    assert list(ancestors("/")) == []


def test_spellings_of_one_place() -> None:
    assert is_same_location("/a/b c%", "file:///a//b c%/")
    assert is_same_location("s3://b/t", "s3a://b/t/")
    assert is_same_location("hdfs://nn:8020/t", "hdfs://nn:8020/t/")
    assert not is_same_location("/a/b", "/a/b%20")
    assert not is_same_location("s3://b/t", "s3://c/t")
