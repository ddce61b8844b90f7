"""SHOW CREATE TABLE: generates the statement that creates a table of the same definition.

It leaves out what SQL cannot express: nullability of elements in arrays and maps, the physical
names of mapped columns, and the high-water marks of identity columns.

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
    in_listing_order,
    is_same_protocol,
    supported_features,
)
from pyspark_delta.kernel.protocol.generated_columns import generation_expression
from pyspark_delta.kernel.protocol.identity_columns import identity_info, is_identity
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    IGNORE_PROTOCOL_DEFAULTS,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
)
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.sql.quoting import quoted_name, string_literal
from pyspark_delta.spark.tables.names import settable_properties

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words that begin another clause in a list of columns.
_AMBIGUOUS = frozenset({"constraint", "primary", "foreign", "unique", "check"})
_CLUSTERING_FEATURE = "clustering"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWords:
    """A table's facts for the statement, beside its metadata.

    `clustering` are logical paths; `location` is None for a managed table or a path name.
    """

    name: Sequence[str]
    protocol: Protocol
    metadata: Metadata
    clustering: Sequence[Sequence[str]] = ()
    location: str | None = None


def create_statement(table: TableWords) -> str:
    """The statement; if the table does not exist, running it creates an equal one."""
    metadata = table.metadata
    lines = [
        f"CREATE TABLE {sql_name(table.name)} {_listed(map(_column, metadata.schema))}",
        "USING delta",
    ]
    if metadata.partition_columns:
        names = ", ".join(sql_name((name,)) for name in metadata.partition_columns)
        lines.append(f"PARTITIONED BY ({names})")
    if table.clustering:
        lines.append(f"CLUSTER BY ({', '.join(map(sql_name, table.clustering))})")
    if table.location is not None:
        lines.append(f"LOCATION {string_literal(table.location)}")
    if metadata.description is not None:
        lines.append(f"COMMENT {string_literal(metadata.description)}")
    properties = _properties(table)
    if properties:
        pairs = (f"{string_literal(key)} = {string_literal(properties[key])}" for key in properties)
        lines.append(f"TBLPROPERTIES {_listed(pairs)}")
    return "\n".join(lines)


def sql_name(parts: Sequence[str]) -> str:
    """A name in SQL, with backticks where it needs them."""
    return ".".join(map(_quoted, parts))


def sql_type(data_type: DataType) -> str:
    """A type in SQL, with comments and NOT NULL of nested fields."""
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
    """The clauses for the column's generated, default or identity values."""
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
    """The properties that a user can set, and those that give the same protocol, sorted."""
    given = settable_properties(table.metadata.configuration)
    found = {**given, **_protocol_properties(table, given)}
    return {key: found[key] for key in sorted(found)}


def _protocol_properties(table: TableWords, given: Mapping[str, str]) -> dict[str, str]:
    """The fewest properties with which CREATE TABLE gets the table's protocol."""
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
        if is_same_protocol(_made(table, given, way), wanted):
            return way
    return missing


def _features(names: frozenset[str]) -> dict[str, str]:
    return {
        f"{FEATURE_PREFIX}{name}": "supported"
        for name in in_listing_order(names)
        if name in FEATURES and FEATURES[name].nameable
    }


def _made(table: TableWords, given: Mapping[str, str], way: Mapping[str, str]) -> Protocol:
    rest, requested = take_protocol_properties({**given, **way})
    protocol = protocol_for(
        replace(table.metadata, configuration=rest),
        None,
        requested.features,
        requested.min_versions,
        default_versions=requested.default_versions,
    )
    return upgraded(protocol, [_CLUSTERING_FEATURE]) if table.clustering else protocol


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _AMBIGUOUS:
        return name
    return quoted_name(name)


def _listed(items: Iterable[str]) -> str:
    return "(\n  " + ",\n  ".join(items) + ")"
