"""Features taken away from tables with rows: by SQL and by `DeltaTable`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.actions import RemoveFile
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.maintenance import features as command
from pyspark_delta.spark.sql.statements.alter import parse_drop_feature
from tests.support.feature_tables import FeatureTable as Table
from tests.support.spark_tables import conf

PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
KEPT = "1,7,None,[appendOnly,checkpointProtection,invariants]"
BARRIERS = ["Empty Commit"] * 3


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Table:
    """No table yet, but where it is going to be."""
    return Table(spark, table_path)


def test_the_statement_is_read_word_by_word() -> None:
    read = parse_drop_feature("alter table a.b drop feature 'x-y' truncate history ;")
    assert read is not None
    assert (read.table, read.feature, read.truncate_history) == (("a", "b"), "x-y", True)
    assert parse_drop_feature("ALTER TABLE t DROP COLUMN feature") is None


def test_deletion_vectors_go_with_the_rows_they_hid(table: Table) -> None:
    rows = "SELECT /*+ COALESCE(1) */ id, id % 2 AS p FROM range({}, {})"
    table.create("id LONG, p LONG", rows.format(0, 8), delta_enableDeletionVectors="true")
    table.sql("DELETE FROM {t} WHERE id IN (3, 4)")
    before = table.rows
    assert any(file.deletion_vector for file in table.files)
    assert table.sql("ALTER TABLE {t} DROP FEATURE deletionVectors") == []
    assert table.rows == before
    assert not any(file.deletion_vector for file in table.files)
    assert table.protocol == KEPT
    assert table.properties == {PROTECTED: str(table.log.update().version)}
    told = ["UNSET TBLPROPERTIES", "REORG", "Deletion Vector Tombstones", *BARRIERS, "DROP FEATURE"]
    assert table.told(3) == told
    ((_, buried),) = [c for c in table.log.get_changes(5) if c[0] == 5]
    (tombstone,) = [a for a in buried if isinstance(a, RemoveFile)]
    assert (table.path / tombstone.path).exists()
    table.sql("INSERT INTO {t} VALUES (100L, 0L)")
    table.sql("DELETE FROM {t} WHERE id = 0")
    assert len(table.rows) == len(before)
    assert len(table.sql("SELECT * FROM {t} VERSION AS OF 1")) == 8


def test_column_mapping_goes_with_the_names_that_only_files_knew(table: Table) -> None:
    table.create(
        "a INT, `b c` STRUCT<x: INT>, p STRING",
        "VALUES (1, named_struct('x', 2), 'o')",
        delta_columnMapping_mode="name",
        delta_enableRowTracking="true",
    )
    table.sql("ALTER TABLE {t} RENAME COLUMN a TO z")
    table.sql("INSERT INTO {t} VALUES (3, NULL, 'q')")
    invalid = "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING"
    assert table.condition("ALTER TABLE {t} DROP FEATURE columnMapping") == invalid
    table.sql("ALTER TABLE {t} RENAME COLUMN `b c` TO b")
    ids = "SELECT z, _metadata.row_id, _metadata.row_commit_version FROM {t} ORDER BY z"
    rows, numbered = table.rows, table.sql(ids)
    version = table.log.update().version
    table.sql("ALTER TABLE {t} DROP FEATURE columnMapping")
    assert table.rows == rows
    assert table.sql(ids) == numbered
    assert "columnMapping" not in table.protocol
    assert not [key for key in table.properties if "columnMapping" in key]
    assert table.told(version + 1) == ["REMOVE COLUMN MAPPING", *BARRIERS, "DROP FEATURE"]
    (name, *_) = (file.path for file in table.files)
    names = pq.read_schema(table.path / name).names
    assert names[:3] == ["z", "b", "p"]


def test_column_mapping_can_be_switched_off_without_dropping_it(table: Table) -> None:
    table.create("a INT", "VALUES (1)", "VALUES (2)", delta_columnMapping_mode="id")
    table.sql("ALTER TABLE {t} RENAME COLUMN a TO b")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    assert table.properties == {"delta.columnMapping.mode": "none"}
    assert table.told()[-1] == "REMOVE COLUMN MAPPING"
    metrics = dict(table.log.history(1)[0].operation_metrics or {})
    assert metrics["numCopiedRows"] == "2"
    assert table.rows == [(1,), (2,)]
    assert "columnMapping" in table.protocol
    version = table.log.update().version
    with conf(table.spark, spark__databricks__delta__columnMapping__allowRemoval="false"):
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        refused = "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"
        statement = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
        assert table.condition(statement) == refused
    assert table.log.update().version == version + 1


def test_widened_columns_are_written_anew_where_files_are_older(table: Table) -> None:
    table.create(
        "a SMALLINT, s STRUCT<x: INT>, xs ARRAY<INT>",
        "VALUES (1S, named_struct('x', 2), array(3))",
        delta_enableTypeWidening="true",
    )
    table.sql("ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT")
    table.sql("ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT")
    table.sql("ALTER TABLE {t} ALTER COLUMN xs.element TYPE BIGINT")
    table.sql("INSERT INTO {t} VALUES (4L, named_struct('x', 5L), array(6L))")
    new = {file.path for file in table.files if file.modification_time}
    rows, version = table.rows, table.log.update().version
    table.sql("ALTER TABLE {t} DROP FEATURE typeWidening")
    assert table.rows == rows
    assert table.told(version + 1) == [
        "UNSET TBLPROPERTIES",
        "REORG",
        "DROP FEATURE",
        *BARRIERS,
        "DROP FEATURE",
    ]
    assert "typeChanges" not in (table.log.update().metadata.schema_string or "")
    assert table.protocol == KEPT
    now = {file.path for file in table.files}
    assert len(now) == 2
    assert len(now & new) == 1  # the newer file holds what it should
    for path in now:
        kinds = [str(kind) for kind in pq.read_schema(table.path / path).types]
        assert kinds[0] == "int64"
        assert "int32" not in "".join(kinds)


def test_features_that_only_writers_know_go_at_once(table: Table) -> None:
    table.create("id LONG", "VALUES (1L)", delta_enableRowTracking="true")
    table.sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)")
    refused = "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
    assert table.condition("ALTER TABLE {t} DROP FEATURE checkConstraints") == refused
    table.sql("ALTER TABLE {t} DROP CONSTRAINT positive")
    table.sql("ALTER TABLE {t} DROP FEATURE checkConstraints")
    table.sql("ALTER TABLE {t} DROP FEATURE rowTracking")
    assert table.properties == {}
    table.sql("ALTER TABLE {t} DROP FEATURE domainMetadata")
    assert table.protocol == "1,2"
    table.sql("INSERT INTO {t} VALUES (2L)")
    assert table.rows == [(1,), (2,)]
    assert all(file.base_row_id is None for file in table.files)


def test_a_session_can_ask_for_the_slow_way(table: Table) -> None:
    table.create("id LONG", delta_enableDeletionVectors="true")
    wait = "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"
    settings = {
        "spark__databricks__delta__tableFeatures__fastDropFeature__enabled": "false",
        "spark__databricks__delta__tableFeatures__fastDropFeature__generateDVTombstones__enabled": (
            "false"
        ),
    }
    with conf(table.spark, **settings):
        assert table.condition("ALTER TABLE {t} DROP FEATURE deletionVectors") == wait
    assert table.told(1) == ["UNSET TBLPROPERTIES", "Empty Commit"]
    exist = "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"
    statement = "ALTER TABLE {t} DROP FEATURE deletionVectors TRUNCATE HISTORY"
    assert table.condition(statement) == exist
    table.sql("ALTER TABLE {t} DROP FEATURE deletionVectors")
    assert table.protocol == KEPT


def test_bad_statements_change_nothing(table: Table) -> None:
    table.create("id LONG", delta_enableRowTracking="true")
    drop = "ALTER TABLE {t} DROP FEATURE "
    conditions = {
        "nonsense": "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE",
        "deletionVectors": "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT",
        "invariants": "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE",
        "domainMetadata": "DELTA_FEATURE_DROP_DEPENDENT_FEATURE",
        "'delta.enableRowTracking'": "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY",
        "rowTracking TRUNCATE HISTORY": "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
    }
    assert {name: table.condition(drop + name) for name in conditions} == conditions
    for wrong in ("", "rowTracking TRUNCATE", "rowTracking NOW", "'a' 'b'"):
        with pytest.raises(ParseException):
            table.sql(drop + wrong)
    assert table.log.update().version == 0


def test_tables_of_the_catalog_lose_features_too(spark: SparkSession) -> None:
    enable(spark)
    spark.sql("CREATE TABLE dropped (id LONG) USING delta")
    try:
        handle = DeltaTable.forName(spark, "dropped")
        handle.addFeatureSupport("vacuumProtocolCheck")
        spark.sql("INSERT INTO dropped VALUES (1L)")
        spark.sql("ALTER TABLE dropped DROP FEATURE vacuumProtocolCheck")
        (detail,) = handle.detail().collect()
        assert "vacuumProtocolCheck" not in detail.tableFeatures
        assert spark.table("dropped").count() == 1
    finally:
        spark.sql("DROP TABLE dropped")


def test_python_has_the_same_by_other_names(table: Table) -> None:
    table.create("id LONG")
    handle = DeltaTable.forPath(table.spark, str(table.path))
    handle.upgradeTableProtocol(1, 3)
    assert table.protocol == "1,3"
    parameters = dict(table.log.history(1)[0].operation_parameters or {})
    assert '"delta.minWriterVersion":"3"' in parameters["properties"]
    handle.upgradeTableProtocol(1, 2)
    assert table.protocol == "1,3"
    handle.addFeatureSupport("DomainMetadata")
    # A statement spells a feature in small letters there; this, as it was given.
    parameters = dict(table.log.history(1)[0].operation_parameters or {})
    assert parameters["properties"] == '{"delta.feature.DomainMetadata":"supported"}'
    features = "appendOnly,checkConstraints,domainMetadata,invariants"
    assert table.protocol == f"1,7,None,[{features}]"
    handle.dropFeatureSupport("domainMetadata")
    handle.dropFeatureSupport("checkConstraints", False)
    assert table.protocol == "1,2"
    version = table.log.update().version
    for call in _wrong_arguments(handle):
        with pytest.raises((TypeError, ValueError)):
            call()
    with pytest.raises(DeltaError) as caught:
        handle.addFeatureSupport("nonsense")
    assert caught.value.condition == "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"
    with pytest.raises(DeltaError) as caught:
        handle.dropFeatureSupport("checkpointProtection", truncateHistory=True)
    assert caught.value.condition == "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"
    assert table.log.update().version == version


def _wrong_arguments(handle: DeltaTable) -> list[Callable[[], None]]:
    wrong: Any = 7
    return [
        lambda: handle.upgradeTableProtocol(wrong, "3"),  # type: ignore[arg-type]
        lambda: handle.addFeatureSupport(wrong),
        lambda: handle.dropFeatureSupport(wrong),
        lambda: handle.dropFeatureSupport("domainMetadata", wrong),
        lambda: handle.addFeatureSupport(""),
    ]


def test_a_row_deleted_by_a_vector_meanwhile_stops_the_drop(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create("id LONG", "SELECT id FROM range(4)", delta_enableDeletionVectors="true")
    original = command._SparkRewrites.purge_vectors

    def purge(self: Any, log: DeltaLog) -> None:
        original(self, log)
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        table.sql("DELETE FROM {t} WHERE id = 1")

    monkeypatch.setattr(command._SparkRewrites, "purge_vectors", purge)
    failed = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
    assert table.condition("ALTER TABLE {t} DROP FEATURE deletionVectors") == failed
    assert "deletionVectors" in table.protocol
    assert table.rows == [(0,), (2,), (3,)]
