"""From a location as a user spells it to the table's log: stores, credentials, allowed places.

The one place of the Spark layer that opens logs, so that every command reaches a table with the
same store and the same credentials.  Locations are as Hadoop's Path takes them: a `%` is a `%`,
with a scheme in front or without one.

Credentials for object stores come from the Hadoop configuration that Spark already has.  The keys
stay Hadoop's, and `kernel.storage` understands them; this module knows which of them a store needs,
and what Hadoop's own clients derive from others.  No value is ever in a message.

>>> hadoop_location("file:///a%20b")
'file:/a b'
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from urllib.parse import unquote
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession

from pyspark_delta.errors import StorageError
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
from pyspark_delta.spark.conf.options import FILE_SYSTEM_PREFIXES
from pyspark_delta.spark.conf.session_settings import commit_settings
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS, CHECKSUM_MISMATCH_IS_FATAL
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop.conf import (
    default_file_system,
    passwords,
    properties,
    qualified_location,
)
from pyspark_delta.spark.jvm.hadoop.store import HadoopStore

# Provider -> what its keys begin with.
_PROVIDER_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "s3": ("fs.s3a.", "fs.s3n.", "fs.s3."),
    "gs": ("fs.gs.", "google.cloud."),
    "azure": ("fs.azure.",),
}
_S3_REGION = re.compile(
    r"(?:https?://)?(?:[\w-]+\.)*s3[.-](?:dualstack\.)?([a-z]{2}-[a-z-]+-\d)\.amazonaws"
)
_GS_KEY = "fs.gs.auth.service.account."
_OLD_GS_KEY = "google.cloud.auth.service.account."
_TOKEN_URI = "https://oauth2.googleapis.com/token"


def with_region(found: Mapping[str, str], bucket: str) -> dict[str, str]:
    """The entries with the region of S3, which Hadoop's client derives from the endpoint.

    >>> settings = with_region({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "b")
    >>> settings["fs.s3a.endpoint.region"]
    'eu-west-1'
    """
    completed = dict(found)
    for prefix in ("fs.s3a.", f"fs.s3a.bucket.{bucket}."):
        match = _S3_REGION.match(completed.get(f"{prefix}endpoint", ""))
        if match is not None:
            completed.setdefault(f"{prefix}endpoint.region", match[1])
    return completed


def with_service_account(found: Mapping[str, str]) -> dict[str, str]:
    """The entries with the key of a Google service account in the one form that clients take."""
    completed = dict(found)
    key_file = completed.get(f"{_OLD_GS_KEY}json.keyfile")
    if key_file:
        completed.setdefault(f"{_GS_KEY}json.keyfile", key_file)
    parts = {
        name: completed.get(f"{_GS_KEY}{key}") or completed.get(f"{_OLD_GS_KEY}{key}", "")
        for name, key in (
            ("client_email", "email"),
            ("private_key", "private.key"),
            ("private_key_id", "private.key.id"),
        )
    }
    if all(parts.values()):
        # In a configuration file that was written by hand, a line break is two characters.
        parts["private_key"] = parts["private_key"].replace("\\n", "\n")
        completed["google_service_account_key"] = json.dumps(
            {"type": "service_account", "token_uri": _TOKEN_URI, **parts}
        )
    return completed


_SCHEME = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]+):(?=/)|(file):)", re.IGNORECASE)
_LOCAL_SCHEME = "file"
_KERNEL_ONLY = "memory"  # for experiments: Spark cannot read it
_AZURE_BLOBS = ("wasb", "wasbs")
# Hadoop's names of schemes that differ from our canonical ones.
_HADOOP_SCHEMES = {"s3": "s3a"}
# Scheme and authority of a bucket as a user last spelled them: Hadoop may have a client for each.
_USER_SPELLINGS: dict[tuple[str, str], tuple[str, str]] = {}
# The file system options of stores; a log that is opened with other options has another store.
_OPTIONS_OF_STORES: WeakKeyDictionary[LogStore, Mapping[str, str]] = WeakKeyDictionary()
_HADOOP_LOGS: OrderedDict[tuple[str, str, str, bool], DeltaLog] = OrderedDict()
_HADOOP_LOGS_LOCK = Lock()
SETTLED_SECONDS = 0.05
"""How long a command waits until files behind its commit no longer come and go in a local table.

Programs delete a table right after their last command, tests above all, and that fails when a file
appears or vanishes meanwhile.  A checkpoint that takes longer is not worth the wait.
"""


def file_system_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """The options of a reader or writer that are for the file system."""
    return {k: value for k, value in (options or {}).items() if k.startswith(FILE_SYSTEM_PREFIXES)}


def storage_options(
    jvm: JvmSession, provider: str, bucket: str, options: Mapping[str, str]
) -> dict[str, str]:
    """The settings for a store of `provider`; `options` override the configuration."""
    found = properties(jvm, _PROVIDER_PREFIXES[provider])
    found |= passwords(jvm, [name for name in _secret_keys(provider, bucket) if name not in found])
    found |= options
    if provider == "s3":
        return with_region(found, bucket)
    return with_service_account(found) if provider == "gs" else found


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
    scheme, authority, path = _split_location(location)
    verify = CHECKSUM_MISMATCH_IS_FATAL.of(spark)
    if scheme == _LOCAL_SCHEME:
        if authority not in LOCAL_AUTHORITIES:
            raise _invalid_location(location, "it names another host; write file:///path")
        local = DeltaLog.for_table(path or "/", verify_checksums=verify)
        local.hook_seconds = SETTLED_SECONDS
        return _with_settings(spark, local)
    bucket_scheme, bucket = _canonical_bucket(scheme, authority)
    if bucket_scheme == _KERNEL_ONLY:
        uri = absolute_uri(bucket_scheme, bucket, path)
        return _with_settings(spark, DeltaLog.for_table(uri, verify_checksums=verify))
    if bucket_scheme not in PROVIDERS:
        log = _hadoop_log(spark, location, given, verify)
    else:
        uri = absolute_uri(bucket_scheme, bucket, _normal_path(path))
        settings = storage_options(jvm, PROVIDERS[bucket_scheme], bucket, given)
        log = DeltaLog.for_table(uri, settings, verify_checksums=verify)
        _remember_spelling(jvm, scheme, authority)
    if given:
        _OPTIONS_OF_STORES[log.store] = given
    return _with_settings(spark, log)


def scan_options(store: LogStore) -> Mapping[str, str]:
    """The options for the file system with which the log on a store was opened.

    Its rows are read through another client, which needs them too.  They may hold secrets.
    """
    return _OPTIONS_OF_STORES.get(store, {})


def location_uri(spark: SparkSession, location: str) -> str:
    """The canonical URI of a location: the root of the store that `open_log` gives."""
    scheme, authority, path = _split_location(_with_scheme(JvmSession(spark), location, {}))
    if scheme == _LOCAL_SCHEME:
        return absolute_uri(scheme, "", posixpath.abspath(path or "/"))
    return absolute_uri(*_canonical_bucket(scheme, authority), _normal_path(path))


def hadoop_location(root_uri: str) -> str:
    """The decoded location of a table or a file, as Hadoop's Path takes it.

    A bucket has the scheme with which the user spelled it.
    """
    scheme, _, rest = root_uri.partition("://")
    authority, _, path = rest.partition("/")
    spelled = _USER_SPELLINGS.get((scheme, authority))
    scheme, authority = spelled or (_HADOOP_SCHEMES.get(scheme, scheme), authority)
    host = f"//{authority}" if authority else ""
    return f"{scheme}:{host}/{unquote(path, errors='surrogateescape')}"


def is_same_location(one: str, other: str) -> bool:
    """Whether two spellings, as users or a catalog give them, are of one place."""
    return _canonical_location(one) == _canonical_location(other)


def ancestors(location: str) -> Iterator[str]:
    """The directories above a location, the nearest first."""
    found = _SCHEME.match(location)
    head = location[: found.end()] if found else ""
    rest = location[len(head) :]
    if found and rest.startswith("//") and not location.lower().startswith(_LOCAL_SCHEME):
        host, _, rest = rest[2:].partition("/")
        head, rest = f"{head}//{host}", f"/{rest}"
    rest = rest.rstrip("/")
    while "/" in rest:
        rest = rest.rpartition("/")[0].rstrip("/")
        if rest or location.startswith("/") or found:
            yield head + (rest or "/")


def allowed_stores(spark: SparkSession) -> tuple[LogStore, ...]:
    """The stores of the places that the session allows, by ALLOWED_LOCATIONS.

    A log is untrusted text: by itself it may only name files in its own table.  Tables with files
    elsewhere (partitions of a converted catalog table, a shallow clone) need the permission of the
    session, or of the catalog, which then becomes the session's.
    """
    return tuple(open_log(spark, location).store for location in ALLOWED_LOCATIONS.of(spark))


def allow_places(spark: SparkSession, locations: Iterable[str]) -> None:
    """Allow the session's tables files in these places as well."""
    wanted = dict.fromkeys(locations)
    if not wanted:
        return
    known = ALLOWED_LOCATIONS.of(spark)
    if new := [location for location in wanted if location not in known]:
        spark.conf.set(ALLOWED_LOCATIONS.key, ",".join([*known, *new]))


def _secret_keys(provider: str, bucket: str) -> list[str]:
    """The keys whose values may be in a Hadoop credential store instead of the configuration."""
    if provider == "s3":
        prefixes = ("fs.s3a.", f"fs.s3a.bucket.{bucket}.")
        names = ("access.key", "secret.key", "session.token")
        return [prefix + name for prefix in prefixes for name in names]
    if provider == "azure":
        host = bucket.rpartition("@")[2]
        return [f"fs.azure.account.key.{host}", f"fs.azure.sas.fixed.token.{host}"]
    return []


def _with_settings(spark: SparkSession, log: DeltaLog) -> DeltaLog:
    """The log, whose commits from here on have the settings of the session.

    Sessions share a log, and it outlives them, so it has a weak reference to this one.
    """
    session = ref(spark)

    def settings() -> CommitSettings:
        found = session()
        return CommitSettings() if found is None else commit_settings(found)

    log.commit_settings = settings
    return log


def _with_scheme(jvm: JvmSession, location: str, options: Mapping[str, str]) -> str:
    """The location with its scheme; what has none belongs to Hadoop's default file system."""
    if _SCHEME.match(location):
        return location
    if not location or "\0" in location:
        raise _invalid_location(location, "it is empty or holds a NUL character")
    if location.startswith("/") and default_file_system(jvm).lower().startswith("file:"):
        return f"file:{location}"
    try:
        return qualified_location(jvm, location, options)
    except JAVA_FAILURES:
        raise _invalid_location(location, "Hadoop's default file system does not take it") from None


def _split_location(location: str) -> tuple[str, str, str]:
    """Scheme in lower case, authority and literal path."""
    scheme, _, rest = location.partition(":")
    if not rest.startswith("//"):
        return scheme.lower(), "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme.lower(), authority, slash + path


def _canonical_location(location: str) -> tuple[str, str, str]:
    full = location if _SCHEME.match(location) else f"{_LOCAL_SCHEME}:{location}"
    scheme, authority, path = _split_location(full)
    if scheme == _LOCAL_SCHEME:
        return scheme, "", _normal_path(posixpath.abspath(path))
    return (*_canonical_bucket(scheme, authority), _normal_path(path))


def _normal_path(path: str) -> str:
    """A path as Hadoop's Path keeps it: no empty segments, none that is '.' or '..'."""
    return re.sub("^/+", "/", posixpath.normpath(path or "/"))


def _canonical_bucket(scheme: str, authority: str) -> tuple[str, str]:
    """The canonical scheme, and the authority for it."""
    if scheme in _AZURE_BLOBS:
        return "abfss", authority.replace(".blob.", ".dfs.", 1)
    return canonical_scheme(scheme), authority


def _remember_spelling(jvm: JvmSession, scheme: str, authority: str) -> None:
    spelled = scheme
    if scheme in _HADOOP_SCHEMES and f"fs.{scheme}.impl" not in properties(jvm, [f"fs.{scheme}."]):
        spelled = _HADOOP_SCHEMES[scheme]
    _USER_SPELLINGS[_canonical_bucket(scheme, authority)] = (spelled, authority)


def _hadoop_log(
    spark: SparkSession, location: str, options: Mapping[str, str], verify: bool
) -> DeltaLog:
    """The log behind Hadoop's FileSystem; one table opened twice is one object, as elsewhere."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
    key = (spark.sparkContext.applicationId, location.rstrip("/"), digest, verify)
    with _HADOOP_LOGS_LOCK:
        log = _HADOOP_LOGS.get(key)
    if log is None:
        log = DeltaLog(HadoopStore(spark, location, options), verify_checksums=verify)
    with _HADOOP_LOGS_LOCK:
        log = _HADOOP_LOGS.setdefault(key, log)
        _HADOOP_LOGS.move_to_end(key)
        while len(_HADOOP_LOGS) > CACHE_SIZE:
            _HADOOP_LOGS.popitem(last=False)
    return log


def _invalid_location(location: str, reason: str) -> StorageError:
    path = redacted_uri(location)
    return StorageError("DELTA_STORAGE_INVALID_LOCATION", path=path, reason=reason)
