"""What commits say of themselves, in delta-spark's words."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pyspark_delta.kernel.protocol import operations as op
from pyspark_delta.kernel.protocol.actions import Action, CommitInfo, Metadata, Protocol
from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from pyspark_delta.kernel.protocol.types import LONG, DecimalType
from tests.support.golden import GoldenTables, each_golden_table
from tests.support.schemas import field

METADATA = Metadata(
    id="u", partition_columns=("p",), configuration={"delta.appendOnly": "true"}, description=None
)
TABLE = (
    '{"partitionBy":"[\\"p\\"]","clusterBy":"[]","description":null,"isManaged":"false",'
    '"properties":"{\\"delta.appendOnly\\":\\"true\\"}"'
)


@pytest.mark.parametrize(
    ("operation", "name", "parameters"),
    [
        (op.write("Append", partition_by=[]), "WRITE", '{"mode":"Append","partitionBy":"[]"}'),
        (
            op.write(
                "Overwrite", partition_by=["a"], predicate="a = 1", can_overwrite_schema=False
            ),
            "WRITE",
            '{"mode":"Overwrite","partitionBy":"[\\"a\\"]","predicate":"a = 1",'
            '"canOverwriteSchema":false}',
        ),
        (
            op.write("Overwrite", replace_using="a,`b`", is_dynamic_partition_overwrite=True),
            "WRITE",
            '{"mode":"Overwrite","isDynamicPartitionOverwrite":true,"replaceUsingCols":"(a,`b`)"}',
        ),
        (
            op.operation("STREAMING UPDATE", outputMode="Append", queryId="q-1", epochId="7"),
            "STREAMING UPDATE",
            '{"outputMode":"Append","queryId":"q-1","epochId":"7"}',
        ),
        (
            op.operation("DELETE", predicate=["(id = 1)"]),
            "DELETE",
            '{"predicate":"[\\"(id = 1)\\"]"}',
        ),
        (op.operation("UPDATE", predicate=[]), "UPDATE", '{"predicate":"[]"}'),
        (
            op.merge(
                ["(t.id = s.id)"],
                matched=[("update", None)],
                not_matched=[("insert", None)],
                not_matched_by_source=[("delete", "(id < 10)")],
            ),
            "MERGE",
            '{"predicate":"[\\"(t.id = s.id)\\"]",'
            '"matchedPredicates":"[{\\"actionType\\":\\"update\\"}]",'
            '"notMatchedPredicates":"[{\\"actionType\\":\\"insert\\"}]",'
            '"notMatchedBySourcePredicates":'
            '"[{\\"predicate\\":\\"(id < 10)\\",\\"actionType\\":\\"delete\\"}]"}',
        ),
        (op.operation("TRUNCATE"), "TRUNCATE", "{}"),
        (op.define_table("create", METADATA, is_managed=False), "CREATE TABLE", TABLE + "}"),
        (
            op.define_table("create", METADATA, is_managed=False, as_select=True),
            "CREATE TABLE AS SELECT",
            TABLE + "}",
        ),
        (
            op.define_table("replace", METADATA, is_managed=False),
            "REPLACE TABLE",
            TABLE + "}",
        ),
        (
            op.define_table(
                "create or replace",
                METADATA,
                is_managed=False,
                as_select=True,
                isV1SaveAsTableOverwrite=True,
            ),
            "CREATE OR REPLACE TABLE AS SELECT",
            TABLE + ',"isV1SaveAsTableOverwrite":true}',
        ),
        (
            op.optimize(z_order_by=["a"]),
            "OPTIMIZE",
            '{"predicate":"[]","zOrderBy":"[\\"a\\"]","clusterBy":"[]","auto":false}',
        ),
        (
            op.operation("REORG", predicate=["p = 1"], applyPurge=True),
            "REORG",
            '{"predicate":"[\\"p = 1\\"]","applyPurge":true}',
        ),
        (
            op.operation(
                "VACUUM START",
                retentionCheckEnabled=True,
                defaultRetentionMillis=604800000,
                specifiedRetentionMillis=None,
            ),
            "VACUUM START",
            '{"retentionCheckEnabled":true,"defaultRetentionMillis":604800000}',
        ),
        (op.operation("VACUUM END", status="COMPLETED"), "VACUUM END", '{"status":"COMPLETED"}'),
        (
            op.operation(
                "CONVERT",
                numFiles=3,
                partitionedBy=["p"],
                collectStats=True,
                catalogTable=None,
                sourceFormat="parquet",
            ),
            "CONVERT",
            '{"numFiles":3,"partitionedBy":"[\\"p\\"]","collectStats":true,'
            '"sourceFormat":"parquet"}',
        ),
        (
            op.operation("RESTORE", version=1, timestamp=None),
            "RESTORE",
            '{"version":1,"timestamp":null}',
        ),
        (
            op.operation("RESTORE", version=None, timestamp="2021"),
            "RESTORE",
            '{"version":null,"timestamp":"2021"}',
        ),
        (
            op.operation("CLONE", source="delta.`/x`", sourceVersion=4),
            "CLONE",
            '{"source":"delta.`/x`","sourceVersion":4}',
        ),
        (
            op.operation("SET TBLPROPERTIES", properties={"a": "b"}),
            "SET TBLPROPERTIES",
            '{"properties":"{\\"a\\":\\"b\\"}"}',
        ),
        (
            op.operation("UNSET TBLPROPERTIES", properties=["a"], ifExists=True),
            "UNSET TBLPROPERTIES",
            '{"properties":"[\\"a\\"]","ifExists":true}',
        ),
        (
            op.added_columns(
                [((), field("a", LONG, comment="c"), None), (("s",), field("b", LONG), "FIRST")]
            ),
            "ADD COLUMNS",
            '{"columns":"[{\\"column\\":{\\"name\\":\\"a\\",\\"type\\":\\"long\\",'
            '\\"nullable\\":true,\\"metadata\\":{\\"comment\\":\\"c\\"}}},'
            '{\\"column\\":{\\"name\\":\\"s.b\\",\\"type\\":\\"long\\",\\"nullable\\":true,'
            '\\"metadata\\":{}},\\"position\\":\\"FIRST\\"}]"}',
        ),
        (
            op.operation("DROP COLUMNS", columns=["a", "s.`x.y`"]),
            "DROP COLUMNS",
            '{"columns":"[\\"a\\",\\"s.`x.y`\\"]"}',
        ),
        (
            op.operation("RENAME COLUMN", oldColumnPath="s.a", newColumnPath="s.b"),
            "RENAME COLUMN",
            '{"oldColumnPath":"s.a","newColumnPath":"s.b"}',
        ),
        (
            op.change_column((), field("a", DecimalType(10, 2)), position="AFTER b"),
            "CHANGE COLUMN",
            '{"column":"{\\"name\\":\\"a\\",\\"type\\":\\"decimal(10,2)\\",\\"nullable\\":true,'
            '\\"metadata\\":{}}","position":"AFTER b"}',
        ),
        (
            op.changed_columns("SYNC IDENTITY", [((), field("a", LONG))]),
            "SYNC IDENTITY",
            '{"columns":"[{\\"name\\":\\"a\\",\\"type\\":\\"long\\",\\"nullable\\":true,'
            '\\"metadata\\":{}}]"}',
        ),
        (
            op.operation("ADD CONSTRAINT", name="c", expr="a > 1"),
            "ADD CONSTRAINT",
            '{"name":"c","expr":"a > 1"}',
        ),
        (
            op.operation("DROP CONSTRAINT", name="c", expr=None, existed="false"),
            "DROP CONSTRAINT",
            '{"name":"c","existed":"false"}',
        ),
        (
            op.operation("DROP CONSTRAINT", name="c", expr="a > 1", existed="true"),
            "DROP CONSTRAINT",
            '{"name":"c","expr":"a > 1","existed":"true"}',
        ),
        (
            op.operation("CLUSTER BY", oldClusteringColumns="", newClusteringColumns="a,b"),
            "CLUSTER BY",
            '{"oldClusteringColumns":"","newClusteringColumns":"a,b"}',
        ),
        (
            op.operation("DROP FEATURE", featureName="v2Checkpoint", truncateHistory=False),
            "DROP FEATURE",
            '{"featureName":"v2Checkpoint","truncateHistory":false}',
        ),
        (
            op.operation(
                "UPGRADE PROTOCOL",
                newProtocol=Protocol(min_reader_version=1, min_writer_version=3).to_json_value(),
            ),
            "UPGRADE PROTOCOL",
            '{"newProtocol":"{\\"minReaderVersion\\":1,\\"minWriterVersion\\":3}"}',
        ),
        (
            op.operation("ROW TRACKING BACKFILL", batchId="0"),
            "ROW TRACKING BACKFILL",
            '{"batchId":"0"}',
        ),
        (
            op.operation("ROW TRACKING UNBACKFILL", batchId="1"),
            "ROW TRACKING UNBACKFILL",
            '{"batchId":"1"}',
        ),
        (op.operation("COMPUTE STATS", predicate=[]), "COMPUTE STATS", '{"predicate":"[]"}'),
        (op.operation("Empty Commit"), "Empty Commit", "{}"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
def test_parameters_are_written_as_delta_spark_writes_them(
    operation: op.Operation, name: str, parameters: str
) -> None:
    assert operation.name == name
    info = CommitInfo(operation_parameters=dict(operation.parameters))
    assert info.json == f'{{"commitInfo":{{"operationParameters":{parameters}}}}}'


@pytest.mark.parametrize(
    ("operation", "changes_data"),
    [
        (op.write("Append"), True),
        (op.operation("STREAMING UPDATE", outputMode="Complete", queryId="q", epochId="0"), True),
        (op.operation("DELETE", predicate=[]), True),
        (op.define_table("create", METADATA, is_managed=True), False),
        (op.define_table("create", METADATA, is_managed=True, as_select=True), True),
        (op.define_table("create or replace", METADATA, is_managed=True), True),
        (op.operation("RESTORE", version=0, timestamp=None), True),
        (op.optimize(), False),
        (op.operation("SET TBLPROPERTIES", properties={}), False),
        (op.operation("VACUUM END", status="FAILED"), False),
    ],
)
def test_an_operation_says_whether_rows_change(operation: op.Operation, changes_data: bool) -> None:
    assert operation.changes_data is changes_data


def test_metrics_are_those_of_the_operation_as_text() -> None:
    appended = op.write("Append")
    assert appended.recorded_metrics(
        {"numFiles": 1, "numOutputRows": None, "numOutputBytes": 5, "other": 7}
    ) == {"numFiles": "1", "numOutputBytes": "5"}
    assert set(op.write("Overwrite").metrics) - set(appended.metrics) == {
        "numRemovedFiles",
        "numRemovedBytes",
    }
    assert "numCopiedRows" in op.write("Overwrite", predicate="a = 1").metrics


def test_a_parameter_that_is_not_of_the_operation_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no parameters"):
        op.operation("TRUNCATE", why=1)
    with pytest.raises(ValueError, match="needs the parameter status"):
        op.operation("VACUUM END")
    with pytest.raises(KeyError):
        op.operation("DANCE")


def test_user_metadata_travels_with_a_write() -> None:
    assert op.write("Append", user_metadata="hi").user_metadata == "hi"


def test_the_engine_names_itself_and_the_spark_it_runs_on() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    version = project["project"]["version"]
    assert op.engine_info() == f"pyspark-delta/{version}"
    assert op.engine_info("4.3.0") == f"Apache-Spark/4.3.0 pyspark-delta/{version}"


@pytest.mark.parametrize("name", each_golden_table())
def test_operations_that_delta_spark_recorded_are_in_the_table(
    name: str, golden: GoldenTables
) -> None:
    for path in golden(name).table.glob("_delta_log/0*.json"):
        for line in path.read_text(encoding="utf-8").splitlines():
            info = Action.from_json(line)
            if not isinstance(info, CommitInfo) or info.operation is None:
                continue
            if name == "deltalog-commit-info":
                assert info.operation_parameters == {"test": "test"}  # made up, not recorded
                continue
            kind = OPERATIONS[info.operation]
            rebuilt = op.operation(info.operation, **(info.operation_parameters or {}))
            assert rebuilt.parameters == info.operation_parameters
            assert set(info.operation_metrics or ()) <= set(kind.metrics)
