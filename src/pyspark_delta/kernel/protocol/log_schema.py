"""The schema of a line of the log: one nullable struct per kind of action.

`log_schema` begins with the fields that delta-spark's `Action.logSchema` always had, in their
order; fields of later versions of the protocol follow them, struct by struct.  This schema is for
reading the log as a table; `actions` reads and writes lines.
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
    PRIMITIVES,
    STRING,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

# By action: its fields with their types; `!` marks those that are never null.
_ACTIONS = {
    "txn": "appId string, version long!, lastUpdated long",
    "add": "path string, partitionValues map, size long!, modificationTime long!,"
    " dataChange boolean!, stats string, tags map, deletionVector vector, baseRowId long,"
    " defaultRowCommitVersion long, clusteringProvider string",
    "remove": "path string, deletionTimestamp long, dataChange boolean!,"
    " extendedFileMetadata boolean!, partitionValues map, size long!, tags map,"
    " deletionVector vector, baseRowId long, defaultRowCommitVersion long, stats string",
    "metaData": "id string, name string, description string, format format, schemaString string,"
    " partitionColumns list, configuration map, createdTime long",
    "protocol": "minReaderVersion integer!, minWriterVersion integer!, readerFeatures list,"
    " writerFeatures list",
    "cdc": "path string, partitionValues map, size long!, tags map",
    "commitInfo": "version long, timestamp timestamp, userId string, userName string,"
    " operation string, operationParameters map, job job, notebook notebook, clusterId string,"
    " readVersion long, isolationLevel string, isBlindAppend boolean, operationMetrics map,"
    " userMetadata string, inCommitTimestamp long, tags map, engineInfo string, txnId string,"
    " dataChange boolean",
    "checkpointMetadata": "version long!, tags map",
    "sidecar": "path string, sizeInBytes long!, modificationTime long!, tags map",
    "domainMetadata": "domain string, configuration string, removed boolean!",
}


def _struct(fields: str) -> StructType:
    parsed = (f.split() for f in fields.split(","))
    return StructType(
        tuple(
            StructField(name, _TYPES[kind.rstrip("!")], not kind.endswith("!"))
            for name, kind in parsed
        )
    )


_TYPES: dict[str, DataType] = {
    **{name: PrimitiveType(name) for name in PRIMITIVES},
    "map": MapType(STRING, STRING),
    "list": ArrayType(STRING),
}
_TYPES |= {
    "vector": _struct(
        "storageType string, pathOrInlineDv string, offset integer, sizeInBytes integer!,"
        " cardinality long!, maxRowIndex long"
    ),
    "format": _struct("provider string, options map"),
    "job": _struct(
        "jobId string, jobName string, runId string, jobOwnerId string, triggerType string,"
        " jobRunId string"
    ),
    "notebook": _struct("notebookId string"),
}
log_schema = StructType(tuple(StructField(key, _struct(text)) for key, text in _ACTIONS.items()))
"""Every kind of action with all its fields, as a Spark schema."""


def tree_string(schema: StructType) -> str:
    """The schema as Spark's `printTreeString` prints it."""
    return "".join(f"{line}\n" for line in ("root", *_struct_lines(schema, " |")))


def _struct_lines(struct: StructType, prefix: str) -> Iterator[str]:
    for f in struct:
        yield f"{prefix}-- {f.name}: {type_name(f.data_type)}{_flag('nullable', f.nullable)}"
        yield from _nested_lines(f.data_type, f"{prefix}    |")


def _nested_lines(data_type: DataType, prefix: str) -> Iterator[str]:
    match data_type:
        case StructType():
            yield from _struct_lines(data_type, prefix)
        case ArrayType(element, contains_null):
            yield f"{prefix}-- element: {type_name(element)}{_flag('containsNull', contains_null)}"
            yield from _nested_lines(element, f"{prefix}    |")
        case MapType(key, value, contains_null):
            yield f"{prefix}-- key: {type_name(key)}"
            yield from _nested_lines(key, f"{prefix}    |")
            yield f"{prefix}-- value: {type_name(value)}{_flag('valueContainsNull', contains_null)}"
            yield from _nested_lines(value, f"{prefix}    |")


def _flag(name: str, value: bool) -> str:
    return f" ({name} = {str(value).lower()})"
