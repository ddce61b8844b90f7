"""A real cluster of Spark's own: a master and two workers on loopback."""
