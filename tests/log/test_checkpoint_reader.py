"""Every kind of checkpoint gives the state that commits give; a broken one is done without."""

from __future__ import annotations

import json
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import CorruptLogError, UnsafePathError
from pyspark_delta.kernel.log.checkpoints.stats_text import stats_texts
from pyspark_delta.kernel.log.checkpoints.writer import CheckpointContent, write_checkpoint
from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import (
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
)
from pyspark_delta.kernel.protocol.paths import (
    classic_checkpoint_path,
    commit_path,
    sidecar_path,
    uuid_checkpoint_path,
)
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.calls import num_calls
from tests.support.clock import FrozenClock
from tests.support.log_builder import LogBuilder, add, metadata, remove

SCHEMA = StructType((StructField("id", LONG), StructField("p", STRING)))
V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint", "deletionVectors"),
    writer_features=("v2Checkpoint", "deletionVectors", "domainMetadata"),
)
CLASSIC = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "domainMetadata"),
)
UUID4 = "0a0b0c0d-1111-2222-3333-444455556666"

KINDS = {
    "classic": ({}, {}, CLASSIC),
    "classic, statistics as JSON only": (
        {"delta.checkpoint.writeStatsAsStruct": "false"},
        {},
        CLASSIC,
    ),
    "classic, statistics as struct only": (
        {"delta.checkpoint.writeStatsAsJson": "false"},
        {},
        CLASSIC,
    ),
    "multi-part": ({}, {"part_size": 2}, CLASSIC),
    "V2 json": ({"delta.checkpointPolicy": "v2"}, {"v2_format": "json"}, V2),
    "V2 parquet": ({"delta.checkpointPolicy": "v2"}, {"v2_format": "parquet"}, V2),
    "V2 with several sidecars": (
        {"delta.checkpointPolicy": "v2"},
        {"v2_format": "json", "part_size": 2},
        V2,
    ),
}


def table(store: MemoryStore, configuration: dict[str, str], protocol: Protocol) -> LogBuilder:
    stats = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
    return (
        LogBuilder(store)
        .create(
            add("a", partition_values={"p": "x y"}, stats=stats),
            add("b%20c", partition_values={"p": None}, stats=stats, tags={"T": "1"}),
            add("d", partition_values={"p": "z"}, vector="v1", stats='{"numRecords":3}'),
            SetTransaction(app_id="app", version=7, last_updated=3),
            DomainMetadata(domain="user.domain", configuration="{}"),
            DomainMetadata(domain="gone", configuration="{}"),
            protocol=protocol,
            metadata_action=metadata(SCHEMA, ["p"], configuration),
        )
        .commit(
            remove("a", partition_values={"p": "x y"}),
            add("e", partition_values={"p": "é"}, base_row_id=5, default_row_commit_version=1),
            DomainMetadata(domain="gone", configuration="{}", removed=True),
        )
    )


def checkpoint(snapshot: Snapshot, clock: FrozenClock, **options: object) -> None:
    content = CheckpointContent(
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions.values(),
        domains=snapshot.domains.values(),
        adds=snapshot.adds,
        removes=snapshot.tombstones(),
    )
    hint = write_checkpoint(
        snapshot.store,
        content,
        now_ms=1_700_000_000_002,  # before any tombstone expires
        new_uuid=lambda: UUID(int=len(list(snapshot.store.list_recursive("")))),
        expected_num_files=snapshot.num_files,
        **options,  # type: ignore[arg-type]
    )
    write_last_checkpoint(snapshot.store, hint)


def state(snapshot: Snapshot) -> tuple[object, ...]:
    rows = snapshot.adds.drop_columns(["dataChange"]).sort_by("path").to_pylist()
    for row in rows:  # as a struct they lose their spelling, not their meaning
        row["stats"] = row["stats"] and {
            key: value for key, value in json.loads(row["stats"]).items() if value is not None
        }
    return (
        snapshot.version,
        [{k: dict(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows],
        snapshot.protocol,
        snapshot.metadata,
        dict(snapshot.transactions),
        dict(snapshot.domains),
        sorted(snapshot.tombstones().column("path").to_pylist()),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_gives_the_state_that_the_commits_give(kind: str, clock: FrozenClock) -> None:
    configuration, options, protocol = KINDS[kind]
    store = MemoryStore()
    builder = table(store, configuration, protocol)
    before = state(TableLog(store, now_ms=clock).snapshot)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock, **options)
    for version in (0, 1):
        store.delete(commit_path(version))
    log = TableLog(store, now_ms=clock)
    assert log.snapshot.segment.checkpoint is not None
    assert state(log.snapshot)[1:] == before[1:]
    builder.commit(remove("e", partition_values={"p": "é"}), add("a", partition_values={"p": "q"}))
    after = sorted(log.update().files.column("path").to_pylist())
    assert after == ["a", "b%20c", "d"]
    assert sorted(TableLog(store).snapshot.files.column("path").to_pylist()) == after


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_in_pieces_are_the_whole_column(kind: str, clock: FrozenClock) -> None:
    configuration, options, protocol = KINDS[kind]
    store = MemoryStore()
    table(store, configuration, protocol)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock, **options)
    snapshot = TableLog(store, now_ms=clock).snapshot
    assert snapshot.segment.checkpoint is not None
    for part in snapshot.file_state.parts:
        pieces = pa.chunked_array(part.source.stats_texts(), pa.string())
        assert pieces.to_pylist() == part.live_stats().to_pylist()


def test_text_of_typed_statistics_is_made_only_for_files_whose_text_is_wanted(
    clock: FrozenClock,
) -> None:
    store = MemoryStore()
    configuration, options, protocol = KINDS["classic, statistics as struct only"]
    files = [add(f"f{i}", stats=f'{{"numRecords":{i}}}') for i in range(6)]
    builder = LogBuilder(store).create(
        *files, protocol=protocol, metadata_action=metadata(SCHEMA, configuration=configuration)
    )
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock, **options)
    builder.commit(remove("f1"), add("new", stats='{"numRecords":7}'))
    log = TableLog(store, now_ms=clock)
    snapshot = log.snapshot
    assert snapshot.segment.checkpoint is not None
    assert num_calls(stats_texts, lambda: snapshot.files) == 0
    held = {row["path"]: row["stats"] for row in snapshot.files.to_pylist()}
    assert held.pop("new") == '{"numRecords":7}'
    assert set(held.values()) == {None}
    # The mask is one of the live files, of which the checkpoint has one less than it has rows.
    state = snapshot.file_state
    mask = pc.is_in(state.columns(["path"]).column("path"), value_set=pa.array(["f2", "f5", "new"]))
    chosen = state.complete(["stats", "path"], mask)
    assert chosen.column("path").to_pylist() == ["f2", "f5", "new"]
    counts = [json.loads(text)["numRecords"] for text in chosen.column("stats").to_pylist()]
    assert counts == [2, 5, 7]
    (part, _) = state.parts
    assert len(part.live_stats(mask.combine_chunks().slice(0, part.num_live))) == 2
    whole = {row["path"]: json.loads(row["stats"]) for row in snapshot.adds.to_pylist()}
    assert whole["f5"]["numRecords"] == 5
    assert num_calls(stats_texts, lambda: snapshot.adds) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "gone"])
def test_a_broken_checkpoint_is_done_without(kind: str, damage: str, clock: FrozenClock) -> None:
    configuration, options, protocol = KINDS[kind]
    store = MemoryStore()
    table(store, configuration, protocol)
    expected = state(TableLog(store, now_ms=clock).snapshot)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock, **options)
    files = [f.path for f in store.list_recursive("_delta_log") if ".checkpoint." in f.path] + [
        f.path for f in store.list_recursive("_delta_log/_sidecars")
    ]
    for path in files:
        data = store.read(path)
        store.delete(path)
        if damage != "gone":
            broken = {"truncated": data[: len(data) // 2], "empty": b"", "garbage": b"x" * 99}
            store.overwrite(path, broken[damage])
        assert state(TableLog(store, now_ms=clock).snapshot) == expected
        store.overwrite(path, data)
    for path in files:
        store.overwrite(path, b"garbage")
    store.delete(commit_path(0))
    with pytest.raises(CorruptLogError) as caught:
        TableLog(store).snapshot.num_files  # noqa: B018
    assert caught.value.condition == "DELTA_MALFORMED_CHECKPOINT"


def test_damage_found_while_fetching_a_late_column_is_done_without_too(clock: FrozenClock) -> None:
    store = MemoryStore()
    table(store, {}, CLASSIC)
    expected = state(TableLog(store, now_ms=clock).snapshot)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock)
    snapshot = TableLog(store, now_ms=clock).snapshot
    assert snapshot.files_with(["path"]).num_rows == 3
    store.overwrite(classic_checkpoint_path(1), b"gone bad since")
    assert state(snapshot) == expected


def test_only_the_columns_asked_for_are_read(clock: FrozenClock) -> None:
    store = MemoryStore()
    table(store, {}, CLASSIC)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock)
    snapshot = TableLog(store).snapshot
    assert snapshot.files_with(["size"]).column_names == ["size"]
    assert not any("stats" in part._cache for part in snapshot.file_state.parts)


@pytest.mark.parametrize(
    "path",
    ["../../secret.parquet", "%2e%2e/x.parquet", "/etc/passwd", "a/b.parquet", "file:///x", ".."],
)
def test_a_sidecar_outside_of_its_directory_is_refused(path: str) -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(protocol=V2, metadata_action=metadata())
    sidecar = SidecarFile(path=path, size_in_bytes=1, modification_time=1)
    lines = [CheckpointMetadata(version=0), V2, metadata(), sidecar]
    builder.write(uuid_checkpoint_path(0, UUID4, "json"), "".join(a.json + "\n" for a in lines))
    with pytest.raises(UnsafePathError):
        TableLog(store).snapshot.num_files  # noqa: B018


def test_a_sidecar_may_be_spelled_with_its_directory() -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(protocol=V2, metadata_action=metadata())
    adds = pa.array([{"path": "a", "size": 1, "modificationTime": 1, "dataChange": True}])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": adds}), sink)
    builder.write(sidecar_path("s.parquet"), sink.getvalue().to_pybytes())
    for path in ("s.parquet", "_delta_log/_sidecars/s.parquet"):
        sidecar = SidecarFile(path=path, size_in_bytes=1, modification_time=1)
        lines = [CheckpointMetadata(version=0), V2, metadata(), sidecar]
        text = "".join(a.json + "\n" for a in lines)
        builder.write(uuid_checkpoint_path(0, UUID4, "json"), text)
        assert TableLog(store).snapshot.files.column("path").to_pylist() == ["a"]


def test_file_actions_may_stand_in_a_v2_top_file() -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(add("old"), protocol=V2, metadata_action=metadata())
    lines = [CheckpointMetadata(version=0), V2, metadata(), add("a", vector="v"), remove("z")]
    builder.write(uuid_checkpoint_path(0, UUID4, "json"), "".join(a.json + "\n" for a in lines))
    snapshot = TableLog(store).snapshot
    assert snapshot.files.column("path").to_pylist() == ["a"]
    assert snapshot.tombstones().column("path").to_pylist() == ["z"]


def test_more_rows_than_a_file_can_hold_are_not_believed() -> None:
    store = MemoryStore()
    LogBuilder(store).create(add("a"))
    sink = pa.BufferOutputStream()
    rows = 3_000_000
    names = ["path", "size"]
    adds = pa.StructArray.from_arrays(
        [pa.nulls(rows, pa.string()), pa.nulls(rows, pa.int64())],
        names,
        mask=pa.repeat(pa.scalar(True), rows),
    )
    pq.write_table(pa.table({"add": adds}), sink)
    bomb = sink.getvalue().to_pybytes()
    assert len(bomb) < 100_000
    store.overwrite(classic_checkpoint_path(0), bomb)
    assert TableLog(store).snapshot.files.column("path").to_pylist() == ["a"]


def test_a_checkpoint_is_a_checkpoint_without_optional_columns() -> None:
    """As older writers leave them out: no vectors, no tags, no txn, no domains."""
    store = MemoryStore()
    builder = LogBuilder(store).create(add("a"))
    rows = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": _metadata_row(metadata())},
        {"add": {"path": "a", "size": 1, "modificationTime": 2, "dataChange": False}},
    ]
    columns = ["protocol", "metaData", "add"]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({c: [row.get(c) for row in rows] for c in columns}), sink)
    builder.write(classic_checkpoint_path(0), sink.getvalue().to_pybytes())
    snapshot = TableLog(store).snapshot
    assert snapshot.segment.checkpoint is not None
    assert snapshot.files.to_pylist()[0]["deletionVector"] is None
    assert snapshot.metadata.id == metadata().id


def _metadata_row(action: Metadata) -> dict[str, object]:
    value = action.to_json_value()
    return {key: value[key] for key in ("id", "schemaString", "partitionColumns")}


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_the_whole_state_is_done_without(missing: str) -> None:
    store = MemoryStore()
    builder = LogBuilder(store).create(add("a"))
    rows = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    rows["metaData"] = _metadata_row(metadata())  # type: ignore[assignment]
    del rows[missing]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({key: [value] for key, value in rows.items()}), sink)
    builder.write(classic_checkpoint_path(0), sink.getvalue().to_pybytes())
    assert TableLog(store).snapshot.files.column("path").to_pylist() == ["a"]


def test_typed_statistics_are_read_by_the_columns_that_matter(clock: FrozenClock) -> None:
    store = MemoryStore()
    table(store, {}, CLASSIC)
    checkpoint(TableLog(store, now_ms=clock).snapshot, clock)
    [part] = TableLog(store, now_ms=clock).snapshot.file_state.parts
    parsed = part.source.parsed_stats([("id",)])
    assert parsed is not None
    assert len(parsed) == 3
    bounds = [row["minValues"] for row in parsed.to_pylist() if row and row["minValues"]]
    assert {bound["id"] for bound in bounds} <= {1, None}
    assert part.source.parsed_stats([("a.b",)]) is None  # would be taken for a step into a struct
    assert part.source.parsed_stats([("no such column",)]) is not None
