"""Plan scans, and read their rows as Arrow."""
