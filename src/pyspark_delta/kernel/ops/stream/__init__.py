"""Streaming reads of a table: offsets, limits, the schema log, and one run of a stream."""
