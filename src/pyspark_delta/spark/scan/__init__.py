"""Reads: a version of a table as a DataFrame, and rows by file and position."""
