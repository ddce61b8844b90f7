"""Checkpoints, written: every kind reads back as the version it stands for, here and elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import CorruptLogError, StorageError
from pyspark_delta.kernel.log.checkpoints.writer import CheckpointContent, write_checkpoint
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    remove_table,
)
from pyspark_delta.kernel.log.last_checkpoint import read_last_checkpoint, write_last_checkpoint
from pyspark_delta.kernel.protocol.actions import (
    DomainMetadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
)
from pyspark_delta.kernel.protocol.paths import (
    classic_checkpoint_path,
    commit_path,
    multipart_checkpoint_path,
)
from pyspark_delta.kernel.protocol.types import DATE, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.checkpoints import (
    NOW_MS,
    checkpoint,
    content_of,
    counted_uuids,
    read_parquet,
    rows_of,
    snapshot_at,
    state_of,
)
from tests.support.faulty import Crashed, Fault, FaultRule, FaultStore
from tests.support.log_builder import LogBuilder, add, metadata, remove

V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint", "deletionVectors"),
    writer_features=("v2Checkpoint", "deletionVectors", "domainMetadata", "appendOnly"),
)
V2_POLICY = {"delta.checkpointPolicy": "v2"}
SCHEMA = StructType((StructField("id", LONG), StructField("v", STRING), StructField("p", DATE)))


def stats(low: int, high: int) -> str:
    return json.dumps(
        {
            "numRecords": 3,
            "minValues": {"id": low, "v": "a"},
            "maxValues": {"id": high, "v": "z"},
            "nullCount": {"id": 0, "v": 1},
        },
        separators=(",", ":"),
    )


def rich_log(store: LogStore, **configuration: str) -> LogBuilder:
    """A log with every kind of state: versions 0 to 3."""
    table = metadata(SCHEMA, ["p"], configuration)
    files = [
        add(
            f"p=2024-01-0{n}/{n}%20ä.parquet",
            size=n,
            partition_values={"p": f"2024-01-0{n}"},
            stats=stats(n, n + 10),
            tags={"k": "v"},
            base_row_id=n,
            default_row_commit_version=0,
            clustering_provider="liquid",
        )
        for n in range(1, 6)
    ]
    builder = LogBuilder(store).create(protocol=V2, metadata_action=table)
    builder.commit(*files, SetTransaction(app_id="app", version=7, last_updated=3))
    builder.commit(
        files[0].remove(deletion_timestamp=NOW_MS),
        files[1].remove(deletion_timestamp=NOW_MS),
        add(files[1].path, partition_values={"p": "2024-01-02"}, vector="ab", stats=stats(1, 2)),
        DomainMetadata(domain="d", configuration='{"a":1}', removed=False),
        DomainMetadata(domain="gone", configuration="", removed=False),
    )
    return builder.commit(
        DomainMetadata(domain="gone", configuration="", removed=True),
        add("null.parquet", partition_values={"p": None}),
    )


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("classic", {}),
        ("v2", {}),
        ("v2", {"v2_format": "parquet"}),
        ("v2", {"part_size": 2}),
        ("v2", {"part_size": 2, "v2_format": "parquet"}),
    ],
)
def test_a_version_reads_the_same_from_its_checkpoint(policy: str, options: dict[str, Any]) -> None:
    store = MemoryStore()
    rich_log(store, **{"delta.checkpointPolicy": policy})
    before = state_of(store)
    hint = checkpoint(store, **options, expected_num_files=5)
    write_last_checkpoint(store, hint)
    for version in range(3):
        store.delete(commit_path(version))
    assert state_of(store) == before
    assert (hint.version, hint.num_of_add_files) == (3, 5)
    assert hint.size == 5 + 2 + 4 + (0 if policy == "classic" else 1 + sidecar_count(store))
    assert (hint.v2_checkpoint is None) == (policy == "classic")


@pytest.mark.parametrize(
    ("policy", "options"),
    [("classic", {}), ("classic", {"part_size": 3}), ("v2", {}), ("v2", {"part_size": 2})],
)
def test_files_and_tombstones_of_a_checkpoint_change_no_data(
    policy: str, options: dict[str, Any]
) -> None:
    store = MemoryStore()
    rich_log(store, **{"delta.checkpointPolicy": policy})
    checkpoint(store, **options)
    paths = [info.path for info in store.list_from("_delta_log/") if ".checkpoint" in info.path]
    paths += [info.path for info in store.list_from("_delta_log/_sidecars/")]
    tables = [read_parquet(store, path) for path in paths if path.endswith(".parquet")]
    for kind, count in (("add", 5), ("remove", 2)):
        found = [row for table in tables for row in rows_of(table, kind)]
        assert [row["dataChange"] for row in found] == [False] * count


def sidecar_count(store: LogStore) -> int:
    return len(store.list_from("_delta_log/_sidecars/"))


def test_a_multi_part_checkpoint_reads_the_same_and_names_its_parts() -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(*(add(f"{n}") for n in range(7)))
    builder.commit(remove("3"), SetTransaction(app_id="a", version=1))
    before = state_of(store)
    hint = checkpoint(store, part_size=3)
    assert hint.parts == 3
    assert hint.size == 6 + 1 + 3
    assert hint.size_in_bytes == sum(
        store.size(multipart_checkpoint_path(1, n, 3)) for n in (1, 2, 3)
    )
    store.delete(commit_path(0))
    assert state_of(store) == before


def test_few_files_need_no_parts_and_v2_tables_may_not_have_them() -> None:
    store = MemoryStore()
    LogBuilder(store).create(add("a"))
    assert checkpoint(store, part_size=10).parts is None
    other = MemoryStore()
    rich_log(other)
    assert checkpoint(other, part_size=1).parts is None
    assert other.exists(classic_checkpoint_path(3))


def test_parts_of_two_writers_fit_together() -> None:
    # The same state, met in another order and at another time: a reader may find half of each.
    first, second = MemoryStore(), MemoryStore()
    names = [f"{n}%20x" for n in range(9)]
    LogBuilder(first).create(*(add(n) for n in names)).commit(remove("0%20x"))
    LogBuilder(second).create(*(add(n) for n in reversed(names))).commit(remove("0%20x"))
    expected = state_of(first)["files"]
    checkpoint(first, part_size=5)
    checkpoint(second, part_size=5, now_ms=NOW_MS + 5)
    part = multipart_checkpoint_path(1, 2, 2)
    second.overwrite(part, first.read(part))
    second.delete(commit_path(0))
    assert state_of(second)["files"] == expected


def test_an_unfinished_set_of_parts_is_not_completed_with_ours() -> None:
    store = MemoryStore()
    LogBuilder(store).create(*(add(f"{n}") for n in range(6)))
    store.create(multipart_checkpoint_path(0, 1, 2), b"of another engine")
    assert checkpoint(store, part_size=3).parts == 3
    assert len(state_of(store)["files"]) == 6


def test_every_row_is_one_action() -> None:
    store = MemoryStore()
    rich_log(store)
    checkpoint(store)
    table = read_parquet(store, classic_checkpoint_path(3))
    for row in table.to_pylist():
        assert sum(value is not None for value in row.values()) == 1


def test_statistics_and_partition_values_are_typed_beside_the_text() -> None:
    store = MemoryStore()
    rich_log(store)
    checkpoint(store)
    rows = rows_of(read_parquet(store, classic_checkpoint_path(3)), "add")
    third = next(row for row in rows if row["path"].startswith("p=2024-01-03"))
    assert third["partitionValues_parsed"] == {"p": date(2024, 1, 3)}
    assert third["stats_parsed"] == {
        "numRecords": 3,
        "minValues": {"id": 3, "v": "a"},
        "maxValues": {"id": 13, "v": "z"},
        "nullCount": {"id": 0, "v": 1},
        "tightBounds": None,
    }
    assert third["stats"] == stats(3, 13)
    without = next(row for row in rows if row["path"] == "null.parquet")
    assert without["stats_parsed"] is None
    assert without["partitionValues_parsed"] == {"p": None}


def test_expired_tombstones_are_dropped_and_the_others_lose_statistics_and_tags() -> None:
    store = MemoryStore()
    LogBuilder(store).create(
        metadata_action=metadata(configuration={"delta.deletedFileRetentionDuration": "1 day"})
    )
    day = 86_400_000
    content = replace(
        content_of(snapshot_at(store)),
        removes=remove_table(
            [
                RemoveFile(path="fresh", deletion_timestamp=NOW_MS - day + 1, stats="{}"),
                RemoveFile(path="old", deletion_timestamp=NOW_MS - day),
                RemoveFile(path="ageless"),
            ]
        ),
    )
    hint = write_checkpoint(store, content, now_ms=NOW_MS, new_uuid=counted_uuids())
    rows = rows_of(read_parquet(store, classic_checkpoint_path(0)), "remove")
    assert [row["path"] for row in rows] == ["fresh"]
    assert not {"stats", "tags"} & set(rows[0])
    assert hint.size == 3


@pytest.mark.parametrize(
    ("protocol", "readers", "writers"),
    [
        (Protocol(), None, None),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=()), None, []),
        (
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("deletionVectors",),
                writer_features=("deletionVectors",),
            ),
            ["deletionVectors"],
            ["deletionVectors"],
        ),
    ],
)
def test_feature_lists_are_there_when_the_versions_say_so(
    protocol: Protocol, readers: list[str] | None, writers: list[str] | None
) -> None:
    store = MemoryStore()
    LogBuilder(store).create(protocol=protocol)
    checkpoint(store)
    (row,) = rows_of(read_parquet(store, classic_checkpoint_path(0)), "protocol")
    assert (row["readerFeatures"], row["writerFeatures"]) == (readers, writers)


def test_an_incomplete_state_is_refused_and_nothing_is_written() -> None:
    # delta-rs#3049: a checkpoint of a table loaded without its files lost all of them.
    store = MemoryStore()
    LogBuilder(store).create(add("a"), add("b"))
    content = replace(content_of(snapshot_at(store)), adds=ADD_SCHEMA.empty_table())
    with pytest.raises(CorruptLogError) as raised:
        write_checkpoint(
            store, content, now_ms=NOW_MS, new_uuid=counted_uuids(), expected_num_files=2
        )
    assert raised.value.condition == "DELTA_CHECKPOINT_INCOMPLETE_STATE"
    assert [info.path for info in store.list_from("_delta_log/")] == [commit_path(0)]


def test_a_finished_checkpoint_is_kept_and_a_broken_one_replaced() -> None:
    store = MemoryStore()
    LogBuilder(store).create(add("a"))
    checkpoint(store)
    path = classic_checkpoint_path(0)
    first = store.read(path)
    hint = checkpoint(store, now_ms=NOW_MS + 10**12)
    assert store.read(path) == first
    assert hint.size_in_bytes == len(first)
    store.overwrite(path, first[: len(first) // 2])
    checkpoint(store)
    assert store.read(path) == first


def test_a_table_of_many_row_groups_keeps_every_file() -> None:
    store = MemoryStore()
    LogBuilder(store).create()
    rows = 60_000
    adds = pa.table(
        {
            "path": pa.array([f"f{n}" for n in range(rows)]),
            "partitionValues": pa.array([[]] * rows, ADD_SCHEMA.field("partitionValues").type),
            "size": pa.array(range(rows), pa.int64()),
            "modificationTime": pa.array(range(rows), pa.int64()),
            "dataChange": pa.array([True] * rows),
            "stats": pa.array([f'{{"numRecords":{n}}}' for n in range(rows)]),
            **{name: pa.nulls(rows, ADD_SCHEMA.field(name).type) for name in ADD_SCHEMA.names[6:]},
        }
    )
    content = replace(content_of(snapshot_at(store)), adds=adds)
    write_checkpoint(store, content, now_ms=NOW_MS, new_uuid=counted_uuids())
    table = read_parquet(store, classic_checkpoint_path(0))
    column = table.column("add").drop_null()
    assert len(column) == rows
    assert [
        (row["path"], row["stats_parsed"]["numRecords"])
        for row in (column[0].as_py(), column[rows - 1].as_py())
    ] == [("f0", 0), (f"f{rows - 1}", rows - 1)]
    assert (
        pq.ParquetFile(pa.BufferReader(store.read(classic_checkpoint_path(0)))).num_row_groups == 4
    )


def test_v2_checkpoints_describe_themselves() -> None:
    store = MemoryStore()
    rich_log(store, **V2_POLICY)
    hint = checkpoint(store, part_size=4)
    v2 = hint.v2_checkpoint
    assert v2 is not None
    lines = [json.loads(line) for line in store.read(f"_delta_log/{v2.path}").splitlines()]
    assert next(iter(lines[0])) == "checkpointMetadata"
    sidecars = [SidecarFile.from_json_value(line["sidecar"]) for line in lines if "sidecar" in line]
    assert v2.sidecar_files == tuple(sidecars)
    sizes = sum(store.size(f"_delta_log/_sidecars/{sidecar.path}") for sidecar in sidecars)
    tags = lines[0]["checkpointMetadata"]["tags"]
    assert (tags["sidecarNumActions"], tags["numOfAddFiles"]) == ("7", "5")
    assert tags["sidecarSizeInBytes"] == str(sizes)
    fields = json.loads(tags["sidecarFileSchema"])["fields"]
    assert [f["name"] for f in fields] == ["add", "remove"]
    assert hint.size_in_bytes == sizes + store.size(f"_delta_log/{v2.path}")


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ERROR_BEFORE])
@pytest.mark.parametrize(
    ("configuration", "options"),
    [({}, {}), ({}, {"part_size": 2}), (V2_POLICY, {"part_size": 2})],
)
def test_a_writer_that_dies_at_any_call_leaves_a_log_that_reads_as_before(
    configuration: dict[str, str], options: dict[str, Any], fault: Fault
) -> None:
    # delta-rs#2258, #2290: a job killed in the middle of a checkpoint made tables unreadable.
    for calls_before in range(12):
        inner = MemoryStore()
        protocol = V2 if configuration else Protocol()
        table = metadata(configuration=configuration)
        builder = LogBuilder(inner).create(
            *(add(f"{n}") for n in range(4)), protocol=protocol, metadata_action=table
        )
        builder.commit(remove("1"))
        before = state_of(inner)
        content = content_of(snapshot_at(inner))
        rule = FaultRule(operation="*", path="*", fault=fault, skip=calls_before)
        store = FaultStore(inner, [rule])
        died = False
        try:
            hint = write_checkpoint(
                store, content, now_ms=NOW_MS, new_uuid=counted_uuids(), **options
            )
            write_last_checkpoint(store, hint)
        except (Crashed, StorageError):
            died = True
        assert state_of(inner) == before
        checkpoint(inner, new_uuid=uuids_from(10**6), **options)
        assert state_of(inner) == before
        if not died:
            return
    raise AssertionError("the writer was never left alone")


def uuids_from(first: int) -> Any:
    new_uuid = counted_uuids()
    return lambda: type(new_uuid())(int=new_uuid().int + first)


def test_the_hint_leads_to_the_checkpoint() -> None:
    store = MemoryStore()
    rich_log(store)
    write_last_checkpoint(store, checkpoint(store))
    hint = read_last_checkpoint(store)
    assert hint is not None
    assert hint.checkpoint_schema is not None
    assert [f["name"] for f in hint.checkpoint_schema["fields"]][:2] == ["txn", "add"]


def test_content_can_be_empty() -> None:
    store = MemoryStore()
    content = CheckpointContent(
        version=0,
        protocol=Protocol(),
        metadata=metadata(),
        transactions=(),
        domains=(),
        adds=ADD_SCHEMA.empty_table(),
        removes=REMOVE_SCHEMA.empty_table(),
    )
    hint = write_checkpoint(store, content, now_ms=0, new_uuid=counted_uuids())
    assert (hint.size, hint.num_of_add_files) == (2, 0)
