"""Compute the protocol that supports given features, and its form as versions and lists.

A set of features has one *normal* form: the legacy versions that imply exactly this set, or else
the smallest reader version beside writer version 7 and a list.  Going the other way, a legacy
protocol that gains a modern feature must list by name all that its versions implied.  Nothing here
looks at files.  PROTOCOL.md, "Protocol Evolution" and "Table Features".

>>> protocol_text(upgraded(Protocol(min_reader_version=1, min_writer_version=2), ["rowTracking"]))
'1,7,None,[appendOnly,domainMetadata,invariants,rowTracking]'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark_delta.errors import ProtocolError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.features import (
    FEATURES,
    READER_FEATURES_VERSION,
    WRITER_FEATURES_VERSION,
    active_features,
    feature_named,
    implied_features,
    in_listing_order,
    is_supported,
    protocol_text,
    supported_features,
)
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    IGNORE_PROTOCOL_DEFAULTS,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
    Property,
    parsed_value,
)

DEFAULT_VERSIONS = (1, 2)
_STATUSES = frozenset({"supported", "enabled"})
_VECTORS = "deletionVectors"
_PROTOCOL_KEYS = frozenset(
    row.key.lower() for row in (MIN_READER_VERSION, MIN_WRITER_VERSION, IGNORE_PROTOCOL_DEFAULTS)
)

# A requested reader and writer version; None leaves one of them open.
Versions = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedProtocol:
    """The protocol that a user's properties request; the properties themselves are not stored."""

    min_reader_version: int | None = None
    min_writer_version: int | None = None
    features: tuple[str, ...] = ()
    ignore_defaults: bool = False

    @property
    def min_versions(self) -> Versions | None:
        """The versions for `protocol_for`; None when neither is requested."""
        if self.min_reader_version is None and self.min_writer_version is None:
            return None
        return (self.min_reader_version, self.min_writer_version)

    @property
    def default_versions(self) -> tuple[int, int]:
        """The versions of a new table without requested versions."""
        return (1, 1) if self.ignore_defaults else DEFAULT_VERSIONS


def take_protocol_properties(
    configuration: Mapping[str, str | None], *, altering: bool = False
) -> tuple[dict[str, str | None], RequestedProtocol]:
    """The properties that stay properties, and the protocol that the others request.

    `altering` is for an existing table: it only selects the error's wording.
    """
    rest: dict[str, str | None] = {}
    protocol_properties: dict[str, str] = {}
    features: dict[str, str] = {}
    for key, value in configuration.items():
        lowered = key.lower()
        if lowered.startswith(FEATURE_PREFIX):
            features[key] = value or ""
        elif lowered in _PROTOCOL_KEYS:
            protocol_properties[lowered] = value or ""
        else:
            rest[key] = value
    ignore = protocol_properties.get(IGNORE_PROTOCOL_DEFAULTS.key.lower())
    return rest, RequestedProtocol(
        min_reader_version=_version(protocol_properties, MIN_READER_VERSION),
        min_writer_version=_version(protocol_properties, MIN_WRITER_VERSION),
        features=_named_features(features, altering),
        ignore_defaults=ignore is not None and parsed_value(IGNORE_PROTOCOL_DEFAULTS, ignore),
    )


def protocol_for(
    metadata: Metadata,
    base: Protocol | None = None,
    explicit_features: Iterable[str] = (),
    min_versions: Versions | None = None,
    *,
    default_versions: tuple[int, int] = DEFAULT_VERSIONS,
) -> Protocol:
    """The protocol that a table needs for `metadata`, which holds no protocol properties.

    `base` is the protocol it has, None for a new table; it is returned unchanged if it suffices.
    A needed feature that an existing table must enable by name raises
    DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT; all others are added silently.
    """
    explicit = frozenset(explicit_features)
    _check_known(explicit)
    if base is None:
        requested = _requested_versions(min_versions, default_versions)
        supported: frozenset[str] = frozenset()
    else:
        requested = _requested_versions(
            min_versions, (base.min_reader_version, base.min_writer_version)
        )
        _check_writer(requested, min_versions)
        supported = supported_features(base)
    wanted = supported | _implied_by(requested) | with_required(explicit)
    active = active_features(metadata, wanted)
    if base is not None:
        _check_automatic(active - wanted, wanted)
    wanted |= with_required(active)
    if min_versions is not None:
        _check_reader(requested, wanted)
    if base is not None and min_versions is None and wanted == supported:
        return base
    return _normal_form(wanted, () if base is None else (base,))


def upgraded(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """`protocol` with more features and all that they require; itself when it has them."""
    explicit = frozenset(features)
    _check_known(explicit)
    supported = supported_features(protocol)
    wanted = supported | with_required(explicit)
    return protocol if wanted == supported else _normal_form(wanted, (protocol,))


def merged(*protocols: Protocol) -> Protocol:
    """The smallest protocol that supports all that any of `protocols` does."""
    return _normal_form(frozenset().union(*map(supported_features, protocols)), protocols)


def keeping_vectors(protocol: Protocol, *others: Protocol) -> Protocol:
    """`protocol`, with deletion vectors supported if any of `others` supports them.

    For a reader of several versions at once, whose protocols are `others`: after DROP FEATURE the
    table has no vectors, but older entries of the log still do.
    """
    if any(is_supported(each, _VECTORS) for each in others):
        return upgraded(protocol, [_VECTORS])
    return protocol


def without_feature(protocol: Protocol, name: str) -> Protocol:
    """`protocol` after DROP FEATURE; ProtocolError when the feature cannot go.

    The caller checks whether the table still uses the feature.
    """
    feature = feature_named(name)
    if feature is None:
        raise ProtocolError("DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE", feature=name)
    supported = supported_features(protocol)
    if feature.name not in supported:
        raise ProtocolError("DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT", feature=feature.name)
    if not feature.removable:
        raise ProtocolError("DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", feature=feature.name)
    dependent = [
        other
        for other in in_listing_order(supported)
        if other in FEATURES and feature.name in FEATURES[other].requires
    ]
    if dependent:
        raise ProtocolError(
            "DELTA_FEATURE_DROP_DEPENDENT_FEATURE",
            feature=feature.name,
            dependentFeatures=", ".join(dependent),
        )
    return _normal_form(supported - {feature.name}, (protocol,))


def check_upgrade(old: Protocol, new: Protocol) -> None:
    """Raise if a protocol lacks a feature that the table's present one supports."""
    if dropped_features(old, new):
        raise ProtocolError(
            "DELTA_INVALID_PROTOCOL_DOWNGRADE",
            oldProtocol=protocol_text(old),
            newProtocol=protocol_text(new),
        )


def dropped_features(old: Protocol, new: Protocol) -> frozenset[str]:
    """The features that `old` supports and `new` does not."""
    return supported_features(old) - supported_features(new)


def with_required(names: Iterable[str]) -> frozenset[str]:
    """`names` and every feature that they require, directly or not."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(FEATURES[name].requires if name in FEATURES else ())
    return frozenset(needed)


def is_protocol_property(key: str) -> bool:
    """Whether a property is a request for a protocol, and is stored as one."""
    lowered = key.lower()
    return lowered.startswith(FEATURE_PREFIX) or lowered in _PROTOCOL_KEYS


def _normal_form(names: frozenset[str], sources: Iterable[Protocol]) -> Protocol:
    reader, writer = _smallest_versions(names)
    if names <= FEATURES.keys() and implied_features(reader, writer) == names:
        return Protocol(min_reader_version=reader, min_writer_version=writer)
    return _listing(names, sources)


def _listing(names: frozenset[str], sources: Iterable[Protocol]) -> Protocol:
    """The form with lists; a feature we do not know stays in the lists `sources` have it in."""
    reader, _ = _smallest_versions(names)
    for_readers = {name for name in names if name in FEATURES and FEATURES[name].readers}
    for source in sources:
        for_readers |= (set(source.reader_features or ()) & names) - FEATURES.keys()
    if for_readers - FEATURES.keys():
        reader = READER_FEATURES_VERSION
    return Protocol(
        min_reader_version=reader,
        min_writer_version=WRITER_FEATURES_VERSION,
        reader_features=(
            in_listing_order(for_readers) if reader == READER_FEATURES_VERSION else None
        ),
        writer_features=in_listing_order(names),
    )


def _smallest_versions(names: frozenset[str]) -> tuple[int, int]:
    known = [FEATURES[name] for name in names if name in FEATURES]
    return (
        max([1, *(feature.min_reader_version for feature in known)]),
        max([1, *(feature.min_writer_version for feature in known)]),
    )


def _requested_versions(requested: Versions | None, otherwise: tuple[int, int]) -> tuple[int, int]:
    reader, writer = requested or (None, None)
    return (otherwise[0] if reader is None else reader, otherwise[1] if writer is None else writer)


def _implied_by(requested: tuple[int, int]) -> frozenset[str]:
    reader, writer = requested
    if writer < WRITER_FEATURES_VERSION:
        # Reader version 3 has no meaning of its own beside a legacy writer version.
        reader = min(reader, READER_FEATURES_VERSION - 1)
    return implied_features(reader, writer)


def _check_writer(requested: tuple[int, int], named: Versions | None) -> None:
    """Raise for a writer version in which the reader version, which stays, has no meaning."""
    reader, writer = requested
    is_named = named is not None and named[1] is not None
    if is_named and reader >= READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION:
        raise ProtocolError(
            "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE", writerVersion=WRITER_FEATURES_VERSION
        )


def _check_reader(requested: tuple[int, int], wanted: frozenset[str]) -> None:
    reader, writer = requested
    lists_features = max(writer, _smallest_versions(wanted)[1]) >= WRITER_FEATURES_VERSION
    if reader >= READER_FEATURES_VERSION and not lists_features:
        raise ProtocolError(
            "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE", writerVersion=WRITER_FEATURES_VERSION
        )


def _check_automatic(missing: frozenset[str], supported: frozenset[str]) -> None:
    manual = [name for name in in_listing_order(missing) if not FEATURES[name].upgrades]
    if manual:
        raise ProtocolError(
            "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
            unsupportedFeatures=", ".join(manual),
            supportedFeatures=", ".join(in_listing_order(supported | (missing - set(manual)))),
        )


def _check_known(names: frozenset[str]) -> None:
    unknown = names - FEATURES.keys()
    if unknown:
        raise ProtocolError(
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG",
            configs=", ".join(FEATURE_PREFIX + name for name in sorted(unknown)),
        )


def _version(properties: Mapping[str, str], row: Property[int | None]) -> int | None:
    text = properties.get(row.key.lower())
    if text is None:
        return None
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ProtocolError("DELTA_PROTOCOL_PROPERTY_NOT_INT", key=row.key, value=text)
    return parsed_value(row, text)


def _named_features(properties: Mapping[str, str], altering: bool) -> tuple[str, ...]:
    names: set[str] = set()
    unknown = []
    for key, status in properties.items():
        feature = feature_named(key[len(FEATURE_PREFIX) :])
        if status.lower() not in _STATUSES:
            raise ProtocolError(
                "DELTA_UNSUPPORTED_FEATURE_STATUS",
                feature=key[len(FEATURE_PREFIX) :],
                status=status,
            )
        if feature is None:
            unknown.append(key)
        elif not feature.nameable:
            verb = "ALTER" if altering else "CREATE"
            raise ProtocolError(
                f"DELTA_{verb}_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED",
                tableFeature=feature.name,
            )
        else:
            names.add(feature.name)
    if unknown:
        raise ProtocolError(
            "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG", configs=", ".join(sorted(unknown))
        )
    return in_listing_order(names)
