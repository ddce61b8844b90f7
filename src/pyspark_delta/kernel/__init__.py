"""Delta Lake without Spark: the protocol, the log, scans and transactions, on Arrow."""
