"""The second document: CONVERT TO DELTA, from the identifier to the commit."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

from pyspark_delta import ConvertToDeltaCommand, DeltaLog, DeltaTable
from pyspark_delta.actions import AddFile, CommitInfo, Metadata
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType
from pyspark_delta.spark.conf.setting_table import (
    CONVERT_SCHEMA_BATCH,
    CONVERT_STATS_BATCH,
    STATS_COLLECT,
)
from pyspark_delta.spark.convert.files import list_files
from pyspark_delta.spark.convert.target import ConvertTargetTable, resolve_convert_target
from tests.docs.seeds.claims import Claims
from tests.support.parquet_tables import save_parquet
from tests.support.spark_tables import conf

CLAIMS = Claims()
PARTITION_SCHEMA = StructType((StructField("p", INTEGER),))
ALREADY = "The table you are trying to convert is already a delta table\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """A table converted by the command, one by SQL without statistics, one of the catalog by API.

    `plain` is a directory of Parquet files that nobody has converted.
    """

    spark: SparkSession
    by_command: Path
    returned: list[Row]
    by_sql: Path
    by_api: str
    plain: Path

    @classmethod
    def make(cls, spark: SparkSession, folder: Path) -> Conversions:
        paths = [folder / f"tä ble 100% {n}" for n in range(3)]
        data = spark.range(4).selectExpr("id", "concat('s', id) AS s", "CAST(id % 2 AS INT) AS p")
        for path in paths:
            save_parquet(data, path, "p")
        first, second, plain = paths
        # One file to a batch: what the schema is put together of comes in two parts.
        batches = (CONVERT_SCHEMA_BATCH, CONVERT_STATS_BATCH)
        with conf(spark, **{row.key.replace(".", "__"): "1" for row in batches}):
            returned = ConvertToDeltaCommand(identifier(first), PARTITION_SCHEMA).run(spark)
        spark.sql(f"CONVERT TO DELTA {identifier(second)} NO STATISTICS PARTITIONED BY (p INT)")
        spark.sql(
            "CREATE TABLE seeds_converted USING parquet PARTITIONED BY (p) AS SELECT 1 a, 2 p"
        )
        DeltaTable.convertToDelta(spark, "seeds_converted")
        return cls(
            spark=spark,
            by_command=first,
            returned=returned,
            by_sql=second,
            by_api="seeds_converted",
            plain=plain,
        )

    def parameters(self, path: Path) -> dict[str, Any]:
        """What the conversion's commit says of it."""
        return dict(DeltaLog.for_table(path).history()[0].operation_parameters or {})

    @property
    def api_parameters(self) -> dict[str, Any]:
        """The same of the table of the catalog."""
        row = DeltaTable.forName(self.spark, self.by_api).history().collect()[0]
        return dict(row["operationParameters"])


def identifier(path: Path) -> str:
    return f"parquet.`{path}`"


def parameters_of(function: object) -> list[str]:
    return [name for name in signature(function).parameters if name != "self"]  # type: ignore[arg-type]


@CLAIMS.of("ConvertToDeltaCommand", 3)
def the_command_makes_a_parquet_table_a_delta_table(made: Conversions) -> None:
    rows = made.spark.read.format("delta").load(str(made.by_command))
    assert sorted(tuple(row) for row in rows.select("id", "s", "p").collect()) == [
        (0, "s0", 0),
        (1, "s1", 1),
        (2, "s2", 0),
        (3, "s3", 1),
    ]


@CLAIMS.of("ConvertToDeltaCommand.run", 5, 37, 38, 41)
def it_runs_with_a_session_and_gives_rows(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand.run) == ["spark"]
    assert made.returned == []


@CLAIMS.of("kernel.ops.convert.files.partition_values", 7, 139, 142)
def a_partition_schema_of_another_size_is_refused_by_an_analysis_exception(
    made: Conversions,
) -> None:
    with pytest.raises(AnalysisException) as refused:
        DeltaTable.convertToDelta(made.spark, identifier(made.plain), "p INT, q INT")
    error = refused.value
    assert error.getCondition() == "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME"
    assert "Expecting 2 partition column(s): [`p`, `q`], but found 1 partition column(s)" in str(
        error
    )
    assert not (made.plain / "_delta_log").exists()


@CLAIMS.of("kernel.protocol.operations.operation", 9, 195)
def the_history_tells_whether_flag_and_setting_both_want_statistics(made: Conversions) -> None:
    command = ConvertToDeltaCommand(identifier(made.plain))
    target = resolve_convert_target(made.spark, ("parquet", str(made.plain)))
    for wanted, setting in (("true", "true"), ("false", "false")):
        with conf(made.spark, **{STATS_COLLECT.key.replace(".", "__"): setting}):
            operation = command.get_operation(made.spark, 2, target, "parquet")
        assert json.dumps(operation.parameters["collectStats"]) == wanted
    command.collect_stats = False
    operation = command.get_operation(made.spark, 2, target, "parquet")
    assert operation.parameters["collectStats"] is False


@CLAIMS.of("ConvertToDeltaCommand", 13, range(15, 19))
def it_is_made_of_an_identifier_a_partition_schema_a_flag_and_a_path(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand)[:4] == [
        "table_identifier",
        "partition_schema",
        "collect_stats",
        "delta_path",
    ]
    command = ConvertToDeltaCommand("parquet.`/a`")
    assert (command.partition_schema, command.delta_path) == (None, None)


@CLAIMS.of("spark.sql.statements.clone", 20, 22)
def a_statement_makes_one(made: Conversions) -> None:
    assert DeltaLog.for_table(made.by_sql).snapshot.num_files == 2


@CLAIMS.of("DeltaTable.convertToDelta", 23)
def so_does_the_python_api(made: Conversions) -> None:
    assert DeltaTable.isDeltaTable(made.spark, table_location(made))


@CLAIMS.of("ConvertToDeltaCommand", 27, 29)
def the_api_always_collects_statistics(made: Conversions) -> None:
    assert made.api_parameters["collectStats"] == "true"


@CLAIMS.of("spark.sql.statements.clone", 30)
def the_statement_does_unless_it_says_no_statistics(made: Conversions) -> None:
    assert made.parameters(made.by_sql)["collectStats"] is False
    assert [file.stats for file in files(made.by_sql)] == [None, None]


@CLAIMS.of("spark.convert.target.resolve_convert_target", 43)
def the_identifier_is_resolved_in_the_session(made: Conversions) -> None:
    target = resolve_convert_target(made.spark, ("parquet", str(made.plain)))
    assert (target.provider, target.target_dir) == ("parquet", str(made.plain))
    assert target.catalog_table is None


@CLAIMS.of("spark.convert.target.target_table", 45, 48)
def another_provider_is_refused_by_an_analysis_exception(made: Conversions) -> None:
    with pytest.raises(AnalysisException) as refused:
        made.spark.sql(f"CONVERT TO DELTA json.`{made.plain}`")
    assert "only supports parquet tables, but you are trying to convert a json source" in str(
        refused.value
    )


@CLAIMS.of("spark.convert.command.ALREADY_DELTA", 51, 54)
def of_a_delta_table_it_prints_that_it_is_one(made: Conversions) -> None:
    assert printed(made, f"delta.`{made.by_command}`") == ALREADY


@CLAIMS.of("DeltaLog.start_transaction", 57)
def it_opens_the_log_and_starts_a_transaction(made: Conversions) -> None:
    log = DeltaLog.for_table(made.by_command)
    assert log.update().version == 0
    assert log.start_transaction().read_version == 0
    assert DeltaLog.for_table(made.plain).start_transaction().read_version == -1


@CLAIMS.of("OptimisticTransaction.read_version", 59, 62)
def where_a_version_was_read_it_prints_so_and_ends(made: Conversions) -> None:
    assert printed(made, identifier(made.by_command)) == ALREADY
    assert DeltaLog.for_table(made.by_command).update().version == 0


@CLAIMS.of("ConvertToDeltaCommand.perform_convert", range(68, 72))
def perform_convert_takes_the_session_the_transaction_and_the_target(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand.perform_convert)[:3] == ["spark", "txn", "target"]


@CLAIMS.of("spark.convert.files.list_files", 74)
def a_directory_that_does_not_exist_is_refused(made: Conversions) -> None:
    with pytest.raises(DeltaError) as refused:
        ConvertToDeltaCommand(identifier(made.plain / "nowhere")).run(made.spark)
    assert refused.value.condition == "DELTA_PATH_DOES_NOT_EXIST"


@CLAIMS.of("DeltaLog.ensure_log_directory_exist", 76)
def the_log_directory_is_made(made: Conversions) -> None:
    assert (made.by_command / "_delta_log").is_dir()
    txn = DeltaLog.for_table(made.by_command).start_transaction()
    txn.delta_log.ensure_log_directory_exist()  # once more does no harm


@CLAIMS.of("spark.convert.files.FileManifest", 78, 81, 84)
def files_are_listed_through_all_directories_once_and_kept(made: Conversions) -> None:
    with list_files(made.spark, str(made.plain)) as manifest:
        assert manifest.num_files == 2
        for _ in range(2):
            listed = [path for batch in manifest.batches() for path in batch["path"].to_pylist()]
            assert sorted(path.split("/")[0] for path in listed) == ["p=0", "p=1"]


@CLAIMS.of("spark.conf.setting_table.CONVERT_SCHEMA_BATCH", 87)
def the_schema_is_put_together_of_batches_of_so_many_files(made: Conversions) -> None:
    assert CONVERT_SCHEMA_BATCH.key == "spark.databricks.delta.import.batchSize.schemaInference"
    # The conversion by the command had one file to a batch.
    assert DeltaLog.for_table(made.by_command).snapshot.metadata.data_schema.names == ("id", "s")


@CLAIMS.of("ConvertToDeltaCommand.construct_table_schema", 89, range(159, 163), 165)
def the_table_schema_is_that_of_the_files_and_the_partition_columns(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand.construct_table_schema) == [
        "data_schema",
        "partition_schema",
    ]
    expected = StructType((StructField("id", LONG), StructField("s", STRING)))
    built = ConvertToDeltaCommand("parquet.`/a`").construct_table_schema(expected, PARTITION_SCHEMA)
    assert DeltaLog.for_table(made.by_command).snapshot.schema.names == built.names


@CLAIMS.of("actions.Metadata.partition_columns", 91)
def new_metadata_has_the_schema_and_the_partition_columns(made: Conversions) -> None:
    metadata = DeltaLog.for_table(made.by_command).snapshot.metadata
    assert (metadata.schema.names, metadata.partition_columns) == (("id", "s", "p"), ("p",))


@CLAIMS.of("OptimisticTransaction.update_metadata", 93)
def the_transaction_commits_it(made: Conversions) -> None:
    ((_, actions),) = DeltaLog.for_table(made.by_command).get_changes(0)
    assert [type(action) for action in actions[:2]] == [CommitInfo, Metadata]


@CLAIMS.of("spark.conf.setting_table.CONVERT_STATS_BATCH", 96)
def statistics_come_in_batches_and_every_file_has_its_action(made: Conversions) -> None:
    assert CONVERT_STATS_BATCH.key == "spark.databricks.delta.import.batchSize.statsCollection"
    assert [file.num_records for file in files(made.by_command)] == [2, 2]
    assert {file.partition_values["p"] for file in files(made.by_command)} == {"0", "1"}
    uri = DeltaLog.for_table(made.by_command).data_path
    assert uri.startswith("file:///")


@CLAIMS.of("ConvertToDeltaCommand.stream_write", 99, range(114, 120), 122)
def all_is_one_commit_of_the_transaction_with_the_operation(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand.stream_write) == [
        "spark",
        "txn",
        "add_files",
        "operation",
        "num_files",
    ]
    (info,) = DeltaLog.for_table(made.by_command).history()
    assert info.operation == "CONVERT"
    assert (info.operation_metrics or {})["numConvertedFiles"] == "2"
    assert made.spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


@CLAIMS.of("ConvertToDeltaCommand.check_column_mapping", range(104, 107), 109)
def a_mapping_that_files_do_not_have_is_refused(made: Conversions) -> None:
    command = ConvertToDeltaCommand(identifier(made.plain))
    table = ConvertTargetTable(location=str(made.plain), partition_schema=StructType())
    with pytest.raises(DeltaError) as refused:
        command.check_column_mapping(
            Metadata(id="t", configuration={"delta.columnMapping.mode": "name"}), table
        )
    assert refused.value.condition == "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING"
    command.check_column_mapping(Metadata(id="t"), table)


@CLAIMS.of("ConvertToDeltaCommand.create_add_file", range(127, 132), 134, 136)
def create_add_file_gives_the_action_of_a_file(made: Conversions) -> None:
    file = ConvertToDeltaCommand.create_add_file(
        "p=1/a b.parquet", size=3, modification_time=4, partition_values={"p": "1"}
    )
    assert file == AddFile(
        path="p=1/a%20b.parquet",
        partition_values={"p": "1"},
        size=3,
        modification_time=4,
        data_change=True,
    )


@CLAIMS.of("ConvertToDeltaCommand.merge_schemas_in_parallel", range(148, 152), 154)
def the_schemas_of_all_files_are_put_together(made: Conversions) -> None:
    command = ConvertToDeltaCommand(identifier(made.plain))
    with list_files(made.spark, str(made.plain)) as manifest:
        merged = command.merge_schemas_in_parallel(made.spark, manifest)
    assert merged.names == ("id", "s")


@CLAIMS.of("ConvertToDeltaCommand.create_delta_actions", range(170, 176), 178)
def actions_are_made_one_by_one_from_what_was_listed(made: Conversions) -> None:
    assert parameters_of(ConvertToDeltaCommand.create_delta_actions)[:4] == [
        "spark",
        "footers",
        "partition_schema",
        "txn",
    ]
    ((_, actions),) = DeltaLog.for_table(made.by_command).get_changes(0)
    assert sum(isinstance(action, AddFile) for action in actions) == 2


@CLAIMS.of("ConvertToDeltaCommand.get_operation", range(183, 187), 189, 191, 193, 194, 196, 197)
def the_operation_has_these_parameters(made: Conversions) -> None:
    found = made.parameters(made.by_command)
    assert found == {
        "numFiles": 2,
        "partitionedBy": '["p"]',
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    assert "seeds_converted" in made.api_parameters["catalogTable"]


@CLAIMS.of("ConvertToDeltaCommand", 201)
def there_is_one_such_command(made: Conversions) -> None:
    assert ConvertToDeltaCommand.__subclasses__() == []


@CLAIMS.of("ConvertToDeltaCommand.is_catalog_table", range(208, 211), 213, 215)
def an_identifier_may_name_a_table_of_the_catalog(made: Conversions) -> None:
    assert ConvertToDeltaCommand(made.by_api).is_catalog_table(made.spark)
    assert not ConvertToDeltaCommand(identifier(made.plain)).is_catalog_table(made.spark)


@CLAIMS.of("ConvertToDeltaCommand.get_target_table", range(220, 223), 225, 229, 231)
def the_target_table_is_found_for_the_run(made: Conversions) -> None:
    command = ConvertToDeltaCommand(identifier(made.plain), PARTITION_SCHEMA)
    target = resolve_convert_target(made.spark, ("parquet", str(made.plain)))
    table = command.get_target_table(made.spark, target)
    assert (table.format, table.partition_schema) == ("parquet", PARTITION_SCHEMA)


@CLAIMS.of("ConvertToDeltaCommand.stats_enabled", 236, 239, 242, 248, 250)
def the_setting_for_statistics_holds_for_actions_and_operation(made: Conversions) -> None:
    command = ConvertToDeltaCommand(identifier(made.plain))
    assert STATS_COLLECT.key == "spark.databricks.delta.stats.collect"
    assert command.stats_enabled(made.spark)
    with conf(made.spark, **{STATS_COLLECT.key.replace(".", "__"): "false"}):
        assert not command.stats_enabled(made.spark)


def files(path: Path) -> list[AddFile]:
    return list(add_files(DeltaLog.for_table(path).snapshot.files))


def printed(made: Conversions, name: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert ConvertToDeltaCommand(name).run(made.spark) == []
    return output.getvalue()


def table_location(made: Conversions) -> str:
    detail = DeltaTable.forName(made.spark, made.by_api).detail().collect()[0]
    return str(detail["location"])
