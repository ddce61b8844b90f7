"""RESTORE without Spark: which files come back, which go, and what the table then is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_delta.errors import ConcurrentWriteException, DataFileError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.ops.restore import check_files_exist, commit_restore, plan_restore
from pyspark_delta.kernel.ops.vacuum.missing_files import missing_files
from pyspark_delta.kernel.protocol.actions import AddFile, RemoveFile
from pyspark_delta.kernel.protocol.domains import clustering_columns, clustering_domain
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.identity_columns import identity_info, with_identity
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.tables import (
    append,
    create_table,
    delete_positions,
    new_table,
    overwrite,
    set_properties,
)
from tests.support.transactions import add
from tests.support.transactions import new_table as new_memory_table

VECTORS = {"delta.enableDeletionVectors": "true"}


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def restored(log: DeltaLog, version: int, *, allow_downgrade: bool = False) -> dict[str, int]:
    """Restore the table as the command does; what it tells."""
    txn = log.start_transaction()
    assert txn.snapshot is not None
    target = log.snapshot_at(version)
    plan = plan_restore(txn.snapshot, target, allow_downgrade=allow_downgrade)
    check_files_exist(plan, Locations(log.store))
    commit_restore(txn, plan, operation("RESTORE", version=version, timestamp=None))
    return plan.metrics


def rows(log: DeltaLog) -> list[int]:
    found: list[int] = log.update().to_table().column("id").to_pylist()
    return sorted(found)


def test_what_was_there_comes_back_and_what_came_later_goes(table_path: Path) -> None:
    log = new_table(table_path, ids(1, 2))
    append(log, ids(3))
    kept = log.update().files.column("size").to_pylist()
    overwrite(log, ids(7, 8, 9))
    told = restored(log, 2)
    assert rows(log) == [1, 2, 3]
    assert (told["numRestoredFiles"], told["numRemovedFiles"]) == (2, 1)
    assert told["numOfFilesAfterRestore"] == 2
    assert told["tableSizeAfterRestore"] == told["restoredFilesSize"] == sum(kept)
    ((_, actions),) = log.get_changes(4)
    files = [a for a in actions if isinstance(a, AddFile | RemoveFile)]
    assert [a.data_change for a in files] == [True] * 3
    info = log.history(1)[0]
    assert (info.operation, info.operation_parameters) == (
        "RESTORE",
        {"version": 2, "timestamp": None},
    )
    assert info.operation_metrics == {name: str(value) for name, value in told.items()}
    assert (info.read_version, info.is_blind_append, info.isolation_level) == (
        3,
        False,
        "Serializable",
    )
    # Files in both versions are not spoken of.
    append(log, ids(4))
    told = restored(log, 4)
    assert (told["numRestoredFiles"], told["numRemovedFiles"]) == (0, 1)
    assert rows(log) == [1, 2, 3]


@pytest.mark.parametrize("inline", [True, False])
def test_a_file_with_another_vector_is_another_file(table_path: Path, inline: bool) -> None:
    log = new_table(table_path, ids(1, 2, 3, 4), configuration=VECTORS)
    delete_positions(log, lambda _: [0], inline=inline)
    delete_positions(log, lambda _: [0, 3], inline=inline)
    told = restored(log, 2)
    assert rows(log) == [2, 3, 4]
    assert (told["numRestoredFiles"], told["numRemovedFiles"]) == (1, 1)
    restored(log, 1)
    assert rows(log) == [1, 2, 3, 4]
    # The table no longer takes vectors, but has some again.
    set_properties(log, {"delta.enableDeletionVectors": "false"})
    restored(log, 3)
    assert rows(log) == [2, 3]


def test_files_and_vectors_that_are_gone_are_missed(table_path: Path) -> None:
    log = new_table(table_path, ids(1, 2, 3, 4), configuration=VECTORS)
    (path,) = log.update().files.column("path").to_pylist()
    delete_positions(log, lambda _: [0], inline=False)
    overwrite(log, ids(9))
    (vector,) = (info.path for info in log.store.list_recursive("") if info.path.endswith(".bin"))
    content = log.store.read(vector)
    log.store.delete(vector)
    with pytest.raises(DataFileError) as caught:
        restored(log, 2)
    assert caught.value.condition == "DELTA_CANNOT_RESTORE_MISSING_FILES"
    assert caught.value.parameters == {"version": "2", "numFiles": "1", "path": path}
    assert log.update().version == 3
    log.store.create(vector, content)
    log.store.delete(path)
    with pytest.raises(DataFileError):
        restored(log, 1)


def test_many_files_of_a_directory_cost_one_listing() -> None:
    log = new_memory_table("part", actions=[add(f"part=1/{n}") for n in range(50)])
    for number in range(50):
        if number not in (7, 11):
            log.store.create(f"part=1/{number}", b"x")
    found = missing_files(log.update().files, Locations(log.store))
    assert sorted(found.column("path").to_pylist()) == ["part=1/11", "part=1/7"]
    assert missing_files(log.update().files.slice(0, 0), Locations(log.store)).num_rows == 0


def test_metadata_comes_back_but_nothing_is_numbered_twice(table_path: Path) -> None:
    schema = StructType((with_identity(StructField("id", LONG)), StructField("v", LONG)))
    log = create_table(table_path, schema, configuration={"own": "old"})

    def move_mark(mark: int) -> None:
        txn = log.start_transaction()
        moved = (
            txn.schema["id"].with_metadata_items({"delta.identity.highWaterMark": mark}),
            txn.schema["v"],
        )
        txn.update_metadata(
            replace(
                txn.metadata,
                schema_string=format_schema(StructType(moved)),
                configuration={**txn.metadata.configuration, "own": str(mark)},
            )
        )
        txn.commit([], "WRITE")

    move_mark(10)
    move_mark(20)
    restored(log, 1)
    assert log.update().metadata.configuration["own"] == "10"
    assert identity_info(log.update().schema["id"]).high_water_mark == 20
    restored(log, 0)
    assert log.update().metadata.configuration["own"] == "old"
    assert identity_info(log.update().schema["id"]).high_water_mark == 20


def test_ids_of_columns_are_never_given_again(table_path: Path) -> None:
    log = new_table(table_path, ids(1), configuration={"delta.columnMapping.mode": "name"})
    txn = log.start_transaction()
    wider = StructType((*txn.schema.fields, StructField("v", LONG)))
    txn.update_metadata(replace(txn.metadata, schema_string=format_schema(wider)))
    txn.commit([], "ADD COLUMNS")
    restored(log, 1)
    assert log.update().schema.names == ("id",)
    assert log.update().metadata.configuration["delta.columnMapping.maxColumnId"] == "2"
    assert rows(log) == [1]


def test_a_table_can_go_back_to_before_its_columns_were_mapped(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    set_properties(log, {"delta.columnMapping.mode": "name"})
    append(log, ids(2))
    restored(log, 1)
    assert rows(log) == [1]
    assert log.update().metadata.configuration == {}
    restored(log, 3)
    assert rows(log) == [1, 2]


def test_the_table_before_it_was_replaced_is_that_table_again(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    old = log.update().metadata
    txn = log.start_transaction()
    other = StructType((StructField("x", LONG),))
    txn.update_metadata(
        replace(old, id="another", schema_string=format_schema(other)), replaces_table=True
    )
    txn.commit([f.remove(1) for f in add_files(txn.filter_files())], "REPLACE TABLE")
    assert log.update().metadata.id == "another"
    restored(log, 1)
    assert log.update().metadata == old
    assert rows(log) == [1]


def test_the_protocol_is_lowered_only_on_demand(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    set_properties(log, VECTORS)
    restored(log, 1)
    assert "deletionVectors" in supported_features(log.update().protocol)
    assert "delta.enableDeletionVectors" not in log.update().metadata.configuration
    ((_, actions),) = log.get_changes(3)
    assert log.update().protocol in actions  # written although it is as it was
    restored(log, 1, allow_downgrade=True)
    assert log.update().protocol == log.snapshot_at(1).protocol
    assert rows(log) == [1]


def test_clustering_columns_come_back(table_path: Path) -> None:
    log = new_table(table_path, ids(1), configuration={"delta.feature.domainMetadata": "supported"})
    feature = ["clustering", "domainMetadata"]
    txn = log.start_transaction()
    txn.update_protocol(
        replace(txn.protocol, writer_features=(*(txn.protocol.writer_features or ()), feature[0]))
    )
    txn.commit([clustering_domain([("id",)])], "CLUSTER BY")
    log.start_transaction().commit([clustering_domain([("id",), ("x",)])], "CLUSTER BY")
    restored(log, 2)
    assert clustering_columns(log.update().domains) == (("id",),)
    restored(log, 1)
    assert clustering_columns(log.update().domains) == ()


def test_row_ids_stay_with_the_files(table_path: Path) -> None:
    log = new_table(table_path, ids(1, 2), configuration={"delta.enableRowTracking": "true"})
    overwrite(log, ids(3))
    restored(log, 1)
    assert log.update().files.column("baseRowId").to_pylist() == [0]
    append(log, ids(4))
    assert sorted(log.update().files.column("baseRowId").to_pylist()) == [0, 3]


def test_whoever_is_faster_stops_a_restore(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    append(log, ids(2))
    txn = log.start_transaction()
    assert txn.snapshot is not None
    plan = plan_restore(txn.snapshot, log.snapshot_at(1))
    append(log, ids(3))
    with pytest.raises(ConcurrentWriteException):
        commit_restore(txn, plan, operation("RESTORE", version=1, timestamp=None))
    assert rows(log) == [1, 2, 3]
