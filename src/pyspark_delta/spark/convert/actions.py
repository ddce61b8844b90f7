"""The AddFile of each file, one after another: never all of them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.convert import (
    DEFAULT_RULES,
    PartitionRules,
    create_add_file,
    given_partition_values,
    partition_values,
)
from pyspark_delta.kernel.ops.footer_stats import LayoutStats
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    property_value,
)
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH
from pyspark_delta.kernel.protocol.stats_columns import stats_columns
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.spark.convert.footers import FileRows, Footers
from pyspark_delta.spark.convert.manifest import FileManifest, Progress, is_uri
from pyspark_delta.spark.exact_names import is_exact
from pyspark_delta.spark.reader import session_zone

IGNORE_CAST_FAILURE = "spark.databricks.delta.convert.partitionValues.ignoreCastFailure"
_NO_COLUMNS = StructType(())

_Values = dict[str, str | None]


def partition_rules(spark: SparkSession) -> PartitionRules:
    """How this session reads directory names."""
    return PartitionRules(
        zone=zone_named(session_zone(spark)),
        case_sensitive=is_exact(spark),
        ignore_cast_failure=str(spark.conf.get(IGNORE_CAST_FAILURE, "false")).lower() == "true",
    )


def create_delta_actions(
    footers: Footers,
    *,
    metadata: Metadata,
    protocol: Protocol,
    partition_schema: StructType | None = None,
    rules: PartitionRules = DEFAULT_RULES,
    absolute_paths: bool = False,
    progress: Progress | None = None,
) -> Iterator[AddFile]:
    """An action for each file of `footers`, in their order.

    `metadata` is the new table's, and says which columns have statistics.  With `absolute_paths`
    the log stands elsewhere than the files, and names them by their URIs.
    """
    manifest = footers.manifest
    values_of = _values_by_directory(manifest, partition_schema or _NO_COLUMNS, rules)
    stats_of = _StatsTexts(footers, metadata, protocol)
    done = 0
    for rows in footers.rows():
        for at, path in enumerate(rows.paths):
            outside = is_uri(path)
            yield create_add_file(
                manifest.uri(path) if outside or absolute_paths else path,
                is_uri=outside or absolute_paths,
                size=rows.sizes[at],
                modification_time=rows.times[at],
                partition_values=values_of(path, rows.partitions[at]),
                stats=stats_of(rows, at),
            )
        done += len(rows.paths)
        if progress is not None:
            progress("actions", done, footers.num_files)


def _values_by_directory(
    manifest: FileManifest, partition_schema: StructType, rules: PartitionRules
) -> Callable[[str, int | None], _Values]:
    """Partition values of a file; files of one directory come together and share them."""
    last: tuple[object, _Values] = (None, {})

    def values(path: str, partition: int | None) -> _Values:
        nonlocal last
        key = path.rpartition("/")[0] if partition is None else partition
        if last[0] != key:
            if partition is None:
                found = partition_values(path, partition_schema, rules)
            else:
                given = manifest.partitions[partition].values
                found = given_partition_values(given, partition_schema, rules)
            last = (key, found)
        return last[1]

    return values


class _StatsTexts:
    """The statistics of files as text; None without any."""

    def __init__(self, footers: Footers, metadata: Metadata, protocol: Protocol) -> None:
        configuration = metadata.configuration
        self._footers = footers
        self._columns = stats_columns(
            metadata.schema,
            metadata.partition_columns,
            num_indexed=property_value(configuration, NUM_INDEXED_COLUMNS),
            listed=configuration.get(STATS_COLUMNS.key),
        )
        prefix = property_value(configuration, STRING_PREFIX_LENGTH)
        self._prefix_length = DEFAULT_PREFIX_LENGTH if prefix is None else prefix
        has_vectors = "deletionVectors" in supported_features(protocol)
        self._tight_bounds = True if has_vectors else None
        self._by_layout: dict[int, LayoutStats] = {}

    def __call__(self, rows: FileRows, at: int) -> str | None:
        if rows.footers is None or not self._footers.has_stats:
            return None
        footer = rows.footers[at]
        known = self._by_layout.get(footer.layout)
        if known is None:
            known = self._by_layout[footer.layout] = LayoutStats(
                self._footers.layouts[footer.layout],
                self._columns,
                tight_bounds=self._tight_bounds,
                prefix_length=self._prefix_length,
            )
        return known.text(footer)
