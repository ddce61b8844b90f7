"""Makes the AddFile of each converted file one by one; they are never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.convert.files import DEFAULT_RULES, PartitionRules, create_add_file
from pyspark_delta.kernel.ops.footers.stats import LayoutStats
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.stats import (
    string_prefix_length,
    table_stats_columns,
)
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.spark.conf.progress import Progress
from pyspark_delta.spark.conf.setting_table import CONVERT_IGNORE_CAST_FAILURE
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.convert.files import is_uri
from pyspark_delta.spark.convert.footers import Footers
from pyspark_delta.spark.tables.column_checks import is_exact


def partition_rules(spark: SparkSession) -> PartitionRules:
    """How this session parses directory names."""
    return PartitionRules(
        zone=zone_named(session_zone(spark)),
        case_sensitive=is_exact(spark),
        ignore_cast_failure=CONVERT_IGNORE_CAST_FAILURE.of(spark),
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

    `metadata` is the new table's, and selects the columns with statistics.  With `absolute_paths`
    the log is not in the files' root, and has them by their URIs.
    """
    manifest = footers.manifest
    schema = partition_schema or StructType()
    stats_of = _layout_stats(footers, metadata, protocol)
    directory: object = None
    values: dict[str, str | None] = {}
    done = 0
    for rows in footers.rows():
        for at, path in enumerate(rows.paths):
            number = rows.partitions[at]
            if directory != manifest.directory(path, number):  # files of one come together
                directory = manifest.directory(path, number)
                values = manifest.partition_values(path, number, schema, rules)
            footer = rows.footers[at] if rows.footers is not None and footers.has_stats else None
            outside = is_uri(path)
            yield create_add_file(
                manifest.uri(path) if outside or absolute_paths else path,
                is_uri=outside or absolute_paths,
                size=rows.sizes[at],
                modification_time=rows.times[at],
                partition_values=values,
                stats=None if footer is None else stats_of(footer.layout).text(footer),
            )
        done += len(rows.paths)
        if progress is not None:
            progress("actions", done, footers.num_files)


def _layout_stats(
    footers: Footers, metadata: Metadata, protocol: Protocol
) -> Callable[[int], LayoutStats]:
    columns = table_stats_columns(metadata)
    has_vectors = "deletionVectors" in supported_features(protocol)

    @cache
    def stats(layout: int) -> LayoutStats:
        return LayoutStats(
            footers.layouts[layout],
            columns,
            tight_bounds=True if has_vectors else None,
            prefix_length=string_prefix_length(metadata),
        )

    return stats
