"""Read footers of Parquet files, and make statistics of them."""
