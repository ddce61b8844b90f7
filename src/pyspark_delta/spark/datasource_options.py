"""What the Python data source is told: where the table is, and how to reach it.

A data source sees its options and nothing of the session: neither Hadoop's configuration nor the
session's time zone.  So credentials come from the options or the environment, and a time that
does not say its zone is refused unless the option `timeZone` does.

>>> storage_options(DeltaOptions({"fs.s3a.access.key": "AK", "versionAsOf": 3}))
{'fs.s3a.access.key': 'AK'}
"""

from __future__ import annotations

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.protocol.timestamps import parse_timestamp
from pyspark_delta.kernel.scan.literals import zone_named
from pyspark_delta.kernel.storage.storage_options import CLIENT_KEYS
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.datasource import needs_enabling
from pyspark_delta.spark.options import DeltaOptions

_STORAGE_PREFIXES = ("fs.", "dfs.", "spark.hadoop.", "aws_", "azure_", "google_")


def table_path(options: DeltaOptions) -> str:
    """The one path that was given; an error that names `enable` where a catalog's table is meant.

    Spark tells a data source nothing of a catalog's table, not even where it is.
    """
    if "paths" in options:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION", input=options["paths"], name="path", explain="needs one path"
        )
    path = options.get("path")
    if path is None or "provider" in options:
        raise needs_enabling("A Delta table of the catalog")
    if not path.strip():
        # It would be the directory that the process happens to be in.
        raise PropertyError("DELTA_ILLEGAL_OPTION", input=path, name="path", explain="needs a path")
    return path


def open_table(path: str, options: DeltaOptions) -> DeltaLog:
    """The log of the table at `path`."""
    return DeltaLog.for_table(path, storage_options(options) or None)


def storage_options(options: DeltaOptions) -> dict[str, str]:
    """The options that are for the store under a table."""
    return {
        key: value
        for key, value in options.items()
        if key.lower().startswith(_STORAGE_PREFIXES) or key.lower() in CLIENT_KEYS
    }


def given_zone(options: DeltaOptions) -> str | None:
    """The option `timeZone`, which must name one; None when it is not given."""
    zone = options.get("timeZone")
    if zone is not None:
        try:
            zone_named(zone)
        except ValueError:
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION",
                name="timeZone",
                input=zone,
                explain="there is no such time zone",
            ) from None
    return zone


def zone_of(time: str, options: DeltaOptions) -> str:
    """The zone in which the text of a time is to be read; an error when nothing says it."""
    zone = given_zone(options)
    if zone is not None:
        return zone
    if time.isdigit() or parse_timestamp(time, "UTC") != parse_timestamp(time, "+01:00"):
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            name="timestampAsOf",
            input=time,
            explain="it does not say its time zone, and that of the session is not known to a "
            "Python data source; write it as in 2024-01-31 12:00:00Z, or give the option timeZone",
        )
    return "UTC"
