"""RESTORE: plan and commit the return of a table to an earlier version.

The files of the two versions are compared in Arrow, by path and deletion vector; files that only
the older one has are added, files that only the newer one has are removed.  No data file changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.layout.bins import num_bytes
from pyspark_delta.kernel.ops.vacuum.missing_files import missing_files
from pyspark_delta.kernel.protocol.actions import Action, DomainMetadata, Metadata, Protocol
from pyspark_delta.kernel.protocol.domains import CLUSTERING, clustering_domain
from pyspark_delta.kernel.protocol.feature_upgrade import merged
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.identity_columns import with_merged_marks
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import chosen_adds
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction

_CLUSTERING_FEATURE = "clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The content of a commit that restores a table to `version`.

    `added` and `removed` are add actions; the files in neither stay.
    """

    version: int
    added: pa.Table
    removed: pa.Table
    metadata: Metadata
    protocol: Protocol
    domains: tuple[DomainMetadata, ...]
    num_files: int
    num_bytes: int

    @property
    def metrics(self) -> dict[str, int]:
        return {
            "tableSizeAfterRestore": self.num_bytes,
            "numOfFilesAfterRestore": self.num_files,
            "numRemovedFiles": self.removed.num_rows,
            "numRestoredFiles": self.added.num_rows,
            "removedFilesSize": num_bytes(self.removed),
            "restoredFilesSize": num_bytes(self.added),
        }

    def actions(self, now_ms: int) -> Iterator[Action]:
        """The actions of the commit, generated one by one."""
        yield from add_files(self.added)
        for file in add_files(self.removed):
            yield file.remove(now_ms)
        yield from self.domains


def plan_restore(
    current: Snapshot, target: Snapshot, *, allow_downgrade: bool = False
) -> RestorePlan:
    """The plan that takes a table from `current` back to `target`.

    The protocol keeps every feature that it has gained, unless `allow_downgrade`: older versions
    could not be read without it.
    """
    now_keys, then_keys = _keys(current), _keys(target)
    protocol = target.protocol
    if not allow_downgrade:
        has_all = supported_features(current.protocol) >= supported_features(protocol)
        protocol = current.protocol if has_all else merged(protocol, current.protocol)
    return RestorePlan(
        version=target.version,
        added=_changing_data(_without(target, then_keys, now_keys)),
        removed=_without(current, now_keys, then_keys),
        metadata=_restored_metadata(current, target),
        protocol=protocol,
        domains=_restored_domains(current, target, protocol),
        num_files=target.num_files,
        num_bytes=target.size_in_bytes,
    )


def check_files_exist(plan: RestorePlan, locations: Locations) -> None:
    """Raise if files to restore are missing from storage."""
    gone = missing_files(plan.added, locations)
    if gone.num_rows:
        raise DataFileError(
            "DELTA_CANNOT_RESTORE_MISSING_FILES",
            version=plan.version,
            numFiles=gone.num_rows,
            path=gone.column("path")[0].as_py(),
        )


def commit_restore(
    txn: OptimisticTransaction,
    plan: RestorePlan,
    operation: Operation,
    *,
    user_metadata: str | None = None,
) -> int:
    """Commit the plan as the next version, and return that version.

    Raises ConcurrentWriteException after any other commit: the plan's removes are incomplete then.
    """
    txn.update_protocol(plan.protocol)
    # Restored files have the physical names of their time.  A version before REPLACE TABLE is
    # another table's, and the restored table becomes that one again.
    is_another = plan.metadata.id != txn.metadata.id
    txn.update_metadata(plan.metadata, replaces_table=is_another, removes_mapping=True)
    done = txn.commit_large(
        plan.actions(txn.log.now_ms()),
        operation,
        user_metadata=user_metadata,
        metrics=plan.metrics,
        protocol=txn.protocol,
    )
    return done.version


def _keys(snapshot: Snapshot) -> pa.Array:
    keys = snapshot.file_state.keys()
    return pa.concat_arrays(keys) if keys else pa.array([], pa.string())


def _without(snapshot: Snapshot, keys: pa.Array, others: pa.Array) -> pa.Table:
    is_own = pc.invert(pc.is_in(keys, value_set=others))
    return chosen_adds(snapshot, ["path"], lambda _: is_own)


def _changing_data(files: pa.Table) -> pa.Table:
    position = files.schema.get_field_index("dataChange")
    column = pa.repeat(pa.scalar(True), files.num_rows)
    return files.set_column(position, ADD_SCHEMA.field("dataChange"), column)


def _restored_metadata(current: Snapshot, target: Snapshot) -> Metadata:
    """The older metadata, with the current high-water marks of identity columns."""
    schema = target.metadata.schema
    numbered = with_merged_marks(schema, current.metadata.schema)
    if numbered == schema:
        return target.metadata
    return replace(target.metadata, schema_string=format_schema(numbered))


def _restored_domains(
    current: Snapshot, target: Snapshot, protocol: Protocol
) -> tuple[DomainMetadata, ...]:
    """The older clustering columns; users' own domains stay unchanged."""
    if _CLUSTERING_FEATURE not in supported_features(protocol):
        return ()
    now, then = current.domains.get(CLUSTERING), target.domains.get(CLUSTERING)
    if then is None or _CLUSTERING_FEATURE not in supported_features(target.protocol):
        return () if now is None else (clustering_domain(()),)
    return () if now == then else (then,)
