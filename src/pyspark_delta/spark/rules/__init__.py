"""Rules of a table for its rows: constraints, generated and default columns, casts."""
