"""From a location as a user spells it to the table's log, and back to what Hadoop calls it.

The one place of the Spark layer that opens logs, so that every command reaches a table with the
same store and the same credentials.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pyspark_delta.kernel.storage.resolve import parse_location
from pyspark_delta.kernel.txn.delta_log import DeltaLog

# Hadoop's names of the schemes whose canonical form it does not know.
_HADOOP_SCHEMES = {"s3": "s3a"}


def open_log(
    spark: SparkSession, location: str, options: Mapping[str, str] | None = None
) -> DeltaLog:
    """The log of the table at `location`; `options` are those of the reader or writer."""
    return DeltaLog.for_table(location)


def hadoop_location(root_uri: str) -> str:
    """The decoded location of a table, as Hadoop's Path takes it."""
    place = parse_location(root_uri)
    scheme = _HADOOP_SCHEMES.get(place.scheme, place.scheme)
    authority = f"//{place.authority}" if place.authority else ""
    return f"{scheme}:{authority}{place.path}"
