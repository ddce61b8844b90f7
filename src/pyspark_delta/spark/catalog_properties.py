"""A table's properties as the world outside of its log sees them: in SHOW, and in a metastore."""

from __future__ import annotations

import json

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import logical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.features import in_listing_order, is_supported
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
)
from pyspark_delta.kernel.scan.plan import mapping_mode

_LAST_VERSION, _LAST_TIME = "delta.lastUpdateVersion", "delta.lastCommitTimestamp"
_CLUSTERING = "clusteringColumns"
_CLUSTERING_FEATURE = "clustering"


def shown_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties, those that tell protocol and clustering among them, sorted by keys."""
    protocol = snapshot.protocol
    features = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    found = {
        **{key: value or "" for key, value in snapshot.metadata.configuration.items()},
        MIN_READER_VERSION.key: str(protocol.min_reader_version),
        MIN_WRITER_VERSION.key: str(protocol.min_writer_version),
        **{f"{FEATURE_PREFIX}{name}": "supported" for name in in_listing_order(features)},
    }
    if is_supported(protocol, _CLUSTERING_FEATURE):
        found[_CLUSTERING] = json.dumps(clustering_paths(snapshot), separators=(",", ":"))
    return {key: found[key] for key in sorted(found)}


def metastore_properties(snapshot: Snapshot) -> dict[str, str]:
    """What a metastore is told of a version that differs from what it knows."""
    return {
        **shown_properties(snapshot),
        _LAST_VERSION: str(snapshot.version),
        _LAST_TIME: str(snapshot.timestamp),
    }


def is_told(known: dict[str, str], properties: dict[str, str]) -> bool:
    """Whether a metastore knows these properties, but for the version it learnt them from."""
    return all(
        known.get(key) == value
        for key, value in properties.items()
        if key not in (_LAST_VERSION, _LAST_TIME)
    )


def clustering_paths(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """The clustering columns as users name them."""
    metadata = snapshot.metadata
    mode = mapping_mode(metadata)
    return [
        tuple(logical_path(metadata.schema, path, mode))
        for path in clustering_columns(snapshot.domains) or ()
    ]
