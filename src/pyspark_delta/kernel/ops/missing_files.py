"""Files that a log names and storage does not have: deleted by hand, or by VACUUM.

A file is missing when its data is, or the file of its deletion vector: neither can be read then.
Nothing is opened: many files of one directory cost one listing, few a question each.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.protocol.deletion_vectors import INLINE, locate
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.scan.vectors import descriptor_of
from pyspark_delta.kernel.storage.base import LogStore

_THREADS = 16
# From so many files of a directory on, it is listed.
_LISTED_FROM = 32


@dataclass(frozen=True, slots=True)
class _Directory:
    """Some files of one directory; `paths` are theirs in the store."""

    store: LogStore
    name: str
    paths: tuple[str, ...]

    def missing(self) -> list[str]:
        """The addresses of those that are not there."""
        if len(self.paths) < _LISTED_FROM:
            gone = [path for path in self.paths if not self.store.exists(path)]
        else:
            found = {info.path for info in self.store.list_from(f"{self.name}/".lstrip("/"))}
            gone = [path for path in self.paths if path not in found]
        return [self.store.address(path) for path in gone]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFiles:
    """Add actions that cannot be read: for want of the data, or only of the deletion vector."""

    data: pa.Table
    vectors: pa.Table


def missing_files(files: pa.Table, locations: Locations) -> pa.Table:
    """Those of `files`, which are add actions, that cannot be read for want of a file."""
    missing = find_missing(files, locations)
    return pa.concat_tables([missing.data, missing.vectors])


def find_missing(files: pa.Table, locations: Locations) -> MissingFiles:
    """As `missing_files`, apart by which file is missing."""
    none = files.slice(0, 0)
    if not files.num_rows:
        return MissingFiles(data=none, vectors=none)
    data = [
        locations.located(location, is_absolute)
        for location, is_absolute in zip(*_columns(files, locations), strict=True)
    ]
    vectors = _vector_places(files, locations)
    gone = _absent({*data, *vectors.values()})
    if not gone:
        return MissingFiles(data=none, vectors=none)
    no_data = [place in gone for place in data]
    no_vector = [vectors.get(row) in gone and not lost for row, lost in enumerate(no_data)]
    return MissingFiles(
        data=files.filter(pa.array(no_data, pa.bool_())),
        vectors=files.filter(pa.array(no_vector, pa.bool_())),
    )


_Place = tuple[LogStore, str]


def _columns(files: pa.Table, locations: Locations) -> tuple[list[str], list[bool]]:
    resolved = locations.resolve(files.column("path"))
    return resolved.column(LOCATION).to_pylist(), resolved.column(IS_ABSOLUTE).to_pylist()


def _vector_places(files: pa.Table, locations: Locations) -> dict[int, _Place]:
    """The files of deletion vectors, by the rows that have them."""
    column = files.column("deletionVector").combine_chunks()
    rows = pc.indices_nonzero(pc.is_valid(column))
    places: dict[int, _Place] = {}
    for row, value in zip(rows.to_pylist(), column.take(rows).to_pylist(), strict=True):
        descriptor = descriptor_of(value)
        if descriptor is None or descriptor.storage_type == INLINE:
            continue
        where = locate(descriptor)
        if where.uri is not None:
            places[row] = locations.open(where.uri)
        else:
            places[row] = locations.located(where.path or "", False)
    return places


def _absent(places: set[_Place]) -> set[_Place]:
    by_address = {store.address(path): (store, path) for store, path in places}
    directories = list(_directories(places))
    with ThreadPoolExecutor(min(_THREADS, len(directories))) as pool:
        found = pool.map(_Directory.missing, directories)
        return {by_address[address] for each in found for address in each}


def _directories(places: set[_Place]) -> Iterator[_Directory]:
    grouped: dict[tuple[LogStore, str], list[str]] = {}
    for store, path in places:
        grouped.setdefault((store, path.rpartition("/")[0]), []).append(path)
    for (store, name), paths in grouped.items():
        yield _Directory(store, name, tuple(paths))
