"""Plain Parquet tables to convert, and what is in their directory afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

LOG = "_delta_log"


def save_parquet(data: DataFrame, path: Path, *partition_by: str) -> None:
    """Data as Spark saves it, one file to a partition."""
    data.coalesce(1).write.mode("append").partitionBy(*partition_by).parquet(str(path))


def parquet_file(path: Path, **columns: Sequence[object] | pa.Array) -> None:
    """One file with these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)


def tree(path: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory below a path, with its size and the time of its last change."""
    found = {}
    for folder, directories, names in os.walk(path):
        for name in (*directories, *names):
            full = Path(folder, name)
            is_file = full.is_file()
            key = full.relative_to(path).as_posix()
            found[key] = (full.stat().st_size, full.stat().st_mtime_ns) if is_file else (0, 0)
    return found


def data_tree(path: Path) -> dict[str, tuple[int, int]]:
    """As `tree`, without the log."""
    return {key: value for key, value in tree(path).items() if key.split("/")[0] != LOG}
