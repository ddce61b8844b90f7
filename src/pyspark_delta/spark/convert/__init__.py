"""CONVERT TO DELTA: lists the files, reads their footers, and commits them as actions."""
