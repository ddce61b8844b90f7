"""Delta Lake in Python, on Spark, with no JAR."""
