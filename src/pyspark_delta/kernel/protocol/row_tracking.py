"""Row tracking: a permanent id of every row, and the version that last changed the row.

A row's id is its file's `baseRowId` plus its position, unless a hidden column of the file has
another.  This module assigns base ids and default versions to files, again after a lost race, and
names the hidden columns, which the writers of rows fill.  PROTOCOL.md, "Row Tracking".

>>> file = AddFile(
...     path="f", size=1, modification_time=0, data_change=True, stats='{"numRecords":5}'
... )
>>> numbered = assign_row_ids([file], high_water_mark=9, version=3)
>>> numbered.files[0].base_row_id, numbered.high_water_mark
(10, 14)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark_delta.errors import CorruptLogError, InvalidActionsError, PropertyError, SchemaError
from pyspark_delta.kernel.protocol import properties
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.properties import Property, property_value

ROW_TRACKING_FEATURE = "rowTracking"
# The mark of a table without assigned ids: its first id is 0.
NO_MARK = -1
# The commit tag for whether rows that were only moved kept their ids.
PRESERVED_TAG = "delta.rowTracking.preserved"
_COLUMNS: Mapping[str, tuple[Property[str | None], str]] = {
    "Row ID": (properties.ROW_ID_COLUMN, "_row-id-col-"),
    "Row Commit Version": (properties.ROW_COMMIT_VERSION_COLUMN, "_row-commit-version-col-"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFiles:
    """Files with their row ids, and the largest assigned id once they are committed."""

    files: tuple[AddFile, ...]
    high_water_mark: int


def assigns_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether new files must get row ids: if the feature is supported and not suspended."""
    check_properties(metadata)
    return is_supported(protocol, ROW_TRACKING_FEATURE) and not property_value(
        metadata.configuration, properties.ROW_TRACKING_SUSPENDED
    )


def is_row_tracking_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every row of the table has an id that readers may rely on."""
    check_properties(metadata)
    if not property_value(metadata.configuration, properties.ENABLE_ROW_TRACKING):
        return False
    if not is_supported(protocol, ROW_TRACKING_FEATURE):
        raise CorruptLogError(
            "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", features=ROW_TRACKING_FEATURE
        )
    return True


def check_properties(metadata: Metadata) -> None:
    """Raise if row tracking is both enabled and suspended."""
    values = metadata.configuration
    if property_value(values, properties.ENABLE_ROW_TRACKING) and property_value(
        values, properties.ROW_TRACKING_SUSPENDED
    ):
        raise PropertyError(
            "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION",
            property1=properties.ENABLE_ROW_TRACKING.key,
            property2=properties.ROW_TRACKING_SUSPENDED.key,
        )


def assign_row_ids(
    files: Iterable[AddFile], *, high_water_mark: int | None, version: int
) -> NumberedFiles:
    """`files` as version `version` commits them: fresh ids for those that have none.

    Files that are added again (RESTORE, new statistics, new vectors) keep their ids.
    """
    return _numbered(files, NO_MARK if high_water_mark is None else high_water_mark, version)


def reassign_row_ids(
    files: Iterable[AddFile], *, read_mark: int | None, winner_mark: int | None, winner_version: int
) -> NumberedFiles:
    """`files` renumbered after losing to the commit of `winner_version`.

    Ids above the mark that this transaction read were new, and may be the winner's now; ids up to
    it are older than both.  A default version equal to the lost version becomes the next one.
    """
    read = NO_MARK if read_mark is None else read_mark

    def kept(file: AddFile) -> AddFile:
        base, version = file.base_row_id, file.default_row_commit_version
        return replace(
            file,
            base_row_id=None if base is not None and base > read else base,
            default_row_commit_version=None if version == winner_version else version,
        )

    # A winner that added no rows leaves the mark unchanged.
    mark = max(read, NO_MARK if winner_mark is None else winner_mark)
    return _numbered(map(kept, files), mark, winner_version + 1)


def materialized_columns(metadata: Metadata, table: str = "the table") -> tuple[str, str]:
    """The hidden columns of row ids and row commit versions, where row tracking is enabled."""
    names = []
    for what, (row, _) in _COLUMNS.items():
        name = property_value(metadata.configuration, row)
        if not name:
            raise CorruptLogError(
                "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING",
                rowTrackingColumn=what,
                tableName=table,
            )
        names.append(name)
    return names[0], names[1]


def with_materialized_columns(metadata: Metadata, new_uuid: Callable[[], str]) -> Metadata:
    """`metadata` with names for the hidden columns; existing names never change."""
    added = {
        row.key: prefix + new_uuid()
        for row, prefix in _COLUMNS.values()
        if not metadata.configuration.get(row.key)
    }
    changed = replace(metadata, configuration={**metadata.configuration, **added})
    check_materialized_columns(changed)
    return changed


def check_materialized_columns(metadata: Metadata) -> None:
    """Raise if a column has the name of a hidden one."""
    for row, _ in _COLUMNS.values():
        name = property_value(metadata.configuration, row)
        if name and name in metadata.schema:
            raise SchemaError("DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED", colName=name)


def _numbered(files: Iterable[AddFile], mark: int, version: int) -> NumberedFiles:
    numbered = []
    for file in files:
        base = file.base_row_id
        if base is None:
            count = file.num_records
            if count is None or count < 0:
                raise InvalidActionsError("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS", path=file.path)
            base = mark + 1
            mark += count
            if mark >= 2**63:
                raise InvalidActionsError(
                    "DELTA_INVALID_ROW_TRACKING_METADATA",
                    reason=f"the rows of {file.path} do not fit below the largest row id",
                )
        committed = file.default_row_commit_version
        numbered.append(
            replace(
                file,
                base_row_id=base,
                default_row_commit_version=version if committed is None else committed,
            )
        )
    return NumberedFiles(files=tuple(numbered), high_water_mark=mark)
