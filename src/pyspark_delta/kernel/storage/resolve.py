"""Resolve a location (local path or URI) to its store.

A plain local path is literal: `%`, `#`, `?` and spaces have no special meaning.  Text with a scheme
is a URI, and percent-decoded exactly once.

>>> canonical_uri("/data/100% sure") == canonical_uri("file:/data/100%25%20sure")
True
>>> parse_location("s3a://bucket/a%20table/")
Location(scheme='s3', authority='bucket', path='/a table')
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from pyspark_delta.errors import StorageError, UnsupportedSchemeError
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.objects import open_object_store
from pyspark_delta.kernel.storage.storage_options import client_settings
from pyspark_delta.kernel.storage.uris import (
    LOCAL_AUTHORITIES,
    MALFORMED_ESCAPE,
    absolute_uri,
    canonical_scheme,
    has_credentials,
    redacted_uri,
)

PROVIDERS = {"s3": "s3", "gs": "gs", "abfss": "azure", "az": "azure", "adl": "azure"}
"""Canonical scheme -> provider of the object store."""

# One letter before a colon is more likely a drive than a scheme, and a colon without a slash
# more likely a part of a name.  `file:` alone is always a URI.
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]+):(?=/)|(file):)", re.IGNORECASE)
_SLASHES = re.compile("/{2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A parsed location: canonical scheme, bucket or host, decoded absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The canonical URI of the location, which can serve as a key."""
        return absolute_uri(self.scheme, self.authority, self.path)


def store_for(
    location: str, storage_options: Mapping[str, str] | None = None, *, fsync: bool = True
) -> LogStore:
    """The store with the root `location`; no file or connection is opened yet.

    `fsync` is for local files; `storage_options` are for object stores.
    """
    root = parse_location(location)
    if root.scheme == "file":
        return LocalStore(root.path, fsync=fsync)
    if root.scheme == "memory":
        return MemoryStore(root.authority, root.path)
    provider = PROVIDERS[root.scheme]
    settings = client_settings(provider, root.authority, storage_options or {})
    bucket = root.authority.partition("@")[0]
    return open_object_store(provider, bucket, root.path.strip("/"), root.uri, settings)


def canonical_uri(text: str) -> str:
    """The canonical URI for all spellings of a location; local paths become absolute."""
    return parse_location(text).uri


def parse_location(text: str) -> Location:
    """Parse a location; StorageError, without its secrets, when it cannot be used."""
    if not text or "\0" in text:
        _refuse(text, "it is empty or holds a NUL character")
    match = _URI.match(text)
    if match is None:
        return Location(scheme="file", authority="", path=os.path.abspath(text))
    scheme = canonical_scheme(match[1] or match[2])
    if scheme not in ("file", "memory", *PROVIDERS):
        raise UnsupportedSchemeError(path=redacted_uri(text))
    authority, path = _split(text, match.end())
    if scheme == "file":
        if authority not in LOCAL_AUTHORITIES:
            _refuse(text, "it names another host; write file:///path")
        return Location(scheme="file", authority="", path=os.path.abspath(_decoded(text, path)))
    if has_credentials(scheme, authority):
        _refuse(text, "it holds credentials; give them as storage options")
    if not authority:
        _refuse(text, "it names no bucket, container or store")
    return Location(
        scheme=scheme, authority=authority, path=_plain_path(text, _decoded(text, path))
    )


def _split(text: str, after_scheme: int) -> tuple[str, str]:
    rest = text[after_scheme:]
    if "?" in rest or "#" in rest:
        _refuse(text, "it has a query or a fragment; in a URI write %3F for ? and %23 for #")
    if not rest.startswith("/"):
        _refuse(text, "its path is not absolute")
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path or "/"


def _decoded(text: str, path: str) -> str:
    if MALFORMED_ESCAPE.search(path):
        _refuse(text, "a % in it is not followed by two hexadecimal digits; write %25 for it")
    decoded = os.fsdecode(unquote_to_bytes(path))
    if "\0" in decoded:
        _refuse(text, "it holds a NUL character")
    return decoded


def _plain_path(text: str, path: str) -> str:
    path = _SLASHES.sub("/", path).rstrip("/")
    if any(segment in (".", "..") for segment in path.split("/")):
        _refuse(text, "it has a segment that is '.' or '..'")
    return path or "/"


def _refuse(text: str, reason: str) -> NoReturn:
    raise StorageError("DELTA_STORAGE_INVALID_LOCATION", path=redacted_uri(text), reason=reason)
