"""`DeltaTable` and what belongs to it: the names of delta-spark's `delta.tables`."""

from pyspark_delta.spark.tables import DeltaTable

__all__ = ["DeltaTable"]
