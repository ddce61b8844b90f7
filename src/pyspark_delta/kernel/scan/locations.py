"""Resolve the paths of a log to allowed locations of files, and load deletion vectors.

A file inside of the table's root may be opened.  One outside of it (as in a shallow clone) may only
be opened if it is below the root of a store that the caller allows.  No data file is opened here.
`check_links` finds symbolic links that lead out of the table, for readers that do not open files
through a store.  PROTOCOL.md, "Add File and Remove File".

>>> from pyspark_delta.kernel.storage.memory import MemoryStore
>>> found = Locations(MemoryStore("clone")).resolve(pa.array(["p=1/a%20b.parquet"]))
>>> found.column("location").to_pylist(), found.column("isAbsolute").to_pylist()
(['p=1/a b.parquet'], [False])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import (
    DataFileError,
    DeletionVectorError,
    FileMissingError,
    UnsafePathError,
)
from pyspark_delta.kernel.log.arrow_types import one_array
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.deletion_vectors import (
    DeletionVector,
    locate,
    read_deletion_vector,
)
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.storage.base import LINK_OUT, LogStore
from pyspark_delta.kernel.storage.uris import redacted_uri, resolve_action_path

LOCATION = "location"
IS_ABSOLUTE = "isAbsolute"
FEW_FILES = 1000
"""Up to this number, files are always checked one by one, which takes a few milliseconds."""
# Paths that must be resolved one by one: with escapes, schemes, absolute paths, segments that
# are empty or climb, and characters that mean one of these on another system.
_SUSPICIOUS = r"[%:\\\x00]|(^|/)\.{0,2}(/|$)"
_SUSPICIOUS_BYTES = (b"%", b":", b"\\", b"\0", b"//", b"./", b"/.")
_SUSPICIOUS_PATHS = ("", ".", "..")
_IN_LOG = f"{LOG_DIRECTORY}/"
_WHY_NOT_IN_LOG = "the log directory holds no data"
_WHY_NOT_OUTSIDE = "it is outside of the table"
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


class Locations:
    """The locations that a scan may read: the table's own store, and others given by the caller."""

    def __init__(self, table: LogStore, allowed: Sequence[LogStore] = ()) -> None:
        self.table = table
        self._allowed = tuple(allowed)

    def resolve(self, paths: pa.Array | pa.ChunkedArray) -> pa.Table:
        """`location` and `isAbsolute` of each path of the log; UnsafePathError for a bad one.

        A location is a decoded path below the table's root or, when absolute, a URI.
        """
        column = one_array(paths)
        absolute = pa.repeat(pa.scalar(False), len(column))
        if _may_be_suspicious(column):
            suspicious = pc.match_substring_regex(column, _SUSPICIOUS)
            names, flags = self._all_resolved(column.filter(suspicious))
            column = pc.replace_with_mask(column, suspicious, names)
            absolute = pc.replace_with_mask(absolute, suspicious, flags)
        in_log = pc.index(pc.starts_with(column, _IN_LOG), True).as_py()
        if in_log >= 0:
            raise self._refused(column[in_log].as_py(), _WHY_NOT_IN_LOG)
        return pa.table({LOCATION: column, IS_ABSOLUTE: absolute})

    def open(self, path: str) -> tuple[LogStore, str]:
        """The store for a path or URI of the log, and the path in that store."""
        return self.located(*self._resolved(path))

    def located(self, location: str, is_absolute: bool) -> tuple[LogStore, str]:
        """As `open`, for a location that `resolve` returned."""
        if not is_absolute:
            if location.startswith(_IN_LOG):
                raise self._refused(location, _WHY_NOT_IN_LOG)
            return self.table, location
        served = self._served(location)
        if served is None:
            raise self._refused(location, _WHY_NOT_OUTSIDE)
        return served

    def check_links(self, files: pa.Table, *, every_file: bool) -> None:
        """UnsafePathError when a symbolic link leads to one of `files` from outside of its store.

        `files` has the columns of `resolve`.  Directories are always checked; the files in them
        too where they are few, and with `every_file`, which costs a listing of each directory.
        """
        if not any(store.has_links for store in (self.table, *self._allowed)):
            return
        locations, absolute = one_array(files[LOCATION]), one_array(files[IS_ABSOLUTE])
        for is_absolute in (False, True):
            kept = pc.equal(absolute, is_absolute)
            names = locations if kept.true_count == len(kept) else locations.filter(kept)
            for location in self._decisive(names, is_absolute, every_file):
                store, path = self._store_of(location, is_absolute)
                if path and not store.contains(path):
                    raise self._refused(location, LINK_OUT)

    def _decisive(self, names: pa.Array, is_absolute: bool, every_file: bool) -> Iterator[str]:
        """The locations to check for links, which suffice for all of `names`."""
        if len(names) <= FEW_FILES:
            yield from names.to_pylist()
            return
        parts = pc.split_pattern(names, "/", max_splits=1, reverse=True)
        in_directory = pc.equal(pc.list_value_length(parts), 2)
        if in_directory.true_count < len(parts):
            parts = parts.filter(in_directory)
        directories = pc.list_element(parts, 0).unique().to_pylist()
        yield from directories
        places = [self._store_of(each, is_absolute) for each in directories] if every_file else []
        if every_file and not is_absolute:
            places.append((self.table, ""))
        if any(store.has_link_in(path) for store, path in places):
            yield from names.to_pylist()

    def _store_of(self, location: str, is_absolute: bool) -> tuple[LogStore, str]:
        """As `located`, for a directory too, and for the root of a store."""
        if not is_absolute:
            return self.table, location
        # A location ends with a file name: a placeholder for a directory.
        store, path = self.located(f"{location}/-", True)
        return store, path[:-2]

    def _all_resolved(self, paths: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Resolve paths that are not plain, once per directory."""
        # With a slash in front every path has a directory, if only an empty one.
        slashed = pc.binary_join_element_wise("", paths, "/")
        parts = pc.split_pattern(slashed, "/", max_splits=1, reverse=True)
        directories = pc.list_element(parts, 0).dictionary_encode()
        resolved = pa.array(
            [self._inside(name[1:]) for name in directories.dictionary.to_pylist()], pa.string()
        )
        # A plain name in a directory inside of the table is inside of it as well.
        names = pc.list_element(parts, 1)
        names = pc.if_else(pc.match_substring_regex(names, _SUSPICIOUS), None, names)
        joined = pc.binary_join_element_wise(resolved.take(directories.indices), names, "/")
        rest = pc.is_null(joined)
        found = [self._resolved(path) for path in paths.filter(rest).to_pylist()]
        locations = pa.array([location for location, _ in found], pa.string())
        flags = pa.array([is_absolute for _, is_absolute in found], pa.bool_())
        return (
            pc.replace_with_mask(joined, rest, locations),
            pc.replace_with_mask(rest, rest, flags),
        )

    def _inside(self, directory: str) -> str | None:
        """The decoded path of a directory inside of the table; None if that is not certain."""
        try:
            found = resolve_action_path(directory, self.table.root_uri)
        except UnsafePathError:
            return None
        return None if found.is_absolute else found.path

    def _resolved(self, path: str) -> tuple[str, bool]:
        try:
            found = resolve_action_path(path, self.table.root_uri)
        except UnsafePathError:
            # An allowed store of another scheme may have it, if the path has that scheme.
            served = self._served(path) if _HAS_SCHEME.match(path) else None
            if served is None:
                raise
            store, relative = served
            return store.address(relative), True
        if found.is_absolute and self._served(found.path) is None:
            raise self._refused(found.path, _WHY_NOT_OUTSIDE)
        return found.path, found.is_absolute

    def _served(self, uri: str) -> tuple[LogStore, str] | None:
        for store in self._allowed:
            try:
                found = resolve_action_path(uri, store.root_uri)
            except UnsafePathError:
                continue
            if not found.is_absolute:
                return store, found.path
        return None

    def _refused(self, uri: str, reason: str) -> UnsafePathError:
        return UnsafePathError(
            "DELTA_UNSAFE_PATH", path=redacted_uri(uri), table=self.table.root_uri, reason=reason
        )


class VectorReader:
    """Loads the deletion vectors of one scan: from the log, the table, or an allowed location.

    Many vectors may share a file.  PROTOCOL.md, "Deletion Vectors".
    """

    def __init__(self, locations: Locations) -> None:
        self._locations = locations
        self._sizes: dict[str, int] = {}

    def read(self, descriptor: DeletionVectorDescriptor) -> DeletionVector:
        """The vector of `descriptor`.

        DeletionVectorError when it contradicts the descriptor, DataFileError when its file is
        missing, UnsafePathError when that is outside of the table and not allowed.
        """
        location = locate(descriptor)
        if location.inline is not None:
            return read_deletion_vector(descriptor)
        if location.uri is None:
            store, path = self._locations.located(location.path or "", False)
        else:
            store, path = self._locations.open(location.uri)
        address = store.address(path)
        try:
            if address not in self._sizes:
                self._sizes[address] = store.size(path)
            return read_deletion_vector(
                descriptor,
                lambda _, start, length: store.read_range(path, start, length),
                self._sizes[address],
            )
        except FileMissingError as error:
            raise DataFileError("DELTA_FILE_NOT_FOUND", path=address) from error


def descriptor_of(value: dict[str, object] | None) -> DeletionVectorDescriptor | None:
    """The descriptor in a row of the log's `deletionVector` column; None for no vector."""
    if value is None:
        return None
    known = {key: item for key, item in value.items() if item is not None}
    try:
        return DeletionVectorDescriptor.from_json_value(known)
    except ValueError as error:
        raise DeletionVectorError(
            "DELTA_DELETION_VECTOR_INVALID_DESCRIPTOR", reason=error
        ) from None


def _may_be_suspicious(paths: pa.Array) -> bool:
    # One search in the bytes of all paths is much faster than one in each.
    text = paths.buffers()[2]
    content = b"" if text is None else text.to_pybytes()
    if any(mark in content for mark in _SUSPICIOUS_BYTES):
        return True
    at_edge = pc.or_(pc.starts_with(paths, "/"), pc.ends_with(paths, "/"))
    whole = pc.is_in(paths, value_set=pa.array(_SUSPICIOUS_PATHS, pa.string()))
    return bool(pc.any(pc.or_(at_edge, whole)).as_py())
