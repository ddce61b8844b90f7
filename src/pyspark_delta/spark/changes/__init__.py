"""The change feed of a table, and changes by the ids of rows."""
