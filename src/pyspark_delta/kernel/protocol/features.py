"""The table of all table features, and checks of protocols against the supported ones.

A feature is *supported* when the protocol includes it, by version or by name; it is *active* when
the metadata uses it.  Readers and writers must follow supported features.  `feature_upgrade` adds
features to a protocol.  PROTOCOL.md, "Table Features" and "Valid Feature Names in Table Features".

>>> sorted(supported_features(Protocol(min_reader_version=1, min_writer_version=3)))
['appendOnly', 'checkConstraints', 'invariants']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

from pyspark_delta.errors import CorruptLogError, UnsupportedProtocolError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.constraints import has_invariants, table_checks
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.properties import (
    APPEND_ONLY,
    CHECKPOINT_POLICY,
    COLUMN_MAPPING_MODE,
    COMMIT_COORDINATOR,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_ICEBERG_COMPAT_V3,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_MATERIALIZE_PARTITION_COLUMNS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    ENABLE_VARIANT_SHREDDING,
    REDIRECT_READER_WRITER,
    REDIRECT_WRITER_ONLY,
    Property,
    property_value,
)
from pyspark_delta.kernel.protocol.types import TIMESTAMP_NTZ, VARIANT, DataType, walk_types

# The Delta Lake release whose features this table lists.
DELTA_VERSION = "4.4.0"
READER_VERSIONS = (1, 2, 3)
WRITER_VERSIONS = (1, 2, 3, 4, 5, 6, 7)
READER_FEATURES_VERSION = 3
WRITER_FEATURES_VERSION = 7

# Metadata, and the features that its protocol supports -> whether the feature is needed.
Need = Callable[[Metadata, frozenset[str]], bool]


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: a feature, the clients that must support it, its dependencies, and our support.

    `readers` is true when readers must support it too.  `legacy` holds the (reader, writer)
    versions that imply it without naming it.  `needed` decides whether metadata makes it active;
    with `upgrades` an existing table gets it silently then.  `readable` and `writable` are our own
    support, `removable` whether DROP FEATURE may remove it.  A feature that is not `nameable`
    cannot be requested by `delta.feature.<name>`.
    """

    name: str
    _: KW_ONLY
    readers: bool = False
    legacy: tuple[int, int] | None = None
    requires: tuple[str, ...] = ()
    needed: Need | None = None
    upgrades: bool = True
    readable: bool = True
    writable: bool = True
    removable: bool = False
    nameable: bool = True

    @property
    def min_reader_version(self) -> int:
        """The smallest reader version that can support it; 0 for a feature of writers only."""
        if self.legacy is not None:
            return self.legacy[0]
        return READER_FEATURES_VERSION if self.readers else 0

    @property
    def min_writer_version(self) -> int:
        """The smallest writer version that can support it."""
        return WRITER_FEATURES_VERSION if self.legacy is None else self.legacy[1]


def _flag(row: Property[bool | None], *, unless: str = "") -> Need:
    """Needed where a property is true, `unless` the feature's other name is supported already."""

    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        return unless not in supported and bool(property_value(metadata.configuration, row))

    return needed


def _is_set(row: Property[object]) -> Need:
    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        return metadata.configuration.get(row.key) is not None

    return needed


def _has_type(wanted: DataType, *, unless: str = "") -> Need:
    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        found = walk_types(metadata.schema)
        return unless not in supported and any(data_type == wanted for _, data_type in found)

    return needed


def _row(
    name: str,
    traits: str = "",
    *,
    legacy: tuple[int, int] | None = None,
    requires: str = "",
    needed: Need | None = None,
) -> Feature:
    """A row of the table.

    Its `traits` are words: `readers` must support it, it is `removable`, `unreadable` (and so not
    writable either) or `unwritable` here, `unnameable`, or added on `request` alone.
    """
    words = frozenset(traits.split())
    assert words <= _TRAITS, name
    return Feature(
        name,
        readers="readers" in words,
        legacy=legacy,
        requires=tuple(requires.split()),
        needed=needed,
        upgrades="request" not in words,
        readable="unreadable" not in words,
        writable=words.isdisjoint(("unreadable", "unwritable")),
        removable="removable" in words,
        nameable="unnameable" not in words,
    )


_TRAITS = frozenset(("readers", "removable", "unreadable", "unwritable", "unnameable", "request"))
# The order is the order in which a protocol lists its features.
_ROWS = (
    _row("appendOnly", legacy=(0, 2), needed=_flag(APPEND_ONLY)),
    _row("invariants", legacy=(0, 2), needed=lambda m, _: has_invariants(m.schema)),
    _row(
        "checkConstraints",
        "removable",
        legacy=(0, 3),
        needed=lambda m, _: bool(table_checks(m.configuration)),
    ),
    _row("changeDataFeed", legacy=(0, 4), needed=_flag(ENABLE_CHANGE_DATA_FEED)),
    _row("generatedColumns", legacy=(0, 4), needed=lambda m, _: bool(generated_columns(m.schema))),
    _row(
        "columnMapping",
        "readers removable",
        legacy=(2, 5),
        needed=lambda m, _: property_value(m.configuration, COLUMN_MAPPING_MODE) != "none",
    ),
    _row("identityColumns", legacy=(0, 6), needed=lambda m, _: bool(identity_columns(m.schema))),
    _row("deletionVectors", "readers removable", needed=_flag(ENABLE_DELETION_VECTORS)),
    _row("timestampNtz", "readers request", needed=_has_type(TIMESTAMP_NTZ)),
    _row(
        "v2Checkpoint",
        "readers removable",
        needed=lambda m, _: property_value(m.configuration, CHECKPOINT_POLICY) == "v2",
    ),
    # The next one comes with the features that require it.
    _row("domainMetadata", "removable"),
    _row("rowTracking", "removable", requires="domainMetadata", needed=_flag(ENABLE_ROW_TRACKING)),
    _row("icebergCompatV1", requires="columnMapping", needed=_flag(ENABLE_ICEBERG_COMPAT_V1)),
    _row("icebergCompatV2", requires="columnMapping", needed=_flag(ENABLE_ICEBERG_COMPAT_V2)),
    # Reserved field ids of row ids are not written.
    _row(
        "icebergCompatV3",
        "unwritable",
        requires="columnMapping rowTracking",
        needed=_flag(ENABLE_ICEBERG_COMPAT_V3),
    ),
    _row("icebergWriterCompatV1", "unwritable", requires="icebergCompatV2"),
    _row("icebergWriterCompatV3", "unwritable", requires="icebergCompatV3"),
    # CLUSTER BY adds it.
    _row("clustering", "unnameable", requires="domainMetadata"),
    _row("allowColumnDefaults"),
    _row("inCommitTimestamp", "removable", needed=_flag(ENABLE_IN_COMMIT_TIMESTAMPS)),
    _row("vacuumProtocolCheck", "readers removable"),
    _row(
        "typeWidening",
        "readers removable",
        needed=_flag(ENABLE_TYPE_WIDENING, unless="typeWidening-preview"),
    ),
    _row("typeWidening-preview", "readers removable"),
    _row("variantType", "readers", needed=_has_type(VARIANT, unless="variantType-preview")),
    _row("variantType-preview", "readers"),
    # The Arrow reader cannot reassemble shredded variants from their typed columns.
    _row("variantShredding", "readers unreadable", requires="variantType"),
    _row(
        "variantShredding-preview",
        "readers unreadable",
        requires="variantType",
        needed=_flag(ENABLE_VARIANT_SHREDDING, unless="variantShredding"),
    ),
    # Only the catalog knows the newest commits.
    _row("catalogManaged", "readers unreadable", requires="inCommitTimestamp vacuumProtocolCheck"),
    _row(
        "coordinatedCommits-preview",
        "removable unwritable",
        requires="inCommitTimestamp vacuumProtocolCheck",
        needed=_is_set(COMMIT_COORDINATOR),
    ),
    # DROP FEATURE adds it.
    _row("checkpointProtection", "removable"),
    _row(
        "materializePartitionColumns",
        "removable",
        needed=_flag(ENABLE_MATERIALIZE_PARTITION_COLUMNS),
    ),
    _row("geospatial", "readers removable unreadable"),
    _row("geospatial-dev", "readers removable unreadable"),
    _row("collations", "unwritable", requires="domainMetadata"),
    _row("timestampNanos", "readers unreadable", requires="timestampNtz"),
    _row("columnMappingUsageTracking", "unwritable", requires="columnMapping"),
    _row(
        "adaptiveMetadata-preview",
        "readers unreadable",
        requires="catalogManaged rowTracking domainMetadata deletionVectors columnMapping",
    ),
    _row(
        "redirectReaderWriter-preview",
        "readers removable unreadable",
        needed=_is_set(REDIRECT_READER_WRITER),
    ),
    _row(
        "redirectWriterOnly-preview", "removable unwritable", needed=_is_set(REDIRECT_WRITER_ONLY)
    ),
)
FEATURES: Mapping[str, Feature] = {feature.name: feature for feature in _ROWS}
_BY_LOWER_NAME = {feature.name.lower(): feature for feature in _ROWS}
_ORDER = {name: position for position, name in enumerate(FEATURES)}


def feature_named(name: str) -> Feature | None:
    """The feature of that name, ignoring case; None when it is not known."""
    return _BY_LOWER_NAME.get(name.lower())


def implied_features(reader_version: int, writer_version: int) -> frozenset[str]:
    """The features that two versions imply; none once features are listed."""
    if reader_version >= READER_FEATURES_VERSION or writer_version >= WRITER_FEATURES_VERSION:
        return frozenset()
    return frozenset(
        feature.name
        for feature in _ROWS
        if feature.legacy is not None
        and feature.legacy[0] <= reader_version
        and feature.legacy[1] <= writer_version
    )


def is_same_protocol(one: Protocol, other: Protocol) -> bool:
    """Whether two protocols require the same: features are sets, listed in any order."""
    return _requirements(one) == _requirements(other)


def supported_features(protocol: Protocol) -> frozenset[str]:
    """The features a protocol supports, implied and listed, known here or not."""
    return (
        implied_features(protocol.min_reader_version, protocol.min_writer_version)
        | frozenset(protocol.reader_features or ())
        | frozenset(protocol.writer_features or ())
    )


def is_supported(protocol: Protocol, name: str) -> bool:
    """Whether a protocol supports one feature."""
    return name in supported_features(protocol)


def active_features(metadata: Metadata, supported: frozenset[str] = frozenset()) -> frozenset[str]:
    """The features that the metadata needs.

    `supported` are the features of the table: one that is supported under its preview name is
    not needed under the other.
    """
    return frozenset(
        feature.name
        for feature in _ROWS
        if feature.needed is not None and feature.needed(metadata, supported)
    )


def in_listing_order(names: Iterable[str]) -> tuple[str, ...]:
    """Feature names as a protocol lists them: in the table's order, unknown ones last."""
    return tuple(sorted(set(names), key=lambda name: (_ORDER.get(name, len(_ORDER)), name)))


def check_readable(protocol: Protocol, table: str, *, also: Collection[str] = ()) -> None:
    """Raise for a table with reader features that are not supported here, and name them.

    `table` is a name or a path for the message; `also` are features that the caller's own reader
    supports although the kernel's does not.
    """
    if protocol.min_reader_version not in READER_VERSIONS:
        raise _unsupported_version(protocol, table)
    check_shape(protocol)
    listed = protocol.reader_features or ()
    unsupported = [name for name in listed if name not in also and not _can_read(name)]
    if unsupported:
        raise UnsupportedProtocolError(
            "DELTA_UNSUPPORTED_FEATURES_FOR_READ",
            tableNameOrPath=table,
            deltaVersion=DELTA_VERSION,
            unsupported=", ".join(sorted(unsupported)),
        )


def check_writable(protocol: Protocol, table: str, *, also: Collection[str] = ()) -> None:
    """Raise for a table with writer features that are not supported here, and name them.

    A writer must support the reader features too.  `also` is as for `check_readable`.
    """
    check_readable(protocol, table, also=also)
    if protocol.min_writer_version not in WRITER_VERSIONS:
        raise _unsupported_version(protocol, table)
    listed = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
    unsupported = [name for name in listed if name not in also and not _can_write(name)]
    if unsupported:
        raise UnsupportedProtocolError(
            "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
            tableNameOrPath=table,
            deltaVersion=DELTA_VERSION,
            unsupported=", ".join(sorted(unsupported)),
        )


def check_shape(protocol: Protocol) -> None:
    """Raise if the versions and feature lists of a protocol contradict each other.

    An empty list beside a version without lists passes: it requires nothing, and columnar
    checkpoints cannot always distinguish it from an absent one.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    reason = None
    if reader == READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION:
        reason = f"reader version {reader} needs writer version {WRITER_FEATURES_VERSION}"
    elif reader == READER_FEATURES_VERSION and protocol.reader_features is None:
        reason = f"reader version {reader} needs a list of readerFeatures"
    elif writer == WRITER_FEATURES_VERSION and protocol.writer_features is None:
        reason = f"writer version {writer} needs a list of writerFeatures"
    elif reader < READER_FEATURES_VERSION and protocol.reader_features:
        reason = f"reader version {reader} cannot have readerFeatures"
    elif writer < WRITER_FEATURES_VERSION and protocol.writer_features:
        reason = f"writer version {writer} cannot have writerFeatures"
    if reason is not None:
        raise CorruptLogError(
            "DELTA_INVALID_PROTOCOL", protocol=protocol_text(protocol), reason=reason
        )


def protocol_text(protocol: Protocol) -> str:
    """The short form of a protocol for messages: `1,2` or `3,7,[a],[a,b]`."""
    text = f"{protocol.min_reader_version},{protocol.min_writer_version}"
    if protocol.reader_features is None and protocol.writer_features is None:
        return text
    lists = (
        "None" if names is None else f"[{','.join(sorted(names))}]"
        for names in (protocol.reader_features, protocol.writer_features)
    )
    return ",".join((text, *lists))


def _requirements(protocol: Protocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _can_read(name: str) -> bool:
    feature = FEATURES.get(name)
    # A writer feature in the list of reader features counts as unknown: its meaning is undefined.
    return feature is not None and feature.readers and feature.readable


def _can_write(name: str) -> bool:
    feature = FEATURES.get(name)
    return feature is not None and feature.writable


def _unsupported_version(protocol: Protocol, table: str) -> UnsupportedProtocolError:
    return UnsupportedProtocolError(
        "DELTA_INVALID_PROTOCOL_VERSION",
        tableNameOrPath=table,
        readerRequired=protocol.min_reader_version,
        writerRequired=protocol.min_writer_version,
        deltaVersion=DELTA_VERSION,
        supportedReaders=", ".join(map(str, READER_VERSIONS)),
        supportedWriters=", ".join(map(str, WRITER_VERSIONS)),
    )
