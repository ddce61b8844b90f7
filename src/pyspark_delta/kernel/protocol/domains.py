"""Domain metadata: named configurations beside the table's properties.

The content of the two known domains.  Names that begin with `delta.` belong to
the protocol.  PROTOCOL.md, "Domain Metadata", "Clustered Table" and "Row Tracking".

>>> clustering_domain([("a",), ("b", "c")]).configuration
'{"clusteringColumns":[["a"],["b","c"]],"domainName":"delta.clustering"}'
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark_delta.errors import CorruptLogError, InvalidActionsError
from pyspark_delta.kernel.protocol.actions import DomainMetadata
from pyspark_delta.kernel.protocol.codec import dumps

DOMAINS_FEATURE = "domainMetadata"
CLUSTERING = "delta.clustering"
ROW_TRACKING = "delta.rowTracking"

Domains = Mapping[str, DomainMetadata]


def check_domains(entries: Iterable[DomainMetadata], supported: Collection[str]) -> None:
    """Raise for domains in a commit when the table lacks the feature, or when one occurs twice."""
    names = [entry.domain for entry in entries]
    if names and DOMAINS_FEATURE not in supported:
        raise InvalidActionsError(
            "DELTA_DOMAIN_METADATA_NOT_SUPPORTED", domainNames=", ".join(sorted(set(names)))
        )
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidActionsError(
                "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR", domainName=name
            )
        seen.add(name)


def tombstone(entry: DomainMetadata) -> DomainMetadata:
    """The action that removes a domain, with its configuration, as the protocol requires."""
    return replace(entry, removed=True)


def clustering_domain(columns: Iterable[Sequence[str]]) -> DomainMetadata:
    """The domain of a clustered table: the physical name paths of its clustering columns.

    The protocol's example shows a flat list of names; every writer stores lists of path parts.
    """
    value = {"clusteringColumns": [list(path) for path in columns], "domainName": CLUSTERING}
    return DomainMetadata(domain=CLUSTERING, configuration=dumps(value))


def clustering_columns(domains: Domains) -> tuple[tuple[str, ...], ...] | None:
    """The physical name paths a table is clustered by; None when it is not a clustered table.

    Empty after CLUSTER BY NONE.  A name that is not a list is a path of one part.
    """
    entry = domains.get(CLUSTERING)
    if entry is None:
        return None
    columns = _configuration(entry).get("clusteringColumns")
    if not isinstance(columns, list):
        raise _invalid(CLUSTERING, "clusteringColumns is not a list")
    paths = [[column] if isinstance(column, str) else column for column in columns]
    for path in paths:
        if not isinstance(path, list) or not path or not all(isinstance(p, str) for p in path):
            raise _invalid(CLUSTERING, "a clustering column is not a path of names")
    return tuple(tuple(path) for path in paths)


def row_tracking_domain(high_water_mark: int) -> DomainMetadata:
    """The domain that records the largest assigned row id."""
    value = {"rowIdHighWaterMark": high_water_mark, "domainName": ROW_TRACKING}
    return DomainMetadata(domain=ROW_TRACKING, configuration=dumps(value))


def row_id_high_water_mark(domains: Domains) -> int | None:
    """The largest assigned row id; None when none has been assigned."""
    entry = domains.get(ROW_TRACKING)
    if entry is None:
        return None
    mark = _configuration(entry).get("rowIdHighWaterMark")
    if not isinstance(mark, int) or isinstance(mark, bool) or not -1 <= mark < 2**63:
        raise _invalid(ROW_TRACKING, "rowIdHighWaterMark is not a row id")
    return mark


def _configuration(entry: DomainMetadata) -> dict[str, Any]:
    try:
        value = json.loads(entry.configuration)
    except (ValueError, RecursionError):
        raise _invalid(entry.domain, "its configuration is not JSON") from None
    if not isinstance(value, dict):
        raise _invalid(entry.domain, "its configuration is not an object")
    return value


def _invalid(domain: str, reason: str) -> CorruptLogError:
    return CorruptLogError("DELTA_INVALID_DOMAIN_METADATA", domainName=domain, reason=reason)
