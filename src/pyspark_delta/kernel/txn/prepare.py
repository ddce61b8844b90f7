"""Everything before the first attempt: checks, derived actions, `commitInfo`.

`prepare` turns what a transaction did into a commit that can be written as the next version, or
raises before anything is.  It reads no file of the table and depends on nothing but its argument,
so that the same draft gives the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark_delta.errors.table import InvalidActionsError, PropertyError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
)
from pyspark_delta.kernel.protocol.domains import row_id_high_water_mark, row_tracking_domain
from pyspark_delta.kernel.protocol.feature_upgrade import merged
from pyspark_delta.kernel.protocol.features import (
    check_writable,
    is_supported,
    supported_features,
)
from pyspark_delta.kernel.protocol.identity_columns import (
    SCHEMA_UPDATE_TAG,
    is_identity_only_change,
)
from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    SYMLINK_MANIFEST,
    check_universal_formats,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import NO_MARK, assign_row_ids, assigns_row_ids
from pyspark_delta.kernel.protocol.timestamps import (
    enablement_properties,
    next_in_commit_timestamp,
)
from pyspark_delta.kernel.txn.definition import (
    Definition,
    check_mapping_beside_feed,
    check_protocol_change,
    defined,
)
from pyspark_delta.kernel.txn.invariants import (
    check_actions,
    check_append_only,
    check_kinds,
    check_touched_rows,
    without_repeated_transactions,
)
from pyspark_delta.kernel.txn.isolation import level_for, table_level
from pyspark_delta.kernel.txn.prepared import PreparedCommit
from pyspark_delta.kernel.txn.reads import ReadSet
from pyspark_delta.kernel.txn.traits import traits_of

REMOVE_COLUMN_MAPPING = "REMOVE COLUMN MAPPING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a transaction did, and what its caller asks to commit.

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
        """The version that was read; -1 when there was none."""
        return -1 if self.snapshot is None else self.snapshot.version

    @property
    def old(self) -> Definition | None:
        """What the table was when it was read."""
        return definition_of(self.snapshot)


def definition_of(snapshot: Snapshot | None) -> Definition | None:
    """Protocol and metadata of a version; None without one."""
    if snapshot is None:
        return None
    return Definition(protocol=snapshot.protocol, metadata=snapshot.metadata)


def prepare(draft: Draft) -> PreparedCommit:
    """The commit that `draft` asks for, checked and complete."""
    traits = traits_of(draft.operation.name)
    old = draft.old
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
        # Readers of those formats would go on with files that VACUUM then deletes.
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
            table_level(new.metadata),
            (*own_actions, *numbered),
            changes_data=draft.operation.changes_data,
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


def is_blind_append(actions: tuple[Action, ...], reads: ReadSet) -> bool:
    """Whether every file action is an add and no file was looked at."""
    files_are_adds = all(
        isinstance(action, AddFile) for action in actions if isinstance(action, FileAction)
    )
    return files_are_adds and reads.is_empty


def enables_in_commit_timestamps(old: Metadata | None, new: Metadata) -> bool:
    """Whether a table with commits that have no time inside starts to have them."""
    return (
        old is not None
        and property_value(new.configuration, ENABLE_IN_COMMIT_TIMESTAMPS)
        and not property_value(old.configuration, ENABLE_IN_COMMIT_TIMESTAMPS)
    )


def _definition(
    draft: Draft, old: Definition | None, given: tuple[Action, ...]
) -> tuple[Definition, tuple[Action, ...]]:
    """What the table will be, and the actions that say so."""
    traits = traits_of(draft.operation.name)
    metadata = next((a for a in given if isinstance(a, Metadata)), None)
    explicit = next((a for a in given if isinstance(a, Protocol)), None)
    if metadata is not None and draft.metadata is not None:
        raise InvalidActionsError(
            "DELTA_INVALID_COMMIT_ACTIONS", reason="Metadata can change once in a commit"
        )
    asked = _widest(explicit, draft.protocol)
    if metadata is not None:
        new = defined(
            old,
            metadata,
            protocol=asked,
            table=draft.reads.root_uri,
            new_uuid=draft.new_uuid,
            replaces_table=traits.replaces_table,
            removes_mapping=draft.operation.name == REMOVE_COLUMN_MAPPING,
            drops_features=traits.drops_features,
        )
    elif draft.metadata is not None:
        assert asked is not None  # `defined` gave both
        new = Definition(protocol=asked, metadata=draft.metadata)
    elif old is None:
        raise InvalidActionsError("DELTA_METADATA_ABSENT")
    else:
        new = Definition(protocol=asked or old.protocol, metadata=old.metadata)
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
    if supported_features(implied) <= supported_features(explicit):
        return explicit
    return merged(explicit, implied)


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
    """Refuse deletion vectors where manifests are kept: their readers would see deleted rows."""
    is_unchanged = old is not None and new.metadata is old.metadata
    if is_unchanged or not property_value(new.metadata.configuration, SYMLINK_MANIFEST):
        return
    if property_value(new.metadata.configuration, ENABLE_DELETION_VECTORS):
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
    """The largest row id in use, and `actions` with ids on every new file.

    The domains, which hold the mark, are only looked up where rows have ids.
    """
    if not assigns_row_ids(definition.protocol, definition.metadata):
        return NO_MARK, actions
    domains = {} if draft.snapshot is None else draft.snapshot.domains
    known = row_id_high_water_mark(domains)
    mark = NO_MARK if known is None else known
    adds = [action for action in actions if isinstance(action, AddFile)]
    numbered = assign_row_ids(adds, high_water_mark=mark, version=draft.read_version + 1)
    following = iter(numbered.files)
    with_ids = tuple(next(following) if isinstance(a, AddFile) else a for a in actions)
    if numbered.high_water_mark == mark:
        return mark, with_ids
    return mark, (*with_ids, row_tracking_domain(numbered.high_water_mark))


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
    info = CommitInfo(
        in_commit_timestamp=_in_commit_timestamp(draft, prepared.metadata),
        timestamp=draft.now_ms,
        operation=operation.name,
        operation_parameters=dict(operation.parameters),
        read_version=draft.read_version if draft.read_version >= 0 else None,
        isolation_level=prepared.isolation.value,
        is_blind_append=is_blind_append(prepared.actions, prepared.reads),
        data_change=any(
            isinstance(action, AddFile | RemoveFile) and action.data_change
            for action in prepared.actions
        ),
        operation_metrics=metrics,
        user_metadata=draft.user_metadata or operation.user_metadata,
        tags=tags or None,
        engine_info=draft.engine_info,
        txn_id=draft.txn_id,
    )
    prepared = replace(prepared, commit_info=info)
    if info.in_commit_timestamp is not None and enables_in_commit_timestamps(
        old, prepared.metadata
    ):
        prepared = prepared.with_metadata(
            stamped(prepared.metadata, prepared.version, info.in_commit_timestamp)
        )
    return prepared


def stamped(metadata: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """Metadata that records from which version on commits hold their time."""
    added = enablement_properties(version, timestamp_ms)
    return replace(metadata, configuration={**metadata.configuration, **added})


def _in_commit_timestamp(draft: Draft, metadata: Metadata) -> int | None:
    if not property_value(metadata.configuration, ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    previous = None if draft.snapshot is None else draft.snapshot.timestamp
    return next_in_commit_timestamp(draft.now_ms, previous)
