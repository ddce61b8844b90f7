"""`DeltaTable` and what belongs to it: the names of delta-spark's `delta.tables`."""

from pyspark_delta.spark.api.merge_builder import DeltaMergeBuilder
from pyspark_delta.spark.api.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.api.table import DeltaTable, DeltaTableBuilder
from pyspark_delta.spark.api.table_builder import IdentityGenerator

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
