"""What people give to `DeltaTable.vacuum`, checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pyspark.sql import DataFrame

from pyspark_delta.spark.commands.vacuum import VacuumRequest
from pyspark_delta.spark.table_arguments import check_flag, whole_number


def vacuum_request(
    hours: object, dry_run: object, lite: object, inventory: object, keep_versions: object
) -> VacuumRequest:
    """The request; TypeError or ValueError for an argument that is none."""
    check_flag(dry_run, "dryRun")
    if lite is not None:
        check_flag(lite, "lite")
    if inventory is not None and not isinstance(inventory, DataFrame):
        raise TypeError(f"inventory is a DataFrame, not {type(inventory).__name__}")
    if not isinstance(keep_versions, Iterable) or isinstance(keep_versions, str):
        raise TypeError(f"keepVersions are versions, not {type(keep_versions).__name__}")
    return VacuumRequest(
        retention_hours=_hours(hours),
        dry_run=bool(dry_run),
        lite=None if lite is None else bool(lite),
        inventory=inventory,
        keep_versions=tuple(whole_number(version, "a version") for version in keep_versions),
    )


def _hours(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"retentionHours is a number, not {type(value).__name__}")
    if math.isnan(value):
        raise ValueError("retentionHours is not a number")
    return float(value)
