"""Structured Streaming: Delta tables as sinks and sources of streaming queries."""
