"""Spark's catalogs: entries, relations, functions."""
