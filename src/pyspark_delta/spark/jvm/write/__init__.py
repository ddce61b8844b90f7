"""Spark's Parquet writer, and the execution that it runs in."""
