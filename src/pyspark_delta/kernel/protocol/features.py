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
from pyspark_delta.kernel.protocol.types import (
    TIMESTAMP_NTZ,
    VARIANT,
    DataType,
    inner_types,
    is_atomic,
)

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


def _has_type(data_type: DataType, wanted: DataType) -> bool:
    if is_atomic(data_type):
        return data_type == wanted
    return any(_has_type(inner, wanted) for _, inner in inner_types(data_type))


def _variant_needed(metadata: Metadata, supported: frozenset[str]) -> bool:
    return "variantType-preview" not in supported and _has_type(metadata.schema, VARIANT)


# The order is the order in which a protocol lists its features.
_ROWS = (
    Feature("appendOnly", legacy=(0, 2), needed=_flag(APPEND_ONLY)),
    Feature(
        "invariants", legacy=(0, 2), needed=lambda metadata, _: has_invariants(metadata.schema)
    ),
    Feature(
        "checkConstraints",
        legacy=(0, 3),
        needed=lambda metadata, _: bool(table_checks(metadata.configuration)),
        removable=True,
    ),
    Feature("changeDataFeed", legacy=(0, 4), needed=_flag(ENABLE_CHANGE_DATA_FEED)),
    Feature(
        "generatedColumns",
        legacy=(0, 4),
        needed=lambda metadata, _: bool(generated_columns(metadata.schema)),
    ),
    Feature(
        "columnMapping",
        readers=True,
        legacy=(2, 5),
        needed=lambda m, _: property_value(m.configuration, COLUMN_MAPPING_MODE) != "none",
        removable=True,
    ),
    Feature(
        "identityColumns",
        legacy=(0, 6),
        needed=lambda metadata, _: bool(identity_columns(metadata.schema)),
    ),
    Feature("deletionVectors", readers=True, needed=_flag(ENABLE_DELETION_VECTORS), removable=True),
    Feature(
        "timestampNtz",
        readers=True,
        needed=lambda metadata, _: _has_type(metadata.schema, TIMESTAMP_NTZ),
        upgrades=False,
    ),
    Feature(
        "v2Checkpoint",
        readers=True,
        needed=lambda m, _: property_value(m.configuration, CHECKPOINT_POLICY) == "v2",
        removable=True,
    ),
    # The next one comes with the features that require it.
    Feature("domainMetadata", removable=True),
    Feature(
        "rowTracking",
        requires=("domainMetadata",),
        needed=_flag(ENABLE_ROW_TRACKING),
        removable=True,
    ),
    Feature("icebergCompatV1", requires=("columnMapping",), needed=_flag(ENABLE_ICEBERG_COMPAT_V1)),
    Feature("icebergCompatV2", requires=("columnMapping",), needed=_flag(ENABLE_ICEBERG_COMPAT_V2)),
    # Reserved field ids of row ids are not written.
    Feature(
        "icebergCompatV3",
        requires=("columnMapping", "rowTracking"),
        needed=_flag(ENABLE_ICEBERG_COMPAT_V3),
        writable=False,
    ),
    Feature("icebergWriterCompatV1", requires=("icebergCompatV2",), writable=False),
    Feature("icebergWriterCompatV3", requires=("icebergCompatV3",), writable=False),
    # CLUSTER BY adds it.
    Feature("clustering", requires=("domainMetadata",), nameable=False),
    Feature("allowColumnDefaults"),
    Feature("inCommitTimestamp", needed=_flag(ENABLE_IN_COMMIT_TIMESTAMPS), removable=True),
    Feature("vacuumProtocolCheck", readers=True, removable=True),
    Feature(
        "typeWidening",
        readers=True,
        needed=_flag(ENABLE_TYPE_WIDENING, unless="typeWidening-preview"),
        removable=True,
    ),
    Feature("typeWidening-preview", readers=True, removable=True),
    Feature("variantType", readers=True, needed=_variant_needed),
    Feature("variantType-preview", readers=True),
    # The Arrow reader cannot reassemble shredded variants from their typed columns.
    Feature(
        "variantShredding", readers=True, requires=("variantType",), readable=False, writable=False
    ),
    Feature(
        "variantShredding-preview",
        readers=True,
        requires=("variantType",),
        needed=_flag(ENABLE_VARIANT_SHREDDING, unless="variantShredding"),
        readable=False,
        writable=False,
    ),
    # Only the catalog knows the newest commits.
    Feature(
        "catalogManaged",
        readers=True,
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        readable=False,
        writable=False,
    ),
    Feature(
        "coordinatedCommits-preview",
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        needed=_is_set(COMMIT_COORDINATOR),
        writable=False,
        removable=True,
    ),
    # DROP FEATURE adds it.
    Feature("checkpointProtection", removable=True),
    Feature(
        "materializePartitionColumns",
        needed=_flag(ENABLE_MATERIALIZE_PARTITION_COLUMNS),
        removable=True,
    ),
    Feature("geospatial", readers=True, readable=False, writable=False, removable=True),
    Feature("geospatial-dev", readers=True, readable=False, writable=False, removable=True),
    Feature("collations", requires=("domainMetadata",), writable=False),
    Feature(
        "timestampNanos", readers=True, requires=("timestampNtz",), readable=False, writable=False
    ),
    Feature("columnMappingUsageTracking", requires=("columnMapping",), writable=False),
    Feature(
        "adaptiveMetadata-preview",
        readers=True,
        requires=(
            "catalogManaged",
            "rowTracking",
            "domainMetadata",
            "deletionVectors",
            "columnMapping",
        ),
        readable=False,
        writable=False,
    ),
    Feature(
        "redirectReaderWriter-preview",
        readers=True,
        needed=_is_set(REDIRECT_READER_WRITER),
        readable=False,
        writable=False,
        removable=True,
    ),
    Feature(
        "redirectWriterOnly-preview",
        needed=_is_set(REDIRECT_WRITER_ONLY),
        writable=False,
        removable=True,
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
