"""Shallow clones: independent tables whose data files are those of another table.

The clone's log names the files by their URIs; no data is copied, and no change to the clone touches
them.  Rows get new ids.  Each reader decides which places outside of the table a log may name.
PROTOCOL.md, "Add File and Remove File" and "Deletion Vectors".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import InvalidActionsError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import (
    ADD_SCHEMA,
    DELETION_VECTOR,
    add_files,
    canonical_paths,
)
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
)
from pyspark_delta.kernel.protocol.deletion_vectors import ABSOLUTE, IN_TABLE, locate
from pyspark_delta.kernel.protocol.domains import CLUSTERING, Domains, tombstone
from pyspark_delta.kernel.protocol.feature_upgrade import merged
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN
from pyspark_delta.kernel.protocol.row_tracking import assigns_row_ids
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

NO_VERSION = -1
"""The version of a source that is not a Delta table."""

_HAS_SCHEME = r"^[A-Za-z][A-Za-z0-9+.\-]*:"
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/]*)?")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_\-!.~'()*,;:$&+=/@]")
_PLAIN_NAME = r"^[A-Za-z0-9_\-.=]*$"
# Each clone gets new names for these columns: the files hold the source's row ids in them.
_OWN_PROPERTIES = (ROW_ID_COLUMN.key, ROW_COMMIT_VERSION_COLUMN.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSource:
    """The source of a clone: its definition and its size.

    `name` is its name in the history.  A source of another format has no `protocol`, and
    NO_VERSION.
    """

    name: str
    version: int
    metadata: Metadata
    protocol: Protocol | None
    domains: Domains
    num_files: int
    num_bytes: int

    @property
    def metrics(self) -> dict[str, int]:
        """The metrics for the history and the command's result; no bytes are copied."""
        return {
            "sourceTableSize": self.num_bytes,
            "sourceNumOfFiles": self.num_files,
            "numRemovedFiles": 0,
            "numCopiedFiles": 0,
            "removedFilesSize": 0,
            "copiedFilesSize": 0,
        }


def define_clone(
    txn: OptimisticTransaction,
    source: CloneSource,
    properties: Mapping[str, str],
    *,
    new_id: str,
    allow_downgrade: bool = False,
    replaces_files: bool = False,
) -> tuple[DomainMetadata, ...]:
    """Give the table of `txn` the definition of `source`; returns the domains to commit with it.

    `properties` replace those of the source.  An existing table must be empty, unless
    `replaces_files`, and keeps its id and its comment.
    """
    target = txn.snapshot
    if target is not None and target.num_files and not replaces_files:
        raise OperationNotAllowedError("DELTA_UNSUPPORTED_NON_EMPTY_CLONE")
    metadata = _cloned_metadata(source.metadata, target, properties, new_id)
    if metadata.created_time is None:
        metadata = replace(metadata, created_time=txn.log.now_ms())
    _check_mapping(source.metadata, metadata)
    if target is not None:
        _check_mapping(target.metadata, metadata)
    protocols = [] if source.protocol is None else [source.protocol]
    if target is not None and not allow_downgrade:
        protocols.append(target.protocol)
    if protocols:
        txn.update_protocol(protocols[0] if len(protocols) == 1 else merged(*protocols))
    txn.update_metadata(metadata, replaces_table=True)
    return _cloned_domains(source.domains, {} if target is None else target.domains)


def cloned_files(snapshot: Snapshot, location: str) -> pa.Table:
    """The files of a version as add actions of another table.

    `location` is where the version's table is, decoded and as its users spell it.
    """
    files, root_uri = snapshot.adds, snapshot.store.root_uri
    nothing = pa.nulls(files.num_rows, pa.int64())
    columns = {
        "path": absolute_paths(files.column("path").combine_chunks(), root_uri, location),
        "dataChange": pa.repeat(pa.scalar(True), files.num_rows),
        "deletionVector": _absolute_vectors(files.column("deletionVector"), location),
        "baseRowId": nothing,
        "defaultRowCommitVersion": nothing,
    }
    for name, column in columns.items():
        position = files.schema.get_field_index(name)
        files = files.set_column(position, ADD_SCHEMA.field(name), column)
    return files


def absolute_paths(paths: pa.Array, root_uri: str, location: str) -> pa.Array:
    """Paths of a log as absolute URIs; relative ones are below `location`.

    Spelled as Spark spells `_metadata.file_path`, for delta-spark compares them letter by letter.
    """
    if not len(paths):
        return paths
    # With a slash in front every path has a directory, if only an empty one.
    slashed = pc.binary_join_element_wise("", canonical_paths(paths, root_uri), "/")
    parts = pc.split_pattern(slashed, "/", max_splits=1, reverse=True)
    directories = pc.list_element(parts, 0).dictionary_encode()
    base = location.rstrip("/")
    spelled = [spelled_uri(base + name) for name in directories.dictionary.to_pylist()]
    names = pc.list_element(parts, 1)
    is_plain = pc.match_substring_regex(names, _PLAIN_NAME)
    if pc.all(is_plain).as_py() is not True:
        names = pa.array([spelled_uri(name) for name in names.to_pylist()], pa.string())
    inside = pc.binary_join_element_wise(
        pa.array(spelled, pa.string()).take(directories.indices), names, "/"
    )
    origin = _ORIGIN.match(location)
    rooted = pc.binary_join_element_wise("" if origin is None else origin[0], paths, "")
    resolved = pc.if_else(pc.starts_with(paths, "/"), rooted, inside)
    return pc.if_else(pc.match_substring_regex(paths, _HAS_SCHEME), paths, resolved)


def spelled_uri(location: str) -> str:
    """A decoded location in the form of Java's URI, with as few escapes as possible.

    >>> spelled_uri("file:/a b/ü%")
    'file:/a%20b/ü%25'
    """
    return _ILLEGAL.sub(_escaped, location)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character.isascii() or unicodedata.category(character)[0] in "ZC":
        return quote(character, safe="")
    return character


def check_clone_files(txn: OptimisticTransaction, files: pa.Table) -> None:
    """Raise for files without a row count, where every row must be counted."""
    if assigns_row_ids(txn.protocol, txn.metadata) and files.column("stats").null_count:
        raise InvalidActionsError("DELTA_CLONE_WITH_ROW_TRACKING_WITHOUT_STATS")


def replacing_files(txn: OptimisticTransaction, files: Iterable[AddFile]) -> Iterator[Action]:
    """The actions that make `files` the table's files: adds of new ones, removes of all others."""
    snapshot = txn.snapshot
    old = {} if snapshot is None else {_key(file): file for file in add_files(snapshot.adds)}
    for file in files:
        if old.pop(_key(file), None) is None:
            yield file
    now_ms = txn.log.now_ms()
    for file in old.values():
        yield file.remove(now_ms)


def commit_clone(
    txn: OptimisticTransaction,
    actions: Iterator[Action],
    source: CloneSource,
    *,
    user_metadata: str | None = None,
) -> int:
    """Commit the clone after `define_clone`, and return its version."""
    done = txn.commit_large(
        actions,
        operation("CLONE", source=source.name, sourceVersion=source.version),
        user_metadata=user_metadata,
        metrics=source.metrics,
        protocol=txn.protocol,
    )
    return done.version


def _key(file: AddFile) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return file.path, None if vector is None else vector.unique_id


def _cloned_metadata(
    source: Metadata, target: Snapshot | None, properties: Mapping[str, str], new_id: str
) -> Metadata:
    kept = {k: v for k, v in source.configuration.items() if k not in _OWN_PROPERTIES}
    old = None if target is None else target.metadata
    return replace(
        source,
        id=new_id if old is None else old.id,
        name=None if old is None else old.name,
        description=None if old is None else old.description,
        configuration={**kept, **properties},
    )


def _check_mapping(before: Metadata, after: Metadata) -> None:
    was, mode = mapping_mode(before), mapping_mode(after)
    if was is not mode:
        raise SchemaError(
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE", oldMode=was.value, newMode=mode.value
        )


def _cloned_domains(source: Domains, target: Domains) -> tuple[DomainMetadata, ...]:
    """The clustering domain is cloned with the data; users' domains are not."""
    new, old = source.get(CLUSTERING), target.get(CLUSTERING)
    if new is not None:
        return (new,)
    return () if old is None else (tombstone(old),)


def _absolute_vectors(vectors: pa.ChunkedArray, location: str) -> pa.Array:
    """Descriptors with absolute locations, independent of the table that has them."""
    column = vectors.combine_chunks()
    if column.null_count == len(column):
        return column
    kinds = pc.struct_field(column, "storageType")
    places = pc.struct_field(column, "pathOrInlineDv")
    in_table = pc.fill_null(pc.equal(kinds, IN_TABLE), False)
    if not in_table.true_count:
        return column
    # Several vectors share a file: each name is decoded once.
    names = places.filter(in_table).dictionary_encode()
    uris = pa.array([_vector_uri(name, location) for name in names.dictionary.to_pylist()])
    places = pc.replace_with_mask(places, in_table, uris.take(names.indices).cast(pa.string()))
    kinds = pc.if_else(in_table, ABSOLUTE, kinds)
    rest = [pc.struct_field(column, name) for name in ("offset", "sizeInBytes", "cardinality")]
    return pa.StructArray.from_arrays(
        [kinds, places, *rest], fields=list(DELETION_VECTOR), mask=pc.is_null(column)
    )


def _vector_uri(name: str, location: str) -> str:
    descriptor = DeletionVectorDescriptor(
        storage_type=IN_TABLE, path_or_inline_dv=name, size_in_bytes=0, cardinality=0
    )
    return spelled_uri(f"{location.rstrip('/')}/{locate(descriptor).path}")
