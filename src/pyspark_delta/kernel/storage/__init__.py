"""The stores that hold a table's files, and the URIs of files."""
