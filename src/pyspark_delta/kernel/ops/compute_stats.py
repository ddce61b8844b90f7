"""Statistics collected again, from the footers of files that are there: no row is read.

For files that came without any, and for tables that changed which columns have them.  Files are
committed again as they are; beside a deletion vector bounds are those of all rows, deleted ones
too.  PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_delta.errors.table import DataFileError
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.ops.footer_stats import LayoutStats
from pyspark_delta.kernel.ops.level_histograms import null_counts
from pyspark_delta.kernel.ops.parquet_footers import FooterBlock, StatsRequest, read_footers
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import compute_stats
from pyspark_delta.kernel.protocol.properties import (
    NUM_INDEXED_COLUMNS,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    property_value,
)
from pyspark_delta.kernel.protocol.stats import DEFAULT_PREFIX_LENGTH
from pyspark_delta.kernel.protocol.stats_columns import stats_columns
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.delta_log import DeltaLog

_FILES_AT_ONCE = 64
_THREADS = 16


def run_compute_stats(log: DeltaLog, locations: Locations | None = None) -> int | None:
    """Collect the statistics of every file; the version that has them, None when all had."""
    txn = log.start_transaction()
    files = list(add_files(txn.filter_files()))
    found = with_new_stats(files, txn.metadata, txn.protocol, locations or Locations(log.store))
    changed = [
        replace(new, data_change=False)
        for old, new in zip(files, found, strict=True)
        if old.stats != new.stats
    ]
    if not changed:
        return None
    return txn.commit(changed, compute_stats(["true"])).version


def with_new_stats(
    files: Sequence[AddFile], metadata: Metadata, protocol: Protocol, locations: Locations
) -> Iterator[AddFile]:
    """The files, in their order, with the statistics that their footers give."""
    blocks = [files[at : at + _FILES_AT_ONCE] for at in range(0, len(files), _FILES_AT_ONCE)]
    with ThreadPoolExecutor(_THREADS) as pool:
        footers = pool.map(lambda block: _footers(block, locations), blocks)
        for block, found in zip(blocks, footers, strict=True):
            yield from _with_stats(block, found, metadata, protocol)


def _footers(files: Sequence[AddFile], locations: Locations) -> tuple[FooterBlock, list[bytes]]:
    """The footers of files, and the ends of these files, in which they are."""
    tails: dict[str, bytes] = {}

    def read_tail(path: str, start: int, length: int) -> bytes:
        store, name = locations.open(path)
        tails[path] = store.read_range(name, start, length)
        return tails[path]

    block = read_footers([(file.path, file.size) for file in files], read_tail, StatsRequest())
    return block, [tails.get(file.path, b"") for file in files]


def _with_stats(
    files: Sequence[AddFile],
    footers: tuple[FooterBlock, list[bytes]],
    metadata: Metadata,
    protocol: Protocol,
) -> Iterator[AddFile]:
    block, tails = footers
    configuration = metadata.configuration
    columns = stats_columns(
        metadata.schema,
        metadata.partition_columns,
        mode=mapping_mode(metadata),
        num_indexed=property_value(configuration, NUM_INDEXED_COLUMNS),
        listed=configuration.get(STATS_COLUMNS.key),
    )
    prefix = property_value(configuration, STRING_PREFIX_LENGTH)
    has_vectors = is_supported(protocol, "deletionVectors")
    known: dict[tuple[int, bool | None], LayoutStats] = {}
    for file, footer, tail in zip(files, block.files, tails, strict=True):
        if footer.problem is not None:
            raise DataFileError("DELTA_FAILED_READ_FILE_FOOTER", currentFile=file.path)
        tight = (file.deletion_vector is None) if has_vectors else None
        key = (footer.layout, tight)
        if key not in known:
            known[key] = LayoutStats(
                block.layouts[footer.layout],
                columns,
                tight_bounds=tight,
                prefix_length=DEFAULT_PREFIX_LENGTH if prefix is None else prefix,
            )
        leaves = known[key].collections
        nulls = _collection_nulls(tail, leaves) if leaves else []
        yield replace(file, stats=known[key].text(footer, nulls))


def _collection_nulls(tail: bytes, leaves: Sequence[tuple[int, int]]) -> list[int | None]:
    file = pa.BufferReader(tail)
    return null_counts(file, pq.read_metadata(file), leaves)
