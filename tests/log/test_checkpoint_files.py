"""The files of a checkpoint as other engines, and tables of other engines, put them to the test."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.protocol.actions import Protocol, SetTransaction
from pyspark_delta.kernel.protocol.paths import commit_path
from pyspark_delta.kernel.protocol.types import DATE, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from tests.support.checkpoints import NOW_MS, checkpoint, snapshot_at, state_of
from tests.support.golden import GoldenTables
from tests.support.log_builder import LogBuilder, add, metadata

V2_POLICY = {"delta.checkpointPolicy": "v2"}
SCHEMA = StructType((StructField("id", LONG), StructField("v", STRING), StructField("p", DATE)))


@pytest.mark.parametrize(
    "name",
    [
        "basic-decimal-table",
        "data-reader-partition-values",
        "data-skipping-basic-stats-all-types-checkpoint",
        "data-skipping-basic-stats-all-types-columnmapping-id",
        "dv-partitioned-with-checkpoint",
        "dv-with-columnmapping",
        "multi-part-checkpoint",
        "v2-checkpoint-json",
    ],
)
def test_tables_of_delta_spark_read_the_same_from_our_checkpoint(
    golden: GoldenTables, table_path: Path, name: str
) -> None:
    store = LocalStore(golden.copy(name, table_path), fsync=False)
    before = state_of(store)
    write_last_checkpoint(
        store, checkpoint(store, now_ms=0, expected_num_files=len(before["files"]))
    )
    for version in range(before["version"]):
        store.delete(commit_path(version))
    assert state_of(store) == before


def data_table(path: Path, *, partitioned: bool, protocol: Protocol, **configuration: str) -> int:
    """A table with real rows, written by hand: versions 0 to 2.  Its number of rows."""
    schema = SCHEMA if partitioned else StructType(SCHEMA.fields[:2])
    store = LocalStore(path, fsync=False)
    builder = LogBuilder(store).create(
        protocol=protocol,
        metadata_action=metadata(schema, ["p"] if partitioned else [], configuration),
    )
    actions = []
    for n in range(4):
        rows = pa.table({"id": [10 * n, 10 * n + 1], "v": [f"ä{n}", None]})
        directory = path / (f"p=2024-01-0{n + 1}" if partitioned else "plain %")
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{n} é.parquet"
        pq.write_table(rows, directory / name)
        encoded = f"{directory.name.replace('%', '%25').replace(' ', '%20')}/{n}%20%C3%A9.parquet"
        actions.append(
            add(
                encoded,
                size=(directory / name).stat().st_size,
                partition_values={"p": f"2024-01-0{n + 1}"} if partitioned else {},
                stats=json.dumps(
                    {
                        "numRecords": 2,
                        "minValues": {"id": 10 * n, "v": f"ä{n}"},
                        "maxValues": {"id": 10 * n + 1, "v": f"ä{n}"},
                        "nullCount": {"id": 0, "v": 1},
                    }
                ),
            )
        )
    builder.commit(*actions, SetTransaction(app_id="stream", version=5))
    builder.commit(actions[0].remove(deletion_timestamp=NOW_MS))
    return 6


PLAIN_V2 = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint",),
    writer_features=("v2Checkpoint",),
)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    ("protocol", "configuration", "options"),
    [
        (Protocol(), {}, {}),
        (Protocol(), {}, {"part_size": 2}),
        (Protocol(), {"delta.checkpoint.writeStatsAsStruct": "false"}, {}),
        (Protocol(), {"delta.checkpoint.writeStatsAsJson": "false"}, {}),
        (PLAIN_V2, V2_POLICY, {}),
        (PLAIN_V2, V2_POLICY, {"v2_format": "parquet"}),
        (PLAIN_V2, V2_POLICY, {"part_size": 2}),
    ],
)
def test_deltalake_reads_the_rows_through_the_checkpoint(
    table_path: Path,
    partitioned: bool,
    protocol: Protocol,
    configuration: dict[str, str],
    options: dict[str, Any],
) -> None:
    rows = data_table(table_path, partitioned=partitioned, protocol=protocol, **configuration)
    store = LocalStore(table_path, fsync=False)
    write_last_checkpoint(store, checkpoint(store, **options))
    for version in (0, 1):
        store.delete(commit_path(version))
    table = deltalake.DeltaTable(table_path)
    assert table.version() == 2
    # The query engine: the way through pyarrow refuses tables with V2 checkpoints.
    query = deltalake.QueryBuilder().register("t", table).execute("select * from t order by id")
    found = pa.table(query.read_all())
    assert found.num_rows == rows
    assert found.column("id").to_pylist() == [10, 11, 20, 21, 30, 31]
    assert found.column("v").to_pylist()[::2] == ["ä1", "ä2", "ä3"]
    if partitioned:
        assert found.column("p").to_pylist()[0] == date(2024, 1, 2)
    assert table.transaction_version("stream") == 5


def test_deltalake_goes_on_from_the_checkpoint(table_path: Path) -> None:
    rows = data_table(table_path, partitioned=True, protocol=Protocol())
    store = LocalStore(table_path, fsync=False)
    write_last_checkpoint(store, checkpoint(store))
    new = pa.table({"id": [99], "v": ["new"], "p": [date(2025, 1, 1)]})
    deltalake.write_deltalake(table_path, new, mode="append")
    deltalake.DeltaTable(table_path).create_checkpoint()
    assert snapshot_at(store).version == 3
    assert deltalake.DeltaTable(table_path).to_pyarrow_table().num_rows == rows + 1
    assert state_of(store)["removes"] == []  # its own checkpoint has only what it keeps
