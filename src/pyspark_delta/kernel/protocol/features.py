"""Table features: one table of all that a protocol can ask of a client, and who can do what.

A feature is *supported* when the protocol says so, by version or by name; it is *active* when the
metadata puts it to use.  Readers and writers obey supported features.  How a protocol comes to
support another feature is in `feature_upgrade`.  PROTOCOL.md, "Table Features" and "Valid Feature
Names in Table Features".

>>> sorted(supported_features(Protocol(min_reader_version=1, min_writer_version=3)))
['appendOnly', 'checkConstraints', 'invariants']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from pyspark_delta.errors.table import CorruptLogError, UnsupportedProtocolError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.constraints import check_constraints, has_invariants
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
    ArrayType,
    DataType,
    MapType,
    StructType,
)

# The Delta Lake release whose features this table lists.
DELTA_VERSION = "4.4.0"
READER_VERSIONS = (1, 2, 3)
WRITER_VERSIONS = (1, 2, 3, 4, 5, 6, 7)
READER_FEATURES_VERSION = 3
WRITER_FEATURES_VERSION = 7

# Metadata, and the features that its protocol supports already -> whether the feature is needed.
Need = Callable[[Metadata, frozenset[str]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One row: what a feature asks of whom, what it comes with, and whether we can honour it.

    `readers` is true when readers must know it too.  `legacy` holds the (reader, writer) versions
    that imply it without naming it.  `needed` says what makes it active, in `auto` words; with
    `upgrades` an existing table gets it silently then.  `readable` and `writable` are our own
    abilities, `removable` whether DROP FEATURE may take it away.  A feature that is not `nameable`
    cannot be asked for by `delta.feature.<name>`.
    """

    name: str
    readers: bool = False
    legacy: tuple[int, int] | None = None
    requires: tuple[str, ...] = ()
    auto: str = ""
    needed: Need | None = None
    upgrades: bool = True
    readable: bool = True
    writable: bool = True
    removable: bool = False
    nameable: bool = True

    @property
    def min_reader_version(self) -> int:
        """The smallest reader version that can support it; 0 when readers need not care."""
        if self.legacy is not None:
            return self.legacy[0]
        return READER_FEATURES_VERSION if self.readers else 0

    @property
    def min_writer_version(self) -> int:
        """The smallest writer version that can support it."""
        return WRITER_FEATURES_VERSION if self.legacy is None else self.legacy[1]


def _flag(row: Property[bool | None]) -> Need:
    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        return bool(property_value(metadata.configuration, row))

    return needed


def _flag_unless(row: Property[bool], other: str) -> Need:
    """As `_flag`, unless the feature's other name is supported: the two mean the same."""

    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        return other not in supported and property_value(metadata.configuration, row)

    return needed


def _is_set(row: Property[object]) -> Need:
    def needed(metadata: Metadata, supported: frozenset[str]) -> bool:
        return metadata.configuration.get(row.key) is not None

    return needed


def _has_type(data_type: DataType, wanted: DataType) -> bool:
    match data_type:
        case StructType(fields=fields):
            return any(_has_type(f.data_type, wanted) for f in fields)
        case ArrayType(element_type=element):
            return _has_type(element, wanted)
        case MapType(key_type=key, value_type=value):
            return _has_type(key, wanted) or _has_type(value, wanted)
        case _:
            return data_type == wanted


def _variant_needed(metadata: Metadata, supported: frozenset[str]) -> bool:
    return "variantType-preview" not in supported and _has_type(metadata.schema, VARIANT)


# The order is the order in which a protocol lists its features.
_ROWS = (
    Feature(
        name="appendOnly",
        legacy=(0, 2),
        auto="delta.appendOnly = true",
        needed=_flag(APPEND_ONLY),
    ),
    Feature(
        name="invariants",
        legacy=(0, 2),
        auto="a column with delta.invariants",
        needed=lambda metadata, _: has_invariants(metadata.schema),
    ),
    Feature(
        name="checkConstraints",
        legacy=(0, 3),
        auto="a property delta.constraints.*",
        needed=lambda metadata, _: bool(check_constraints(metadata.configuration)),
        removable=True,
    ),
    Feature(
        name="changeDataFeed",
        legacy=(0, 4),
        auto="delta.enableChangeDataFeed = true",
        needed=_flag(ENABLE_CHANGE_DATA_FEED),
    ),
    Feature(
        name="generatedColumns",
        legacy=(0, 4),
        auto="a column with delta.generationExpression",
        needed=lambda metadata, _: bool(generated_columns(metadata.schema)),
    ),
    Feature(
        name="columnMapping",
        readers=True,
        legacy=(2, 5),
        auto="delta.columnMapping.mode other than none",
        needed=lambda m, _: property_value(m.configuration, COLUMN_MAPPING_MODE) != "none",
        removable=True,
    ),
    Feature(
        name="identityColumns",
        legacy=(0, 6),
        auto="a column with delta.identity.*",
        needed=lambda metadata, _: bool(identity_columns(metadata.schema)),
    ),
    Feature(
        name="deletionVectors",
        readers=True,
        auto="delta.enableDeletionVectors = true",
        needed=_flag(ENABLE_DELETION_VECTORS),
        removable=True,
    ),
    Feature(
        name="timestampNtz",
        readers=True,
        auto="a TIMESTAMP_NTZ column of a new table",
        needed=lambda metadata, _: _has_type(metadata.schema, TIMESTAMP_NTZ),
        upgrades=False,
    ),
    Feature(
        name="v2Checkpoint",
        readers=True,
        auto="delta.checkpointPolicy = v2",
        needed=lambda m, _: property_value(m.configuration, CHECKPOINT_POLICY) == "v2",
        removable=True,
    ),
    Feature(name="domainMetadata", auto="the features that require it", removable=True),
    Feature(
        name="rowTracking",
        requires=("domainMetadata",),
        auto="delta.enableRowTracking = true",
        needed=_flag(ENABLE_ROW_TRACKING),
        removable=True,
    ),
    Feature(
        name="icebergCompatV1",
        requires=("columnMapping",),
        auto="delta.enableIcebergCompatV1 = true",
        needed=_flag(ENABLE_ICEBERG_COMPAT_V1),
    ),
    Feature(
        name="icebergCompatV2",
        requires=("columnMapping",),
        auto="delta.enableIcebergCompatV2 = true",
        needed=_flag(ENABLE_ICEBERG_COMPAT_V2),
    ),
    Feature(
        name="icebergCompatV3",
        requires=("columnMapping", "rowTracking"),
        auto="delta.enableIcebergCompatV3 = true",
        needed=_flag(ENABLE_ICEBERG_COMPAT_V3),
        writable=False,  # reserved field ids of row ids are not written
    ),
    Feature(name="icebergWriterCompatV1", requires=("icebergCompatV2",), writable=False),
    Feature(name="icebergWriterCompatV3", requires=("icebergCompatV3",), writable=False),
    Feature(name="clustering", requires=("domainMetadata",), auto="CLUSTER BY", nameable=False),
    Feature(name="allowColumnDefaults"),
    Feature(
        name="inCommitTimestamp",
        auto="delta.enableInCommitTimestamps = true",
        needed=_flag(ENABLE_IN_COMMIT_TIMESTAMPS),
        removable=True,
    ),
    Feature(name="vacuumProtocolCheck", readers=True, removable=True),
    Feature(
        name="typeWidening",
        readers=True,
        auto="delta.enableTypeWidening = true",
        needed=_flag_unless(ENABLE_TYPE_WIDENING, "typeWidening-preview"),
        removable=True,
    ),
    Feature(name="typeWidening-preview", readers=True, removable=True),
    Feature(name="variantType", readers=True, auto="a VARIANT column", needed=_variant_needed),
    Feature(name="variantType-preview", readers=True),
    # Shredded variants come apart into typed columns, which the Arrow reader cannot put together.
    Feature(
        name="variantShredding",
        readers=True,
        requires=("variantType",),
        readable=False,
        writable=False,
    ),
    Feature(
        name="variantShredding-preview",
        readers=True,
        requires=("variantType",),
        auto="delta.enableVariantShredding = true",
        needed=_flag_unless(ENABLE_VARIANT_SHREDDING, "variantShredding"),
        readable=False,
        writable=False,
    ),
    Feature(
        name="catalogManaged",
        readers=True,
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        readable=False,  # only the catalog knows the newest commits
        writable=False,
    ),
    Feature(
        name="coordinatedCommits-preview",
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        auto="delta.coordinatedCommits.commitCoordinator-preview",
        needed=_is_set(COMMIT_COORDINATOR),
        writable=False,
        removable=True,
    ),
    Feature(name="checkpointProtection", auto="DROP FEATURE", removable=True),
    Feature(
        name="materializePartitionColumns",
        auto="delta.enableMaterializePartitionColumnsFeature = true",
        needed=_flag(ENABLE_MATERIALIZE_PARTITION_COLUMNS),
        removable=True,
    ),
    Feature(name="geospatial", readers=True, readable=False, writable=False, removable=True),
    Feature(name="geospatial-dev", readers=True, readable=False, writable=False, removable=True),
    Feature(name="collations", requires=("domainMetadata",), writable=False),
    Feature(
        name="timestampNanos",
        readers=True,
        requires=("timestampNtz",),
        readable=False,
        writable=False,
    ),
    Feature(name="columnMappingUsageTracking", requires=("columnMapping",), writable=False),
    Feature(
        name="adaptiveMetadata-preview",
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
        name="redirectReaderWriter-preview",
        readers=True,
        auto="delta.redirectReaderWriter-preview",
        needed=_is_set(REDIRECT_READER_WRITER),
        readable=False,
        writable=False,
        removable=True,
    ),
    Feature(
        name="redirectWriterOnly-preview",
        auto="delta.redirectWriterOnly-preview",
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
    """What two versions support without naming it; nothing once features are listed."""
    if reader_version >= READER_FEATURES_VERSION or writer_version >= WRITER_FEATURES_VERSION:
        return frozenset()
    return frozenset(
        feature.name
        for feature in _ROWS
        if feature.legacy is not None
        and feature.legacy[0] <= reader_version
        and feature.legacy[1] <= writer_version
    )


def asks_the_same(one: Protocol, other: Protocol) -> bool:
    """Whether two protocols ask for the same: features are sets, listed in any order."""

    def asked(protocol: Protocol) -> tuple[int, int, frozenset[str], frozenset[str]]:
        return (
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset(protocol.reader_features or ()),
            frozenset(protocol.writer_features or ()),
        )

    return asked(one) == asked(other)


def supported_features(protocol: Protocol) -> frozenset[str]:
    """The features a protocol supports, implied ones and listed ones, known to us or not."""
    return (
        implied_features(protocol.min_reader_version, protocol.min_writer_version)
        | frozenset(protocol.reader_features or ())
        | frozenset(protocol.writer_features or ())
    )


def is_supported(protocol: Protocol, name: str) -> bool:
    """Whether a protocol supports one feature."""
    return name in supported_features(protocol)


def active_features(metadata: Metadata, supported: frozenset[str] = frozenset()) -> frozenset[str]:
    """The features that metadata puts to use by itself.

    `supported` is what the table has already: a feature under its preview name makes the other
    name unnecessary.
    """
    return frozenset(
        feature.name
        for feature in _ROWS
        if feature.needed is not None and feature.needed(metadata, supported)
    )


def in_listing_order(names: Iterable[str]) -> tuple[str, ...]:
    """Feature names as a protocol lists them: in the table's order, unknown ones behind."""
    return tuple(sorted(set(names), key=lambda name: (_ORDER.get(name, len(_ORDER)), name)))


def check_readable(protocol: Protocol, table: str, *, also: Collection[str] = ()) -> None:
    """Refuse, by name, a table that needs of its readers what we cannot do.

    `table` is a name or a path for the message; `also` are features that the caller's own reader
    honours although the kernel's does not.
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
    """Refuse, by name, a table that needs of its writers what we cannot do.

    A writer must be able to read as well.  `also` is as for `check_readable`.
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
    """Refuse a protocol whose versions and feature lists contradict each other.

    An empty list beside a version that has none is let pass: it asks for nothing, and columnar
    checkpoints cannot always tell it from an absent one.
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
    """A protocol in a few characters, for messages: `1,2` or `3,7,[a],[a,b]`."""
    text = f"{protocol.min_reader_version},{protocol.min_writer_version}"
    if protocol.reader_features is None and protocol.writer_features is None:
        return text
    lists = (
        "None" if names is None else f"[{','.join(sorted(names))}]"
        for names in (protocol.reader_features, protocol.writer_features)
    )
    return ",".join((text, *lists))


def _can_read(name: str) -> bool:
    feature = FEATURES.get(name)
    # A writer's feature among the readers' is no feature we know: its meaning there is undefined.
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
