"""Plan file layouts: bins of files to rewrite together, and orders of rows for clustering."""
