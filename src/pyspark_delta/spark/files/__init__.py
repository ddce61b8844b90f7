"""Rows to data files: Spark's writer, its options, statistics, files that await a commit."""
