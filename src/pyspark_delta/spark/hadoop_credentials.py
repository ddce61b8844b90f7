"""Credentials for object stores, out of the Hadoop configuration that Spark already has.

The keys stay Hadoop's (`kernel.storage` understands them); here is which of them a store needs,
and what Hadoop's own clients read out of others.  No value ever goes into a message.

>>> with_region({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, "b")["fs.s3a.endpoint.region"]
'eu-west-1'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import passwords, properties
from pyspark_delta.spark.options import FILE_SYSTEM_PREFIXES

# Provider -> what its keys begin with.
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "s3": ("fs.s3a.", "fs.s3n.", "fs.s3."),
    "gs": ("fs.gs.", "google.cloud."),
    "azure": ("fs.azure.",),
}
_REGION = re.compile(
    r"(?:https?://)?(?:[\w-]+\.)*s3[.-](?:dualstack\.)?([a-z]{2}-[a-z-]+-\d)\.amazonaws"
)
_GS_KEY = "fs.gs.auth.service.account."
_OLD_GS_KEY = "google.cloud.auth.service.account."


def file_system_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Those options of a reader or writer that are for the file system."""
    return {
        key: value for key, value in (options or {}).items() if key.startswith(FILE_SYSTEM_PREFIXES)
    }


def storage_options(
    jvm: JvmSession, provider: str, bucket: str, options: Mapping[str, str]
) -> dict[str, str]:
    """What a store of `provider` needs to know; `options` outweigh the configuration."""
    found = properties(jvm, _PREFIXES[provider])
    found |= passwords(jvm, [name for name in _secrets(provider, bucket) if name not in found])
    found |= options
    return _COMPLETED[provider](found, bucket)


def with_region(found: Mapping[str, str], bucket: str) -> dict[str, str]:
    """The entries with the region of S3 that Hadoop's client reads out of the endpoint."""
    completed = dict(found)
    for prefix in ("fs.s3a.", f"fs.s3a.bucket.{bucket}."):
        match = _REGION.match(completed.get(f"{prefix}endpoint", ""))
        if match is not None:
            completed.setdefault(f"{prefix}endpoint.region", match[1])
    return completed


def with_service_account(found: Mapping[str, str], bucket: str) -> dict[str, str]:
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
        # Written by hand into a configuration file, line breaks stand as two characters.
        parts["private_key"] = parts["private_key"].replace("\\n", "\n")
        completed["google_service_account_key"] = json.dumps(
            {"type": "service_account", "token_uri": _TOKEN_URI, **parts}
        )
    return completed


_TOKEN_URI = "https://oauth2.googleapis.com/token"
_COMPLETED: Mapping[str, Callable[[Mapping[str, str], str], dict[str, str]]] = {
    "s3": with_region,
    "gs": with_service_account,
    "azure": lambda found, bucket: dict(found),
}


def _secrets(provider: str, bucket: str) -> list[str]:
    """The keys whose values may be in a key store instead of the configuration."""
    if provider == "s3":
        prefixes = ("fs.s3a.", f"fs.s3a.bucket.{bucket}.")
        names = ("access.key", "secret.key", "session.token")
        return [prefix + name for prefix in prefixes for name in names]
    if provider == "azure":
        host = bucket.rpartition("@")[2]
        return [f"fs.azure.account.key.{host}", f"fs.azure.sas.fixed.token.{host}"]
    return []
