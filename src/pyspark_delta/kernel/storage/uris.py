"""Convert between paths in actions, which are URIs, and decoded paths of stores.

`add.path`, `remove.path` and the path of a deletion vector are URIs, relative to the table or
absolute.  They are percent-encoded exactly once each way; an unsafe one raises; nothing is opened.
PROTOCOL.md, "Add File and Remove File": the path is a URI as defined by RFC 2396.

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

from pyspark_delta.errors import UnsafePathError

# The most characters of a path in an error: a log may hold megabytes of it.
_LONGEST_LABEL = 1000
_UNSAFE_SEGMENTS = frozenset({"", ".", ".."})
SCHEME_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""Aliases of schemes: the file is the same whichever a writer used."""
LOCAL_AUTHORITIES = ("", "localhost")
"""The authorities allowed between `file://` and the path (RFC 8089)."""
# Characters that are not escaped in a path are those of ASCII that java.net.URI leaves, as in
# delta-spark.  Other letters are escaped, which delta-spark does not do and reads as well:
# docs/design/002-paths-in-ascii.md.
_QUOTED = re.compile(r"[^A-Za-z0-9_\-!.~'()*,;:$&+=/@]")
MALFORMED_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_BUCKET_SCHEMES = frozenset({"s3", "gs", "abfss", "az", "adl", "memory"})
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9_.\-]+:[0-9]{1,5}")
_LITERAL_IN_URI = "/-_.~!$&'()*+,;=:@"  # RFC 3986: pchar and the separator


def check_relative(path: str, table: str = "<unknown>") -> None:
    """Raise UnsafePathError for a path that is not plainly inside the root.

    Checks text only: the local store checks symbolic links.  `table` is for the message.

    >>> check_relative("_delta_log/00000000000000000000.json")
    """
    if not path:
        reason = "it is empty"
    elif "\0" in path:
        reason = "it holds a NUL character"
    elif path[0] == "/":
        reason = "it is absolute"
    elif not _is_unicode(path, "surrogateescape"):
        # Surrogates that represent bytes in a local file's name are allowed: such a file must be
        # listed and deleted like any other.
        reason = "it is not valid Unicode"
    # On Windows a backslash is a separator; elsewhere it is an ordinary character.  So only
    # a backslash that could climb out of the root raises.
    elif _UNSAFE_SEGMENTS.isdisjoint(path.replace("\\", "/").split("/")):
        return
    else:
        reason = "it has an empty segment, or one that is '.' or '..'"
    label = path[:_LONGEST_LABEL].encode("utf-8", "backslashreplace").decode()
    raise UnsafePathError("DELTA_UNSAFE_PATH", path=label, table=table, reason=reason)


def check_directory(path: str, table: str = "<unknown>") -> str:
    """The directory `path` without its final `/`; "" is the root."""
    directory = path[:-1] if path.endswith("/") else path
    if path:
        check_relative(directory, table)
    return directory


def split_start(start: str, table: str = "<unknown>") -> tuple[str, str]:
    """The directory to list, and the least name to include.

    >>> split_start("_delta_log/00000000000000000007.json")
    ('_delta_log', '00000000000000000007.json')
    """
    directory, slash, name = start.rpartition("/")
    if slash:
        check_relative(directory, table)
    if name:
        check_relative(name, table)
    return directory, name


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPath:
    """The location of an action's file.  Two spellings of one file are equal.

    `path` is decoded and relative to the table's root or, when `is_absolute`, the canonical URI
    of a file outside of it: the caller decides whether that may be read.
    """

    path: str
    is_absolute: bool


def encode_path(path: str) -> str:
    """A decoded relative path in the form of `add.path`."""
    if not path.isascii() and not _is_unicode(path):
        _refuse(path.encode("utf-8", "backslashreplace").decode(), "it is not valid Unicode")
    encoded = _QUOTED.sub(lambda match: quote(match[0], safe=""), path)
    first, slash, rest = encoded.partition("/")
    # RFC 3986, 4.2: a colon in the first segment would read as the end of a scheme.
    return first.replace(":", "%3A") + slash + rest if ":" in first else encoded


def decode_path(encoded: str, table: str = "<unknown>") -> str:
    """The path `encoded`, decoded once; UnsafePathError for a broken escape."""
    if "%" not in encoded:
        if not encoded.isascii() and not _is_unicode(encoded):
            _refuse(ascii(encoded), "it is not valid Unicode", table)
        return encoded
    if MALFORMED_ESCAPE.search(encoded):
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
        return ActionPath(path=decoded, is_absolute=False)
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
    absolute = decode_path(encoded, root_uri)
    if root_scheme == "file":
        absolute = re.sub("/{2,}", "/", absolute)  # POSIX takes several for one; stores do not
    check_relative(absolute[1:], root_uri)
    if authority == root_authority and absolute.startswith(base):
        relative = absolute[len(base) :]
        check_relative(relative, root_uri)
        return ActionPath(path=relative, is_absolute=False)
    return ActionPath(path=absolute_uri(root_scheme, authority, absolute), is_absolute=True)


def absolute_uri(scheme: str, authority: str, path: str) -> str:
    """The canonical URI of a decoded absolute path: ASCII, no final slash but the root's."""
    encoded = _encoded(path).rstrip("/")
    return f"{scheme}://{authority}{encoded or ('' if authority else '/')}"


def child_uri(root_uri: str, path: str) -> str:
    """The URI of a decoded path below a canonical root."""
    return f"{root_uri.removesuffix('/')}/{_encoded(path)}"


def _encoded(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe=_LITERAL_IN_URI)


def canonical_scheme(scheme: str) -> str:
    """The scheme in lower case, and one of several that mean the same."""
    lower = scheme.lower()
    return SCHEME_ALIASES.get(lower, lower)


def has_credentials(scheme: str, authority: str) -> bool:
    """Whether the authority of a URI has more than the bucket's location, and so may hold a secret.

    A bucket has no port, so a colon must belong to a password; `container@account` is Azure's.
    Other authorities are hosts, which may have a port.
    """
    if scheme not in _BUCKET_SCHEMES and _HOST_AND_PORT.fullmatch(authority):
        return False
    return ":" in authority or ("@" in authority and scheme != "abfss")


def redacted_uri(text: str) -> str:
    """`text` without parts that may be secret: user and password, query, fragment."""
    head, slashes, rest = text.partition("//")
    if slashes and "/" not in head:
        authority = rest.partition("/")[0]
        if ":" in authority:  # a secret key may hold a slash, so up to the last @
            rest = rest.rpartition("@")[2]
        elif not head.lower().startswith("abfs"):
            rest = rest[authority.rfind("@") + 1 :]
    label = head + slashes + rest
    ends = (label.find("?"), label.find("#"), _LONGEST_LABEL)
    cut = min(at for at in ends if at >= 0)
    return label[:cut] + "..." if cut < len(label) else label


@lru_cache(maxsize=256)
def _split_root(root_uri: str) -> tuple[str, str, str]:
    """Scheme, authority, and the prefix of decoded absolute paths below the root."""
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


def _is_unicode(text: str, errors: str = "strict") -> bool:
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
        return False
    return True


def _refuse(path: str, reason: str, table: str = "<unknown>") -> NoReturn:
    label = redacted_uri(path)
    raise UnsafePathError("DELTA_UNSAFE_PATH", path=label, table=table, reason=reason) from None
