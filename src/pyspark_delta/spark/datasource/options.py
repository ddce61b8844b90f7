"""Options of the Python data source: the table's path, and access to its store.

A data source sees its options and nothing of the session: neither the Hadoop configuration nor the
time zone.  So credentials come from the options or the environment, and a time without a zone is an
error unless the option `timeZone` is set.

>>> store_options(DeltaOptions({"fs.s3a.access.key": "AK", "versionAsOf": 3}))
{'fs.s3a.access.key': 'AK'}
"""

from __future__ import annotations

from pyspark_delta.kernel.protocol.commit_times import parse_commit_time
from pyspark_delta.kernel.scan.predicates.literals import zone_named
from pyspark_delta.kernel.storage.storage_options import CLIENT_KEYS
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.options import DeltaOptions, illegal_option
from pyspark_delta.spark.datasource.source import needs_enabling

_STORAGE_PREFIXES = ("fs.", "dfs.", "spark.hadoop.", "aws_", "azure_", "google_")


def table_path(options: DeltaOptions) -> str:
    """The single path among the options; the error for a catalog table names `enable`.

    Spark passes a data source nothing about a catalog table, not even its location.
    """
    if "paths" in options:
        raise illegal_option("path", options["paths"], "needs one path")
    path = options.get("path")
    if path is None or "provider" in options:
        raise needs_enabling("A Delta table of the catalog")
    if not path.strip():
        # It would mean the current directory of the process.
        raise illegal_option("path", path, "needs a path")
    return path


def open_table(path: str, options: DeltaOptions) -> DeltaLog:
    """The log of the table at `path`."""
    return DeltaLog.for_table(path, store_options(options) or None)


def store_options(options: DeltaOptions) -> dict[str, str]:
    """The options for the table's store."""
    return {
        key: value
        for key, value in options.items()
        if key.lower().startswith(_STORAGE_PREFIXES) or key.lower() in CLIENT_KEYS
    }


def given_zone(options: DeltaOptions) -> str | None:
    """The option `timeZone`, checked to be a zone; None when it is not given."""
    zone = options.get("timeZone")
    if zone is not None:
        try:
            zone_named(zone)
        except ValueError:
            raise illegal_option("timeZone", zone, "there is no such time zone") from None
    return zone


def zone_of(time: str, options: DeltaOptions) -> str:
    """The zone for parsing a time; raises when neither the text nor the options have one."""
    zone = given_zone(options)
    if zone is not None:
        return zone
    if time.isdigit() or parse_commit_time(time, "UTC") != parse_commit_time(time, "+01:00"):
        reason = (
            "it does not say its time zone, and that of the session is not known to a "
            "Python data source; write it as in 2024-01-31 12:00:00Z, or give the option timeZone"
        )
        raise illegal_option("timestampAsOf", time, reason)
    return "UTC"
