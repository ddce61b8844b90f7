"""The actions of a Delta log, which users read, build and write: one for each line of a commit.

>>> from pyspark_delta.actions import Action, RemoveFile
>>> line = '{"remove":{"path":"a.parquet","deletionTimestamp":9,"dataChange":true}}'
>>> removed = Action.from_json(line)
>>> isinstance(removed, RemoveFile), removed.deletion_timestamp, removed.json == line
(True, 9, True)
>>> removed.wrap.remove is removed, removed.wrap.unwrap() is removed
(True, True)
"""

from pyspark_delta.kernel.protocol.action_parts import (
    DeletionVectorDescriptor,
    Format,
    JobInfo,
    NotebookInfo,
)
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    SingleAction,
)

__all__ = [
    "Action",
    "AddCDCFile",
    "AddFile",
    "CheckpointMetadata",
    "CommitInfo",
    "DeletionVectorDescriptor",
    "DomainMetadata",
    "FileAction",
    "Format",
    "JobInfo",
    "Metadata",
    "NotebookInfo",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "SidecarFile",
    "SingleAction",
]
