"""How each action is spelt in JSON: a table of its fields, in the order delta-spark writes them.

PROTOCOL.md, "Actions".

>>> [field.key for field in TXN]
['appId', 'version', 'lastUpdated']
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_delta.kernel.protocol.action_parts import (
    DeletionVectorDescriptor,
    Format,
    JobInfo,
    NotebookInfo,
)
from pyspark_delta.kernel.protocol.codec import (
    Field,
    boolean,
    frozen_map,
    integer,
    raw_map,
    record,
    string_map,
    string_tuple,
    text,
    write_record,
    write_tuple,
)

_PATH = Field("path", "path", text, required=True)
_PARTITION_VALUES = Field("partitionValues", "partition_values", string_map, frozen_map)
_TAGS = Field("tags", "tags", string_map, frozen_map)
_DELETION_VECTOR = Field(
    "deletionVector", "deletion_vector", record(DeletionVectorDescriptor), write_record
)
_ROW_IDS = (
    Field("baseRowId", "base_row_id", integer),
    Field("defaultRowCommitVersion", "default_row_commit_version", integer),
)
ADD = (
    _PATH,
    replace(_PARTITION_VALUES, always=True),
    Field("size", "size", integer, required=True),
    Field("modificationTime", "modification_time", integer, required=True),
    Field("dataChange", "data_change", boolean, required=True),
    Field("stats", "stats", text),
    _TAGS,
    _DELETION_VECTOR,
    *_ROW_IDS,
    Field("clusteringProvider", "clustering_provider", text),
)
REMOVE = (
    _PATH,
    Field("deletionTimestamp", "deletion_timestamp", integer),
    Field("dataChange", "data_change", boolean),
    Field("extendedFileMetadata", "extended_file_metadata", boolean),
    _PARTITION_VALUES,
    Field("size", "size", integer),
    _TAGS,
    _DELETION_VECTOR,
    *_ROW_IDS,
    Field("stats", "stats", text),
)
CDC = (
    _PATH,
    replace(_PARTITION_VALUES, always=True),
    Field("size", "size", integer, required=True),
    _TAGS,
    Field("dataChange", "data_change", boolean),
)
METADATA = (
    Field("id", "id", text, required=True),
    Field("name", "name", text),
    Field("description", "description", text),
    Field("format", "format", record(Format), write_record),
    Field("schemaString", "schema_string", text),
    Field("partitionColumns", "partition_columns", string_tuple, write_tuple),
    Field("configuration", "configuration", string_map, frozen_map),
    Field("createdTime", "created_time", integer),
)
PROTOCOL = (
    Field("minReaderVersion", "min_reader_version", integer, required=True),
    Field("minWriterVersion", "min_writer_version", integer, required=True),
    Field("readerFeatures", "reader_features", string_tuple, write_tuple),
    Field("writerFeatures", "writer_features", string_tuple, write_tuple),
)
TXN = (
    Field("appId", "app_id", text, required=True),
    Field("version", "version", integer, required=True),
    Field("lastUpdated", "last_updated", integer),
)
DOMAIN_METADATA = (
    Field("domain", "domain", text, required=True),
    Field("configuration", "configuration", text, required=True),
    Field("removed", "removed", boolean, required=True),
)
CHECKPOINT_METADATA = (
    Field("version", "version", integer, required=True),
    _TAGS,
)
SIDECAR = (
    _PATH,
    Field("sizeInBytes", "size_in_bytes", integer, required=True),
    Field("modificationTime", "modification_time", integer, required=True),
    _TAGS,
)
COMMIT_INFO = (
    Field("version", "version", integer),
    Field("inCommitTimestamp", "in_commit_timestamp", integer),
    Field("timestamp", "timestamp", integer),
    Field("userId", "user_id", text),
    Field("userName", "user_name", text),
    Field("operation", "operation", text),
    Field("operationParameters", "operation_parameters", raw_map),
    Field("job", "job", record(JobInfo), write_record),
    Field("notebook", "notebook", record(NotebookInfo), write_record),
    Field("clusterId", "cluster_id", text),
    Field("readVersion", "read_version", integer),
    Field("isolationLevel", "isolation_level", text),
    Field("isBlindAppend", "is_blind_append", boolean),
    Field("dataChange", "data_change", boolean),
    Field("operationMetrics", "operation_metrics", string_map, frozen_map),
    Field("userMetadata", "user_metadata", text),
    Field("tags", "tags", string_map, frozen_map),
    Field("engineInfo", "engine_info", text),
    Field("txnId", "txn_id", text),
)
