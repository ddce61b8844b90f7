"""Paths in actions, and URIs: percent-encoding exactly once each way.

`add.path`, `remove.path` and the path of a deletion vector are URIs, relative to the table or
absolute.  Here they become what a store takes, or are refused; nothing is opened.
PROTOCOL.md, "Add File and Remove File": the path is a URI as RFC 2396 has it.

>>> encode_path("p=a%20b/ü x.parquet")
'p=a%2520b/%C3%BC%20x.parquet'
>>> decode_path("p=a%2520b/ü%20x.parquet")
'p=a%20b/ü x.parquet'
>>> resolve_action_path("file:/t/a%20b", "file:///t")
ActionPath(path='a b', is_absolute=False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote, unquote_to_bytes

from pyspark_delta.errors.table import UnsafePathError
from pyspark_delta.kernel.storage.relative import MOST_SHOWN, check_relative

SCHEME_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""Spellings of one scheme: the file is the same whichever a writer used."""

LOCAL_AUTHORITIES = ("", "localhost")
"""What may stand between `file://` and the path (RFC 8089)."""

# What stays as it is in a path: what java.net.URI leaves of ASCII, so that delta-spark spells it
# alike.  Other letters are escaped, which delta-spark does not do and reads as well:
# docs/design/002-paths-in-ascii.md.
_QUOTED = re.compile(r"[^A-Za-z0-9_\-!.~'()*,;:$&+=/@]")
_MALFORMED_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_BUCKET_SCHEMES = frozenset({"s3", "gs", "abfss", "az", "adl", "memory"})
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9_.\-]+:[0-9]{1,5}")
_LITERAL_IN_URI = "/-_.~!$&'()*+,;=:@"  # RFC 3986: pchar and the separator


@dataclass(frozen=True, slots=True)
class ActionPath:
    """Where an action's file is.  Two spellings of one file are equal.

    `path` is decoded and relative to the table's root or, when `is_absolute`, the canonical URI
    of a file outside of it: whether that may be read is the caller's decision.
    """

    path: str
    is_absolute: bool


def encode_path(path: str) -> str:
    """A decoded relative path as it stands in `add.path`."""
    if not path.isascii() and not _is_unicode(path):
        _refuse(path.encode("utf-8", "backslashreplace").decode(), "it is not valid Unicode")
    encoded = _QUOTED.sub(lambda found: quote(found[0], safe=""), path)
    first, slash, rest = encoded.partition("/")
    # RFC 3986, 4.2: a colon in the first segment would read as the end of a scheme.
    return first.replace(":", "%3A") + slash + rest if ":" in first else encoded


def decode_path(encoded: str, table: str = "<unknown>") -> str:
    """The path that `encoded` stands for, decoded once; UnsafePathError for a broken escape."""
    if "%" not in encoded:
        if not encoded.isascii() and not _is_unicode(encoded):
            _refuse(ascii(encoded), "it is not valid Unicode", table)
        return encoded
    if _MALFORMED_ESCAPE.search(encoded):
        _refuse(encoded, "a '%' in it is not followed by two hexadecimal digits", table)
    try:
        return unquote_to_bytes(encoded).decode("utf-8")
    except UnicodeError:
        _refuse(ascii(encoded), "its escapes are not valid UTF-8", table)


def resolve_action_path(path: str, root_uri: str) -> ActionPath:
    """The file that an action of the table at `root_uri` names.

    UnsafePathError when the path climbs out of the table, is malformed, or has another scheme
    than the table: following it would be a connection that the table's owner chose.
    """
    scheme = _SCHEME.match(path)
    if scheme is None and not path.startswith("/"):
        decoded = decode_path(path, root_uri)
        check_relative(decoded, root_uri)
        return ActionPath(decoded, False)
    root_scheme, root_authority, base = _split_root(root_uri)
    if scheme is None:
        if path.startswith("//"):
            _refuse(path, "it names another host", root_uri)
        authority, encoded = root_authority, path
    else:
        if canonical_scheme(scheme[1]) != root_scheme:
            reason = f"its scheme is {scheme[1][:40]!r}, the table's is {root_scheme!r}"
            _refuse(path, reason, root_uri)
        authority, encoded = _split_absolute(path, scheme.end(), root_scheme, root_uri)
    absolute = _checked_absolute(decode_path(encoded, root_uri), root_scheme, root_uri)
    if authority == root_authority and absolute.startswith(base):
        relative = absolute[len(base) :]
        check_relative(relative, root_uri)
        return ActionPath(relative, False)
    return ActionPath(absolute_uri(root_scheme, authority, absolute), True)


def absolute_uri(scheme: str, authority: str, path: str) -> str:
    """The canonical URI of a decoded absolute path: ASCII, no final slash but the root's."""
    encoded = quote(path.encode("utf-8", "surrogateescape"), safe=_LITERAL_IN_URI)
    return f"{scheme}://{authority}{encoded.rstrip('/') or ('' if authority else '/')}"


def child_uri(root_uri: str, path: str) -> str:
    """The URI of a decoded path below a canonical root."""
    encoded = quote(path.encode("utf-8", "surrogateescape"), safe=_LITERAL_IN_URI)
    return f"{root_uri.removesuffix('/')}/{encoded}"


def canonical_scheme(scheme: str) -> str:
    """The scheme in lower case, and one of several that mean the same."""
    lower = scheme.lower()
    return SCHEME_ALIASES.get(lower, lower)


def has_credentials(scheme: str, authority: str) -> bool:
    """Does the authority of a URI say more than where the bucket is?

    A bucket has no port, so a colon can only be a password's; `container@account` is Azure's.
    What is no bucket is a host, which may have a port.
    """
    if scheme not in _BUCKET_SCHEMES and _HOST_AND_PORT.fullmatch(authority):
        return False
    return ":" in authority or ("@" in authority and scheme != "abfss")


def redacted_uri(text: str) -> str:
    """`text` without what may be a secret: user and password, query, fragment."""
    head, slashes, rest = text.partition("//")
    if slashes and "/" not in head:
        authority = rest.partition("/")[0]
        if ":" in authority:  # a secret key may hold a slash, so up to the last @
            rest = rest.rpartition("@")[2]
        elif not head.lower().startswith("abfs"):
            rest = rest[authority.rfind("@") + 1 :]
    shown = head + slashes + rest
    ends = (shown.find("?"), shown.find("#"), MOST_SHOWN)
    cut = min(at for at in ends if at >= 0)
    return shown[:cut] + "..." if cut < len(shown) else shown


@lru_cache(maxsize=256)
def _split_root(root_uri: str) -> tuple[str, str, str]:
    """Scheme, authority, and what the decoded absolute paths below the root begin with."""
    scheme, _, rest = root_uri.partition("://")
    authority, _, path = rest.partition("/")
    decoded = unquote_to_bytes("/" + path).decode("utf-8", "surrogateescape")
    return scheme, authority, decoded.rstrip("/") + "/"


def _split_absolute(uri: str, after_scheme: int, scheme: str, table: str) -> tuple[str, str]:
    """Authority and encoded path of a URI with a scheme."""
    rest = uri[after_scheme:]
    if "?" in rest or "#" in rest:
        _refuse(uri, "it has a query or a fragment", table)
    if not rest.startswith("/"):
        _refuse(uri, "it is neither relative nor absolute", table)
    if not rest.startswith("//"):
        rest = "//" + rest
    authority, slash, path = rest[2:].partition("/")
    if scheme != "file" and has_credentials(scheme, authority):
        _refuse(uri, "it holds credentials", table)
    if scheme == "file":
        if authority not in LOCAL_AUTHORITIES:
            _refuse(uri, "it names another host", table)
        authority = ""
    elif not authority:
        _refuse(uri, "it names no bucket", table)
    return authority, slash + path


def _checked_absolute(path: str, scheme: str, table: str) -> str:
    """The decoded absolute path, once it is plain enough to compare with the root's."""
    if scheme == "file":
        path = re.sub("/{2,}", "/", path)  # POSIX takes several slashes for one; stores do not
    check_relative(path[1:], table)
    return path


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
        return False
    return True


def _refuse(path: str, reason: str, table: str = "<unknown>") -> NoReturn:
    shown = redacted_uri(path)
    raise UnsafePathError("DELTA_UNSAFE_PATH", path=shown, table=table, reason=reason) from None
