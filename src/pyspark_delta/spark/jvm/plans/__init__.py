"""Catalyst's logical plans, and facts about the DataFrames over them."""
