"""The part of `DeltaTable` that is about what clients of the table must know."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import TableName, look_up_relation
from pyspark_delta.spark.commands.alter_properties import run_set_properties
from pyspark_delta.spark.commands.drop_feature import run_drop
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.table_arguments import check_flag, check_text, whole_number


@raises_spark_errors
class FeatureMethods(ABC):
    """Protocol and features of a table that a handle knows by its path or its name."""

    _spark: SparkSession
    _root: str
    _name: str | None

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Let the table ask for these versions of its clients; it never asks for less again."""
        reader = whole_number(readerVersion, "readerVersion")
        writer = whole_number(writerVersion, "writerVersion")
        self._set({MIN_READER_VERSION.key: str(reader), MIN_WRITER_VERSION.key: str(writer)})

    def addFeatureSupport(self, featureName: str) -> None:
        """Let the table support a feature, and its clients know it."""
        check_text(featureName, "featureName")
        self._set({FEATURE_PREFIX + featureName: "supported"}, told_as_given=True)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Free the table of a feature, so that clients need not know it.

        Older versions of a feature that readers know are kept behind checkpoints; with
        `truncateHistory` they are deleted, for which they must be a day old.
        """
        check_text(featureName, "featureName")
        if truncateHistory is not None:
            check_flag(truncateHistory, "truncateHistory")
        run_drop(
            self._spark, self._whole_log(), featureName, truncate_history=bool(truncateHistory)
        )

    def _set(self, properties: dict[str, str], *, told_as_given: bool = False) -> None:
        log = self._whole_log()
        name = self._table_name()
        run_set_properties(self._spark, name, properties, log, told_as_given=told_as_given)

    def _table_name(self) -> TableName:
        """The table as statements know it."""
        if self._name is None:
            return TableName(path=self._root)
        found = look_up_relation(self._spark, self._name)
        if found is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=self._name)
        return found

    @abstractmethod
    def _whole_log(self) -> DeltaLog:
        """The log, for a command that changes the table and not a partition of it."""
