"""Readers and writers of checkpoints of every kind."""
