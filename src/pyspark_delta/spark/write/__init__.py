"""Writes: append, overwrite, replaceWhere; by path or by table name."""
