"""Delta Lake in Python, on Spark, with no JAR.

`DeltaLog` is the way into a table without Spark; importing it imports no PySpark.
"""

from pyspark_delta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    DeltaError,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "DeltaLog",
    "MetadataChangedException",
    "ProtocolChangedException",
]
