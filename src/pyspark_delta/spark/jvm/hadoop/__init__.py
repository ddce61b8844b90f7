"""Hadoop: its configuration, its file systems, and their errors."""
