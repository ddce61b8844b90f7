"""MERGE: the request, resolution of names and columns, the join, and the files it writes."""
