"""From a location as a user spells it to the table's log, and back to what Hadoop calls it.

The one place of the Spark layer that opens logs, so that every command reaches a table with the
same store and the same credentials.  Locations are as Hadoop's Path takes them: a `%` is a `%`,
with a scheme in front or without one.

>>> hadoop_location("file:///a%20b")
'file:/a b'
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from urllib.parse import unquote
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.resolve import PROVIDERS
from pyspark_delta.kernel.storage.uris import (
    LOCAL_AUTHORITIES,
    absolute_uri,
    canonical_scheme,
    redacted_uri,
)
from pyspark_delta.kernel.txn.commit import CommitSettings
from pyspark_delta.kernel.txn.delta_log import CACHE_SIZE, DeltaLog
from pyspark_delta.spark.hadoop_credentials import file_system_options, storage_options
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import default_file_system, properties, qualified_location
from pyspark_delta.spark.jvm.hadoop_store import HadoopStore
from pyspark_delta.spark.session_settings import commit_settings
from pyspark_delta.spark.settings import CHECKSUM_MISMATCH_IS_FATAL

_SCHEME = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]+):(?=/)|(file):)", re.IGNORECASE)
_LOCAL = "file"
_KERNEL_ONLY = "memory"  # for trying things out: nothing of Spark's can read it
_AZURE_BLOBS = ("wasb", "wasbs")
# Hadoop's names of the schemes whose canonical form it does not know.
_HADOOP_SCHEMES = {"s3": "s3a"}
# How a bucket was last spelled by a user: Hadoop may have another client for each spelling.
_SPELLED: dict[tuple[str, str], tuple[str, str]] = {}
# Logs that were opened with other options are on other stores.
_GIVEN: WeakKeyDictionary[LogStore, Mapping[str, str]] = WeakKeyDictionary()
_HADOOP_LOGS: OrderedDict[tuple[str, str, str, bool], DeltaLog] = OrderedDict()
_LOCK = Lock()

SETTLED_SECONDS = 0.05
"""How long a command waits until files behind its commit no longer come and go in a local table.

Programs delete a table right after their last command, tests above all, and a file that appears or
goes meanwhile fails that.  A checkpoint that takes longer is not worth the wait.
"""


def open_log(
    spark: SparkSession, location: str, options: Mapping[str, str] | None = None
) -> DeltaLog:
    """The log of the table at `location`; `options` are those of the reader or writer.

    Local files and the object stores of S3, Google and Azure are served directly, with the
    credentials of the session's Hadoop configuration; all else through Hadoop's FileSystem.
    """
    jvm = JvmSession(spark)
    given = file_system_options(options)
    location = _with_scheme(jvm, location, given)
    scheme, authority, path = _split(location)
    verify = CHECKSUM_MISMATCH_IS_FATAL.value(spark) is not False
    if scheme == _LOCAL:
        if authority not in LOCAL_AUTHORITIES:
            raise _invalid(location, "it names another host; write file:///path")
        local = DeltaLog.for_table(path or "/", verify_checksums=verify)
        local.hook_seconds = SETTLED_SECONDS
        return _with_settings(spark, local)
    bucket_scheme, bucket = _bucket(scheme, authority)
    if bucket_scheme == _KERNEL_ONLY:
        uri = absolute_uri(bucket_scheme, bucket, path)
        return _with_settings(spark, DeltaLog.for_table(uri, verify_checksums=verify))
    if bucket_scheme not in PROVIDERS:
        log = _hadoop_log(spark, location, given, verify)
    else:
        uri = absolute_uri(bucket_scheme, bucket, _normal(path))
        settings = storage_options(jvm, PROVIDERS[bucket_scheme], bucket, given)
        log = DeltaLog.for_table(uri, settings, verify_checksums=verify)
        _remember_spelling(jvm, scheme, authority)
    if given:
        _GIVEN[log.store] = given
    return _with_settings(spark, log)


def _with_settings(spark: SparkSession, log: DeltaLog) -> DeltaLog:
    """The log, whose commits from here on have the settings of the session.

    A log is shared by sessions and outlives them, so it does not hold one.
    """
    session = ref(spark)

    def settings() -> CommitSettings:
        found = session()
        return CommitSettings() if found is None else commit_settings(found)

    log.commit_settings = settings
    return log


def scan_options(store: LogStore) -> Mapping[str, str]:
    """The options for the file system with which the log on a store was opened.

    Its rows are read through another client, which needs them too.  They may hold secrets.
    """
    return _GIVEN.get(store, {})


def location_uri(spark: SparkSession, location: str) -> str:
    """The canonical URI of a location: what the store that `open_log` gives calls its root."""
    scheme, authority, path = _split(_with_scheme(JvmSession(spark), location, {}))
    if scheme == _LOCAL:
        return absolute_uri(scheme, "", posixpath.abspath(path or "/"))
    return absolute_uri(*_bucket(scheme, authority), _normal(path))


def hadoop_location(root_uri: str) -> str:
    """The decoded location of a table or a file, as Hadoop's Path takes it.

    Of several spellings of a bucket's scheme it is the user's own.
    """
    scheme, _, rest = root_uri.partition("://")
    authority, _, path = rest.partition("/")
    spelled = _SPELLED.get((scheme, authority))
    scheme, authority = spelled or (_HADOOP_SCHEMES.get(scheme, scheme), authority)
    host = f"//{authority}" if authority else ""
    return f"{scheme}:{host}/{unquote(path, errors='surrogateescape')}"


def is_same_location(one: str, other: str) -> bool:
    """Whether two spellings, as users or a catalog give them, are of one place."""
    return _canonical(one) == _canonical(other)


def ancestors(location: str) -> Iterator[str]:
    """The directories above a location, the nearest first."""
    found = _SCHEME.match(location)
    head = location[: found.end()] if found else ""
    rest = location[len(head) :]
    if found and rest.startswith("//") and not location.lower().startswith(_LOCAL):
        host, _, rest = rest[2:].partition("/")
        head, rest = f"{head}//{host}", f"/{rest}"
    rest = rest.rstrip("/")
    while "/" in rest:
        rest = rest.rpartition("/")[0].rstrip("/")
        if rest or location.startswith("/") or found:
            yield head + (rest or "/")


def _with_scheme(jvm: JvmSession, location: str, options: Mapping[str, str]) -> str:
    """The location with its scheme; what has none belongs to Hadoop's default file system."""
    if _SCHEME.match(location):
        return location
    if not location or "\0" in location:
        raise _invalid(location, "it is empty or holds a NUL character")
    if location.startswith("/") and default_file_system(jvm).lower().startswith("file:"):
        return f"file:{location}"
    try:
        return qualified_location(jvm, location, options)
    except JAVA_FAILURES:
        raise _invalid(location, "Hadoop's default file system does not take it") from None


def _split(location: str) -> tuple[str, str, str]:
    """Scheme in lower case, authority and literal path."""
    scheme, _, rest = location.partition(":")
    if not rest.startswith("//"):
        return scheme.lower(), "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme.lower(), authority, slash + path


def _canonical(location: str) -> tuple[str, str, str]:
    has_scheme = _SCHEME.match(location) is not None
    scheme, authority, path = _split(location if has_scheme else f"file:{location}")
    if scheme == _LOCAL:
        return scheme, "", _normal(posixpath.abspath(path))
    return (*_bucket(scheme, authority), _normal(path))


def _normal(path: str) -> str:
    """A path as Hadoop's Path keeps it: no empty segments, none that is '.' or '..'."""
    return re.sub("^/+", "/", posixpath.normpath(path or "/"))


def _bucket(scheme: str, authority: str) -> tuple[str, str]:
    """The canonical scheme, and the authority that goes with it."""
    if scheme in _AZURE_BLOBS:
        return "abfss", authority.replace(".blob.", ".dfs.", 1)
    return canonical_scheme(scheme), authority


def _remember_spelling(jvm: JvmSession, scheme: str, authority: str) -> None:
    spelled = scheme
    if scheme in _HADOOP_SCHEMES and f"fs.{scheme}.impl" not in properties(jvm, [f"fs.{scheme}."]):
        spelled = _HADOOP_SCHEMES[scheme]
    _SPELLED[_bucket(scheme, authority)] = (spelled, authority)


def _hadoop_log(
    spark: SparkSession, location: str, options: Mapping[str, str], verify: bool
) -> DeltaLog:
    """The log behind Hadoop's FileSystem; one table opened twice is one object, as elsewhere."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
    key = (spark.sparkContext.applicationId, location.rstrip("/"), digest, verify)
    with _LOCK:
        log = _HADOOP_LOGS.get(key)
    if log is None:
        log = DeltaLog(HadoopStore(spark, location, options), verify_checksums=verify)
    with _LOCK:
        log = _HADOOP_LOGS.setdefault(key, log)
        _HADOOP_LOGS.move_to_end(key)
        while len(_HADOOP_LOGS) > CACHE_SIZE:
            _HADOOP_LOGS.popitem(last=False)
    return log


def _invalid(location: str, reason: str) -> StorageError:
    return StorageError(
        "DELTA_STORAGE_INVALID_LOCATION", path=redacted_uri(location), reason=reason
    )
