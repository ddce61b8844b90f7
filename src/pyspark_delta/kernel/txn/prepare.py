"""Prepare a commit for its first attempt: checks, derived actions, `commitInfo`.

`prepare` turns a transaction's draft into a commit that can be written as the next version, or
raises before anything is written.  It reads no file of the table and depends on nothing but its
argument, so that the same draft gives the same commit.

A large commit is streamed, with a small batch of its actions in memory at a time.  Each batch is
checked by itself.  The caller guarantees that no path occurs in two batches: the check would need
every path in memory, which the stream avoids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from tempfile import SpooledTemporaryFile

from pyspark_delta.errors import InvalidActionsError, PropertyError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol import properties
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.commit_times import (
    enablement_properties,
    next_in_commit_timestamp,
)
from pyspark_delta.kernel.protocol.domains import row_id_high_water_mark, row_tracking_domain
from pyspark_delta.kernel.protocol.features import check_writable, is_supported
from pyspark_delta.kernel.protocol.identity_columns import (
    SCHEMA_UPDATE_TAG,
    is_identity_only_change,
)
from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import check_universal_formats, property_value
from pyspark_delta.kernel.protocol.row_tracking import NO_MARK, assign_row_ids, assigns_row_ids
from pyspark_delta.kernel.txn.commit_stats import Tally
from pyspark_delta.kernel.txn.definition import (
    Definition,
    check_mapping_beside_feed,
    check_protocol_change,
    defined,
    with_features_of,
)
from pyspark_delta.kernel.txn.invariants import (
    check_actions,
    check_append_only,
    check_kinds,
    check_touched_rows,
    without_repeated_transactions,
)
from pyspark_delta.kernel.txn.isolation import IsolationLevel, level_for, traits_of
from pyspark_delta.kernel.txn.prepared import PreparedCommit, with_adds
from pyspark_delta.kernel.txn.reads import ReadSet

ACTIONS_AT_ONCE = 1024
"""The number of actions in memory at a time."""

_IN_MEMORY_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
REMOVE_COLUMN_MAPPING = "REMOVE COLUMN MAPPING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The state of a transaction, and the actions that its caller commits.

    `snapshot` is None for a table that does not exist yet.  `metadata` and `protocol` are the new
    ones, if any; `metadata` has been through `defined` already.
    """

    txn_id: str
    snapshot: Snapshot | None
    reads: ReadSet
    metadata: Metadata | None
    protocol: Protocol | None
    actions: tuple[Action, ...]
    operation: Operation
    metrics: Mapping[str, object]
    tags: Mapping[str, str]
    user_metadata: str | None
    engine_info: str
    now_ms: int
    new_uuid: Callable[[], str]
    is_removal_valid: Callable[[int], bool] | None = None

    @property
    def read_version(self) -> int:
        """The version that was read; -1 for a new table."""
        return -1 if self.snapshot is None else self.snapshot.version


def definition_of(snapshot: Snapshot | None) -> Definition | None:
    """Protocol and metadata of a version; None without one."""
    if snapshot is None:
        return None
    return Definition(protocol=snapshot.protocol, metadata=snapshot.metadata)


def prepare(draft: Draft) -> PreparedCommit:
    """The commit of `draft`, checked and complete."""
    traits = traits_of(draft.operation.name)
    old = definition_of(draft.snapshot)
    given = without_repeated_transactions(draft.actions)
    check_kinds(given)
    new, own_actions = _definition(draft, old, given)
    others = tuple(a for a in given if not isinstance(a, Metadata | Protocol))
    if old is not None:
        check_append_only(others, old.metadata, draft.reads.root_uri)
        _check_partitioning(draft, old, new)
    _check_manifest_rules(draft, old, new)
    check_actions(others, new, draft.reads.root_uri, traits)
    check_touched_rows(others, draft.reads)
    has_files = any(isinstance(action, FileAction) for action in others)
    has_metadata = any(isinstance(action, Metadata) for action in own_actions)
    if has_files or has_metadata:
        # Readers of those formats would keep using files that VACUUM then deletes.
        check_universal_formats(new.metadata.configuration)
    if has_files and has_metadata:
        old_metadata = None if old is None else old.metadata
        check_mapping_beside_feed(old_metadata, new.metadata, draft.operation.name)
    mark, numbered = _with_row_ids(draft, others, new)
    prepared = PreparedCommit(
        txn_id=draft.txn_id,
        version=draft.read_version + 1,
        operation=draft.operation,
        isolation=level_for(
            new.metadata, (*own_actions, *numbered), changes_data=draft.operation.changes_data
        ),
        reads=draft.reads,
        protocol=new.protocol,
        metadata=new.metadata,
        read_protocol=None if old is None else old.protocol,
        read_metadata=None if old is None else old.metadata,
        commit_info=CommitInfo(),
        actions=(*own_actions, *numbered),
        row_id_mark=mark,
        now_ms=draft.now_ms,
        is_removal_valid=draft.is_removal_valid,
    )
    return _with_commit_info(draft, prepared)


def enables_in_commit_timestamps(old: Metadata | None, new: Metadata) -> bool:
    """Whether a table with existing commits enables in-commit timestamps."""
    return (
        old is not None
        and property_value(new.configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS)
        and not property_value(old.configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS)
    )


def _definition(
    draft: Draft, old: Definition | None, given: tuple[Action, ...]
) -> tuple[Definition, tuple[Action, ...]]:
    traits = traits_of(draft.operation.name)
    metadata = next((a for a in given if isinstance(a, Metadata)), None)
    explicit = next((a for a in given if isinstance(a, Protocol)), None)
    if metadata is not None and draft.metadata is not None:
        raise InvalidActionsError(
            "DELTA_INVALID_COMMIT_ACTIONS", reason="Metadata can change once in a commit"
        )
    requested = _widest(explicit, draft.protocol)
    if metadata is not None:
        new = defined(
            old,
            metadata,
            protocol=requested,
            table=draft.reads.root_uri,
            new_uuid=draft.new_uuid,
            replaces_table=traits.replaces_table,
            removes_mapping=draft.operation.name == REMOVE_COLUMN_MAPPING,
            drops_features=traits.drops_features,
        )
    elif draft.metadata is not None:
        assert requested is not None  # `defined` gave both
        new = Definition(protocol=requested, metadata=draft.metadata)
    elif old is None:
        raise InvalidActionsError("DELTA_METADATA_ABSENT")
    else:
        new = Definition(protocol=requested or old.protocol, metadata=old.metadata)
    if old is not None:
        check_writable(old.protocol, draft.reads.root_uri)
    if old is None or new.protocol != old.protocol:
        check_protocol_change(
            old, new.protocol, draft.reads.root_uri, drops_features=traits.drops_features
        )
    own: list[Action] = []
    if metadata is not None or draft.metadata is not None:
        own.append(new.metadata)
    if old is None or explicit is not None or new.protocol != old.protocol:
        own.append(new.protocol)
    return new, tuple(own)


def _widest(explicit: Protocol | None, implied: Protocol | None) -> Protocol | None:
    if explicit is None or implied is None:
        return explicit or implied
    return with_features_of(explicit, implied)


def _check_partitioning(draft: Draft, old: Definition, new: Definition) -> None:
    before, after = old.metadata.partition_columns, new.metadata.partition_columns
    if before != after and not traits_of(draft.operation.name).changes_partitioning:
        raise SchemaError(
            "DELTA_UNSUPPORTED_PARTITION_COLUMN_CHANGE",
            operation=draft.operation.name,
            oldPartitionColumns=", ".join(before),
            newPartitionColumns=", ".join(after),
        )


def _check_manifest_rules(draft: Draft, old: Definition | None, new: Definition) -> None:
    """Raise for deletion vectors beside manifests, whose readers would see deleted rows."""
    is_unchanged = old is not None and new.metadata is old.metadata
    if is_unchanged or not property_value(new.metadata.configuration, properties.SYMLINK_MANIFEST):
        return
    if property_value(new.metadata.configuration, properties.ENABLE_DELETION_VECTORS):
        broken = "PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION"
    elif draft.snapshot is not None and _has_vectors(draft.snapshot):
        broken = "EXISTING_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION"
    else:
        return
    raise PropertyError(
        f"DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED.{broken}", table=draft.reads.root_uri
    )


def _has_vectors(snapshot: Snapshot) -> bool:
    if not is_supported(snapshot.protocol, "deletionVectors"):
        return False
    vectors = snapshot.files_with(["deletionVector"]).column("deletionVector")
    return bool(vectors.null_count != len(vectors))


def _with_row_ids(
    draft: Draft, actions: tuple[Action, ...], definition: Definition
) -> tuple[int, tuple[Action, ...]]:
    """The largest row id in use, and `actions` with ids on every new file."""
    # The domains, which hold the high-water mark, are only read where rows have ids.
    if not assigns_row_ids(definition.protocol, definition.metadata):
        return NO_MARK, actions
    known = row_id_high_water_mark({} if draft.snapshot is None else draft.snapshot.domains)
    mark = NO_MARK if known is None else known
    adds = [a for a in actions if isinstance(a, AddFile)]
    numbered = assign_row_ids(adds, high_water_mark=mark, version=draft.read_version + 1)
    with_ids = with_adds(actions, numbered.files)
    if numbered.high_water_mark != mark:
        with_ids += (row_tracking_domain(numbered.high_water_mark),)
    return mark, with_ids


def _with_commit_info(draft: Draft, prepared: PreparedCommit) -> PreparedCommit:
    tags = dict(draft.tags)
    old = prepared.read_metadata
    changes_metadata = prepared.has(Metadata)
    if old is not None and changes_metadata and is_identity_only_change(old, prepared.metadata):
        tags.setdefault(SCHEMA_UPDATE_TAG, "true")
    operation = draft.operation
    if operation.name in OPERATIONS:
        metrics = operation.recorded_metrics(draft.metrics)
    else:
        metrics = {name: str(value) for name, value in draft.metrics.items() if value is not None}
    time = None
    if property_value(prepared.metadata.configuration, properties.ENABLE_IN_COMMIT_TIMESTAMPS):
        previous = None if draft.snapshot is None else draft.snapshot.timestamp
        time = next_in_commit_timestamp(draft.now_ms, previous)
    info = CommitInfo(
        in_commit_timestamp=time,
        timestamp=draft.now_ms,
        operation=operation.name,
        operation_parameters=dict(operation.parameters),
        read_version=draft.read_version if draft.read_version >= 0 else None,
        isolation_level=prepared.isolation.value,
        is_blind_append=prepared.reads.is_empty
        and all(isinstance(a, AddFile) for a in prepared.actions if isinstance(a, FileAction)),
        data_change=any(
            isinstance(a, AddFile | RemoveFile) and a.data_change for a in prepared.actions
        ),
        operation_metrics=metrics,
        user_metadata=draft.user_metadata or operation.user_metadata,
        tags=tags or None,
        engine_info=draft.engine_info,
        txn_id=draft.txn_id,
    )
    prepared = replace(prepared, commit_info=info)
    if time is None or not enables_in_commit_timestamps(old, prepared.metadata):
        return prepared
    return prepared.with_metadata(stamped(prepared.metadata, prepared.version, time))


def stamped(metadata: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """Metadata that records the version from which on commits have in-commit timestamps."""
    added = enablement_properties(version, timestamp_ms)
    return replace(metadata, configuration={**metadata.configuration, **added})


def as_large(prepared: PreparedCommit) -> PreparedCommit:
    """`prepared` with delta-spark's `commitInfo` values for a commit with unexamined actions."""
    info = replace(
        prepared.commit_info,
        read_version=prepared.version - 1,
        isolation_level=IsolationLevel.SERIALIZABLE.value,
        is_blind_append=False,
        data_change=None,
    )
    return replace(prepared, commit_info=info)


def large_commit_chunks(
    prepared: PreparedCommit, actions: Iterable[Action], tally: Tally
) -> Iterator[bytes]:
    """The bytes of a commit: the actions in `prepared`, then `actions`."""
    # A loop would keep a batch in memory while the next one is made.
    return map(tally.encoded, _batches(prepared, actions))


@contextmanager
def written_aside(chunks: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """All of `chunks`, buffered outside of the table until the last one is made.

    Making them may read footers for minutes and fail at the last one: until then, not even a
    directory of the table is touched.
    """
    with SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="pyspark-delta-") as file:
        for chunk in chunks:
            file.write(chunk)
        file.seek(0)
        yield iter(lambda: file.read(_CHUNK_BYTES), b"")


def _batches(prepared: PreparedCommit, actions: Iterable[Action]) -> Iterator[tuple[Action, ...]]:
    yield prepared.all_actions
    definition = Definition(protocol=prepared.protocol, metadata=prepared.metadata)
    gives_ids = assigns_row_ids(prepared.protocol, prepared.metadata)
    mark = prepared.row_id_mark
    remaining = iter(actions)
    while batch := tuple(islice(remaining, ACTIONS_AT_ONCE)):
        check_kinds(batch)
        if any(isinstance(action, Metadata | Protocol) for action in batch):
            raise InvalidActionsError(
                "DELTA_INVALID_COMMIT_ACTIONS",
                reason="metadata and protocol of a streamed commit come before its actions",
            )
        check_actions(batch, definition, prepared.table, prepared.traits)
        if gives_ids:
            adds = [action for action in batch if isinstance(action, AddFile)]
            numbered = assign_row_ids(adds, high_water_mark=mark, version=prepared.version)
            batch, mark = with_adds(batch, numbered.files), numbered.high_water_mark
        yield batch
    if mark != prepared.row_id_mark:
        yield (row_tracking_domain(mark),)
