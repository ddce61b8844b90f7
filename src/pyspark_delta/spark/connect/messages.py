"""The messages of Delta's extension of Spark Connect, as tables; and their wire format.

Programs of delta-spark send these to a server, so names and numbers are theirs.  Messages of
Spark's inside of them stay bytes, which the planner of the server reads.  The format is Protocol
Buffers', of which this is the part that the messages need, so a driver needs no library for it.

>>> decoded("DeltaRelation", encoded("DeltaRelation", {"is_delta_table": {"path": "/t"}}))
{'is_delta_table': {'path': '/t'}}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark_delta.errors import PropertyError

STRING, BYTES, BOOL, INT, DOUBLE, TEXT_MAP = "string", "bytes", "bool", "int", "double", "map"
_SCALARS = (STRING, BYTES, BOOL, INT, DOUBLE, TEXT_MAP)
# Wire types of Protocol Buffers.
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_DEEPEST = 50


class Field(NamedTuple):
    """A field of a message: its name, a scalar kind or a message, and whether it repeats."""

    name: str
    kind: str
    repeats: bool = False


_TABLE = Field("table", "DeltaTable")
_ACTIONS = ("matched_actions", "not_matched_actions", "not_matched_by_source_actions")
MESSAGES: Mapping[str, Mapping[int, Field]] = {
    # Of Spark's relations, those that hold a table of ours.
    "Relation": {16: Field("subquery_alias", "SubqueryAlias"), 998: Field("extension", "Any")},
    "SubqueryAlias": {1: Field("input", "Relation"), 2: Field("alias", STRING)},
    "Any": {1: Field("type_url", STRING), 2: Field("value", BYTES)},
    "Path": {1: Field("path", STRING), 2: Field("hadoop_conf", TEXT_MAP)},
    "DeltaTable": {1: Field("path", "Path"), 2: Field("table_or_view_name", STRING)},
    "DeltaRelation": {
        1: Field("scan", "Scan"),
        2: Field("describe_history", "Scan"),
        3: Field("describe_detail", "Scan"),
        4: Field("convert_to_delta", "ConvertToDelta"),
        5: Field("restore_table", "RestoreTable"),
        6: Field("is_delta_table", "IsDeltaTable"),
        7: Field("delete_from_table", "RowChange"),
        8: Field("update_table", "RowChange"),
        9: Field("merge_into_table", "MergeIntoTable"),
        10: Field("optimize_table", "OptimizeTable"),
    },
    "Scan": {1: _TABLE},
    "ConvertToDelta": {
        1: Field("identifier", STRING),
        2: Field("partition_schema_string", STRING),
        3: Field("partition_schema_struct", BYTES),
    },
    "RestoreTable": {1: _TABLE, 2: Field("version", INT), 3: Field("timestamp", STRING)},
    "IsDeltaTable": {1: Field("path", STRING)},
    "RowChange": {
        1: Field("target", BYTES),
        2: Field("condition", BYTES),
        3: Field("assignments", "Assignment", repeats=True),
    },
    "MergeIntoTable": {
        1: Field("target", BYTES),
        2: Field("source", BYTES),
        3: Field("condition", BYTES),
        **{4 + i: Field(name, "MergeAction", repeats=True) for i, name in enumerate(_ACTIONS)},
        7: Field("with_schema_evolution", BOOL),
    },
    "MergeAction": {
        1: Field("condition", BYTES),
        2: Field("delete_action", "Assignments"),
        3: Field("update_action", "Assignments"),
        4: Field("update_star_action", "Assignments"),
        5: Field("insert_action", "Assignments"),
        6: Field("insert_star_action", "Assignments"),
        # Ours, in numbers that delta-spark leaves free: its servers refuse such an action.
        1001: Field("update_star_except_action", "Names"),
        1002: Field("insert_star_except_action", "Names"),
    },
    "Names": {1: Field("columns", STRING, repeats=True)},
    "Assignments": {1: Field("assignments", "Assignment", repeats=True)},
    "Assignment": {1: Field("field", BYTES), 2: Field("value", BYTES)},
    "OptimizeTable": {
        1: _TABLE,
        2: Field("partition_filters", STRING, repeats=True),
        3: Field("zorder_columns", STRING, repeats=True),
    },
    "DeltaCommand": {
        1: Field("clone_table", "CloneTable"),
        2: Field("vacuum_table", "VacuumTable"),
        3: Field("upgrade_table_protocol", "UpgradeTableProtocol"),
        4: Field("generate", "Generate"),
        5: Field("create_delta_table", "CreateDeltaTable"),
        6: Field("add_feature_support", "FeatureSupport"),
        7: Field("drop_feature_support", "FeatureSupport"),
    },
    "CloneTable": {
        1: _TABLE,
        2: Field("target", STRING),
        3: Field("version", INT),
        4: Field("timestamp", STRING),
        5: Field("is_shallow", BOOL),
        6: Field("replace", BOOL),
        7: Field("properties", TEXT_MAP),
    },
    "VacuumTable": {1: _TABLE, 2: Field("retention_hours", DOUBLE)},
    "UpgradeTableProtocol": {
        1: _TABLE,
        2: Field("reader_version", INT),
        3: Field("writer_version", INT),
    },
    "Generate": {1: _TABLE, 2: Field("mode", STRING)},
    "CreateDeltaTable": {
        1: Field("mode", INT),
        2: Field("table_name", STRING),
        3: Field("location", STRING),
        4: Field("comment", STRING),
        5: Field("columns", "Column", repeats=True),
        6: Field("partitioning_columns", STRING, repeats=True),
        7: Field("properties", TEXT_MAP),
        8: Field("clustering_columns", STRING, repeats=True),
    },
    "Column": {
        1: Field("name", STRING),
        2: Field("data_type", BYTES),
        3: Field("nullable", BOOL),
        4: Field("generated_always_as", STRING),
        5: Field("comment", STRING),
        6: Field("identity_info", "IdentityInfo"),
    },
    "IdentityInfo": {
        1: Field("start", INT),
        2: Field("step", INT),
        3: Field("allow_explicit_insert", BOOL),
    },
    "FeatureSupport": {
        1: _TABLE,
        2: Field("feature_name", STRING),
        3: Field("truncate_history", BOOL),
    },
}
_MAP_ENTRY = {1: Field("key", STRING), 2: Field("value", STRING)}
PACKAGE = "delta.connect"
"""The package of the messages in Protocol Buffers."""


def encoded(message: str, values: Mapping[str, Any]) -> bytes:
    """A message on the wire; fields that have no value, or None, are left out."""
    parts: list[bytes] = []
    for number, f in MESSAGES[message].items():
        value = values.get(f.name)
        if value is None:
            continue
        for each in value if f.repeats else _entries(value) if f.kind == TEXT_MAP else (value,):
            parts.append(_field(number, f.kind, each))
    return b"".join(parts)


def decoded(message: str, data: bytes) -> dict[str, Any]:
    """The fields of a message that are there; unknown ones are left out.

    Raises PropertyError for bytes that are no such message.
    """
    try:
        return _decoded(MESSAGES[message], data, 0)
    except (ValueError, IndexError, UnicodeDecodeError, struct.error) as error:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            input=f"{len(data)} bytes",
            name=message,
            explain="is not a message of Delta's protocol for Spark Connect",
        ) from error


def _entries(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return iter(values.items())


def _field(number: int, kind: str, value: Any) -> bytes:
    if kind in (BOOL, INT):
        return _varint(number << 3 | _VARINT) + _varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
    if kind == DOUBLE:
        return _varint(number << 3 | _FIXED_64) + struct.pack("<d", value)
    if kind == STRING:
        data = str(value).encode("utf-8")
    elif kind == BYTES:
        data = bytes(value)
    elif kind == TEXT_MAP:
        data = _field(1, STRING, value[0]) + _field(2, STRING, value[1])
    else:
        data = encoded(kind, value)
    return _varint(number << 3 | _LENGTH) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _decoded(fields: Mapping[int, Field], data: bytes, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError("messages are nested too deep")
    found: dict[str, Any] = {}
    for number, wire, raw in _raw_fields(data):
        f = fields.get(number)
        if f is None:
            continue
        value = _value(f.kind, wire, raw, depth)
        if f.repeats:
            found.setdefault(f.name, []).append(value)
        elif f.kind == TEXT_MAP:
            found.setdefault(f.name, {})[value.get("key", "")] = value.get("value", "")
        else:
            found[f.name] = value
    return found


def _raw_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and content of each field: a number, or the bytes of a value."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        wire = tag & 7
        if wire == _VARINT:
            value, place = _read_varint(data, place)
            yield tag >> 3, wire, value
            continue
        if wire == _LENGTH:
            size, place = _read_varint(data, place)
        elif wire in (_FIXED_64, _FIXED_32):
            size = 8 if wire == _FIXED_64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if size > len(data) - place:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, wire, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for i in range(_LONGEST_VARINT):
        byte = data[place + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, place + i + 1
    raise ValueError("a number is too long")


def _value(kind: str, wire: int, raw: Any, depth: int) -> Any:
    expected = {BOOL: _VARINT, INT: _VARINT, DOUBLE: _FIXED_64}.get(kind, _LENGTH)
    if wire != expected:
        raise ValueError(f"wire type {wire} for {kind}")
    if kind == BOOL:
        return raw != 0
    if kind == INT:
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if kind == DOUBLE:
        return struct.unpack("<d", raw)[0]
    if kind == STRING:
        return raw.decode("utf-8")
    if kind == BYTES:
        return raw
    return _decoded(_MAP_ENTRY if kind == TEXT_MAP else MESSAGES[kind], raw, depth + 1)
