"""The data source as Spark calls it, process by process, without Spark: every part is pickled."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta import DefaultSource, DeltaLog
from pyspark_delta.errors import (
    AppendOnlyError,
    ConcurrentAppendException,
    DeltaError,
    MetadataChangedException,
    OperationNotAllowedError,
    PropertyError,
    ProtocolChangedException,
    SchemaError,
)
from pyspark_delta.kernel.protocol.types import LONG, STRING, StructField, StructType
from pyspark_delta.kernel.scan.predicates.tree import Unknown
from pyspark_delta.spark.datasource.reader import predicate_of_filter
from pyspark_delta.spark.jvm.gateway import to_spark
from tests.support.agreement import agree
from tests.support.tables import (
    append,
    change_schema,
    create_table,
    new_table,
    set_properties,
    table_log,
)

IDS = StructType((StructField("id", LONG),))
ENABLE = "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"
WAYS_IN = ("pyspark_delta.enable(spark)", "PYSPARK_DELTA=1", "python -m pyspark_delta.server")


def source(path: Path | str | None, **options: object) -> DefaultSource:
    given = {key: str(value).lower() for key, value in options.items()}
    if path is not None:
        given["path"] = str(path)
    return DefaultSource(CaseInsensitiveDict(given))


def sent(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))


def rows(*ids: int | None) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def started(
    path: Path, batch: pa.RecordBatch, *, overwrite: bool = False, **options: object
) -> Callable[[], None]:
    """A write whose tasks are done; calling it commits."""
    schema = SparkStructType.fromJson(
        {"type": "struct", "fields": [_field(f) for f in batch.schema]}
    )
    writer = sent(source(path, **options).writer(schema, overwrite))
    messages = [sent(sent(writer).write(iter([batch]))), sent(writer.write(iter([])))]
    return lambda: sent(writer).commit(messages)


def _field(f: pa.Field) -> dict[str, Any]:
    name = {pa.int64(): "long", pa.string(): "string", pa.int32(): "integer"}[f.type]
    return {"name": f.name, "type": name, "nullable": True, "metadata": {}}


def read(opened: DefaultSource, *filters: spark.Filter) -> list[dict[str, Any]]:
    schema = opened.schema()
    reader = sent(sent(opened).reader(schema))
    assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark applies all of them
    found: list[dict[str, Any]] = []
    for partition in reader.partitions():
        found += pa.Table.from_batches(sent(reader).read(sent(partition))).to_pylist()
    return found


def test_looking_for_data_sources_loads_next_to_nothing() -> None:
    # The modules that Spark has loaded anyway when it looks.
    script = (
        "import sys, pyspark.sql.worker.lookup_data_sources; before = set(sys.modules); "
        "import pyspark_delta; pyspark_delta.DefaultSource.name(); "
        "print(*sorted(m for m in set(sys.modules) - before if m.count('.') < 2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "pyspark_delta.spark" in loaded
    assert not loaded & {"pyarrow", "obstore", "pyroaring", "numpy", "pyspark_delta.kernel"}


def test_a_reader_does_not_look_as_if_it_overrode_what_spark_may_have_switched_off() -> None:
    schema = to_spark(IDS)
    opened = source("memory://nowhere/t")
    opened._pinned = ("memory://nowhere/t", 0)
    reader = sent(opened.reader(schema))
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    assert list(reader.read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("pushed", "sql"),
    [
        (spark.EqualTo(("a", "b"), 5), "a.b = 5"),
        (spark.EqualNullSafe(("a",), None), "a <=> NULL"),
        (spark.LessThan(("d",), date(2024, 2, 29)), "d < DATE '2024-02-29'"),
        (spark.GreaterThan(("m",), Decimal("1.5")), "m > 1.5BD"),
        (
            spark.GreaterThanOrEqual(("t",), datetime(2024, 2, 29, tzinfo=UTC)),
            "t >= TIMESTAMP '2024-02-29 00:00:00.000000Z'",
        ),
        (spark.LessThanOrEqual(("s",), "ü"), "s <= 'ü'"),
        (spark.In(("a",), (1, 2)), "a IN (1, 2)"),
        (spark.IsNull(("a",)), "a IS NULL"),
        (spark.IsNotNull(("a",)), "NOT (a IS NULL)"),
        (spark.StringStartsWith(("a",), "x%"), "a LIKE 'x\\\\%%'"),
        (spark.Not(spark.EqualTo(("a",), True)), "NOT (a = true)"),
    ],
)
def test_a_pushed_filter_is_a_predicate(pushed: spark.Filter, sql: str) -> None:
    predicate = predicate_of_filter(pushed)
    assert not isinstance(predicate, Unknown)
    assert predicate.to_sql().lower() == sql.lower()


@pytest.mark.parametrize(
    "pushed",
    [
        spark.EqualTo(("a",), [1, 2]),
        spark.In(("a",), ({"x": 1},)),
        spark.StringEndsWith(("a",), "x"),
        spark.StringContains(("a",), "x"),
    ],
)
def test_a_filter_without_words_for_it_is_unknown(pushed: spark.Filter) -> None:
    assert isinstance(predicate_of_filter(pushed), Unknown)


def test_pushed_filters_open_fewer_files_where_the_option_allows_it(table_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    log = create_table(table_path, schema, partition_by=["p"])
    for number, value in enumerate("abc"):
        append(log, pa.table({"id": [number], "p": [value]}))
    filters = (spark.EqualTo(("p",), "b"), spark.GreaterThan(("ID",), 0), spark.IsNull(("id.x",)))
    assert len(read(source(table_path), *filters)) == 3
    assert read(source(table_path, pushFilters=True), *filters[:2]) == [{"id": 1, "p": "b"}]
    assert read(source(table_path, filter="id >= 1 or p = 'x'")) == [
        {"id": 1, "p": "b"},
        {"id": 2, "p": "c"},
    ]
    with pytest.raises(DeltaError) as caught:
        source(table_path, filter="nope = 1").schema()
    assert caught.value.condition == "DELTA_INVALID_PREDICATE"


def test_a_source_reads_the_version_that_its_schema_was_taken_from(table_path: Path) -> None:
    log = new_table(table_path, pa.table({"id": [1]}))
    opened = source(table_path)
    opened.schema()
    append(log, pa.table({"id": [2]}))
    reader = opened.reader(to_spark(log.snapshot.schema))
    assert len(reader.partitions()) == 1
    assert read(source(f"{table_path}@v1")) == [{"id": 1}]
    assert sorted(row["id"] for row in read(source(table_path))) == [1, 2]


def test_files_are_shared_out_by_their_size(table_path: Path) -> None:
    log = new_table(table_path, pa.table({"id": [1]}))
    txn = log.start_transaction()
    (file,) = pickle.loads(pickle.dumps(_actions(log)))
    sizes = [40 << 20, 30 << 20, 100 << 20, 1, 1]
    txn.commit([replace(file, path=f"f{n}", size=s) for n, s in enumerate(sizes)], "x")
    opened = source(table_path)
    parts = opened.reader(opened.schema()).partitions()
    assert [part.plan.files.num_rows for part in parts] == [2, 1, 1, 2]  # type: ignore[attr-defined]


def _actions(log: DeltaLog) -> list[Any]:
    from_log = log.get_changes(1)
    return [a for _, actions in from_log for a in actions if type(a).__name__ == "AddFile"]


def test_writes_that_do_not_meet_both_stand(table_path: Path) -> None:
    started(table_path, rows(1))()
    first, second = started(table_path, rows(2)), started(table_path, rows(3))
    second()
    first()
    agree(table_path, [{"id": 1}, {"id": 2}, {"id": 3}])


def test_a_commit_is_on_the_version_that_was_checked(table_path: Path) -> None:
    started(table_path, rows(1))()
    appending = started(table_path, rows(2))
    overwriting = started(table_path, rows(3), overwrite=True)
    append(table_log(table_path), pa.table({"id": [9]}))
    with pytest.raises(ConcurrentAppendException):
        overwriting()
    set_properties(table_log(table_path), {"delta.appendOnly": "true"})
    with pytest.raises(MetadataChangedException):
        appending()
    agree(table_path, [{"id": 1}, {"id": 9}])
    # Nobody will ever name the files of the two that lost.
    assert len(list(table_path.glob("*.parquet"))) == 2


def test_files_are_taken_back_when_a_task_failed_and_left_after_a_commit(table_path: Path) -> None:
    writer = sent(source(table_path).writer(to_spark(IDS), False))
    message = writer.write(iter([rows(1)]))
    writer.abort([message, message])  # all tasks came to their end: a commit may have been tried
    assert len(list(table_path.glob("*.parquet"))) == 1
    writer.abort([message, None])
    assert not list(table_path.glob("*.parquet"))


def test_two_that_create_a_table_do_not_both_succeed(table_path: Path) -> None:
    one, other = started(table_path, rows(1)), started(table_path, rows(2))
    one()
    with pytest.raises((MetadataChangedException, ProtocolChangedException)):
        other()
    agree(table_path, [{"id": 1}])


def test_a_write_with_an_application_and_version_is_done_once(table_path: Path) -> None:
    for _ in range(2):
        started(table_path, rows(1), txnAppId="app", txnVersion=7)()
    agree(table_path, [{"id": 1}])
    assert table_log(table_path).update().version == 0


def test_a_table_is_created_with_properties_and_mapped_columns(table_path: Path) -> None:
    options = {"delta.columnMapping.mode": "name", "delta.feature.deletionVectors": "supported"}
    batch = pa.record_batch({"a b": pa.array([1], pa.int64())})
    started(table_path, batch, **options)()
    snapshot = table_log(table_path).update()
    assert "deletionVectors" in (snapshot.protocol.writer_features or ())
    assert snapshot.metadata.configuration["delta.columnMapping.mode"] == "name"
    assert snapshot.to_table().to_pylist() == [{"a b": 1}]
    # The columns that are added keep the names under which their files were written.
    more = pa.record_batch({"a b": pa.array([2], pa.int64()), "c": pa.array(["ü"])})
    started(table_path, more, mergeSchema=True)()
    found = table_log(table_path).update().to_table().to_pylist()
    assert sorted(found, key=repr) == [{"a b": 1, "c": None}, {"a b": 2, "c": "ü"}]
    started(table_path, more.select(["c"]), overwrite=True, overwriteSchema=True)()
    assert table_log(table_path).update().to_table().to_pylist() == [{"c": "ü"}]


def test_a_narrower_whole_number_fits(table_path: Path) -> None:
    create_table(table_path, pa.schema([("id", pa.int32()), ("v", pa.string())]))
    started(table_path, pa.record_batch({"ID": pa.array([1], pa.int32())}))()
    agree(table_path, [{"id": 1, "v": None}])
    with pytest.raises(SchemaError):
        started(table_path, rows(1))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mergeSchema": "maybe"}, PropertyError),
        ({"compression": "zip"}, PropertyError),
        ({"maxRecordsPerFile": "-1"}, PropertyError),
        ({"replaceWhere": "id = 1"}, OperationNotAllowedError),
        ({"partitionOverwriteMode": "dynamic"}, OperationNotAllowedError),
        ({"provider": "delta"}, OperationNotAllowedError),
        ({"paths": '["a"]'}, PropertyError),
    ],
)
def test_options_are_checked_before_anything_is_written(
    table_path: Path, options: dict[str, object], error: type[DeltaError]
) -> None:
    with pytest.raises(error):
        started(table_path, rows(1), **options)
    assert not table_path.exists()


def test_what_the_rows_of_a_table_need_is_asked_for_before_the_job(table_path: Path) -> None:
    generated = {"delta.generationExpression": "id + 1"}
    tables: dict[str, tuple[StructType, dict[str, str]]] = {
        "CHECK": (IDS, {"delta.constraints.positive": "id > 0"}),
        "generated": (IDS.add(StructField("g", LONG, True, generated)), {}),
        "CHAR": (
            IDS.add(StructField("c", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})),
            {},
        ),
    }
    for what, (schema, configuration) in tables.items():
        path = table_path / what
        create_table(path, schema, configuration=configuration)
        with pytest.raises(OperationNotAllowedError) as caught:
            started(path, rows(1))
        assert caught.value.condition == ENABLE
        assert what in str(caught.value)
        assert "pyspark_delta.enable(spark)" in str(caught.value)


def test_an_append_only_table_is_not_overwritten(table_path: Path) -> None:
    new_table(table_path, pa.table({"id": [1]}), configuration={"delta.appendOnly": "true"})
    with pytest.raises(AppendOnlyError):
        started(table_path, rows(2), overwrite=True)


def test_what_the_api_cannot_do_names_the_way_in_for_every_client(table_path: Path) -> None:
    new_table(table_path, pa.table({"id": [1]}))
    opened = source(table_path)
    asked: list[Callable[[], object]] = [
        lambda: opened.streamReader(to_spark(IDS)),
        lambda: opened.streamWriter(to_spark(IDS), False),
        lambda: source(None).schema(),
        lambda: source(None).reader(to_spark(IDS)),
        lambda: source(None).writer(to_spark(IDS), False),
        lambda: source(table_path, readChangeFeed=True).schema(),
    ]
    for ask in asked:
        with pytest.raises(OperationNotAllowedError) as caught:
            ask()
        assert caught.value.condition == ENABLE
        assert all(way in str(caught.value) for way in WAYS_IN)
    with pytest.raises(SchemaError) as refused:
        source(table_path).reader(to_spark(IDS))  # a schema of the user's own
    assert refused.value.condition == "DELTA_UNSUPPORTED_SCHEMA_DURING_READ"


def test_a_time_without_a_zone_is_not_guessed(table_path: Path) -> None:
    log = new_table(table_path, pa.table({"id": [1]}))
    change_schema(log, log.snapshot.schema.add(StructField("v", STRING)))
    late = {"timestampAsOf": "2999-01-01 00:00:00"}
    with pytest.raises(PropertyError) as caught:
        source(table_path, **late).schema()
    assert "timeZone" in str(caught.value)
    with pytest.raises(PropertyError):
        source(table_path, **late, timeZone="Nowhere/Land").schema()
    with pytest.raises(PropertyError):
        source(f"{table_path}@29990101000000000").schema()
    for options in ({"timestampAsOf": "2999-01-01 00:00:00Z"}, {**late, "timeZone": "+02:00"}):
        with pytest.raises(DeltaError) as later:
            source(table_path, **options).schema()
        assert later.value.condition == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
