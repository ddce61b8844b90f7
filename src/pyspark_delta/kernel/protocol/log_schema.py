"""The schema of a line of the log: one nullable struct per kind of action.

`log_schema` begins with the fields that delta-spark's `Action.logSchema` always had, in their
order; fields of later versions of the protocol follow them, struct by struct.  This schema is for
reading the log as a table; `actions` reads and writes lines.
PROTOCOL.md, "Actions" and "Checkpoint Schema".

>>> [(f.name, f.nullable) for f in log_schema["txn"].data_type]
[('appId', True), ('version', False), ('lastUpdated', True)]
"""

from __future__ import annotations

from pyspark_delta.kernel.protocol import types

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


def _struct(fields: str) -> types.StructType:
    parsed = (f.split() for f in fields.split(","))
    return types.StructType(
        tuple(
            types.StructField(name, _TYPES[kind.rstrip("!")], not kind.endswith("!"))
            for name, kind in parsed
        )
    )


_TYPES: dict[str, types.DataType] = {
    **{name: types.PrimitiveType(name) for name in types.PRIMITIVES},
    "map": types.MapType(types.STRING, types.STRING),
    "list": types.ArrayType(types.STRING),
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
log_schema = types.StructType(
    tuple(types.StructField(key, _struct(text)) for key, text in _ACTIONS.items())
)
"""Every kind of action with all its fields, as a Spark schema."""
