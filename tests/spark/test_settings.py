"""The table of settings: complete, true to the sources, and with the effect that it names."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_delta
from pyspark_delta import disable, enable
from pyspark_delta.errors.table import PropertyError, TooManyAttemptsError
from pyspark_delta.spark.settings import HONOURED, NOT_HONOURED, row_of, settings_page
from tests.support.spark_tables import SparkTable, conf

SOURCE = Path(pyspark_delta.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
_PREFIX = "spark.databricks."
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


class Spelled:
    """The keys that the sources spell, in one text or put together of a prefix and a name."""

    def __init__(self) -> None:
        # The table itself is no proof that somebody reads a key.
        paths = [path for path in SOURCE.rglob("*.py") if path.name != "settings.py"]
        self._trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
        self._constants: dict[str, str] = {}
        for _ in range(3):  # a prefix may be made of another
            self._note_constants()
        nodes = [node for tree in self._trees for node in ast.walk(tree)]
        texts = [self._text(node) for node in nodes if isinstance(node, ast.expr)]
        self.texts = {text for text in texts if text is not None}
        self.keys = {
            text
            for text in self.texts
            if text.startswith(_PREFIX) and not text.endswith(".") and "{" not in text
        }

    def has(self, key: str) -> bool:
        if key in self.keys:
            return True
        if key.endswith("*"):
            directory, _, name = key[:-1].rpartition(".")
            begun = [text for text in self.texts if name and text.startswith(name)]
            return f"{directory}." in self.texts and (bool(begun) or not name)
        found = [text for text in self.texts if len(text) > 5 and key.endswith(text)]
        return any(key.startswith(_PREFIX) and "." in key.removesuffix(text) for text in found)

    def _note_constants(self) -> None:
        for tree in self._trees:
            for node in tree.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        text = self._text(value)
                        if text is not None and text.startswith(_PREFIX):
                            self._constants[name] = text

    def _text(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.JoinedStr(values=values):
                return "".join(self._text(value) or "{}" for value in values)
            case ast.FormattedValue(value=ast.Name(id=name)):
                return self._constants.get(name)
        return None


@pytest.fixture(scope="module")
def spelled() -> Spelled:
    return Spelled()


def test_every_key_that_the_sources_spell_is_in_the_table(spelled: Spelled) -> None:
    assert len(spelled.keys) > 50
    rows = (*HONOURED, *NOT_HONOURED)
    assert [key for key in sorted(spelled.keys) if row_of(key, rows) is None] == []


@pytest.mark.parametrize("key", [row.key for row in HONOURED])
def test_a_setting_that_is_called_honoured_is_read_somewhere(spelled: Spelled, key: str) -> None:
    constants = {"checkpoint.partSize", "maxCommitAttempts", "history.metricsEnabled"}
    constants |= {"writeChecksumFile.enabled", "stats.skipping", "skipping.stringPrefixLength"}
    constants |= {"checksum.mismatch.fatal"}
    if any(key.endswith(name) for name in constants):
        return  # read by their rows; the tests below show their effects
    assert spelled.has(key)


def test_every_documented_setting_is_in_the_table_once() -> None:
    rows = (*HONOURED, *NOT_HONOURED)
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)
    documented = [f"spark.databricks.delta.{name}" for name in DOCUMENTED.split()]
    assert [key for key in documented if row_of(key, rows) is None] == []
    assert all(row.not_honoured is None for row in HONOURED)
    assert all(row.not_honoured for row in NOT_HONOURED)


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
