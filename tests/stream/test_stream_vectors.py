"""Changes of rows as commits tell them, and whether a batch of them may have vectors."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_delta.kernel.ops.changes.commits import parse_changes
from pyspark_delta.kernel.ops.stream.changes import StreamRules, StreamSettings
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.ops.stream.schema_log import SchemaLog
from pyspark_delta.kernel.protocol.actions import AddCDCFile, CommitInfo, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata, remove
from tests.support.stream_runs import definition_of, drained, log_of, offset, paths, run_of

RECORDING = metadata(configuration={"delta.enableChangeDataFeed": "true"})
VECTORS = upgraded(Protocol(), ["deletionVectors"])


def commit(*lines: str, time_ms: int = 5) -> Any:
    return parse_changes("x", 3, "\n".join(lines).encode(), time_ms=time_ms)


def test_adds_and_removes_come_in_the_order_of_the_log() -> None:
    found = commit(
        remove("a").json,
        add("b").json,
        remove("o", data_change=False).json,
        add("p", data_change=False).json,
        remove("c").json,
    )
    assert [row["path"] for row in found.files.rows] == ["a", "b", "c"]
    assert found.files.kinds == ("remove", "add", "remove")
    assert found.files.timestamp_ms == 5
    assert not found.has_change_files
    assert found.removed == "a"


def test_change_files_are_all_that_counts_where_there_are_any() -> None:
    cdc = AddCDCFile(path="c", partition_values={}, size=4, data_change=False)
    info = CommitInfo(operation="UPDATE", in_commit_timestamp=99).json
    found = commit(info, add("b").json, cdc.json, remove("a").json, metadata().json)
    assert [row["path"] for row in found.files.rows] == ["c"]
    assert found.files.kinds == ("cdc",)
    assert found.files.timestamp_ms == 99
    assert found.has_change_files
    assert found.metadata is not None


def test_a_merge_that_changed_no_row_tells_nothing() -> None:
    names = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    for value, told in (("0", []), ("1", ["a", "b"])):
        metrics = {**dict.fromkeys(names, "0"), names[1]: value}
        info = CommitInfo(operation="MERGE", operation_metrics=metrics).json
        found = commit(info, remove("a").json, add("b").json)
        assert [row["path"] for row in found.files.rows] == told


KINDS = pytest.mark.parametrize(
    "settings", [{"reads_changes": True}, {"rules": StreamRules(ignore_changes=True)}]
)


@pytest.fixture
def builder() -> LogBuilder:
    """A table with a vector, and a commit that gives another file one."""
    builder = LogBuilder(MemoryStore())
    builder.create(add("a"), add("b", vector="x"), protocol=VECTORS, metadata_action=RECORDING)
    return builder.commit(remove("a"), add("a", vector="y"))


def drop_vectors(builder: LogBuilder) -> None:
    """As DROP FEATURE does: files are written anew, and then the protocol."""
    gone = [remove(path, vector=name, data_change=False) for path, name in (("a", "y"), ("b", "x"))]
    builder.commit(*gone, add("c", data_change=False)).commit(Protocol())


def reads_vectors(run: StreamRun) -> bool:
    """Whether files of the batch that was just asked for may have them."""
    return is_supported(run.protocol, "deletionVectors")


@KINDS
def test_a_batch_may_reach_over_the_end_of_vectors(
    builder: LogBuilder, settings: dict[str, Any]
) -> None:
    running = run_of(builder, **settings)
    assert running.latest_offset(offset(2)) == offset(2)
    drop_vectors(builder)
    builder.commit(add("4"))
    for run in (running, run_of(builder, **settings)):
        ((batch, end),) = drained(run, offset(1))
        assert (set(batch), end) == ({"a", "4"}, offset(5))
        assert reads_vectors(run)
    # Behind the end of vectors none is expected.
    late = run_of(builder, **settings)
    assert drained(late, offset(4)) == [(["4"], offset(5))]
    assert not reads_vectors(late)


@KINDS
def test_a_batch_that_was_given_out_is_read_although_vectors_were_dropped(
    builder: LogBuilder, settings: dict[str, Any]
) -> None:
    drop_vectors(builder)
    for start, end in ((None, offset(2)), (offset(1), offset(2)), (offset(1), offset(4))):
        run = run_of(builder, **settings)
        assert "a" in paths(run.batch(start, end))
        assert reads_vectors(run)


@KINDS
def test_vectors_may_come_and_go_within_a_batch(settings: dict[str, Any]) -> None:
    builder = LogBuilder(MemoryStore()).create(add("a"), add("b"), metadata_action=RECORDING)
    builder.commit(VECTORS).commit(remove("a"), add("a", vector="y"))
    drop_vectors(builder)
    run = run_of(builder, starting_version=0, **settings)
    assert drained(run)[0][1] == offset(5)
    assert reads_vectors(run)


def test_a_tracked_definition_may_be_newer_than_the_last_vector(builder: LogBuilder) -> None:
    drop_vectors(builder)
    log, schemas = log_of(builder), MemoryStore()
    settings = StreamSettings(reads_changes=True)
    for _ in range(2):
        base = definition_of(log)
        schema_log = SchemaLog(schemas, base, None)
        definition = base
        if schema_log.current is not None:
            definition = schema_log.current.definition(is_lenient=False, has_starting_options=False)
        run = StreamRun(log, settings, definition, schema_log=schema_log, source_path="s")
        assert "a" in paths(run.batch(offset(1), offset(4)))
        assert reads_vectors(run)
