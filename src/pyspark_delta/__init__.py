"""Delta Lake in Python, on Spark, with no JAR.

`DeltaLog` is the way into a table without Spark; importing it imports no PySpark.  What a line of
the log says is in `pyspark_delta.actions`.
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
    from pyspark_delta.delta_package import install_as_delta
    from pyspark_delta.kernel.log.snapshot import Snapshot
    from pyspark_delta.kernel.txn.delta_log import DeltaLog
    from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
    from pyspark_delta.spark.commands.change_feed import table_changes, table_changes_by_path
    from pyspark_delta.spark.commands.convert import ConvertToDeltaCommand
    from pyspark_delta.spark.commands.convert_report import ConvertReport
    from pyspark_delta.spark.datasource import DefaultSource
    from pyspark_delta.spark.options import DeltaOptions
    from pyspark_delta.spark.pip import configure_spark_with_delta_pip
    from pyspark_delta.spark.session import disable, enable
    from pyspark_delta.spark.streaming.sink import DeltaSink
    from pyspark_delta.spark.tables import DeltaTable

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "ConvertReport",
    "ConvertToDeltaCommand",
    "DefaultSource",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "DeltaLog",
    "DeltaOptions",
    "DeltaSink",
    "DeltaTable",
    "MetadataChangedException",
    "OptimisticTransaction",
    "ProtocolChangedException",
    "Snapshot",
    "configure_spark_with_delta_pip",
    "disable",
    "enable",
    "install_as_delta",
    "table_changes",
    "table_changes_by_path",
]

# Spark imports every package called `pyspark_*` in search of data sources, also in sessions that
# never touch Delta: what costs time to import is imported when it is named.
_LAZY = {
    "ConvertReport": "pyspark_delta.spark.commands.convert_report",
    "ConvertToDeltaCommand": "pyspark_delta.spark.commands.convert",
    "DefaultSource": "pyspark_delta.spark.datasource",
    "DeltaLog": "pyspark_delta.kernel.txn.delta_log",
    "DeltaOptions": "pyspark_delta.spark.options",
    "DeltaSink": "pyspark_delta.spark.streaming.sink",
    "DeltaTable": "pyspark_delta.spark.tables",
    "OptimisticTransaction": "pyspark_delta.kernel.txn.transaction",
    "Snapshot": "pyspark_delta.kernel.log.snapshot",
    "configure_spark_with_delta_pip": "pyspark_delta.spark.pip",
    "disable": "pyspark_delta.spark.session",
    "enable": "pyspark_delta.spark.session",
    "install_as_delta": "pyspark_delta.delta_package",
    "table_changes": "pyspark_delta.spark.commands.change_feed",
    "table_changes_by_path": "pyspark_delta.spark.commands.change_feed",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
