"""Change a table's schema by the paths of its columns."""
