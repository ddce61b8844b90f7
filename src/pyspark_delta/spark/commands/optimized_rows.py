"""Optimized writes: rows brought together before they are written, where somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.properties import (
    AUTO_OPTIMIZE,
    OPTIMIZE_WRITE,
    property_value,
)
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.rebalance import rebalance_settings, rebalanced


def optimized_rows(
    jvm: JvmSession, rows: DataFrame, metadata: Metadata, asked: WriteOptions
) -> tuple[DataFrame, Mapping[str, str] | None]:
    """`rows` as they go to the writer, and the settings that they are planned with, if any."""
    configuration = metadata.configuration
    by_property = property_value(configuration, OPTIMIZE_WRITE)
    if by_property is None:
        by_property = property_value(configuration, AUTO_OPTIMIZE)
    if not asked.optimizes_files(by_property):
        return rows, None
    size = asked.bin_size(configuration)
    moved = rebalanced(jvm, rows, metadata.partition_columns, size)
    return moved, rebalance_settings(size)
