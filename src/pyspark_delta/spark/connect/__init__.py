"""Delta tables over Spark Connect, by the messages of delta-spark's own protocol."""
