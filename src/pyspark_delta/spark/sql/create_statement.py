"""SHOW CREATE TABLE: the statement that makes a table of the same definition, without its rows.

What SQL has no words for is left out: which elements of arrays and maps may be null, the physical
names of mapped columns, and how far identity columns have counted.

>>> from pyspark_delta.kernel.protocol.types import STRING
>>> print(sql_type(StructType((StructField("a b", STRING, False, {"comment": "x"}),))))
STRUCT<`a b`: STRING NOT NULL COMMENT 'x'>
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.feature_upgrade import (
    protocol_for,
    take_protocol_properties,
    upgraded,
)
from pyspark_delta.kernel.protocol.features import (
    FEATURES,
    asks_the_same,
    in_listing_order,
    supported_features,
)
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.identity_columns import identity_info, is_identity
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    IGNORE_PROTOCOL_DEFAULTS,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
    PROPERTIES,
)
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.string_literals import string_literal

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that begin something else where a column may stand.
_AMBIGUOUS = frozenset({"constraint", "primary", "foreign", "unique", "check"})
_CLUSTERING_FEATURE = "clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWords:
    """What a statement says about a table beside its metadata.

    `clustering` are paths as users name them; `location` is None where the name tells the place.
    """

    name: Sequence[str]
    protocol: Protocol
    metadata: Metadata
    clustering: Sequence[Sequence[str]] = ()
    location: str | None = None


def create_statement(table: TableWords) -> str:
    """The statement; running it where there is no such table makes an equal one."""
    metadata = table.metadata
    lines = [
        f"CREATE TABLE {quoted_name(table.name)} {_listed(map(_column, metadata.schema))}",
        "USING delta",
    ]
    if metadata.partition_columns:
        names = ", ".join(quoted_name((name,)) for name in metadata.partition_columns)
        lines.append(f"PARTITIONED BY ({names})")
    if table.clustering:
        lines.append(f"CLUSTER BY ({', '.join(map(quoted_name, table.clustering))})")
    if table.location is not None:
        lines.append(f"LOCATION {string_literal(table.location)}")
    if metadata.description is not None:
        lines.append(f"COMMENT {string_literal(metadata.description)}")
    properties = _properties(table)
    if properties:
        pairs = (f"{string_literal(key)} = {string_literal(properties[key])}" for key in properties)
        lines.append(f"TBLPROPERTIES {_listed(pairs)}")
    return "\n".join(lines)


def quoted_name(parts: Sequence[str]) -> str:
    """A name as SQL spells it, with backticks where it needs them."""
    return ".".join(map(_quoted, parts))


def sql_type(data_type: DataType) -> str:
    """A type as SQL spells it, comments and NOT NULL of nested fields included."""
    match data_type:
        case StructType(fields=fields):
            return f"STRUCT<{', '.join(map(_nested, fields))}>"
        case ArrayType(element_type=element):
            return f"ARRAY<{sql_type(element)}>"
        case MapType(key_type=key, value_type=value):
            return f"MAP<{sql_type(key)}, {sql_type(value)}>"
        case _:
            return data_type.simple_string.upper()


def _nested(f: StructField) -> str:
    return " ".join((f"{_quoted(f.name)}: {sql_type(f.data_type)}", *_not_null(f), *_comment(f)))


def _column(f: StructField) -> str:
    declared = f.metadata.get(CHAR_VARCHAR_KEY)
    kind = declared.upper() if isinstance(declared, str) else sql_type(f.data_type)
    return " ".join((_quoted(f.name), kind, *_not_null(f), *_filled(f), *_comment(f)))


def _not_null(f: StructField) -> Iterator[str]:
    if not f.nullable:
        yield "NOT NULL"


def _comment(f: StructField) -> Iterator[str]:
    if f.comment is not None:
        yield f"COMMENT {string_literal(f.comment)}"


def _filled(f: StructField) -> Iterator[str]:
    """Where values of the column come from when a row has none."""
    expression = generation_expression(f)
    if expression is not None:
        yield f"GENERATED ALWAYS AS ({expression})"
    if is_identity(f):
        info = identity_info(f)
        how = "BY DEFAULT" if info.allow_explicit_insert else "ALWAYS"
        yield f"GENERATED {how} AS IDENTITY (START WITH {info.start} INCREMENT BY {info.step})"
    default = current_default(f)
    if default is not None:
        yield f"DEFAULT {default}"


def _properties(table: TableWords) -> dict[str, str]:
    """The properties a user can give, and those that lead to the same protocol, sorted."""
    given = {
        key: value or ""
        for key, value in table.metadata.configuration.items()
        if key not in PROPERTIES or PROPERTIES[key].settable
    }
    found = {**given, **_protocol_properties(table, given)}
    return {key: found[key] for key in sorted(found)}


def _protocol_properties(table: TableWords, given: Mapping[str, str]) -> dict[str, str]:
    """The fewest words with which CREATE TABLE comes to the table's protocol."""
    wanted = table.protocol
    missing = _features(supported_features(wanted) - supported_features(_made(table, given, {})))
    versions = {
        MIN_READER_VERSION.key: str(wanted.min_reader_version),
        MIN_WRITER_VERSION.key: str(wanted.min_writer_version),
    }
    all_features = _features(supported_features(wanted))
    ways: tuple[dict[str, str], ...]
    ways = ({}, versions, missing, {IGNORE_PROTOCOL_DEFAULTS.key: "true", **all_features})
    for way in ways:
        if asks_the_same(_made(table, given, way), wanted):
            return way
    return missing


def _features(names: frozenset[str]) -> dict[str, str]:
    return {
        f"{FEATURE_PREFIX}{name}": "supported"
        for name in in_listing_order(names)
        if name in FEATURES and FEATURES[name].nameable
    }


def _made(table: TableWords, given: Mapping[str, str], way: Mapping[str, str]) -> Protocol:
    """The protocol of a table that is made with these properties."""
    rest, asked = take_protocol_properties({**given, **way})
    protocol = protocol_for(
        replace(table.metadata, configuration=rest),
        None,
        asked.features,
        asked.min_versions,
        default_versions=asked.default_versions,
    )
    return upgraded(protocol, [_CLUSTERING_FEATURE]) if table.clustering else protocol


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _AMBIGUOUS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _listed(items: Iterable[str]) -> str:
    return "(\n  " + ",\n  ".join(items) + ")"
