"""Statements parsed by Spark's own parser, and read from its plans."""
