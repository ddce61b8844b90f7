"""Convert the files of a Parquet directory to the files of a table."""
