"""The table of settings: complete, true to the sources, and with the effect that it names."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from scripts.settings_page import settings_page

import pyspark_delta
from pyspark_delta import disable, enable
from pyspark_delta.errors import PropertyError, TooManyAttemptsError
from pyspark_delta.kernel.ops.changes.feed import SchemaMode
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.spark.conf import setting_table
from pyspark_delta.spark.conf.setting_table import (
    ALLOWED_LOCATIONS,
    AUTO_MERGE,
    CHANGE_FEED_SCHEMA_MODE,
    HONOURED,
    MERGE_SOURCE,
    NOT_HONOURED,
    OPTIMIZE_MAX_DELETED,
    OPTIMIZE_MIN_FILE_SIZE,
    OPTIMIZE_WRITE_BIN_SIZE,
    STATS_COLLECT,
    TXN_VERSION,
    WIDENING_MODE,
)
from pyspark_delta.spark.conf.settings import Setting, SettingFamily, row_of
from pyspark_delta.tables import DeltaTable
from tests.support.spark_tables import SparkTable, conf

SOURCE = Path(pyspark_delta.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
_KEY = re.compile(r"spark\.(databricks|pyspark_delta)\.\w")
# What delta-spark documents: its guide, and the entries of its DeltaSQLConf that are not internal.
DOCUMENTED = """
alterLocation.bypassSchemaCheck autoCompact.enabled autoCompact.maxFileSize autoCompact.minNumFiles
catalog.update.enabled changeDataFeed.timestampOutOfRange.enabled checkLatestSchemaOnRead
checkpoint.partSize clusteredTable.enableClusteringTablePreview commitInfo.userMetadata
commitMetrics.enabled constraints.assumesDropIfExists.enabled
convert.iceberg.partitionEvolution.enabled convert.iceberg.useNativePartitionValues
convert.metadataCheck.enabled convert.partitionValues.ignoreCastFailure convert.useCatalogSchema
convert.useMetadataLog deltaLog.minorCompaction.useForReads history.metricsEnabled
hudi.maxPendingCommits iceberg.maxPendingActions iceberg.maxPendingCommits
lastCommitVersionInSession maxCommitAttempts merge.materializeSource.maxAttempts
merge.repartitionBeforeWrite.enabled optimize.repartition.enabled optimizeWrite.binSize
optimizeWrite.enabled optimizeWrite.maxShufflePartitions optimizeWrite.numShuffleBlocks
properties.defaults.appendOnly properties.defaults.enableChangeDataFeed
properties.defaults.enableRowTracking properties.defaults.ignoreProtocolDefaults
properties.defaults.minReaderVersion properties.defaults.minWriterVersion
replaceWhere.constraintCheck.enabled replaceWhere.dataColumns.enabled
restore.protocolDowngradeAllowed retentionDurationCheck.enabled schema.autoMerge.enabled
stalenessLimit stats.skipping tableFeatures.fastDropFeature.dvTombstoneCountThreshold
uniform.iceberg.maxActionsToConvertForCommitLarge v2.enableMode vacuum.lite.enabled
vacuum.logging.enabled vacuum.parallelDelete.enabled vacuum.parallelDelete.parallelism
withEventTimeOrder.enabled write.txnAppId write.txnVersion write.txnVersion.autoReset.enabled
writeChecksumFile.enabled
"""


TABLE = ("setting_table",)
"""The modules with the rows; `settings` has only the prefix that they share."""


class Sources:
    """The modules of src, and the rows of the table by the names of their constants."""

    def __init__(self) -> None:
        self.trees = {
            path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
            for path in SOURCE.rglob("*.py")
        }
        self.tables = {f"spark/conf/{name}.py" for name in TABLE}
        self.rows = {
            name: row
            for name, row in vars(setting_table).items()
            if isinstance(row, Setting | SettingFamily)
        }
        # Constants of layers below, which name their keys in errors or get a mapping of settings.
        self.below = {
            name
            for path in self.tables
            for node in ast.walk(self.trees[path])
            if isinstance(node, ast.ImportFrom)
            for name in (alias.name for alias in node.names)
        }

    def spelled(self, path: str) -> list[str]:
        """The keys that a module spells, but those of constants that the table imports."""
        tree = self.trees[path]
        known = {
            id(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in self.below
        }
        return [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if _KEY.match(node.value) and id(node) not in known
        ]

    def names(self) -> set[str]:
        """The names that modules other than the table use, imports aside."""
        return {
            node.id
            for path, tree in self.trees.items()
            if path not in self.tables
            for node in ast.walk(tree)
            if isinstance(node, ast.Name)
        }


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


def test_no_module_beside_the_table_spells_a_key(sources: Sources) -> None:
    spelled = {path: sources.spelled(path) for path in sources.trees if path not in sources.tables}
    assert {path: keys for path, keys in spelled.items() if keys} == {}


def test_keys_are_not_put_together_of_the_prefix(sources: Sources) -> None:
    users = {
        path
        for path, tree in sources.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in ("DELTA_PREFIX", "full_key")
    }
    assert users == {*sources.tables, "spark/conf/session_settings.py"}


def test_every_row_is_used_by_its_name(sources: Sources) -> None:
    assert len(sources.rows) > 80
    assert sorted(sources.rows.keys() - sources.names()) == []
    assert set(sources.rows.values()) == set(HONOURED)


def test_a_setting_is_read_by_its_row_alone(sources: Sources) -> None:
    """Nobody looks its key up to parse the text himself."""
    looked_up = [
        f"{path}:{node.lineno}"
        for path, tree in sources.trees.items()
        if not path.startswith("spark/conf/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "conf")
        for key in node.args
        if isinstance(key, ast.Attribute) and key.attr == "key"
        if isinstance(key.value, ast.Name) and key.value.id in sources.rows
    ]
    assert looked_up == []


@pytest.mark.parametrize("row", [row for row in HONOURED if isinstance(row, Setting)])
def test_a_row_gives_its_default_where_the_key_is_not_set(row: Setting[object]) -> None:
    assert row.by({}.get) == row.default
    if row.default is not None:
        assert row.by({row.key: row.default_text}.get) == row.default


@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (AUTO_MERGE, "TRUE", True),
        (STATS_COLLECT, "false", False),
        (OPTIMIZE_WRITE_BIN_SIZE, "64", 64 << 20),
        (OPTIMIZE_WRITE_BIN_SIZE, "64b", 64),
        (OPTIMIZE_MIN_FILE_SIZE, "0", 0),
        (OPTIMIZE_MAX_DELETED, "0.5", 0.5),
        (CHANGE_FEED_SCHEMA_MODE, "endversion", SchemaMode.END_VERSION),
        (WIDENING_MODE, "SAME_FAMILY_TYPE", TypeWideningMode.SAME_FAMILY),
        (ALLOWED_LOCATIONS, " /a, ,s3://b ", ("/a", "s3://b")),
        (TXN_VERSION, str(2**63 - 1), 2**63 - 1),
    ],
)
def test_a_text_becomes_a_value(row: Setting[object], text: str, value: object) -> None:
    assert row.by({row.key: text}.get) == value


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (AUTO_MERGE, "yes"),
        (AUTO_MERGE, ""),
        (OPTIMIZE_WRITE_BIN_SIZE, "much"),
        (OPTIMIZE_MIN_FILE_SIZE, "-1"),
        (OPTIMIZE_MAX_DELETED, "2"),
        (OPTIMIZE_MAX_DELETED, "nan"),
        (CHANGE_FEED_SCHEMA_MODE, "newest"),
        (WIDENING_MODE, "sometimes"),
        (MERGE_SOURCE, "some"),
        (TXN_VERSION, str(2**63)),
    ],
)
def test_a_text_that_is_no_value_is_refused(row: Setting[object], text: str) -> None:
    with pytest.raises(PropertyError) as caught:
        row.by({row.key: text}.get)
    assert caught.value.condition == "DELTA_ILLEGAL_OPTION"
    assert caught.value.parameters["name"] == row.key


def test_every_documented_setting_is_in_the_table_once() -> None:
    rows = (*HONOURED, *NOT_HONOURED)
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)
    documented = [f"spark.databricks.delta.{name}" for name in DOCUMENTED.split()]
    assert [key for key in documented if row_of(key, rows) is None] == []
    assert all(row.effect for row in rows)
    assert all(row.reason for row in NOT_HONOURED)


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page()


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Iterator[SparkTable]:
    yield SparkTable(enable(spark), table_path)
    disable(spark)


def append(table: SparkTable, start: int) -> None:
    data = table.spark.range(start, start + 10, 1, 1).selectExpr("id", "repeat('x', 40) AS s")
    data.write.format("delta").mode("append").save(str(table.path))


def log_files(table: SparkTable) -> set[str]:
    return {each.name for each in (table.path / "_delta_log").iterdir()}


def test_settings_of_statistics_commits_and_checkpoints_have_their_effect(
    table: SparkTable,
) -> None:
    spark = table.spark
    settings = {
        "spark.databricks.delta.properties.defaults.checkpointInterval": "3",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
        "spark.databricks.delta.checkpoint.partSize": "2",
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.databricks.delta.history.metricsEnabled": "false",
        "spark.databricks.io.skipping.stringPrefixLength": "7",
    }
    with conf(spark, **settings):
        for start in (0, 10, 20, 30):
            append(table, start)
    assert table.log.wait_for_hooks(60)
    parts = sorted(name for name in log_files(table) if ".checkpoint." in name)
    assert [name.partition(".checkpoint.")[2] for name in parts] == [
        "0000000001.0000000002.parquet",
        "0000000002.0000000002.parquet",
    ]
    assert not any(name.endswith(".crc") for name in log_files(table))
    stats = [json.loads(file.stats or "") for file in table.files]
    assert {each["minValues"]["s"] for each in stats} == {"x" * 7}
    (newest,) = spark.sql(f"DESCRIBE HISTORY delta.`{table.path}` LIMIT 1").collect()
    assert not newest["operationMetrics"]
    few = spark.read.format("delta").load(str(table.path)).where("id = 35")
    assert len(few.inputFiles()) == 1
    with conf(spark, **{"spark.databricks.delta.stats.skipping": "false"}):
        all_files = spark.read.format("delta").load(str(table.path)).where("id = 35")
        assert len(all_files.inputFiles()) == 4
        assert all_files.count() == 1
    with (
        conf(spark, **{"spark.databricks.delta.maxCommitAttempts": "0"}),
        pytest.raises(TooManyAttemptsError) as caught,
    ):
        append(table, 40)
    assert caught.value.condition == "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
    with (
        conf(spark, **{"spark.databricks.delta.checkpoint.partSize": "none"}),
        pytest.raises(PropertyError, match="whole number"),
    ):
        append(table, 40)


def test_partitions_are_pruned_without_statistics(table: SparkTable) -> None:
    table.write(table.spark.range(4).selectExpr("id", "id AS p"), "append", "p")
    with conf(table.spark, **{"spark.databricks.delta.stats.skipping": "false"}):
        found = table.spark.read.format("delta").load(str(table.path)).where("p = 2 AND id = 2")
        assert len(found.inputFiles()) == 1


def test_commands_open_every_file_where_statistics_may_not_rule_any_out(table: SparkTable) -> None:
    # Statistics that are wrong: a command that believes them misses the row.
    table.write(table.spark.range(4).coalesce(1))
    (add,) = table.files
    stats = json.loads(add.stats or "")
    stats["maxValues"]["id"] = 2
    wrong = replace(add, stats=json.dumps(stats), data_change=False)
    table.log.start_transaction().commit([wrong], write("Append"))
    source = table.spark.range(3, 4)

    def merge(handle: DeltaTable) -> None:
        matches = handle.alias("t").merge(source.alias("s"), "t.id = s.id AND t.id = 3")
        matches.whenMatchedUpdate(condition="t.id = 3", set={"id": "300"}).execute()

    changes: dict[str, Callable[[DeltaTable], object]] = {
        "merge": merge,
        "update": lambda handle: handle.update("id = 300", {"id": "3"}),
        "delete": lambda handle: handle.delete("id = 3"),
    }
    handle = DeltaTable.forPath(table.spark, str(table.path))
    handle.delete("id = 3")
    assert table.rows == [(0,), (1,), (2,), (3,)]
    with conf(table.spark, **{"spark.databricks.delta.stats.skipping": "false"}):
        for change in changes.values():
            change(handle)
        assert table.rows == [(0,), (1,), (2,)]


def test_protocol_defaults_of_the_session_are_ignored_where_asked_for(table: SparkTable) -> None:
    defaults = "spark.databricks.delta.properties.defaults."
    settings = {
        f"{defaults}minReaderVersion": "3",
        f"{defaults}minWriterVersion": "7",
        f"{defaults}feature.deletionVectors": "supported",
        f"{defaults}appendOnly": "true",
    }
    with conf(table.spark, **settings, **{f"{defaults}ignoreProtocolDefaults": "true"}):
        table.spark.sql(f"CREATE TABLE delta.`{table.path}` (id LONG) USING delta")
    snapshot = table.log.update()
    protocol = snapshot.protocol
    # Only what a property needs, and not even the default versions.
    assert protocol.min_reader_version == 1
    assert protocol.writer_features == ("appendOnly",)
    assert dict(snapshot.metadata.configuration) == {"delta.appendOnly": "true"}


def test_a_setting_without_an_effect_is_warned_about_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, table_path: Path
) -> None:
    caplog.set_level(logging.WARNING, logger="pyspark_delta")
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.stalenessLimit", "1h")
    session.conf.set("spark.databricks.delta.noSuchSetting", "1")
    session.conf.set("spark.databricks.delta.stats.skipping", "true")
    table = SparkTable(enable(session), table_path)
    try:
        append(table, 0)
        append(table, 10)
    finally:
        disable(session)
    told = [each.getMessage() for each in caplog.records if "has no effect" in each.getMessage()]
    assert len(told) == 2
    assert any("stalenessLimit has no effect: a query always reads" in text for text in told)
    assert any("noSuchSetting has no effect: it is not known" in text for text in told)
