"""From an address to the store that serves it.

A plain local path is literal: `%`, `#`, `?` and spaces in it are themselves.  Text with a scheme
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

from pyspark_delta.errors.storage import StorageError, UnsupportedSchemeError
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.storage.objects import open_object_store
from pyspark_delta.kernel.storage.storage_options import client_settings
from pyspark_delta.kernel.storage.uris import (
    LOCAL_AUTHORITIES,
    absolute_uri,
    canonical_scheme,
    has_credentials,
    redacted_uri,
)

PROVIDERS = {"s3": "s3", "gs": "gs", "abfss": "azure", "az": "azure", "adl": "azure"}
"""Canonical scheme -> whose object store it is."""

# One letter before a colon is more likely a drive than a scheme, and a colon without a slash
# more likely a part of a name.  `file:` alone is always a URI.
_URI = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.\-]+):(?=/)|(file):)", re.IGNORECASE)
_MALFORMED_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SLASHES = re.compile("/{2,}")


@dataclass(frozen=True, slots=True)
class Location:
    """An address taken apart: canonical scheme, bucket or host, decoded absolute path."""

    scheme: str
    authority: str
    path: str

    @property
    def uri(self) -> str:
        """The one spelling of this address, which can serve as a key."""
        return absolute_uri(self.scheme, self.authority, self.path)


def store_for(
    location: str, storage_options: Mapping[str, str] | None = None, *, fsync: bool = True
) -> LogStore:
    """The store whose root is `location`; nothing is opened or connected to yet.

    `fsync` is for local files; `storage_options` are for object stores.
    """
    place = parse_location(location)
    if place.scheme == "file":
        return LocalStore(place.path, fsync=fsync)
    if place.scheme == "memory":
        return MemoryStore(place.authority, place.path)
    provider = PROVIDERS[place.scheme]
    settings = client_settings(provider, place.authority, storage_options or {})
    bucket = place.authority.partition("@")[0]
    return open_object_store(provider, bucket, place.path.strip("/"), place.uri, settings)


def canonical_uri(text: str) -> str:
    """One spelling for all spellings of an address; local paths become absolute."""
    return parse_location(text).uri


def parse_location(text: str) -> Location:
    """Take an address apart; StorageError when it cannot be used, without its secrets."""
    if not text or "\0" in text:
        _refuse(text, "it is empty or holds a NUL character")
    found = _URI.match(text)
    if found is None:
        return Location("file", "", os.path.abspath(text))
    scheme = canonical_scheme(found[1] or found[2])
    if scheme not in ("file", "memory", *PROVIDERS):
        raise UnsupportedSchemeError(path=redacted_uri(text))
    authority, path = _split(text, found.end())
    if scheme == "file":
        if authority not in LOCAL_AUTHORITIES:
            _refuse(text, "it names another host; write file:///path")
        return Location("file", "", os.path.abspath(_decoded(text, path)))
    if has_credentials(scheme, authority):
        _refuse(text, "it holds credentials; give them as storage options")
    if not authority:
        _refuse(text, "it names no bucket, container or store")
    return Location(scheme, authority, _plain_path(text, _decoded(text, path)))


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
    if _MALFORMED_ESCAPE.search(path):
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
