"""The Python data source `delta`, for sessions without `enable` and for Spark Connect."""
