"""Shallow clones without Spark: what the clone's log says, and that it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_delta.errors import (
    InvalidActionsError,
    OperationNotAllowedError,
    SchemaError,
    UnsafePathError,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.symlink_manifests import plain_location
from pyspark_delta.kernel.ops.clone import (
    CloneSource,
    absolute_paths,
    check_clone_files,
    cloned_files,
    commit_clone,
    define_clone,
    replacing_files,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.tables import append, create_table, delete_positions, new_table, table_log

VECTORS = {"delta.enableDeletionVectors": "true"}


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def source_of(snapshot: Snapshot) -> CloneSource:
    return CloneSource(
        name="source",
        version=snapshot.version,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        domains=snapshot.domains,
        num_files=snapshot.num_files,
        num_bytes=snapshot.size_in_bytes,
    )


def cloned(
    snapshot: Snapshot, log: DeltaLog, properties: Mapping[str, str] | None = None
) -> DeltaLog:
    """Clone a version into the table of `log`."""
    txn = log.start_transaction()
    source = source_of(snapshot)
    domains = define_clone(txn, source, properties or {}, new_id="new")
    files = cloned_files(snapshot, plain_location(snapshot.store.root_uri))
    check_clone_files(txn, files)
    commit_clone(
        txn,
        iter([*add_files(files), *domains]),
        source,
    )
    return log


def rows(log: DeltaLog, *others: DeltaLog) -> list[int]:
    roots = [other.store for other in others]
    found: list[int] = log.update().to_table(allowed_roots=roots).column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("inline", [True, False])
def test_a_clone_reads_the_files_and_vectors_of_its_source(tmp_path: Path, inline: bool) -> None:
    source = new_table(tmp_path / "söurce 1%", ids(1, 2, 3), configuration=VECTORS)
    delete_positions(source, lambda _: [1], inline=inline)
    log = cloned(source.update(), table_log(tmp_path / "clöne 2%"), {"own": "x"})
    assert rows(log, source) == [1, 3]
    with pytest.raises(UnsafePathError):
        rows(log)
    metadata = log.update().metadata
    assert (metadata.id, metadata.schema) == ("new", source.update().schema)
    assert metadata.configuration == {**VECTORS, "own": "x"}
    info = log.history(1)[0]
    assert (info.operation, info.operation_parameters) == (
        "CLONE",
        {"source": "source", "sourceVersion": 2},
    )
    assert (info.operation_metrics or {})["sourceNumOfFiles"] == "1"
    assert (info.read_version, info.is_blind_append) == (-1, False)
    # A clone of the clone knows where the files are.
    again = cloned(log.update(), table_log(tmp_path / "ägain"))
    assert rows(again, source) == [1, 3]
    # What happens to the clone is its own affair.
    append(log, ids(9))
    assert (rows(log, source), rows(source), rows(again, source)) == ([1, 3, 9], [1, 3], [1, 3])


def test_a_clone_that_was_left_behind_becomes_one_of_another_version(tmp_path: Path) -> None:
    source = new_table(tmp_path / "söurce 1%", ids(1, 2, 3), configuration=VECTORS)
    append(source, ids(4))
    log = cloned(source.update(), table_log(tmp_path / "clöne 2%"))
    delete_positions(source, lambda _: [0])
    append(source, ids(5))
    newer = source.update()
    txn = log.start_transaction()
    define_clone(txn, source_of(newer), {}, new_id="other", replaces_files=True)
    files = cloned_files(newer, plain_location(newer.store.root_uri))
    actions = list(replacing_files(txn, add_files(files)))
    commit_clone(
        txn,
        iter(actions),
        source_of(newer),
    )
    assert rows(log, source) == rows(source) == [2, 3, 5]
    assert sorted(type(action).__name__ for action in actions) == [
        "AddFile",
        "AddFile",
        "AddFile",
        "RemoveFile",
        "RemoveFile",
    ]
    assert log.update().metadata.id == "new"
    # What is the same stays, and nothing is said of it.
    assert list(replacing_files(log.start_transaction(), add_files(files))) == []


def test_paths_become_addresses_and_addresses_stay() -> None:
    paths = pa.array(["p=1/a%20b", "p=%C3%BC%2525/x", "/r/s", "s3://other/x", "file:/y"])
    assert absolute_paths(paths, "file:///t%25", "file:/t%").to_pylist() == [
        "file:/t%25/p=1/a%20b",
        "file:/t%25/p=ü%2525/x",
        "file:/r/s",
        "s3://other/x",
        "file:/y",
    ]
    assert absolute_paths(paths.slice(0, 1), "s3://bucket/t", "s3a://bucket/t/").to_pylist() == [
        "s3a://bucket/t/p=1/a%20b"
    ]
    assert len(absolute_paths(paths.slice(0, 0), "file:///t", "file:/t")) == 0


def test_an_empty_table_can_become_a_clone_and_stays_itself(tmp_path: Path) -> None:
    source = new_table(tmp_path / "söurce 1%", ids(1), configuration={"delta.appendOnly": "true"})
    log = create_table(tmp_path / "tärget", ids(0).schema, configuration={"own": "gone"})
    table_id = log.update().metadata.id
    cloned(source.update(), log)
    assert rows(log, source) == [1]
    assert log.update().version == 1
    assert log.update().metadata.id == table_id
    assert log.update().metadata.configuration == {"delta.appendOnly": "true"}
    with pytest.raises(OperationNotAllowedError) as caught:
        cloned(source.update(), log)
    assert caught.value.condition == "DELTA_UNSUPPORTED_NON_EMPTY_CLONE"


def test_rows_of_a_clone_have_ids_of_their_own(tmp_path: Path) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    source = new_table(tmp_path / "söurce 1%", ids(1, 2), configuration=tracked)
    append(source, ids(3))
    log = cloned(source.update(), table_log(tmp_path / "clöne"))
    files = list(add_files(log.update().files))
    assert sorted((f.base_row_id, f.default_row_commit_version) for f in files) in (
        [(0, 0), (1, 0)],
        [(0, 0), (2, 0)],
    )
    names = {
        key: value
        for key, value in log.update().metadata.configuration.items()
        if "materialized" in key
    }
    assert len(names) == 2
    assert not set(names.values()) & set(source.update().metadata.configuration.values())
    append(source, ids(4), with_stats=True)
    bare = new_table(tmp_path / "bäre", ids(1))
    append(bare, ids(2), with_stats=False)
    with pytest.raises(InvalidActionsError) as caught:
        cloned(bare.update(), table_log(tmp_path / "nöne"), tracked)
    assert caught.value.condition == "DELTA_CLONE_WITH_ROW_TRACKING_WITHOUT_STATS"
    assert not table_log(tmp_path / "nöne").table_exists


def test_columns_keep_their_names_in_files(tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    source = new_table(tmp_path / "söurce 1%", ids(1, 2), configuration=mapped)
    log = cloned(source.update(), table_log(tmp_path / "clöne"))
    assert log.update().schema == source.update().schema
    assert log.update().protocol == source.update().protocol
    assert rows(log, source) == [1, 2]
    with pytest.raises(SchemaError) as caught:
        cloned(new_table(tmp_path / "pläin", ids(1)).update(), table_log(tmp_path / "x"), mapped)
    assert caught.value.condition == "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"
