"""Transactions on a table: reads, actions, conflicts with other commits, and hooks."""
