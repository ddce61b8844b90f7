"""Manifests: a list of files for each partition, kept up to date where a table asks for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_delta.errors import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.symlink_manifests import MANIFEST_NOTE, write_manifests
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import HookRunner
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.hooks import InlineRunner
from tests.support.tables import append, delete_positions, new_table, overwrite, set_properties
from tests.support.transactions import add, memory_log
from tests.support.transactions import new_table as new_memory_table

KEPT = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
ROOT = "_symlink_format_manifest"


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def manifests(log: DeltaLog) -> dict[str, list[str]]:
    """The lines of each manifest, by its place below the directory of manifests."""
    return {
        info.path.removeprefix(f"{ROOT}/"): sorted(log.store.read(info.path).decode().splitlines())
        for info in log.store.list_recursive(ROOT)
    }


def paths(root: Path) -> list[str]:
    """The data files below a directory, as manifests name them."""
    return sorted(f"file:{path}" for path in root.glob("**/*.parquet"))


def test_a_table_without_partitions_has_one_manifest(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    append(log, ids(2))
    write_manifests(log.update())
    assert manifests(log) == {"manifest": paths(table_path)}
    assert all(Path(line.removeprefix("file:")).exists() for line in manifests(log)["manifest"])
    empty = new_memory_table()
    write_manifests(empty.update())
    assert manifests(empty) == {"manifest": []}


def test_each_partition_has_its_own_and_those_of_others_go(table_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["a b%", None, "ü/x"]})
    log = new_table(table_path, rows, partition_by=["p"])
    write_manifests(log.update())
    assert set(manifests(log)) == {
        "p=a b%25/manifest",
        "p=__HIVE_DEFAULT_PARTITION__/manifest",
        "p=ü%2Fx/manifest",
    }
    (line,) = manifests(log)["p=ü%2Fx/manifest"]
    assert line.startswith(f"file:{table_path}/p=ü%2Fx/")
    assert Path(line.removeprefix("file:")).exists()
    overwrite(log, rows.slice(1, 1))
    write_manifests(log.update())
    assert set(manifests(log)) == {"p=__HIVE_DEFAULT_PARTITION__/manifest"}


@pytest.mark.parametrize("runner", [HookRunner, InlineRunner])
def test_commits_keep_the_manifests_of_what_they_touch(runner: type[HookRunner]) -> None:
    log = new_memory_table("p", configuration=KEPT, log=memory_log(hooks=runner()))
    log.start_transaction().commit([add("p=1/a"), add("p=2/b")], "WRITE")
    assert {name: len(lines) for name, lines in manifests(log).items()} == {
        "p=1/manifest": 1,
        "p=2/manifest": 1,
    }
    log.store.overwrite(f"{ROOT}/p=2/manifest", b"left alone")
    log.start_transaction().commit([add("p=1/c")], "WRITE")
    found = manifests(log)
    assert len(found["p=1/manifest"]) == 2
    assert found["p=2/manifest"] == ["left alone"]
    txn = log.start_transaction()
    gone = [f.remove(1) for f in add_files(txn.filter_files()) if f.path.startswith("p=2")]
    txn.commit(gone, "DELETE")
    assert set(manifests(log)) == {"p=1/manifest"}


def test_the_next_commit_makes_good_what_a_dead_one_left() -> None:
    log = new_memory_table("p", configuration=KEPT, log=memory_log(hooks=InlineRunner()))
    log.start_transaction().commit([add("p=1/a"), add("p=2/b")], "WRITE")
    dying = DeltaLog(log.store, hooks=InlineRunner(()))
    dying.start_transaction().commit([add("p=2/c")], "WRITE")
    assert len(manifests(log)["p=2/manifest"]) == 1
    log.start_transaction().commit([add("p=1/d")], "WRITE")
    assert {name: len(lines) for name, lines in manifests(log).items()} == {
        "p=1/manifest": 2,
        "p=2/manifest": 2,
    }
    log.store.overwrite(f"{ROOT}/p=2/manifest", b"left alone")
    log.start_transaction().commit([add("p=1/e")], "WRITE")
    assert manifests(log)["p=2/manifest"] == ["left alone"]
    for broken in (b"", b"x", b"-1", b"9" * 99):
        log.store.overwrite(MANIFEST_NOTE, broken)
        log.start_transaction().commit([add(f"p=1/{len(broken)}{broken[:1]!r}")], "WRITE")
        assert manifests(log)["p=2/manifest"] != ["left alone"]
        assert log.store.read(MANIFEST_NOTE) == str(log.update().version).encode()


def test_a_property_that_is_switched_on_writes_them_all(table_path: Path) -> None:
    log = new_table(table_path, ids(1))
    assert manifests(log) == {}
    set_properties(log, KEPT)
    assert manifests(log) == {"manifest": paths(table_path)}


def test_a_manifest_that_cannot_be_written_is_no_failed_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FaultStore(
        MemoryStore("täble"),
        [FaultRule(operation="overwrite", path=f"{ROOT}/*", fault=Fault.ERROR_BEFORE, times=99)],
    )
    log = new_memory_table(configuration=KEPT, log=DeltaLog(store))
    log.start_transaction().commit([add("a")], "WRITE")
    assert log.update().version == 1
    assert "symlink manifests" in caplog.text


def test_readers_of_manifests_know_neither_vectors_nor_mapping(table_path: Path) -> None:
    vectors = {"delta.enableDeletionVectors": "true"}
    log = new_table(table_path, ids(1, 2), configuration=vectors)
    write_manifests(log.update())
    delete_positions(log, lambda _: [0])
    with pytest.raises(OperationNotAllowedError) as refused:
        write_manifests(log.update())
    assert refused.value.condition == "DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"
    with pytest.raises(PropertyError) as both:
        set_properties(log, KEPT)
    assert both.value.condition.endswith(
        ".PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION"
    )
    with pytest.raises(PropertyError) as left:
        set_properties(log, {**KEPT, "delta.enableDeletionVectors": "false"})
    assert left.value.condition.endswith(
        ".EXISTING_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION"
    )
    mapped = new_table(
        table_path / "mäpped", ids(1), configuration={"delta.columnMapping.mode": "name"}
    )
    with pytest.raises(OperationNotAllowedError) as named:
        write_manifests(mapped.update())
    assert named.value.condition == "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING"
