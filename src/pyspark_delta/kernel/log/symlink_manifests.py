"""Symlink format manifests: lists of a table's files, for engines that do not know Delta.

There is one for each partition, `_symlink_format_manifest/p=1/manifest`, and its lines are the
URIs of data files.  Its readers know neither deletion vectors nor column mapping, so tables with
either have none.  PROTOCOL.md does not define manifests; delta-spark's hook of that name does.

A commit changes only the manifests of its own partitions.  A note in the log's directory records
the version that the manifests have reached, so that a commit whose writer died before it updated
them is made good later.

>>> manifest_path("p=1")
'_symlink_format_manifest/p=1/manifest'
>>> plain_location("file:///a%20b")
'file:/a b'
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import FileMissingError, OperationNotAllowedError
from pyspark_delta.kernel.log.frames.file_actions import canonical_paths
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.action_parts import StringMap
from pyspark_delta.kernel.protocol.column_mapping import MODE_KEY, ColumnMappingMode
from pyspark_delta.kernel.protocol.partition_values import partition_directory
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.storage.base import LogStore

MANIFEST_DIRECTORY = "_symlink_format_manifest"
"""Below the table's root."""

MANIFEST_NOTE = f"{LOG_DIRECTORY}/_last_manifest_version"
"""The version up to which the manifests are those of every commit, as a number."""

_NAME = "manifest"
_MOST_DIGITS = 19


def write_manifests(snapshot: Snapshot) -> None:
    """Write the manifests of all partitions, and delete those of partitions that are gone."""
    check_manifests_possible(snapshot)
    written = _write(snapshot, snapshot.files_with(["path", "partitionValues"]))
    listed = snapshot.store.list_recursive(MANIFEST_DIRECTORY)
    known = {info.path for info in listed if info.path.rpartition("/")[2] == _NAME}
    snapshot.store.delete_many(sorted(known - written))
    _note(snapshot.store, snapshot.version)


def update_manifests(snapshot: Snapshot, touched: Iterable[StringMap] | None, version: int) -> None:
    """Write the manifests of the partitions that the commit of a version touched.

    `touched` are the partition values of files that were added or removed.  When they are unknown,
    or earlier commits have not updated their manifests, all manifests are written.
    """
    last = _noted(snapshot.store)
    is_next = last is not None and last >= version - 1
    if (
        touched is None
        or not is_next
        or next(iter(snapshot.store.list_recursive(MANIFEST_DIRECTORY)), None) is None
    ):
        write_manifests(snapshot)
        return
    check_no_mapping(snapshot)
    columns = snapshot.metadata.partition_columns
    wanted = {manifest_path(partition_directory(columns, values)) for values in touched}
    if wanted:
        files = snapshot.files_with(["path", "partitionValues"])
        written = _write(snapshot, files, only=wanted)
        snapshot.store.delete_many(sorted(wanted - written))
    if last == version - 1:
        _note(snapshot.store, version)


def check_manifests_possible(snapshot: Snapshot) -> None:
    """Raise if the table's rows cannot be read from its data files alone."""
    vectors = snapshot.files_with(["deletionVector"]).column("deletionVector")
    if vectors.null_count != len(vectors):
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS")
    check_no_mapping(snapshot)


def check_no_mapping(snapshot: Snapshot) -> None:
    """Raise if the table's columns have other names in its files."""
    mode = ColumnMappingMode.parse(snapshot.metadata.configuration.get(MODE_KEY))
    if mode is not ColumnMappingMode.NONE:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING")


def manifest_path(directory: str) -> str:
    """Where the manifest of a partition's directory is, "" for a table without partitions."""
    return "/".join(part for part in (MANIFEST_DIRECTORY, directory, _NAME) if part)


def plain_location(uri: str) -> str:
    """A URI as manifests spell it: decoded, and a local one in Hadoop's form."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    host = f"//{authority}" if authority else ""
    return f"{scheme}:{host}/{unquote(path, errors='surrogateescape')}"


def _noted(store: LogStore) -> int | None:
    try:
        if store.size(MANIFEST_NOTE) > _MOST_DIGITS:
            return None
        return int(store.read(MANIFEST_NOTE))
    except (FileMissingError, ValueError):
        return None


def _note(store: LogStore, version: int) -> None:
    store.overwrite(MANIFEST_NOTE, str(version).encode())


def _write(snapshot: Snapshot, files: pa.Table, only: set[str] | None = None) -> set[str]:
    """Write the manifests of `files`, of some partitions or of all, and return their paths."""
    # A table without partitions has one even when it has no files.
    contents = _contents(snapshot, files)
    if not snapshot.metadata.partition_columns:
        contents.setdefault(manifest_path(""), [])
    for path, lines in contents.items():
        if only is None or path in only:
            text = "".join(f"{line}\n" for line in lines)
            snapshot.store.overwrite(path, text.encode("utf-8", "surrogateescape"))
    return set(contents)


def _contents(snapshot: Snapshot, files: pa.Table) -> dict[str, list[str]]:
    """The lines of each manifest, by its path."""
    if not files.num_rows:
        return {}
    columns = snapshot.metadata.partition_columns
    values = files.column("partitionValues").combine_chunks()
    names = [f"value {i}" for i in range(len(columns))]
    table = pa.table(
        {
            "line": _lines(files, snapshot.store.root_uri),
            "all": pa.repeat(0, files.num_rows),  # the group key of a table without partitions
            **{
                name: pc.map_lookup(values, pa.scalar(column), "first")
                for name, column in zip(names, columns, strict=True)
            },
        }
    )
    grouped = table.group_by(["all", *names]).aggregate([("line", "list")])
    contents: dict[str, list[str]] = defaultdict(list)
    for row in grouped.to_pylist():
        of_partition: Mapping[str, str | None] = {
            column: row[name] for name, column in zip(names, columns, strict=True)
        }
        # Null and the empty text are one partition.
        contents[manifest_path(partition_directory(columns, of_partition))] += row["line_list"]
    return contents


def _lines(files: pa.Table, root_uri: str) -> pa.Array:
    paths = canonical_paths(files.column("path").combine_chunks(), root_uri)
    root = plain_location(root_uri).rstrip("/")
    inside = pc.binary_join_element_wise(root, paths, "/")
    is_outside = pc.match_substring(paths, "://")
    if not is_outside.true_count:
        return inside
    outside = [plain_location(uri) for uri in paths.filter(is_outside).to_pylist()]
    return pc.replace_with_mask(inside, is_outside, pa.array(outside, pa.string()))
