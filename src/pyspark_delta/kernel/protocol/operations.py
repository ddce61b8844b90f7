"""The operations that commits record in `commitInfo`, in delta-spark's form.

`operation` makes one of the table in `operation_kinds`; operations with derived parameters have a
function of their own.  Metrics are text.  PROTOCOL.md, "Commit Provenance Information", leaves all
of this to the writer.

>>> operation("DELETE", predicate=["(id = 1)"]).parameters
{'predicate': '["(id = 1)"]'}
>>> engine_info("4.3.0")
'Apache-Spark/4.3.0 pyspark-delta/0.1.0'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.codec import dumps
from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS, REMOVED, REPLACED, WRITTEN
from pyspark_delta.kernel.protocol.types import StructField, column_name, type_name

ENGINE_NAME = "pyspark-delta"
ENGINE_VERSION = "0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as a commit records it."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    metrics: tuple[str, ...] = ()
    changes_data: bool = False
    user_metadata: str | None = None

    def recorded_metrics(self, metrics: Mapping[str, object]) -> dict[str, str]:
        """Those of `metrics` that the operation records, as text; None means unknown."""
        return {name: str(metrics[name]) for name in self.metrics if metrics.get(name) is not None}


def operation(
    name: str,
    /,
    *,
    metrics: tuple[str, ...] | None = None,
    user_metadata: str | None = None,
    **parameters: Any,
) -> Operation:
    """The operation called `name`, whose parameters must be those of its row in the table.

    One that may be absent is left out when it is None.  Lists and objects become *text that holds
    JSON*, because readers of the history expect that.
    """
    kind = OPERATIONS[name]
    for key in kind.parameters:
        if not key.endswith("?") and key not in parameters:
            raise ValueError(f"{name} needs the parameter {key}")
    unknown = set(parameters) - {key.rstrip("?") for key in kind.parameters}
    if unknown:
        raise ValueError(f"{name} has no parameters {sorted(unknown)}")
    return Operation(
        name=name,
        parameters={
            key: _recorded(value)
            for key, value in parameters.items()
            if value is not None or key in kind.parameters
        },
        metrics=kind.metrics if metrics is None else metrics,
        changes_data=kind.changes_data,
        user_metadata=user_metadata,
    )


def engine_info(spark_version: str | None = None) -> str:
    """The `engineInfo` of a commit: this package, with Spark's version if it runs on Spark."""
    own = f"{ENGINE_NAME}/{ENGINE_VERSION}"
    return own if spark_version is None else f"Apache-Spark/{spark_version} {own}"


def write(
    mode: str,
    *,
    partition_by: Sequence[str] | None = None,
    predicate: str | None = None,
    is_dynamic_partition_overwrite: bool | None = None,
    can_overwrite_schema: bool | None = None,
    can_merge_schema: bool | None = None,
    replace_on: str | None = None,
    replace_using: str | None = None,
    user_metadata: str | None = None,
) -> Operation:
    """A batch write; `mode` as Spark's SaveMode spells it: Append, Overwrite, ...

    Columns to replace by (`replace_using`) are recorded as the user wrote them.
    """
    replaces = not (predicate is None and replace_on is None and replace_using is None)
    removed = REMOVED if mode == "Overwrite" else ""
    metrics = f"{WRITTEN} {removed} {REPLACED if replaces else ''}".split()
    if not removed and replaces:
        # An append that names a condition counts no rows that it might have deleted.
        metrics.remove("numDeletedRows")
    return operation(
        "WRITE",
        mode=mode,
        partitionBy=partition_by,
        predicate=predicate,
        isDynamicPartitionOverwrite=is_dynamic_partition_overwrite,
        canOverwriteSchema=can_overwrite_schema,
        canMergeSchema=can_merge_schema,
        replaceOnCond=replace_on,
        replaceUsingCols=None if replace_using is None else f"({replace_using})",
        metrics=tuple(metrics),
        user_metadata=user_metadata,
    )


def merge(
    predicates: Sequence[str],
    *,
    matched: Iterable[tuple[str, str | None]] = (),
    not_matched: Iterable[tuple[str, str | None]] = (),
    not_matched_by_source: Iterable[tuple[str, str | None]] = (),
) -> Operation:
    """MERGE; a clause is its action (update, delete, insert) and its condition, if any."""
    return operation(
        "MERGE",
        predicate=predicates,
        matchedPredicates=_clauses(matched),
        notMatchedPredicates=_clauses(not_matched),
        notMatchedBySourcePredicates=_clauses(not_matched_by_source),
    )


def define_table(
    verb: str,
    metadata: Metadata,
    *,
    is_managed: bool,
    as_select: bool = False,
    cluster_by: Sequence[str] = (),
    user_metadata: str | None = None,
    **options: Any,
) -> Operation:
    """CREATE, REPLACE or CREATE OR REPLACE TABLE, with `as_select` together with its rows.

    `options` are the further parameters of its row, by their own keys.
    """
    return operation(
        f"{verb.upper()} TABLE{' AS SELECT' if as_select else ''}",
        partitionBy=metadata.partition_columns,
        clusterBy=cluster_by,
        description=metadata.description,
        isManaged="true" if is_managed else "false",
        properties=metadata.configuration,
        **options,
        user_metadata=user_metadata,
    )


def optimize(
    predicates: Sequence[str] = (),
    *,
    z_order_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    auto: bool = False,
    is_full: bool | None = None,
) -> Operation:
    """OPTIMIZE: small files into large ones, no row changed."""
    return operation(
        "OPTIMIZE",
        predicate=predicates,
        zOrderBy=z_order_by,
        clusterBy=cluster_by,
        auto=auto,
        isFull=is_full,
    )


def added_columns(columns: Iterable[tuple[Sequence[str], StructField, str | None]]) -> Operation:
    """ADD COLUMNS: per column the path of its parent, the field, and FIRST or AFTER x, if any."""
    entries = [
        _present({"column": _field(parent, f), "position": position})
        for parent, f, position in columns
    ]
    return operation("ADD COLUMNS", columns=entries)


def change_column(
    parent: Sequence[str], changed: StructField, *, position: str | None = None
) -> Operation:
    """CHANGE COLUMN to `changed`, a field of `parent`."""
    return operation("CHANGE COLUMN", column=_field(parent, changed), position=position)


def changed_columns(name: str, columns: Iterable[tuple[Sequence[str], StructField]]) -> Operation:
    """REPLACE COLUMNS or SYNC IDENTITY: fields with the paths of their parents."""
    return operation(name, columns=[_field(parent, f) for parent, f in columns])


def altered_columns(columns: Iterable[tuple[Sequence[str], StructField, str | None]]) -> Operation:
    """CHANGE COLUMNS: per column the path of its parent, the field, FIRST or AFTER x, if any."""
    entries = [
        _present({**_field(parent, f), "position": position}) for parent, f, position in columns
    ]
    return operation("CHANGE COLUMNS", columns=entries)


def _present(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if value is not None}


def _recorded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dumps(dict(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return dumps(list(value))
    return value


def _clauses(clauses: Iterable[tuple[str, str | None]]) -> list[dict[str, Any]]:
    return [
        _present({"predicate": condition, "actionType": action}) for action, condition in clauses
    ]


def _field(parent: Sequence[str], f: StructField) -> dict[str, Any]:
    return {
        "name": column_name((*parent, f.name)),
        "type": type_name(f.data_type),
        "nullable": f.nullable,
        "metadata": dict(f.metadata),
    }
