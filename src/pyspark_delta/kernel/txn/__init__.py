"""Changing a table: what was read, what will be written, who else was there."""
