"""Types of columns as users give them, CHAR(n) and VARCHAR(n) among them, as a table keeps them."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.gateway import JvmSession

_TYPES = "org.apache.spark.sql.types"


def stored_columns(jvm: JvmSession, schema: SparkStructType) -> StructType:
    """The columns with STRING, and Spark's mark, for what is CHAR or VARCHAR."""
    found = jvm.static(f"{_TYPES}.DataType", "fromJson")(schema.json())
    return stored_schema(jvm, found)


def stored_column_type(jvm: JvmSession, name: str, text: str) -> StructType:
    """A column of the type that `text` spells; Spark's own error when it is none."""
    kind = jvm.session.sessionState().sqlParser().parseDataType(text)
    metadata = jvm.java_class(f"{_TYPES}.Metadata$").empty()
    field = jvm.java_class(f"{_TYPES}.StructField")
    columns = jvm.array(field, [field(name, kind, True, metadata)])
    return stored_schema(jvm, jvm.java_class(f"{_TYPES}.StructType")(columns))


def stored_schema(jvm: JvmSession, schema: Any) -> StructType:
    """A schema of Spark's as a table keeps it; CHAR(n) and VARCHAR(n) are STRING with a mark."""
    plain = jvm.static(
        "org.apache.spark.sql.catalyst.util.CharVarcharUtils",
        "replaceCharVarcharWithStringInSchema",
    )(schema)
    parsed = parse_type(json.loads(plain.json()))
    assert isinstance(parsed, StructType)
    return parsed
