"""The parts of CONVERT TO DELTA: the files, what their footers say, their actions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import (
    DataFileError,
    DeltaError,
    OperationNotAllowedError,
    SchemaError,
    TableNotFoundError,
)
from pyspark_delta.kernel.ops.convert.files import construct_table_schema
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import INTEGER, STRING, StructField, StructType
from pyspark_delta.spark.conf.setting_table import (
    CONVERT_SCHEMA_BATCH,
    CONVERT_SINK_LOG,
    CONVERT_STATS_BATCH,
)
from pyspark_delta.spark.conf.settings import IGNORE_CORRUPT_FILES
from pyspark_delta.spark.convert.actions import create_delta_actions, partition_rules
from pyspark_delta.spark.convert.files import CatalogPartition, list_files
from pyspark_delta.spark.convert.footers import (
    read_footers,
)
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore
from tests.support.viewfs import mounted

PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
NO_COLUMNS = StructType(())
BY_P = StructType((StructField("p", INTEGER),))


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@contextmanager
def _configured(spark: SparkSession, **settings: object) -> Iterator[None]:
    for key, value in settings.items():
        spark.conf.set(key.replace("__", "."), str(value))
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key.replace("__", "."))


def _converted(
    spark: SparkSession,
    location: Path | str,
    partition_schema: StructType = NO_COLUMNS,
    *,
    stats: bool = True,
    tasks: bool = False,
    absolute: bool = False,
    **listing: Any,
) -> tuple[StructType, list[AddFile]]:
    """The schema and the actions of a conversion that is not committed."""
    with (
        list_files(spark, str(location), **listing) as manifest,
        read_footers(
            spark, manifest, stats=stats, tasks_from_files=0 if tasks else 10**9
        ) as footers,
    ):
        assert footers.schema is not None
        schema = construct_table_schema(footers.schema, partition_schema)
        metadata = Metadata(
            id="x",
            schema_string=format_schema(schema),
            partition_columns=partition_schema.names,
            configuration={},
        )
        adds = create_delta_actions(
            footers,
            metadata=metadata,
            protocol=PROTOCOL,
            partition_schema=partition_schema,
            rules=partition_rules(spark),
            absolute_paths=absolute,
        )
        found = list(adds)
        assert footers.num_files == len(found)
        return schema, found


def _by_path(adds: list[AddFile]) -> list[AddFile]:
    return sorted(adds, key=lambda add: add.path)


def _spools() -> int:
    """How many of our files without a name are open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += "pyspark-delta-" in os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return count


def _pyarrow_files(root: Path, **files: pa.Table) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, table in files.items():
        pq.write_table(table, root / f"{name}.parquet")
    return root


def test_a_partitioned_tree_of_sparks_becomes_actions(
    spark: SparkSession, table_path: Path
) -> None:
    rows = spark.sql(
        "SELECT id, concat('wörd ', id) AS v, timestamp_seconds(id) AS t, "
        "CASE WHEN id = 9 THEN double('NaN') ELSE double(id) END AS d, "
        "CASE WHEN id < 5 THEN cast(id % 2 AS INT) END AS p FROM range(10)"
    )
    rows.write.partitionBy("p").parquet(str(table_path))
    schema, adds = _converted(spark, table_path, BY_P)
    assert schema.simple_string == "struct<id:bigint,v:string,t:timestamp,d:double,p:int>"
    assert all(f.nullable for f in schema)
    assert {add.partition_values["p"] for add in adds} == {"0", "1", None}
    found = [json.loads(add.stats or "") for add in adds]
    assert sum(stats["numRecords"] for stats in found) == 10
    null = next(json.loads(a.stats or "") for a in adds if a.partition_values["p"] is None)
    assert null["minValues"] == {
        "id": 5,
        "v": "wörd 5",
        "t": "1970-01-01T00:00:05.000Z",
        "d": 5.0,
    }
    # To Spark NaN is above all numbers, so there is no maximum where there is one.
    assert null["maxValues"] == {"id": 9, "v": "wörd 9", "t": "1970-01-01T00:00:09.000Z"}
    assert all("d" in stats["maxValues"] for stats in found if stats != null)
    for add in adds:
        file = table_path / add.path
        assert (add.size, add.data_change) == (file.stat().st_size, True)
        assert add.modification_time == file.stat().st_mtime_ns // 1_000_000
    assert _spools() == 0
    # Tasks of Spark's find the same as the driver does.
    assert _converted(spark, table_path, BY_P, tasks=True)[1] == adds
    assert _converted(spark, table_path, BY_P, distribute_above=1)[1] == adds
    plain = _converted(spark, table_path, BY_P, stats=False)[1]
    assert [add.stats for add in plain] == [None] * len(adds)
    assert [add.path for add in plain] == [add.path for add in adds]


def test_small_batches_change_nothing(spark: SparkSession, table_path: Path) -> None:
    tables = {f"f{n:03d}": pa.table({"a": [n], f"b{n % 3}": [str(n)]}) for n in range(30)}
    _pyarrow_files(table_path, **tables)
    whole = _converted(spark, table_path)
    seen: list[tuple[str, int, int | None]] = []
    with (
        _configured(spark, **{CONVERT_SCHEMA_BATCH.key: 7, CONVERT_STATS_BATCH.key: 7}),
        list_files(spark, str(table_path), progress=lambda *said: seen.append(said)) as manifest,
    ):
        assert manifest.num_files == 30
        assert _converted(spark, table_path) == whole
        with read_footers(
            spark, manifest, stats=True, progress=lambda *said: seen.append(said)
        ) as footers:
            assert footers.num_bytes == manifest.num_bytes > 0
    assert seen == [("listing", 30, None), ("footers", 30, 30)]
    assert whole[0].simple_string == "struct<a:bigint,b0:string,b1:string,b2:string>"
    nulls = [json.loads(add.stats or "")["nullCount"] for add in whole[1][:2]]
    assert nulls == [{"a": 0, "b0": 0, "b1": 1, "b2": 1}, {"a": 0, "b0": 1, "b1": 0, "b2": 1}]


def test_columns_of_others_are_what_spark_takes_them_for(
    spark: SparkSession, table_path: Path
) -> None:
    table = pa.table(
        {
            "u": pa.array([1], pa.uint32()),
            "big": pa.array([1], pa.uint64()),
            "local": pa.array([0], pa.timestamp("us")),
            "x.y": pa.array([{"a": [1]}]),
            "d": pa.array([1], pa.decimal128(30, 2)),
        }
    )
    _pyarrow_files(table_path / "p=1", **{"a [*]": table})
    schema, adds = _converted(spark, table_path, BY_P)
    assert schema.simple_string == (
        "struct<u:bigint,big:decimal(20,0),local:timestamp_ntz,"
        "x.y:struct<a:array<bigint>>,d:decimal(30,2),p:int>"
    )
    assert json.loads(adds[0].stats or "")["maxValues"] == {
        "u": 1,
        "big": 1,
        "local": "1970-01-01T00:00:00.000",
        "d": 1.00,
    }


def test_comments_stay_and_other_metadata_goes(spark: SparkSession, table_path: Path) -> None:
    rows = spark.range(1).selectExpr("id", "struct(id AS inner) AS s")
    noted = rows.withMetadata("id", {"comment": "the key", "other": 1})
    noted.write.parquet(str(table_path))
    schema, _ = _converted(spark, table_path)
    assert dict(schema["id"].metadata) == {"comment": "the key"}
    assert dict(schema["s"].metadata) == {}


@pytest.mark.parametrize(
    ("kinds", "merged"),
    [
        (("int8", "int16", "int32"), "struct<v:int>"),
        (("int32", "float64"), None),
        (("decimal128(5, 2)", "decimal128(6, 2)"), None),
        (("string", "int64"), None),
    ],
)
def test_types_merge_as_in_delta_spark_or_the_file_is_named(
    spark: SparkSession, table_path: Path, kinds: tuple[str, ...], merged: str | None
) -> None:
    types = [eval(f"pa.{kind}" if "(" in kind else f"pa.{kind}()") for kind in kinds]
    arrays = {f"f{n}": pa.table({"v": pa.array([None], kind)}) for n, kind in enumerate(types)}
    _pyarrow_files(table_path, **arrays)
    if merged is not None:
        assert _converted(spark, table_path)[0].simple_string == merged
        return
    with pytest.raises(SchemaError) as caught:
        _converted(spark, table_path)
    assert caught.value.condition == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert "f1.parquet" in caught.value.__notes__[0]
    assert _spools() == 0


def test_names_that_differ_in_case_alone_are_refused(spark: SparkSession, table_path: Path) -> None:
    _pyarrow_files(table_path, f=pa.table({"a": [1], "A": [2]}))
    with pytest.raises(SchemaError) as caught:
        _converted(spark, table_path)
    assert caught.value.condition == "DELTA_DUPLICATE_COLUMNS_FOUND.CONVERT_TO_DELTA"
    assert caught.value.parameters["duplicateCols"].lower() == "a"


def test_bad_places_and_files_have_typed_errors(spark: SparkSession, table_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        list_files(spark, str(table_path))
    (table_path / "_hidden").mkdir(parents=True)
    (table_path / "_hidden" / "f.parquet").write_bytes(b"x")
    with pytest.raises(OperationNotAllowedError) as empty:
        list_files(spark, str(table_path))
    assert empty.value.condition == "DELTA_EMPTY_DIRECTORY"
    _pyarrow_files(table_path, b=pa.table({"a": [1]}))
    for number, data in enumerate((b"", b"no parquet in here at all", b"PAR1" * 9)):
        (table_path / f"bad {number}.parquet").write_bytes(data)
    with pytest.raises(DataFileError) as broken:
        _converted(spark, table_path)
    assert broken.value.condition == "DELTA_FAILED_READ_FILE_FOOTER"
    assert broken.value.parameters["currentFile"].endswith("bad%200.parquet")
    with _configured(spark, **{IGNORE_CORRUPT_FILES: "true"}):
        _, adds = _converted(spark, table_path)
        assert [add.path for add in adds] == ["b.parquet"]
        (table_path / "b.parquet").unlink()
        with pytest.raises(SchemaError) as none:
            _converted(spark, table_path)
    assert none.value.condition == "DELTA_FAILED_INFER_SCHEMA"
    assert _spools() == 0


def test_only_what_a_streaming_sink_committed_is_taken(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    spark.range(6).selectExpr("id", "cast(id % 2 AS INT) AS p").write.parquet(str(source))
    stream = spark.readStream.schema("id LONG, p INT").parquet(str(source))
    stream.writeStream.format("parquet").partitionBy("p").option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).trigger(availableNow=True).start(str(table_path)).awaitTermination()
    _pyarrow_files(table_path / "p=0", stray=pa.table({"id": [99]}))
    _, adds = _converted(spark, table_path, BY_P)
    assert adds
    assert not any("stray" in add.path for add in adds)
    assert sum(json.loads(add.stats or "")["numRecords"] for add in adds) == 6
    with _configured(spark, **{CONVERT_SINK_LOG.key: "false"}):
        assert any("stray" in add.path for add in _converted(spark, table_path, BY_P)[1])


def test_partitions_of_a_catalog_may_be_anywhere(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    inside = _pyarrow_files(table_path / "one", f=pa.table({"a": [1]}))
    outside = _pyarrow_files(tmp_path / "else whère 5%", g=pa.table({"a": [2]}))
    _pyarrow_files(table_path / "p=9", unknown=pa.table({"a": [3]}))
    partitions = [
        CatalogPartition(values={"p": "01"}, location=str(inside)),
        CatalogPartition(values={"P": "__HIVE_DEFAULT_PARTITION__"}, location=f"file:{outside}"),
        CatalogPartition(values={"p": "3"}, location=str(table_path / "p=3")),
    ]
    _, adds = _converted(spark, table_path, BY_P, partitions=partitions)
    assert [(add.path, add.partition_values) for add in adds] == [
        ("one/f.parquet", {"p": "1"}),
        ((outside / "g.parquet").as_uri(), {"p": None}),
    ]
    assert json.loads(adds[1].stats or "")["maxValues"] == {"a": 2}


def test_a_log_elsewhere_names_files_by_their_uris(spark: SparkSession, table_path: Path) -> None:
    _pyarrow_files(table_path, f=pa.table({"a": [1]}))
    _, adds = _converted(spark, table_path, absolute=True)
    assert [add.path for add in adds] == [(table_path / "f.parquet").as_uri()]


def test_a_mask_says_which_files_are_taken(spark: SparkSession, table_path: Path) -> None:
    _pyarrow_files(table_path, f=pa.table({"a": [1]}), g=pa.table({"a": [2]}))

    def keep(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([path == "g.parquet" for path in batch.column("path").to_pylist()])

    _, adds = _converted(spark, table_path, keep=keep)
    assert [add.path for add in adds] == ["g.parquet"]


def test_footers_are_read_late_or_not_at_all_when_the_schema_is_known(
    spark: SparkSession, table_path: Path
) -> None:
    _pyarrow_files(table_path, f=pa.table({"a": ["x"]}), g=pa.table({"b": [2]}))
    schema = StructType((StructField("a", STRING),))
    metadata = Metadata(
        id="x", schema_string=format_schema(schema), partition_columns=(), configuration={}
    )
    with list_files(spark, str(table_path)) as manifest:
        for stats in (True, False):
            with read_footers(spark, manifest, stats=stats, infer_schema=False) as footers:
                assert (footers.schema, footers.num_files) == (None, 2)
                adds = list(create_delta_actions(footers, metadata=metadata, protocol=PROTOCOL))
            texts = [add.stats for add in adds]
            assert (texts == [None, None]) is not stats
    (table_path / "g.parquet").write_bytes(b"gone bad")
    with (
        list_files(spark, str(table_path)) as manifest,
        read_footers(spark, manifest, stats=True, infer_schema=False) as footers,
    ):
        late = create_delta_actions(footers, metadata=metadata, protocol=PROTOCOL)
        with pytest.raises(DeltaError, match="footer"):
            list(late)


def test_other_file_systems_are_read_through_their_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = mounted(spark, tmp_path)
    root = tmp_path / "mount" / "tä ble 100%"
    for n in range(3):
        _pyarrow_files(root / f"p={n}", f=pa.table({"a": [n]}))
    _pyarrow_files(root / "_temporary", f=pa.table({"a": [9]}))
    _, adds = _converted(spark, f"{location}/tä ble 100%", BY_P)
    assert sorted(add.path for add in adds) == [f"p={n}/f.parquet" for n in range(3)]
    assert {json.loads(add.stats or "")["maxValues"]["a"] for add in adds} == {0, 1, 2}
    local = _converted(spark, root, BY_P)[1]
    assert _by_path(local) == _by_path(adds)


def test_footers_behind_other_file_systems_are_read_by_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = f"{mounted(spark, tmp_path)}/tä ble 100%"
    root = tmp_path / "mount" / "tä ble 100%"
    spark.range(0, 40, 1, 4).selectExpr(
        "id",
        "cast(id AS STRING) s",
        "(id + 1) / 7D d",  # a least 0.0 becomes -0.0, which is as good
        "cast(id AS DECIMAL(25, 3)) x",
        "array(id) a",
        "timestamp_seconds(id) t",
        "date_from_unix_date(cast(id AS INT)) e",
        "struct(id AS b) st",
    ).write.parquet(f"{root}/by spark ä")
    _pyarrow_files(root, f=pa.table({"id": [None, 9], "s": ["\U0001f600", None]}))
    group = "footers by tasks"
    spark.sparkContext.setJobGroup(group, group)
    try:
        schema, adds = _converted(spark, location, tasks=True)
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert len(adds) == 5
    by_driver = _converted(spark, location)
    assert schema == by_driver[0]
    for one, other in zip(_by_path(adds), _by_path(by_driver[1]), strict=True):
        assert one == other


def test_a_corrupt_file_behind_another_file_system_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = f"{mounted(spark, tmp_path)}/tä ble 100%"
    root = tmp_path / "mount" / "tä ble 100%"
    for n in range(3):
        _pyarrow_files(root, **{f"f{n}": pa.table({"a": [n]})})
    (root / "f1.parquet").write_bytes(b"PAR1 this is not it PAR1")
    with pytest.raises(DataFileError, match=r"f1\.parquet") as error:
        _converted(spark, location, tasks=True)
    assert error.value.condition == "DELTA_FAILED_READ_FILE_FOOTER"
    with _configured(spark, spark__sql__files__ignoreCorruptFiles=True):
        _, adds = _converted(spark, location, tasks=True)
    assert sorted(add.path for add in adds) == ["f0.parquet", "f2.parquet"]


def test_a_lister_that_fails_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"{mounted(spark, tmp_path)}/tä ble 100%"
    root = tmp_path / "mount" / "tä ble 100%"
    for n in range(6):
        _pyarrow_files(root / f"p={n}" / "q=1", f=pa.table({"a": [n]}))
    # The first directories are listed; then one is not what it was, as when a disk goes away.
    listed = []
    list_trees = HadoopStore.list_trees

    def failing(store: HadoopStore, directories: list[str], **how: Any) -> Any:
        listed.append(directories)
        if len(listed) == 2:
            directories = [*directories, "p=0/q=1/f.parquet/\0"]
        return list_trees(store, directories, **how)

    monkeypatch.setattr(HadoopStore, "list_trees", failing)
    monkeypatch.setattr("pyspark_delta.spark.convert.files._TREES_AT_ONCE", 2)
    with pytest.raises((DeltaError, PySparkException)):
        list_files(spark, location, distribute_above=1)
    assert len(listed) == 2
    assert _spools() == 0
    assert not (root / "_delta_log").exists()


@pytest.mark.parametrize("distribute_above", [0, 1, 1_000])
def test_many_directories_of_other_file_systems_are_listed_by_tasks(
    spark: SparkSession, tmp_path: Path, distribute_above: int
) -> None:
    location = mounted(spark, tmp_path)
    root = tmp_path / "mount" / "tä ble 100%"
    for n in range(6):
        _pyarrow_files(root / f"p={n}" / f"q=ü {n}%", f=pa.table({"a": [n]}))
    for hidden in ("_temporary", "p=1/.hidden", "p=2/_metadata"):
        _pyarrow_files(root / hidden, f=pa.table({"a": [9]}))
    (root / "p=3" / "_SUCCESS").touch()
    group = f"listing above {distribute_above}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        with list_files(
            spark, f"{location}/tä ble 100%", distribute_above=distribute_above
        ) as manifest:
            listed = [row for batch in manifest.batches() for row in batch.to_pylist()]
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    assert bool(jobs) == (distribute_above < 1_000)
    with list_files(spark, str(root)) as manifest:
        local = [row for batch in manifest.batches() for row in batch.to_pylist()]
    assert sorted(row["path"] for row in listed) == [f"p={n}/q=ü {n}%/f.parquet" for n in range(6)]
    assert sorted(map(str, listed)) == sorted(map(str, local))


@pytest.mark.parametrize("fails", [False, True])
def test_what_tasks_have_listed_is_cached_until_it_is_taken(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr("pyspark_delta.spark.convert.files.FILES_AT_ONCE", 1)
    for n in range(4):
        _pyarrow_files(table_path / f"p={n}", f=pa.table({"a": [n]}))
    cached = spark.sparkContext._jsc.getPersistentRDDs
    before = set(cached().keySet())
    during = []

    def watch(batch: pa.RecordBatch) -> pa.Array:
        during.append(set(cached().keySet()) - before)
        if fails:
            raise ValueError("the disk is full")
        return pa.array([True] * batch.num_rows)

    # The error keeps the frames of the listing alive until it is forgotten.
    with pytest.raises(ValueError, match="full") if fails else nullcontext() as error:
        list_files(spark, str(table_path), keep=watch, distribute_above=1).close()
    assert len(during) == (1 if fails else 4)
    assert len(during[0]) == 1
    assert set(cached().keySet()) == before, error


def test_tasks_that_cannot_run_leave_the_work_to_the_driver(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pyarrow_files(table_path, f=pa.table({"a": [1]}))
    expected = _converted(spark, table_path)
    monkeypatch.setattr("pyspark_delta.spark.convert.footers.can_run_python", lambda session: True)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "no-such-python")
    assert _converted(spark, table_path, tasks=True) == expected
