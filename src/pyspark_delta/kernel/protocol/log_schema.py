"""The schema of a line of the log: one nullable struct per kind of action.

`log_schema` begins with the fields that delta-spark's `Action.logSchema` always had, in their
order; what later versions of the protocol added follows them, struct by struct.  Reading and
writing lines is in `actions`; this is the shape, for those who want the log as a table.
PROTOCOL.md, "Actions" and "Checkpoint Schema".

>>> print(tree_string(StructType((log_schema["txn"],))), end="")
root
 |-- txn: struct (nullable = true)
 |    |-- appId: string (nullable = true)
 |    |-- version: long (nullable = false)
 |    |-- lastUpdated: long (nullable = true)
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_delta.kernel.protocol.types import (
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    type_name,
)

_STRINGS = MapType(STRING, STRING)


def _required(name: str, data_type: DataType) -> StructField:
    return StructField(name, data_type, nullable=False)


def _struct(name: str, *fields: StructField) -> StructField:
    return StructField(name, StructType(fields))


_TAGS = StructField("tags", _STRINGS)
_PARTITION_VALUES = StructField("partitionValues", _STRINGS)
_DELETION_VECTOR = _struct(
    "deletionVector",
    StructField("storageType", STRING),
    StructField("pathOrInlineDv", STRING),
    StructField("offset", INTEGER),
    _required("sizeInBytes", INTEGER),
    _required("cardinality", LONG),
    StructField("maxRowIndex", LONG),
)
_ROW_IDS = (StructField("baseRowId", LONG), StructField("defaultRowCommitVersion", LONG))

_TXN = _struct(
    "txn",
    StructField("appId", STRING),
    _required("version", LONG),
    StructField("lastUpdated", LONG),
)
_ADD = _struct(
    "add",
    StructField("path", STRING),
    _PARTITION_VALUES,
    _required("size", LONG),
    _required("modificationTime", LONG),
    _required("dataChange", BOOLEAN),
    StructField("stats", STRING),
    _TAGS,
    _DELETION_VECTOR,
    *_ROW_IDS,
    StructField("clusteringProvider", STRING),
)
_REMOVE = _struct(
    "remove",
    StructField("path", STRING),
    StructField("deletionTimestamp", LONG),
    _required("dataChange", BOOLEAN),
    _required("extendedFileMetadata", BOOLEAN),
    _PARTITION_VALUES,
    _required("size", LONG),
    _TAGS,
    _DELETION_VECTOR,
    *_ROW_IDS,
    StructField("stats", STRING),
)
_METADATA = _struct(
    "metaData",
    StructField("id", STRING),
    StructField("name", STRING),
    StructField("description", STRING),
    _struct("format", StructField("provider", STRING), StructField("options", _STRINGS)),
    StructField("schemaString", STRING),
    StructField("partitionColumns", ArrayType(STRING)),
    StructField("configuration", _STRINGS),
    StructField("createdTime", LONG),
)
_PROTOCOL = _struct(
    "protocol",
    _required("minReaderVersion", INTEGER),
    _required("minWriterVersion", INTEGER),
    StructField("readerFeatures", ArrayType(STRING)),
    StructField("writerFeatures", ArrayType(STRING)),
)
_CDC = _struct(
    "cdc",
    StructField("path", STRING),
    _PARTITION_VALUES,
    _required("size", LONG),
    _TAGS,
)
_COMMIT_INFO = _struct(
    "commitInfo",
    StructField("version", LONG),
    StructField("timestamp", TIMESTAMP),
    StructField("userId", STRING),
    StructField("userName", STRING),
    StructField("operation", STRING),
    StructField("operationParameters", _STRINGS),
    _struct(
        "job",
        StructField("jobId", STRING),
        StructField("jobName", STRING),
        StructField("runId", STRING),
        StructField("jobOwnerId", STRING),
        StructField("triggerType", STRING),
        StructField("jobRunId", STRING),
    ),
    _struct("notebook", StructField("notebookId", STRING)),
    StructField("clusterId", STRING),
    StructField("readVersion", LONG),
    StructField("isolationLevel", STRING),
    StructField("isBlindAppend", BOOLEAN),
    StructField("operationMetrics", _STRINGS),
    StructField("userMetadata", STRING),
    StructField("inCommitTimestamp", LONG),
    _TAGS,
    StructField("engineInfo", STRING),
    StructField("txnId", STRING),
    StructField("dataChange", BOOLEAN),
)
_CHECKPOINT_METADATA = _struct("checkpointMetadata", _required("version", LONG), _TAGS)
_SIDECAR = _struct(
    "sidecar",
    StructField("path", STRING),
    _required("sizeInBytes", LONG),
    _required("modificationTime", LONG),
    _TAGS,
)
_DOMAIN_METADATA = _struct(
    "domainMetadata",
    StructField("domain", STRING),
    StructField("configuration", STRING),
    _required("removed", BOOLEAN),
)

log_schema = StructType(
    (
        _TXN,
        _ADD,
        _REMOVE,
        _METADATA,
        _PROTOCOL,
        _CDC,
        _COMMIT_INFO,
        _CHECKPOINT_METADATA,
        _SIDECAR,
        _DOMAIN_METADATA,
    )
)
"""Every kind of action and every field it can have, as a Spark schema spells them."""


def tree_string(schema: StructType) -> str:
    """The schema as Spark's `printTreeString` prints it."""
    return "".join(f"{line}\n" for line in ("root", *_struct_lines(schema, " |")))


def _struct_lines(struct: StructType, prefix: str) -> Iterator[str]:
    for f in struct:
        yield f"{prefix}-- {f.name}: {type_name(f.data_type)} (nullable = {_flag(f.nullable)})"
        yield from _nested_lines(f.data_type, f"{prefix}    |")


def _nested_lines(data_type: DataType, prefix: str) -> Iterator[str]:
    match data_type:
        case StructType():
            yield from _struct_lines(data_type, prefix)
        case ArrayType(element_type=element, contains_null=contains_null):
            yield (
                f"{prefix}-- element: {type_name(element)} (containsNull = {_flag(contains_null)})"
            )
            yield from _nested_lines(element, f"{prefix}    |")
        case MapType(key_type=key, value_type=value, value_contains_null=contains_null):
            yield f"{prefix}-- key: {type_name(key)}"
            yield from _nested_lines(key, f"{prefix}    |")
            yield (
                f"{prefix}-- value: {type_name(value)} (valueContainsNull = {_flag(contains_null)})"
            )
            yield from _nested_lines(value, f"{prefix}    |")
        case _:
            return


def _flag(value: bool) -> str:
    return "true" if value else "false"
