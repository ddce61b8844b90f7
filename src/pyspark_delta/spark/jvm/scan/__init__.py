"""Spark's Parquet scan over the files that a log names."""
