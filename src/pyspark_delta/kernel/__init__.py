"""Delta Lake without Spark: the protocol, the log, scans and transactions, on Arrow.

The actions of a log are public here and in `pyspark_delta.actions`.

>>> Protocol().min_reader_version
1
"""

from pyspark_delta.kernel.protocol.action_parts import Format
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SingleAction,
)

__all__ = [
    "Action",
    "AddCDCFile",
    "AddFile",
    "CommitInfo",
    "Format",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "SingleAction",
]
