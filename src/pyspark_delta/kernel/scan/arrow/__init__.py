"""Types and values of a table in Arrow, and the projection of a file onto its columns."""
