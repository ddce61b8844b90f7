"""The schema log: entries as delta-spark writes them, and streams that follow renames with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_delta.errors import StreamError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.changes.commits import CommitReader
from pyspark_delta.kernel.ops.changes.definitions import StreamDefinition
from pyspark_delta.kernel.ops.stream.changes import StreamSettings
from pyspark_delta.kernel.ops.stream.run import StreamRun
from pyspark_delta.kernel.ops.stream.schema_log import (
    SchemaLog,
    TrackedDefinition,
    checkpoint_hash,
    schema_log_directory,
)
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.types import (
    DOUBLE,
    INTEGER,
    LONG,
    DataType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.log_builder import LogBuilder, add, metadata
from tests.support.stream_runs import offset, paths

SOURCE = "file:/checkpoint/sources/0"
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("columnMapping", "typeWidening"),
    writer_features=("columnMapping", "typeWidening"),
)
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}


def column(name: str, number: int, data_type: DataType = LONG) -> StructField:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return StructField(name, data_type, metadata=keys)


def table(*columns: StructField, **properties: str) -> Metadata:
    return metadata(StructType(columns), configuration={**MAPPED, **properties})


class Stream:
    """A tracked stream over a log that is restarted as often as a test asks for it."""

    def __init__(self, builder: LogBuilder) -> None:
        self.builder = builder
        self.schemas = MemoryStore()
        self.offsets: list[str] = []
        self.told: list[str] = []

    def run(
        self, options: dict[str, str] | None = None, settings: dict[str, str] | None = None
    ) -> StreamDefinition:
        """Run until nothing is new, as Spark does: a batch, and its commit with the next one."""
        log = TableLog(self.builder.store, now_ms=lambda: 0)
        snapshot = log.update()
        base = StreamDefinition(
            metadata=snapshot.metadata, protocol=snapshot.protocol, version=snapshot.version
        )
        schema_log = SchemaLog(self.schemas, base, None)
        schema_log.merge_changes(CommitReader(log.store))
        schema_log = SchemaLog(self.schemas, base, None)
        schema_log.check_source(SOURCE)
        schema_log.check_allowed(SOURCE, options or {}, settings or {})
        definition = base
        if schema_log.current is not None:
            definition = schema_log.current.definition(is_lenient=False, has_starting_options=False)
        run = StreamRun(
            log, StreamSettings(), definition, schema_log=schema_log, source_path=SOURCE
        )
        start = self.offsets[-1] if self.offsets else None
        while (end := run.latest_offset(start)) not in (start, None):
            assert end is not None
            self.offsets.append(end)
            if start is not None:
                run.commit(start)
            self.told += paths(run.batch(start, end))
            start = end
        return run.definition


def stopped(stream: Stream, **settings: Any) -> StreamError:
    with pytest.raises(StreamError) as caught:
        stream.run(**settings)
    return caught.value


@pytest.fixture
def stream() -> Stream:
    builder = LogBuilder(MemoryStore())
    builder.create(add("0"), protocol=PROTOCOL, metadata_action=table(column("a", 1)))
    stream = Stream(builder)
    stream.run()
    return stream


def test_a_stream_follows_a_rename_once_it_is_allowed(stream: Stream) -> None:
    stream.builder.commit(add("1")).commit(table(column("b", 1))).commit(add("3"))
    assert stopped(stream).condition == "DELTA_STREAMING_METADATA_EVOLUTION"
    assert stream.told == ["0", "1"]
    assert stream.offsets[-2:] == [offset(2, -20), offset(2, -19)]
    error = stopped(stream)
    assert error.condition == "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
    assert error.parameters["opType"] == "RENAME COLUMN"
    assert error.parameters["currentSchemaChangeVersion"] == "2"
    definition = stream.run({"allowSourceColumnRename": "2"})
    assert list(definition.schema.names) == ["b"]
    assert stream.told == ["0", "1", "3"]
    assert stream.offsets[-1] == offset(4)
    stream.run({"allowSourceColumnRename": "always"})
    assert stream.told == ["0", "1", "3"]


@pytest.mark.parametrize(
    ("changed", "word", "allowed"),
    [
        ((column("a", 1),), "DROP COLUMN", {"allowSourceColumnDrop": "always"}),
        ((column("x", 1), column("b", 2)), "RENAME COLUMN", {"allowSourceColumnRename": "true"}),
        (
            (column("a", 1, DOUBLE), column("b", 2)),
            "TYPE WIDENING",
            {"allowSourceColumnTypeChange": "1"},
        ),
    ],
)
def test_each_kind_of_change_has_its_option(
    changed: tuple[StructField, ...], word: str, allowed: dict[str, str]
) -> None:
    builder = LogBuilder(MemoryStore())
    before = table(column("a", 1, INTEGER), column("b", 2))
    if word != "TYPE WIDENING":
        before = table(column("a", 1), column("b", 2))
    builder.create(add("0"), protocol=PROTOCOL, metadata_action=before)
    stream = Stream(builder)
    stream.run()
    builder.commit(table(*changed)).commit(add("2"))
    assert stopped(stream).condition == "DELTA_STREAMING_METADATA_EVOLUTION"
    assert stopped(stream).parameters["opType"] == word
    other = {"allowSourceColumnRename": "7", "allowSourceColumnDrop": "7"}
    assert stopped(stream, options=other).parameters["opType"] == word
    stream.run(allowed)
    assert stream.told == ["0", "2"]


def test_settings_allow_changes_too(stream: Stream) -> None:
    prefix = "spark.databricks.delta.streaming.allowSourceColumn"
    stream.builder.commit(table(column("b", 1)))
    stopped(stream)
    wrong = {f"{prefix}Rename.ckpt_1": "always", f"{prefix}Drop": "always"}
    stopped(stream, settings=wrong)
    for allowed in (
        {f"{prefix}Rename": "always"},
        {f"{prefix}RenameAndDrop": "always"},
        {f"{prefix}Rename.ckpt_{checkpoint_hash(SOURCE)}": "1"},
    ):
        assert list(stream.run(settings=allowed).schema.names) == ["b"]


def test_additive_changes_only_need_a_restart(stream: Stream) -> None:
    wider = table(column("a", 1), column("n", 2))
    stream.builder.commit(wider, add("1")).commit(table(column("a", 1), column("n", 2), x="y"))
    assert stopped(stream).condition == "DELTA_STREAMING_METADATA_EVOLUTION"
    assert len(stream.run().schema) == 2
    assert stream.told == ["0", "1"]


def test_several_changes_in_a_row_are_taken_up_at_once(stream: Stream) -> None:
    stream.builder.commit(table(column("b", 1))).commit(table(column("c", 1))).commit(add("3"))
    assert stopped(stream).condition == "DELTA_STREAMING_METADATA_EVOLUTION"
    error = stopped(stream)
    assert error.parameters["previousSchemaChangeVersion"] == "0"
    assert error.parameters["currentSchemaChangeVersion"] == "2"
    assert list(stream.run({"allowSourceColumnRename": "always"}).schema.names) == ["c"]
    assert stream.told == ["0", "3"]


def test_a_retyped_column_is_never_followed(stream: Stream) -> None:
    stream.builder.commit(table(column("a", 1, INTEGER)))
    assert stopped(stream).condition == "DELTA_STREAMING_METADATA_EVOLUTION"
    always = {"allowSourceColumnTypeChange": "always"}
    assert stopped(stream, options=always).condition == "DELTA_SCHEMA_CHANGED_WITH_VERSION"


def test_an_entry_has_delta_sparks_form(stream: Stream) -> None:
    directory = schema_log_directory(metadata().id)
    text = stream.schemas.read(f"{directory}/0").decode()
    head, body = text.split("\n")
    assert head == "v1"
    fields = json.loads(body)
    assert list(fields) == [
        "tableId",
        "deltaCommitVersion",
        "dataSchemaJson",
        "partitionSchemaJson",
        "sourceMetadataPath",
        "tableConfigurations",
        "protocolJson",
    ]
    assert fields["sourceMetadataPath"] == SOURCE
    assert json.loads(fields["protocolJson"])["protocol"]["minReaderVersion"] == 3
    assert schema_log_directory("t", "two") == "_schema_log_t_two"


def test_a_log_that_cannot_be_understood_is_refused(stream: Stream) -> None:
    directory = schema_log_directory(metadata().id)
    for data in (b"v9\n{}", b"v1\n[", b"", b"v1\n{}", b"\xff", b"v1\n" + b"[" * 100_000):
        stream.schemas.overwrite(f"{directory}/0", data)
        assert stopped(stream).condition == "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED"


def test_two_sources_cannot_share_a_log(stream: Stream) -> None:
    base = StreamDefinition(metadata=metadata(), protocol=PROTOCOL, version=0)
    one, two = (SchemaLog(stream.schemas, base, None) for _ in range(2))
    assert one.current is not None
    entry = TrackedDefinition(
        table_id=metadata().id,
        version=5,
        metadata=metadata(),
        protocol=PROTOCOL,
        source_path=SOURCE,
    )
    one.write(entry)
    with pytest.raises(StreamError) as caught:
        two.write(entry)
    assert caught.value.condition == "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"
    with pytest.raises(StreamError) as caught:
        two.check_source("elsewhere")
    assert caught.value.condition == "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT"


def test_the_hash_is_javas() -> None:
    assert checkpoint_hash("") == 0
    assert checkpoint_hash("abc") == 96354
    assert -(2**31) <= checkpoint_hash("ä\U0001f600" * 40) < 2**31
