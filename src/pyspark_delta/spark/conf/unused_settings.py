"""Settings of delta-spark that have no effect here, each with the reason.

>>> NOT_HONOURED[0].key
'spark.databricks.delta.checkLatestSchemaOnRead'
"""

from __future__ import annotations

from pyspark_delta.kernel.protocol.schema_checks import ALLOW_UNENFORCED_NOT_NULL
from pyspark_delta.spark.conf.settings import UnusedSetting, full_key

_NO_ICEBERG = "Iceberg tables are neither converted nor written"
_NO_HUDI = "Hudi metadata is not written"
_NO_SHUFFLE = "Spark's adaptive execution chooses them by optimizeWrite.binSize"


def _unused(name: str, effect: str, reason: str) -> UnusedSetting:
    return UnusedSetting(key=full_key(name), effect=effect, reason=reason)


NOT_HONOURED = (
    _unused(
        "checkLatestSchemaOnRead",
        "Refuse a held DataFrame whose table has another schema.",
        "the check cannot be turned off, for its rows would be wrong",
    ),
    _unused(
        "clusteredTable.enableClusteringTablePreview",
        "Allow clustered tables.",
        "clustered tables are always allowed",
    ),
    _unused(
        "commitMetrics.enabled",
        "Send metrics of commits to Unity Catalog.",
        "nothing is sent to a catalog",
    ),
    _unused(
        ALLOW_UNENFORCED_NOT_NULL,
        "Accept NOT NULL below arrays and maps, where it is not checked.",
        "a constraint that is not checked is always refused",
    ),
    _unused("convert.iceberg.*", "Conversion of Iceberg tables.", _NO_ICEBERG),
    _unused(
        "deltaLog.minorCompaction.useForReads",
        "Read log compactions.",
        "log compactions are always read",
    ),
    _unused("hudi.*", "Hudi metadata.", _NO_HUDI),
    _unused("iceberg.*", "Iceberg metadata.", _NO_ICEBERG),
    _unused(
        "optimizeWrite.maxShufflePartitions",
        "Partitions of the shuffle before a write.",
        _NO_SHUFFLE,
    ),
    _unused("optimizeWrite.numShuffleBlocks", "Blocks of the shuffle before a write.", _NO_SHUFFLE),
    _unused(
        "stalenessLimit",
        "How old a version a query may read.",
        "a query always reads the newest version, which costs one listing",
    ),
    _unused(
        "tableFeatures.fastDropFeature.dvTombstoneCountThreshold",
        "Tombstones of deletion vectors that are held in memory.",
        "tombstones are held as Arrow columns, whatever their number",
    ),
    _unused("uniform.*", "Iceberg metadata of commits.", _NO_ICEBERG),
    _unused(
        "v2.enableMode",
        "Which of delta-spark's two connectors is used.",
        "there is one way to read and write",
    ),
    _unused(
        "withEventTimeOrder.enabled",
        "Read the first version of a stream in the order of event times.",
        "the rows of the first version come in the order of the files",
    ),
)
