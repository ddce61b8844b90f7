"""Enables and disables Delta in a Spark session."""
