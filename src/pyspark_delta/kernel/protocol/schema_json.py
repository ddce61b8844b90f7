"""Parse and format the JSON string of a schema, as in `metaData.schemaString`.

Depth is bounded, so that a hostile schema cannot exhaust the stack.  PROTOCOL.md, "Schema
Serialization Format".

>>> text = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'
>>> format_schema(parse_schema(text)) == text
True
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.codec import dumps
from pyspark_delta.kernel.protocol.types import (
    PRIMITIVES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

MAX_DEPTH = 100
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")
# Names that older or other writers use for a type.
_ALIASES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}
_OPEN_NAMES = re.compile(
    r"interval( \w+)*|char\(\d+\)|varchar\(\d+\)|geometry(\(.*\))?|geography(\(.*\))?"
)


def parse_schema(text: str) -> StructType:
    """The struct in `text`; its top level names must be unique, ignoring case."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _invalid(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _invalid(f"it is not JSON: {error}") from None
    parsed = parse_type(value)
    if not isinstance(parsed, StructType):
        raise _invalid("it is not a struct")
    return parsed


def parse_type(value: Any, depth: int = 0) -> DataType:
    """The type in a JSON value (text or object), `depth` levels below the whole one."""
    if depth > MAX_DEPTH:
        raise _invalid(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return _parse_name(value)
    if not isinstance(value, dict):
        raise _invalid(f"a type is a name or an object, not {_shortened(value)}")
    match value.get("type"):
        case "struct":
            return _parse_struct(value, depth)
        case "array":
            return ArrayType(
                parse_type(value.get("elementType"), depth + 1),
                bool(value.get("containsNull", True)),
            )
        case "map":
            return MapType(
                parse_type(value.get("keyType"), depth + 1),
                parse_type(value.get("valueType"), depth + 1),
                bool(value.get("valueContainsNull", True)),
            )
        case "udt":
            # A user-defined type is read as its SQL type; only Spark needs its class.
            return parse_type(value.get("sqlType"), depth + 1)
        case other:
            raise _invalid(f"there is no type {_shortened(other)}")


def format_schema(schema: StructType) -> str:
    """The JSON text of `schema`, as Spark writes it."""
    return dumps(type_json(schema))


def type_json(data_type: DataType) -> Any:
    """The JSON value of a type: a name, or an object for the nested ones."""
    match data_type:
        case StructType(fields=fields):
            return {"type": "struct", "fields": [_field_json(f) for f in fields]}
        case ArrayType(element_type=element, contains_null=contains_null):
            return {
                "type": "array",
                "elementType": type_json(element),
                "containsNull": contains_null,
            }
        case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            return {
                "type": "map",
                "keyType": type_json(key),
                "valueType": type_json(value),
                "valueContainsNull": contains_null,
            }
        case PrimitiveType(name=name):
            return name
        case _:
            return data_type.simple_string


def _field_json(f: StructField) -> dict[str, Any]:
    return {
        "name": f.name,
        "type": type_json(f.data_type),
        "nullable": f.nullable,
        "metadata": dict(f.metadata),
    }


def _invalid(reason: str) -> SchemaError:
    return SchemaError("DELTA_INVALID_SCHEMA_JSON", reason=reason)


def _parse_name(name: str) -> DataType:
    if name in PRIMITIVES:
        return PrimitiveType(name)
    if name in _ALIASES:
        return PrimitiveType(_ALIASES[name])
    if name == "null":
        return PrimitiveType("void")
    if name == "decimal":
        return DecimalType(10, 0)
    if match := _DECIMAL.fullmatch(name):
        try:
            return DecimalType(int(match[1]), int(match[2]))
        except ValueError as error:
            raise _invalid(str(error)) from None
    if _OPEN_NAMES.fullmatch(name):
        return PrimitiveType(name)
    if name.startswith("string collate "):
        return PrimitiveType("string")
    raise _invalid(f"there is no type {_shortened(name)}")


def _parse_struct(value: dict[str, Any], depth: int) -> StructType:
    fields = value.get("fields")
    if not isinstance(fields, list):
        raise _invalid("a struct needs a list of fields")
    parsed = tuple(_parse_field(f, depth) for f in fields)
    seen: set[str] = set()
    for f in parsed:
        if f.name.lower() in seen:
            raise SchemaError("DELTA_DUPLICATE_COLUMNS_FOUND", duplicateCols=f.name)
        seen.add(f.name.lower())
    return StructType(parsed)


def _parse_field(value: Any, depth: int) -> StructField:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _invalid(f"a field needs a name: {_shortened(value)}")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise _invalid(f"the metadata of field {_shortened(value['name'])} is not an object")
    nullable = value.get("nullable", True)
    if not isinstance(nullable, bool):
        raise _invalid(f"`nullable` of field {_shortened(value['name'])} is not true or false")
    return StructField(value["name"], parse_type(value.get("type"), depth + 1), nullable, metadata)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
