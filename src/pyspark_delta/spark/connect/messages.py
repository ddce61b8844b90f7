"""The messages of Delta's extension of Spark Connect as tables, and their wire format.

Programs of delta-spark send these to a server, so names and numbers are delta-spark's.  Spark's
messages inside of them stay bytes, which the planner of the server reads.  The format is Protocol
Buffers', of which this is the part that the messages need, so a driver needs no library for it.

>>> decoded("DeltaRelation", encoded("DeltaRelation", {"is_delta_table": {"path": "/t"}}))
{'is_delta_table': {'path': '/t'}}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark_delta.kernel.ops.footers.thrift_compact import read_varint, varint
from pyspark_delta.spark.conf.options import illegal_option

STRING, BYTES, BOOL, INT, DOUBLE, TEXT_MAP = "string", "bytes", "bool", "int", "double", "map"
# Wire types of Protocol Buffers.
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_DEEPEST = 50


class MessageField(NamedTuple):
    """A field of a message: its name, a scalar kind or a message, and whether it repeats."""

    name: str
    kind: str
    repeats: bool = False


def _fields(text: str) -> Mapping[int, MessageField]:
    """The fields of a row such as "1 table:DeltaTable 2 names:string*"; a star means repeated."""
    words = text.split()
    found = {}
    for number, row in zip(words[::2], words[1::2], strict=True):
        name, _, kind = row.rstrip("*").partition(":")
        found[int(number)] = MessageField(name, kind, row.endswith("*"))
    return found


_ROWS = {
    # Of Spark's relations, those that hold a Delta table.
    "Relation": "16 subquery_alias:SubqueryAlias 998 extension:Any",
    "SubqueryAlias": "1 input:Relation 2 alias:string",
    "Any": "1 type_url:string 2 value:bytes",
    "Path": "1 path:string 2 hadoop_conf:map",
    "DeltaTable": "1 path:Path 2 table_or_view_name:string",
    "DeltaRelation": """
        1 scan:Scan 2 describe_history:Scan 3 describe_detail:Scan
        4 convert_to_delta:ConvertToDelta 5 restore_table:RestoreTable
        6 is_delta_table:IsDeltaTable 7 delete_from_table:RowChange 8 update_table:RowChange
        9 merge_into_table:MergeIntoTable 10 optimize_table:OptimizeTable""",
    "Scan": "1 table:DeltaTable",
    "ConvertToDelta": """
        1 identifier:string 2 partition_schema_string:string 3 partition_schema_struct:bytes""",
    "RestoreTable": "1 table:DeltaTable 2 version:int 3 timestamp:string",
    "IsDeltaTable": "1 path:string",
    "RowChange": "1 target:bytes 2 condition:bytes 3 assignments:Assignment*",
    "MergeIntoTable": """
        1 target:bytes 2 source:bytes 3 condition:bytes 4 matched_actions:MergeAction*
        5 not_matched_actions:MergeAction* 6 not_matched_by_source_actions:MergeAction*
        7 with_schema_evolution:bool""",
    # Those from 1001 on are not delta-spark's, whose servers refuse such an action.
    "MergeAction": """
        1 condition:bytes 2 delete_action:Assignments 3 update_action:Assignments
        4 update_star_action:Assignments 5 insert_action:Assignments
        6 insert_star_action:Assignments
        1001 update_star_except_action:Names 1002 insert_star_except_action:Names""",
    "Names": "1 columns:string*",
    "Assignments": "1 assignments:Assignment*",
    "Assignment": "1 field:bytes 2 value:bytes",
    "OptimizeTable": "1 table:DeltaTable 2 partition_filters:string* 3 zorder_columns:string*",
    "DeltaCommand": """
        1 clone_table:CloneTable 2 vacuum_table:VacuumTable
        3 upgrade_table_protocol:UpgradeTableProtocol 4 generate:Generate
        5 create_delta_table:CreateDeltaTable 6 add_feature_support:FeatureSupport
        7 drop_feature_support:FeatureSupport""",
    "CloneTable": """
        1 table:DeltaTable 2 target:string 3 version:int 4 timestamp:string 5 is_shallow:bool
        6 replace:bool 7 properties:map""",
    "VacuumTable": "1 table:DeltaTable 2 retention_hours:double",
    "UpgradeTableProtocol": "1 table:DeltaTable 2 reader_version:int 3 writer_version:int",
    "Generate": "1 table:DeltaTable 2 mode:string",
    "CreateDeltaTable": """
        1 mode:int 2 table_name:string 3 location:string 4 comment:string 5 columns:Column*
        6 partitioning_columns:string* 7 properties:map 8 clustering_columns:string*""",
    "Column": """
        1 name:string 2 data_type:bytes 3 nullable:bool 4 generated_always_as:string
        5 comment:string 6 identity_info:IdentityInfo""",
    "IdentityInfo": "1 start:int 2 step:int 3 allow_explicit_insert:bool",
    "FeatureSupport": "1 table:DeltaTable 2 feature_name:string 3 truncate_history:bool",
}
MESSAGES: Mapping[str, Mapping[int, MessageField]] = {
    name: _fields(row) for name, row in _ROWS.items()
}
_MAP_ENTRY = {1: MessageField("key", STRING), 2: MessageField("value", STRING)}
PACKAGE = "delta.connect"
"""The package of the messages in Protocol Buffers."""


def encoded(message: str, values: Mapping[str, Any]) -> bytes:
    """A message on the wire; fields that have no value, or None, are left out."""
    parts: list[bytes] = []
    for number, f in MESSAGES[message].items():
        value = values.get(f.name)
        if value is None:
            continue
        for each in value if f.repeats else value.items() if f.kind == TEXT_MAP else (value,):
            parts.append(_field(number, f.kind, each))
    return b"".join(parts)


def decoded(message: str, data: bytes) -> dict[str, Any]:
    """The fields of a message that are there; unknown ones are left out.

    Raises PropertyError for bytes that are no such message.
    """
    try:
        return _decoded(MESSAGES[message], data, 0)
    except (ValueError, IndexError, UnicodeDecodeError, struct.error) as error:
        reason = "is not a message of Delta's protocol for Spark Connect"
        raise illegal_option(message, f"{len(data)} bytes", reason) from error


def _field(number: int, kind: str, value: Any) -> bytes:
    if kind in (BOOL, INT):
        return varint(number << 3 | _VARINT) + varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
    if kind == DOUBLE:
        return varint(number << 3 | _FIXED_64) + struct.pack("<d", value)
    if kind == STRING:
        data = str(value).encode("utf-8")
    elif kind == BYTES:
        data = bytes(value)
    elif kind == TEXT_MAP:
        data = _field(1, STRING, value[0]) + _field(2, STRING, value[1])
    else:
        data = encoded(kind, value)
    return varint(number << 3 | _LENGTH) + varint(len(data)) + data


def _decoded(fields: Mapping[int, MessageField], data: bytes, depth: int) -> dict[str, Any]:
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
    # IndexError for a longer number, which would take ever longer to read.
    value, length = read_varint(data[place : place + _LONGEST_VARINT], 0)
    return value, place + length


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
