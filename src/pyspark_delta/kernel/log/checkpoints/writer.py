"""Write checkpoints: classic, multi-part, and V2 with sidecars.

The input is a version's whole state as `CheckpointContent`; no snapshot is needed.
Files appear whole or not at all, and the file that readers look for comes last, so that a writer
killed at any point leaves a log that reads as before.  PROTOCOL.md, "Checkpoints" and "V2 Spec".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import CorruptLogError, FileAlreadyExistsError
from pyspark_delta.kernel.log.checkpoints.files import (
    action_group,
    add_groups,
    is_readable_parquet,
    parquet_bytes,
    remove_groups,
)
from pyspark_delta.kernel.log.checkpoints.schema import (
    checkpoint_schema,
    sidecar_schema,
    spark_schema,
    top_level_schema,
)
from pyspark_delta.kernel.log.frames.file_actions import file_keys
from pyspark_delta.kernel.log.last_checkpoint import (
    LONGEST_CHECKPOINT_SCHEMA,
    LastCheckpoint,
    V2CheckpointHint,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
)
from pyspark_delta.kernel.protocol.codec import Json
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.paths import (
    LOG_DIRECTORY,
    LogFileKind,
    classic_checkpoint_path,
    multipart_checkpoint_path,
    parse_log_name,
    sidecar_path,
    uuid_checkpoint_path,
)
from pyspark_delta.kernel.protocol.properties import (
    CHECKPOINT_POLICY,
    DELETED_FILE_RETENTION,
    property_value,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema, type_json
from pyspark_delta.kernel.storage.base import LogStore

V2Format = Literal["json", "parquet"]
NewUuid = Callable[[], UUID | str]
ROWS_PER_SIDECAR = 50_000
_FEW_ROWS = 2_000
_READER_FEATURES, _WRITER_FEATURES = 3, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """The whole state of one version; expired tombstones in it are not written.

    `adds` has the columns of `ADD_SCHEMA`, `removes` those of `REMOVE_SCHEMA`.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    transactions: Collection[SetTransaction]
    domains: Collection[DomainMetadata]
    adds: pa.Table
    removes: pa.Table

    @property
    def state(self) -> tuple[Action, ...]:
        """The actions that are not about files."""
        domains = (domain for domain in self.domains if not domain.removed)
        return _with_required_features((self.protocol, self.metadata, *self.transactions, *domains))

    @property
    def num_file_actions(self) -> int:
        return int(self.adds.num_rows + self.removes.num_rows)


def write_checkpoint(
    store: LogStore,
    content: CheckpointContent,
    *,
    now_ms: int,
    new_uuid: NewUuid,
    part_size: int | None = None,
    v2_format: V2Format = "json",
    expected_num_files: int | None = None,
) -> LastCheckpoint:
    """Write the kind of checkpoint that the table's properties require, and return its description.

    The caller writes the hint `_last_checkpoint`.  `part_size` is how many file actions a
    part or a sidecar holds at most; a classic checkpoint of more becomes a multi-part one, unless
    the table supports V2 checkpoints, which forbids those.  `expected_num_files` is how many
    files the version is known to have: if the content has another number, nothing is written.
    """
    removes = unexpired(content.removes, content.metadata, now_ms)
    content = replace(content, removes=removes)
    _check_complete(content, expected_num_files)
    policy = property_value(content.metadata.configuration, CHECKPOINT_POLICY)
    supports_v2 = is_supported(content.protocol, "v2Checkpoint")
    if policy == "v2" and supports_v2:
        return _write_v2(store, content, new_uuid, part_size or ROWS_PER_SIDECAR, v2_format)
    if part_size is not None and not supports_v2:
        parts = -(-content.num_file_actions // part_size)
        if parts > 1:
            return _write_multipart(store, content, parts)
    schema = checkpoint_schema(content.metadata, content.protocol)
    path = classic_checkpoint_path(content.version)
    _publish(store, path, lambda: _file(schema, content, content.state))
    return _described(content, [path], store, schema)


def write_compat_checkpoint(store: LogStore, version: int, actions: Iterable[Action]) -> None:
    """Repeat a V2 checkpoint's own actions under the classic name.

    Once the first commits are gone, readers without V2 checkpoints find there the protocol that
    rejects them.  `actions` are all that the checkpoint's own file holds, sidecars included.
    """
    rows = tuple(actions)
    protocol = next(action for action in rows if isinstance(action, Protocol))
    metadata = next(action for action in rows if isinstance(action, Metadata))
    schema = top_level_schema(metadata, protocol)
    group = action_group(schema, _with_required_features(rows))
    _publish(store, classic_checkpoint_path(version), lambda: parquet_bytes(schema, [group]))


def unexpired(removes: pa.Table, metadata: Metadata, now_ms: int) -> pa.Table:
    """The tombstones that a checkpoint still keeps: VACUUM and old readers need them."""
    retention = property_value(metadata.configuration, DELETED_FILE_RETENTION)
    deleted = pc.fill_null(removes.column("deletionTimestamp"), 0)
    return removes.filter(pc.greater(deleted, now_ms - retention))


def _with_required_features(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """`actions`, with feature lists exactly where the protocol's versions require them."""
    return tuple(_normal(a) if isinstance(a, Protocol) else a for a in actions)


def _normal(protocol: Protocol) -> Protocol:
    lists_readers = protocol.min_reader_version >= _READER_FEATURES
    lists_writers = protocol.min_writer_version >= _WRITER_FEATURES
    return replace(
        protocol,
        reader_features=(protocol.reader_features or ()) if lists_readers else None,
        writer_features=(protocol.writer_features or ()) if lists_writers else None,
    )


def _check_complete(content: CheckpointContent, expected_num_files: int | None) -> None:
    num_files = content.adds.num_rows
    if expected_num_files is not None and num_files != expected_num_files:
        reason = f"the version has {expected_num_files} files, {num_files} were given"
    elif content.adds.column("path").null_count or content.removes.column("path").null_count:
        reason = "a file has no path"
    else:
        return
    raise CorruptLogError(
        "DELTA_CHECKPOINT_INCOMPLETE_STATE", version=content.version, reason=reason
    )


def _file(
    schema: pa.Schema, content: CheckpointContent, state: tuple[Action, ...] = ()
) -> Iterator[bytes]:
    groups: Iterable[pa.Table] = chain(
        # The state comes first, in a row group of its own, where it is cheap to find.
        (action_group(schema, state),),
        remove_groups(schema, content.removes),
        add_groups(schema, content.adds, content.metadata),
    )
    if content.num_file_actions <= _FEW_ROWS:
        groups = (pa.concat_tables(groups),)  # a row group costs more than its rows
    return parquet_bytes(schema, groups)


def _write_multipart(store: LogStore, content: CheckpointContent, parts: int) -> LastCheckpoint:
    """One checkpoint in several files under a common name."""
    # Two writers of the same parts must write the same bytes, or a reader could mix halves of both:
    # files are put in an order that only their names decide, and tombstones, which expire while
    # time goes by, all go into the first part.
    present = _parts_present(store, content.version)
    while 0 < present[parts] < parts:
        parts += 1  # another engine's unfinished set must not be completed by us
    schema = checkpoint_schema(content.metadata, content.protocol)
    order = pc.sort_indices(file_keys(content.adds, store.root_uri))
    paths = [multipart_checkpoint_path(content.version, n, parts) for n in range(1, parts + 1)]
    bounds = [content.adds.num_rows * n // parts for n in range(parts + 1)]
    for n, path in enumerate(paths):
        rows = content.adds.take(order.slice(bounds[n], bounds[n + 1] - bounds[n]))
        removes = content.removes.slice(0, 0) if n else content.removes
        part = replace(content, adds=rows, removes=removes)
        _publish(store, path, partial(_file, schema, part, () if n else content.state))
    return replace(_described(content, paths, store, schema), parts=parts)


def _parts_present(store: LogStore, version: int) -> Counter[int]:
    """How many files there are of each multi-part checkpoint of a version."""
    infos = store.list_from(f"{LOG_DIRECTORY}/{version:020d}.checkpoint.")
    names = [parse_log_name(info.path.rpartition("/")[2]) for info in infos]
    return Counter(
        name.parts
        for name in names
        if name is not None and name.version == version
        if name.kind is LogFileKind.MULTIPART_CHECKPOINT and name.parts is not None
    )


def _write_v2(
    store: LogStore,
    content: CheckpointContent,
    new_uuid: NewUuid,
    rows_per_sidecar: int,
    v2_format: V2Format,
) -> LastCheckpoint:
    schema = sidecar_schema(content.metadata, content.protocol)
    state = content.state
    sidecars = tuple(
        _write_sidecar(store, schema, part, new_uuid)
        for part in _sidecar_parts(content, rows_per_sidecar)
    )
    sidecar_bytes = sum(sidecar.size_in_bytes for sidecar in sidecars)
    tags = {
        "sidecarNumActions": str(content.num_file_actions),
        "sidecarSizeInBytes": str(sidecar_bytes),
        "numOfAddFiles": str(content.adds.num_rows),
    }
    text = format_schema(spark_schema(schema))
    if len(text) <= LONGEST_CHECKPOINT_SCHEMA:
        tags["sidecarFileSchema"] = text
    own = CheckpointMetadata(version=content.version, tags=tags)
    actions: tuple[Action, ...] = (own, *sidecars, *state)
    path = uuid_checkpoint_path(content.version, str(new_uuid()), v2_format)
    top_schema = None
    if v2_format == "json":
        lines = "".join(f"{action.json}\n" for action in actions)
        store.create(path, lines.encode())
    else:
        top_schema = top_level_schema(content.metadata, content.protocol)
        group = action_group(top_schema, actions)
        store.create_from(path, parquet_bytes(top_schema, [group]))
    info = store.stat(path)
    return LastCheckpoint(
        version=content.version,
        size=content.num_file_actions + len(actions),
        size_in_bytes=sidecar_bytes + info.size,
        num_of_add_files=content.adds.num_rows,
        checkpoint_schema=None if top_schema is None else _schema_json(top_schema),
        v2_checkpoint=V2CheckpointHint(
            path=path.rpartition("/")[2],
            size_in_bytes=info.size,
            modification_time=info.modified_ms,
            non_file_actions=(*state, own),
            sidecar_files=sidecars,
        ),
    )


def _sidecar_parts(content: CheckpointContent, rows: int) -> Iterator[CheckpointContent]:
    """The file actions in portions of at most `rows`, tombstones after files."""
    files = content.adds.num_rows
    for start in range(0, content.num_file_actions, rows):
        adds = content.adds.slice(start, rows)
        skipped = max(start - files, 0)
        removes = content.removes.slice(skipped, rows - adds.num_rows)
        yield replace(content, adds=adds, removes=removes)


def _write_sidecar(
    store: LogStore, schema: pa.Schema, part: CheckpointContent, new_uuid: NewUuid
) -> SidecarFile:
    name = f"{new_uuid()}.parquet"
    path = sidecar_path(name)
    store.create_from(path, _file(schema, part))
    info = store.stat(path)
    return SidecarFile(path=name, size_in_bytes=info.size, modification_time=info.modified_ms)


def _publish(store: LogStore, path: str, file: Callable[[], Iterator[bytes]]) -> None:
    """Store a file that another writer may have stored already with the same content.

    A finished file is kept.  One that cannot be read, left by a writer without atomic writes, is
    replaced.
    """
    try:
        store.create_from(path, file())
    except FileAlreadyExistsError:
        if not is_readable_parquet(store, path):
            store.overwrite(path, b"".join(file()))


def _described(
    content: CheckpointContent, paths: list[str], store: LogStore, schema: pa.Schema
) -> LastCheckpoint:
    return LastCheckpoint(
        version=content.version,
        size=content.num_file_actions + len(content.state),
        size_in_bytes=sum(store.size(path) for path in paths),
        num_of_add_files=content.adds.num_rows,
        checkpoint_schema=_schema_json(schema),
    )


def _schema_json(schema: pa.Schema) -> Json:
    value: Json = type_json(spark_schema(schema))
    return value
