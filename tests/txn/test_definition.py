"""What a table may become: rules that hold between its old and its new metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_delta import DeltaLog
from pyspark_delta.errors import (
    CorruptLogError,
    SchemaError,
    TooManyAttemptsError,
    UnsupportedProtocolError,
)
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_mapping import column_id
from pyspark_delta.kernel.protocol.operations import operation, write
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import record_type_changes, type_changes
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata


def table(action: Metadata) -> DeltaLog:
    log = DeltaLog(MemoryStore())
    transaction = log.start_transaction()
    transaction.update_metadata(action)
    transaction.commit([], "CREATE TABLE")
    return log


def change(log: DeltaLog, **changes: object) -> None:
    transaction = log.start_transaction()
    transaction.update_metadata(replace(transaction.metadata, **changes))  # type: ignore[arg-type]
    transaction.commit([], operation("SET TBLPROPERTIES", properties={}))


def test_a_tables_id_stays_whatever_a_commit_says() -> None:
    log = table(metadata(table_id="mine"))
    change(log, id="another", configuration={"delta.appendOnly": "true"})
    assert log.update().metadata.id == "mine"
    transaction = log.start_transaction()
    transaction.update_metadata(metadata(table_id="new"), replaces_table=True)
    transaction.commit([], "REPLACE TABLE")
    assert log.update().metadata.id == "new"


def test_a_table_that_is_replaced_keeps_columns_of_the_same_name_and_type() -> None:
    inner = StructType((StructField("x", LONG),))
    old = StructType((StructField("a", LONG), StructField("b", STRING), StructField("s", inner)))
    mapped = {"delta.columnMapping.mode": "name"}
    log = table(metadata(old, configuration=mapped))
    first = log.update().metadata.schema
    new = StructType((*old.add(StructField("c", LONG)).fields[::-1],))
    for schema, ids, largest in (
        (new, {"c": 5, "s": 3, "b": 2, "a": 1}, "5"),
        (StructType((StructField("a", STRING), StructField("s", inner))), {"a": 6, "s": 3}, "6"),
        (StructType((StructField("s", ArrayType(inner, True)),)), {"s": 7}, "8"),
    ):
        transaction = log.start_transaction()
        transaction.update_metadata(metadata(schema, configuration=mapped), replaces_table=True)
        transaction.commit([], "REPLACE TABLE")
        replaced = log.update().metadata
        assert {f.name: column_id(f) for f in replaced.schema} == ids
        # An id is given once, also where the column that had it is gone.
        assert replaced.configuration["delta.columnMapping.maxColumnId"] == largest
        for f in replaced.schema:
            if (known := first.get(f.name)) is not None and column_id(known) == column_id(f):
                assert f == known


def test_the_change_feed_is_not_switched_on_for_a_table_with_its_columns() -> None:
    schema = StructType((StructField("id", LONG), StructField("_change_type", STRING)))
    log = table(metadata(schema))
    with pytest.raises(SchemaError) as caught:
        change(log, configuration={"delta.enableChangeDataFeed": "true"})
    assert caught.value.condition == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"


def test_columns_for_statistics_must_exist_and_may_not_be_partition_columns() -> None:
    schema = StructType((StructField("id", LONG), StructField("p", STRING)))
    log = table(metadata(schema, ["p"]))
    for listed, condition in (
        ("nope", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("p", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
    ):
        with pytest.raises(SchemaError) as caught:
            change(log, configuration={"delta.dataSkippingStatsColumns": listed})
        assert caught.value.condition == condition
    change(log, configuration={"delta.dataSkippingStatsColumns": "id"})


def test_not_null_inside_of_an_array_is_refused() -> None:
    inner = StructType((StructField("x", LONG, nullable=False),))
    schema = StructType((StructField("a", ArrayType(inner)),))
    with pytest.raises(SchemaError):
        table(metadata(schema))
    log = table(metadata())
    with pytest.raises(SchemaError):
        change(log, schema_string=format_schema(schema))


def test_a_table_with_a_feature_that_we_cannot_write_gets_no_checkpoint() -> None:
    store = MemoryStore()
    unknown = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("novelty",))
    LogBuilder(store).create(add("a"), protocol=unknown)
    before = [file.path for file in store.list_recursive("")]
    with pytest.raises(UnsupportedProtocolError) as caught:
        DeltaLog(store).checkpoint()
    assert "novelty" in str(caught.value)
    assert [file.path for file in store.list_recursive("")] == before


def test_a_checkpoint_can_be_asked_for_in_parts() -> None:
    store = MemoryStore()
    LogBuilder(store).create(*(add(f"f{i}") for i in range(10)))
    log = DeltaLog(store)
    log.checkpoint(part_size=4)
    checkpoint = TableLog(store).snapshot.segment.checkpoint
    assert checkpoint is not None
    assert len(checkpoint.files) == 3


def test_the_number_of_races_a_commit_may_lose_is_a_setting() -> None:
    log = DeltaLog(MemoryStore(), attempts=1)
    transaction = log.start_transaction()
    transaction.update_metadata(metadata())
    transaction.commit([], "CREATE TABLE")
    early, late = log.start_transaction(), log.start_transaction()
    early.commit([add("a")], write("Append"))
    with pytest.raises(TooManyAttemptsError):
        late.commit([add("b")], write("Append"))


def test_a_checkpoint_that_would_lose_files_is_not_written() -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(add("a"))
    crc = {
        "tableSizeBytes": 2,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": metadata().to_json_value(),
        "protocol": Protocol().to_json_value(),
    }
    builder.write("_delta_log/00000000000000000000.crc", crc)
    with pytest.raises(CorruptLogError):
        DeltaLog(store).checkpoint()
    assert TableLog(store).snapshot.segment.checkpoint is None


def test_a_type_change_of_the_preview_is_stamped_with_the_version_it_lands_in() -> None:
    narrow = StructType((StructField("n", INTEGER),))
    wide = StructType((StructField("n", LONG),))
    store = MemoryStore()
    preview = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("typeWidening-preview",),
        writer_features=("typeWidening-preview",),
    )
    enabled = {"delta.enableTypeWidening": "true"}
    LogBuilder(store).create(protocol=preview, metadata_action=metadata(narrow, (), enabled))
    log = DeltaLog(store)
    transaction = log.start_transaction()
    widened = record_type_changes(narrow, wide, table_version=1)
    transaction.update_metadata(replace(transaction.metadata, schema_string=format_schema(widened)))
    for name in ("a", "b"):
        log.start_transaction().commit([add(name)], write("Append"))
    assert transaction.commit([], "CHANGE COLUMN").version == 3
    [change] = type_changes(log.update().schema.fields[0])
    assert change.table_version == 3
