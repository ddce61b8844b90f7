"""Checks of the actions of one commit before any of them is written.

Every check reads actions and definitions alone, and raises InvalidActionsError (or the error of the
broken rule); none changes anything.  PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pyspark_delta.errors import AppendOnlyError, InvalidActionsError, SchemaError
from pyspark_delta.kernel.log.frames.file_actions import file_key
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.column_mapping import physical_name
from pyspark_delta.kernel.protocol.domains import ROW_TRACKING, check_domains
from pyspark_delta.kernel.protocol.features import is_supported, supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import check_iceberg_compat
from pyspark_delta.kernel.protocol.properties import (
    APPEND_ONLY,
    ENABLE_DELETION_VECTORS,
    property_value,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.storage.uris import resolve_action_path
from pyspark_delta.kernel.txn.definition import Definition
from pyspark_delta.kernel.txn.isolation import Traits
from pyspark_delta.kernel.txn.prepared import vector_id
from pyspark_delta.kernel.txn.reads import ReadSet

_F = TypeVar("_F", AddFile, RemoveFile, AddCDCFile)
_WRITABLE = (AddFile, RemoveFile, AddCDCFile, Metadata, Protocol, SetTransaction, DomainMetadata)
# Relative, nothing escaped: such a path is its own canonical form.
_PLAIN_PATH = re.compile(r"\w[\w=-]*(?:[./ ][\w=-]+)*")


def check_kinds(actions: Iterable[Action]) -> None:
    """Raise for actions that callers may not write, and for repeated unique ones."""
    unique: set[type[Action]] = set()
    for action in actions:
        if isinstance(action, CommitInfo):
            raise _invalid("the commit writes its commitInfo itself")
        if not isinstance(action, _WRITABLE):
            raise _invalid(f"{type(action).__name__} belongs into checkpoints")
        if isinstance(action, Metadata | Protocol):
            if type(action) in unique:
                raise _invalid(f"{type(action).__name__} can change once in a commit")
            unique.add(type(action))


def check_actions(
    actions: Sequence[Action], definition: Definition, root_uri: str, traits: Traits
) -> None:
    """Check the actions of a commit after which the table has `definition`."""
    adds = [a for a in actions if isinstance(a, AddFile)]
    check_no_repeats(actions, root_uri)
    check_partitions(actions, definition.metadata)
    check_vectors(adds, definition, traits)
    check_change_files(actions)
    domains = [action for action in actions if isinstance(action, DomainMetadata)]
    for action in domains:
        if action.domain == ROW_TRACKING and not action.removed:
            raise _invalid("row ids are given out by the commit, not by its caller")
    if domains:
        check_domains(domains, supported_features(definition.protocol))
    check_iceberg_compat(definition.protocol, definition.metadata, files=adds)


def check_no_repeats(actions: Iterable[Action], root_uri: str) -> None:
    """Raise if a path is added twice, removed twice, or added and removed with the same vector.

    A remove and an add of one path with different vectors replace a vector.
    """
    added: dict[str, AddFile] = {}
    removed: dict[str, RemoveFile] = {}
    changes: dict[str, AddCDCFile] = {}
    for action in actions:
        if isinstance(action, AddFile):
            _check_once(action, _safe_key(action.path, root_uri), added)
        elif isinstance(action, RemoveFile):
            # An illegal file must be removable whatever its name.
            _check_once(action, _key(action.path, root_uri), removed)
        elif isinstance(action, AddCDCFile):
            _check_once(action, _safe_key(action.path, root_uri), changes)
    for key in added.keys() & removed.keys():
        if vector_id(added[key].deletion_vector) == vector_id(removed[key].deletion_vector):
            raise InvalidActionsError(
                "DELTA_DUPLICATE_ACTIONS_FOUND",
                actionType="add and remove",
                path=added[key].path,
                conflictingPath=removed[key].path,
            )


def check_partitions(actions: Iterable[Action], metadata: Metadata) -> None:
    """Raise for files whose partition values are not exactly those of the partition columns."""
    mode = mapping_mode(metadata)
    columns = {physical_name(f, mode) for f in metadata.partition_schema}
    for action in actions:
        if isinstance(action, AddFile | AddCDCFile) and action.partition_values.keys() != columns:
            raise SchemaError(
                "DELTA_INVALID_PARTITIONING_SCHEMA",
                specifiedPartitioning=", ".join(sorted(action.partition_values)),
                neededPartitioning=", ".join(sorted(columns)),
            )


def check_vectors(adds: Iterable[AddFile], definition: Definition, traits: Traits) -> None:
    """Raise for vectors where the table allows none, and for statistics that ignore them."""
    with_vectors = [add for add in adds if add.deletion_vector is not None]
    if not with_vectors:
        return
    supported = is_supported(definition.protocol, "deletionVectors")
    enabled = property_value(definition.metadata.configuration, ENABLE_DELETION_VECTORS)
    if not supported or not (enabled or traits.readds_files):
        raise InvalidActionsError("DELTA_ADDING_DELETION_VECTORS_DISALLOWED")
    for add in with_vectors:
        if add.num_records is None:
            raise InvalidActionsError("DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS")
        # An absent `tightBounds` means true, so it must be present and false.
        tight = json.loads(add.stats or "{}").get("tightBounds")
        if tight is not False and not traits.readds_files:
            raise InvalidActionsError("DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED")


def check_touched_rows(actions: Sequence[Action], reads: ReadSet) -> None:
    """Raise if a vector deletes more or fewer rows of a file than the transaction recorded."""
    if not reads.touched:
        return
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            deleted = after if isinstance(action, AddFile) else before
            vector = action.deletion_vector
            key = _key(action.path, reads.root_uri)
            deleted[key] = 0 if vector is None else vector.cardinality
    for path in reads.touched.keys() & before.keys() & after.keys():
        taken = after[path] - before[path]
        touched = reads.touched[path].changed.cardinality
        if taken != touched:
            raise _invalid(
                f"the vector of {path} takes out {taken} rows, but {touched} were touched"
            )


def check_change_files(actions: Sequence[Action]) -> None:
    """Raise for change files in a commit that changes no data: no reader would use them."""
    change_files = [a for a in actions if isinstance(a, AddCDCFile)]
    if any(file.data_change for file in change_files):
        raise _invalid("a change file is not a part of the table (dataChange is true)")
    changes_data = any(isinstance(a, AddFile | RemoveFile) and a.data_change for a in actions)
    if change_files and not changes_data:
        raise _invalid("there are change files, but no file action changes data")


def check_append_only(actions: Iterable[Action], metadata: Metadata, table: str) -> None:
    """Raise for data removed from an append-only table."""
    if not property_value(metadata.configuration, APPEND_ONLY):
        return
    if any(isinstance(action, RemoveFile) and action.data_change for action in actions):
        raise AppendOnlyError(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY", table_name=table, config=APPEND_ONLY.key
        )


def without_repeated_transactions(actions: Iterable[Action]) -> tuple[Action, ...]:
    """`actions` with each application's version once; raises when it has two."""
    versions: dict[str, int] = {}
    kept: list[Action] = []
    for action in actions:
        if isinstance(action, SetTransaction):
            known = versions.get(action.app_id)
            if known == action.version:
                continue
            if known is not None:
                raise _invalid(
                    f"the application {action.app_id!r} has the versions {known} "
                    f"and {action.version}"
                )
            versions[action.app_id] = action.version
        kept.append(action)
    return tuple(kept)


def _check_once(action: _F, key: str, seen: dict[str, _F]) -> None:
    if key in seen:
        raise InvalidActionsError(
            "DELTA_DUPLICATE_ACTIONS_FOUND",
            actionType=action.KEY,
            path=action.path,
            conflictingPath=seen[key].path,
        )
    seen[key] = action


def _key(path: str, root_uri: str) -> str:
    return path if _PLAIN_PATH.fullmatch(path) else file_key(path, None, root_uri)


def _safe_key(path: str, root_uri: str) -> str:
    """As `_key`; UnsafePathError for a path that readers would reject."""
    return path if _PLAIN_PATH.fullmatch(path) else resolve_action_path(path, root_uri).path


def _invalid(reason: str) -> InvalidActionsError:
    return InvalidActionsError("DELTA_INVALID_COMMIT_ACTIONS", reason=reason)
