"""Rows of docs/features.md that no test of a single module shows: a feature met as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyspark_delta.actions import DomainMetadata
from pyspark_delta.errors import (
    DeltaConcurrentModificationException,
    SchemaError,
    UnsupportedProtocolError,
)
from pyspark_delta.kernel.log.checksum import read_checksum
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.domains import clustering_columns, clustering_domain
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import FEATURES, supported_features
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.resolve import store_for
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.storage.s3_server import S3Server, running_s3
from tests.support.hooks import InlineRunner
from tests.support.transactions import (
    add,
    live_paths,
    memory_log,
    metadata,
    new_table,
    remove,
    schema_of,
)

WRITABLE = sorted(name for name, feature in FEATURES.items() if feature.writable)
REFUSED = sorted(name for name, feature in FEATURES.items() if not feature.writable)
FEED = {"delta.enableChangeDataFeed": "true"}


def reopened(log: DeltaLog) -> DeltaLog:
    """The same table, from nothing but its files."""
    return memory_log(log.store)


def without_commits(log: DeltaLog) -> DeltaLog:
    """The same table, once only its newest checkpoint can tell what it is."""
    latest = log.update().version
    log.checkpoint()
    for version in range(latest + 1):
        log.store.delete(checksum_path(version))
        if version < latest:
            log.store.delete(commit_path(version))
    return reopened(log)


# Actions.


def test_metadata_keeps_every_field_through_commits_checksums_and_checkpoints() -> None:
    whole = Metadata(
        id="5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        name="nämed",
        description="a 100% sure one",
        schema_string=format_schema(schema_of("part")),
        partition_columns=("part",),
        configuration={"delta.appendOnly": "true", "mine": "ü"},
        created_time=17,
    )
    log = memory_log(hooks=InlineRunner())
    log.start_transaction().commit([whole], "CREATE TABLE")
    log.start_transaction().commit([add("part=1/a")], "WRITE")
    assert reopened(log).snapshot.metadata == whole
    checksum = read_checksum(log.store, 1)
    assert checksum is not None
    assert checksum.metadata == whole
    assert without_commits(log).snapshot.metadata == whole


def test_an_overwrite_may_change_schema_and_partitioning_and_stays_the_same_table() -> None:
    log = new_table("part", actions=[add("part=1/a")])
    old = log.snapshot.metadata
    transaction = log.start_transaction()
    transaction.read_whole_table()
    transaction.update_metadata(
        replace(
            transaction.metadata,
            schema_string=format_schema(schema_of("other")),
            partition_columns=("other",),
        )
    )
    removed, new = remove("part=1/a"), add("other=2/b")
    transaction.commit([removed, new], write("Overwrite", can_overwrite_schema=True))
    snapshot = reopened(log).snapshot
    assert live_paths(log) == ["other=2/b"]
    assert snapshot.schema.names == ("other", "id", "value")
    assert snapshot.metadata.partition_columns == ("other",)
    assert snapshot.metadata.id == old.id
    assert reopened(log).snapshot_at(1).metadata == old


# Storage.


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


def s3_log(server: S3Server) -> DeltaLog:
    options = {
        "fs.s3a.access.key": "id",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": server.endpoint,
        "fs.s3a.path.style.access": "true",
    }
    return memory_log(store_for("s3a://bucket/tä ble 100%25", options))


def test_two_writers_on_s3_both_append(s3: S3Server) -> None:
    log, other = new_table(log=s3_log(s3)), s3_log(s3)
    mine, theirs = log.start_transaction(), other.start_transaction()
    assert theirs.commit([add("theirs")], "WRITE").version == 1
    assert mine.commit([add("mine")], "WRITE").version == 2
    assert live_paths(s3_log(s3)) == ["mine", "theirs"]
    assert len([key for key in s3.objects if key.endswith(".json")]) == 3


# Features.


@pytest.mark.parametrize("name", WRITABLE)
def test_a_table_with_a_feature_takes_commits_and_keeps_it(name: str) -> None:
    log = memory_log(hooks=InlineRunner())
    protocol = upgraded(Protocol(), [name])
    log.start_transaction().commit([metadata(), protocol], "CREATE TABLE")
    log.start_transaction().commit([add("a")], "WRITE")
    for found in (reopened(log), without_commits(log)):
        assert found.snapshot.protocol == protocol
        assert live_paths(found) == ["a"]


@pytest.mark.parametrize("name", [*REFUSED, "fromTheFuture"])
def test_a_table_with_a_feature_that_we_lack_takes_no_commit(name: str) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=(name,))
    log = memory_log()
    lines = "".join(f"{action.json}\n" for action in (protocol, metadata(), add("a")))
    log.store.create(commit_path(0), lines.encode())
    assert live_paths(log) == ["a"]  # it asks nothing of its readers
    with pytest.raises(UnsupportedProtocolError) as caught:
        log.start_transaction().commit([add("b")], "WRITE")
    assert caught.value.condition == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
    assert caught.value.parameters["unsupported"] == name
    assert log.update().version == 0


def test_a_feature_is_added_to_a_table_by_property_or_by_name() -> None:
    by_property = new_table(actions=[add("a")])
    asked = {"delta.feature.deletionVectors": "supported"}
    by_property.start_transaction().commit([metadata(configuration=asked)], "SET TBLPROPERTIES")
    by_name = new_table(actions=[add("a")])
    transaction = by_name.start_transaction()
    transaction.update_protocol(upgraded(transaction.protocol, ["deletionVectors"]))
    transaction.commit([], "UPGRADE PROTOCOL")
    for log in (by_property, by_name):
        snapshot = reopened(log).snapshot
        assert snapshot.protocol.reader_features == ("deletionVectors",)
        assert supported_features(snapshot.protocol) == {
            *("appendOnly", "invariants", "deletionVectors")
        }
        assert snapshot.metadata.configuration == {}


def test_a_table_of_the_v2_policy_gets_v2_checkpoints_by_itself() -> None:
    configuration = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"}
    log = new_table(configuration=configuration, log=memory_log(hooks=InlineRunner()))
    for number in range(3):
        log.start_transaction().commit([add(f"{number}")], "WRITE")
    checkpoint = reopened(log).snapshot.segment.checkpoint
    assert checkpoint is not None
    assert checkpoint.version == 2
    assert checkpoint.files[0].name.uuid
    assert len(log.store.list_from("_delta_log/_sidecars/")) == 1
    assert live_paths(reopened(log)) == ["0", "1", "2"]


def test_a_clustered_table_keeps_its_columns() -> None:
    log = memory_log()
    protocol = upgraded(Protocol(), ["clustering"])
    columns = (("id",), ("value",))
    log.start_transaction().commit(
        [metadata(), protocol, clustering_domain(columns)], "CREATE TABLE"
    )
    file = add("a", clustering_provider="liquid")
    log.start_transaction().commit([file], "WRITE")
    snapshot = without_commits(log).snapshot
    assert clustering_columns(snapshot.domains) == columns
    assert snapshot.files.column("clusteringProvider").to_pylist() == ["liquid"]


# Schemas.


def test_a_table_with_a_change_feed_has_no_column_of_the_feeds_names() -> None:
    reserved = (*schema_of(), StructField("_Change_Type", STRING))
    schema = format_schema(StructType(reserved))
    with pytest.raises(SchemaError):
        memory_log().start_transaction().commit(
            [metadata(schema_string=schema, configuration=FEED)], "CREATE TABLE"
        )
    log = new_table(configuration=FEED)
    with pytest.raises(SchemaError) as caught:
        log.start_transaction().commit(
            [metadata(schema_string=schema, configuration=FEED)], "ADD COLUMNS"
        )
    assert caught.value.condition == "RESERVED_CDC_COLUMNS_ON_WRITE"
    log.start_transaction().commit([metadata(schema_string=schema)], "CREATE OR REPLACE TABLE")
    assert "_change_type" in log.snapshot.schema


def test_names_differ_in_more_than_case_and_keep_the_case_they_were_given() -> None:
    schema = StructType((StructField("Id", LONG), StructField("vAlue", STRING)))
    log = memory_log()
    log.start_transaction().commit([metadata(schema_string=format_schema(schema))], "CREATE TABLE")
    twice = StructType((*schema, StructField("VALUE", STRING)))
    with pytest.raises(SchemaError):
        log.start_transaction().commit(
            [metadata(schema_string=format_schema(twice))], "ADD COLUMNS"
        )
    assert reopened(log).snapshot.schema.names == ("Id", "vAlue")
    plan = log.snapshot.plan(["ID"], "VALUE = 'x'")
    assert (plan.schema.names, plan.data_schema.names) == (("Id",), ("Id", "vAlue"))


def test_a_user_has_domains_of_metadata() -> None:
    log = memory_log()
    txn = log.start_transaction()
    feature = {"delta.feature.domainMetadata": "supported"}
    txn.update_metadata(metadata(configuration=feature))
    mine = DomainMetadata(domain="my.app", configuration='{"rate":3}')
    txn.commit([mine, DomainMetadata(domain="other", configuration="")], "CREATE TABLE")
    assert without_commits(log).snapshot.domains["my.app"] == mine
    newer = replace(mine, configuration='{"rate":4}')
    log.start_transaction().commit([newer], "SET")
    assert reopened(log).snapshot.domains["my.app"] == newer
    log.start_transaction().commit([replace(mine, removed=True)], "UNSET")
    assert list(reopened(log).snapshot.domains) == ["other"]
    early, late = log.start_transaction(), log.start_transaction()
    early.commit([mine], "SET")
    with pytest.raises(DeltaConcurrentModificationException):
        late.commit([newer], "SET")
    assert reopened(log).snapshot.domains["my.app"] == mine
