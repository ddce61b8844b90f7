"""Delta on Spark: translate, build DataFrames, hand actions to the kernel."""
