"""Footers read by Spark tasks: local files by Python, all others by Java and then by Python.

Executors have no `pyspark_delta`: what they need of it goes along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from pyspark_delta.kernel.ops import parquet_footers
from pyspark_delta.kernel.ops.parquet_footers import (
    FooterBlock,
    StatsRequest,
    footer_blocks,
    given_footer_blocks,
    joined_blocks,
    unpickled_block,
)
from pyspark_delta.spark.convert.tasks import run_by_value, run_on_rows, shared_items
from pyspark_delta.spark.jvm.footer_bytes import footer_bytes, has_file_system
from pyspark_delta.spark.jvm.gateway import JvmSession


def has_hadoop_footers(spark: SparkSession, location: str) -> bool:
    """Whether tasks can open files there; object stores may be known to the driver alone."""
    return has_file_system(JvmSession(spark), location, {})


def local_footers(
    spark: SparkSession, blocks: Sequence[Sequence[tuple[str, int]]], request: StatsRequest | None
) -> Iterator[FooterBlock]:
    """The footers of blocks of local files, given by path and size."""
    asked = None if request is None else tuple(request)
    found = run_by_value(spark, parquet_footers, partial(footer_blocks, asked), blocks)
    # One at a time: as objects they take ten times the room.
    return map(unpickled_block, found)


def hadoop_footers(
    spark: SparkSession,
    blocks: Sequence[Sequence[str]],
    options: Mapping[str, str],
    request: StatsRequest | None,
) -> Iterator[FooterBlock]:
    """The footers of blocks of files that Hadoop's FileSystem opens, given by location.

    A file that a task could not read has a problem, and not the reason for it.
    """
    asked = None if request is None else tuple(request)
    files = [(number, place) for number, places in enumerate(blocks) for place in places]
    frame = spark.createDataFrame(
        shared_items(spark, files), "block INT, location STRING", verifySchema=False
    )
    footer = footer_bytes(JvmSession(spark), col("location"), options)
    found = run_on_rows(
        frame.select("block", footer), parquet_footers, partial(given_footer_blocks, asked)
    )
    for _, parts in groupby(found, key=itemgetter(0)):
        yield joined_blocks([unpickled_block(data) for _, data in parts])
