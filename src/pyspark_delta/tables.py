"""`DeltaTable` and what belongs to it: the names of delta-spark's `delta.tables`."""

from pyspark_delta.spark.merge_builder import DeltaMergeBuilder
from pyspark_delta.spark.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.table_builder import IdentityGenerator
from pyspark_delta.spark.tables import DeltaTable, DeltaTableBuilder

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
