"""Delta Lake in Python, on Spark, with no JAR.

`DeltaLog` is the way into a table without Spark; importing it imports no PySpark.  The actions of
a log are in `pyspark_delta.actions`.
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
    from pyspark_delta.spark.api.table import DeltaTable
    from pyspark_delta.spark.changes.feed import table_changes, table_changes_by_path
    from pyspark_delta.spark.conf.options import DeltaOptions
    from pyspark_delta.spark.convert.command import ConvertToDeltaCommand
    from pyspark_delta.spark.convert.report import ConvertReport
    from pyspark_delta.spark.datasource.source import DefaultSource
    from pyspark_delta.spark.session.builder import configure_spark_with_delta_pip
    from pyspark_delta.spark.session.enable import disable, enable
    from pyspark_delta.spark.streaming.sink import DeltaSink

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
    "ConvertReport": "pyspark_delta.spark.convert.report",
    "ConvertToDeltaCommand": "pyspark_delta.spark.convert.command",
    "DefaultSource": "pyspark_delta.spark.datasource.source",
    "DeltaLog": "pyspark_delta.kernel.txn.delta_log",
    "DeltaOptions": "pyspark_delta.spark.conf.options",
    "DeltaSink": "pyspark_delta.spark.streaming.sink",
    "DeltaTable": "pyspark_delta.spark.api.table",
    "OptimisticTransaction": "pyspark_delta.kernel.txn.transaction",
    "Snapshot": "pyspark_delta.kernel.log.snapshot",
    "configure_spark_with_delta_pip": "pyspark_delta.spark.session.builder",
    "disable": "pyspark_delta.spark.session.enable",
    "enable": "pyspark_delta.spark.session.enable",
    "install_as_delta": "pyspark_delta.delta_package",
    "table_changes": "pyspark_delta.spark.changes.feed",
    "table_changes_by_path": "pyspark_delta.spark.changes.feed",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
