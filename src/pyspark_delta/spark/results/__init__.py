"""DataFrames that commands return: history, detail, metrics."""
