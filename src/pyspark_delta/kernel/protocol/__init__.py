"""PROTOCOL.md in Python: values and rules.  No I/O, no clock, no Arrow."""
