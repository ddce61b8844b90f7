"""Catalyst's expressions and types."""
