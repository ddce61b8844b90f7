"""Auto compaction: small files of the partitions that a write touched, written together after it.

A commit of its own, by the same session, once the write stands.  What goes wrong here is logged,
and the next write tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.ops.bin_packing import Sizes, plan_auto_compaction
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.domains import CLUSTERING
from pyspark_delta.kernel.protocol.operations import optimize
from pyspark_delta.kernel.protocol.properties import (
    AUTO_COMPACT,
    AUTO_OPTIMIZE,
    TARGET_FILE_SIZE,
    property_value,
)
from pyspark_delta.kernel.protocol.property_kinds import SIZE, Kind, whole
from pyspark_delta.kernel.protocol.row_tracking import PRESERVED_TAG
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.compact import compact, partition_predicates
from pyspark_delta.spark.commands.replaced_rows import hidden_columns
from pyspark_delta.spark.commands.write_options import Conf
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.staged_files import StagedFiles

logger = logging.getLogger(__name__)

_CONF = "spark.databricks.delta.autoCompact."
_MOST_SIZE = 128 << 20
_LEAST_FILES = 50
_MOST_PARTITIONS = 128


def is_auto_compacted(metadata: Metadata, conf: Conf) -> bool:
    """Whether a write is followed by a compaction: the session says so, or else the table."""
    said = conf(f"{_CONF}enabled")
    if said is not None:
        if said.lower() not in ("true", "false"):
            raise PropertyError(
                "DELTA_INVALID_AUTO_COMPACT_TYPE", value=said, allowed="true, false"
            )
        return said.lower() == "true"
    configuration = metadata.configuration
    both = property_value(configuration, AUTO_OPTIMIZE)
    return bool(both or property_value(configuration, AUTO_COMPACT))


def run_auto_compaction(
    spark: SparkSession, log: DeltaLog, added: Sequence[AddFile], conf: Conf
) -> int | None:
    """Compact around the files that a commit added; the version that did, None when none did."""
    try:
        return _compact(spark, log, added, conf)
    except Exception as error:
        logger.warning("the write stands, but its files were not compacted: %s", error)
        return None


def _compact(
    spark: SparkSession, log: DeltaLog, added: Sequence[AddFile], conf: Conf
) -> int | None:
    txn = log.start_transaction()
    snapshot = txn.snapshot
    if snapshot is None or CLUSTERING in snapshot.domains:
        return None  # files of a clustered table have an order that this would lose
    bins = plan_auto_compaction(
        snapshot.adds,
        snapshot.metadata,
        _sizes(snapshot.metadata, conf),
        added=[file.path for file in added],
        least_files=_number(conf, "minNumFiles", _LEAST_FILES),
        most_partitions=_number(conf, "maxNumModifiedPartitions", _MOST_PARTITIONS),
    )
    if not bins:
        return None
    with StagedFiles(txn) as staged:
        done = compact(JvmSession(spark), txn, bins, staged)
        touched = _partitions(snapshot.metadata, done.added)
        staged.offer()
        committed = txn.commit(
            done.actions(log.now_ms()),
            optimize(partition_predicates(touched), auto=True),
            tags={PRESERVED_TAG: "true"} if hidden_columns(txn).fields else None,
            metrics=done.metrics,
        )
    return committed.version


def _partitions(metadata: Metadata, files: Sequence[AddFile]) -> list[dict[str, str | None]]:
    """The partitions of files, each once, under the names that users know."""
    mode = mapping_mode(metadata)
    names = {physical_name(f, mode): f.name for f in metadata.partition_schema}
    found = {tuple(file.partition_values.items()): file.partition_values for file in files}
    return [{names.get(k, k): v for k, v in values.items()} for values in found.values()]


def _sizes(metadata: Metadata, conf: Conf) -> Sizes:
    asked = property_value(metadata.configuration, TARGET_FILE_SIZE) or _MOST_SIZE
    largest = _setting(conf, "maxFileSize", SIZE) or asked
    return Sizes(small=_setting(conf, "minFileSize", SIZE) or largest // 2, largest=largest)


def _number(conf: Conf, name: str, default: int) -> int:
    found = _setting(conf, name, whole(1))
    return default if found is None else found


def _setting(conf: Conf, name: str, kind: Kind[int]) -> int | None:
    text = conf(_CONF + name)
    if text is None:
        return None
    try:
        return kind.parse(text)
    except ValueError:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION", name=_CONF + name, input=text, explain=kind.needs
        ) from None
