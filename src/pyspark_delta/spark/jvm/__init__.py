"""The only code that knows Py4J and Spark's inner classes."""
