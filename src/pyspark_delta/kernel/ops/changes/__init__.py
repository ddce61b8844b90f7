"""The commits of a table between two versions, and the rows that they change."""
