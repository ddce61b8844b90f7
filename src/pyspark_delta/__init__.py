"""Delta Lake in Python, on Spark, with no JAR.

`DeltaLog` is the way into a table without Spark; importing it imports no PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from pyspark_delta.kernel.txn.delta_log import DeltaLog
    from pyspark_delta.spark.session import disable, enable

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
    "disable",
    "enable",
]

# Spark imports every package called `pyspark_*` in search of data sources, also in sessions that
# never touch Delta: what costs time to import is imported when it is named.
_LAZY = {
    "DeltaLog": "pyspark_delta.kernel.txn.delta_log",
    "disable": "pyspark_delta.spark.session",
    "enable": "pyspark_delta.spark.session",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
